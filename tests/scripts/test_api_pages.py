import subprocess
import sys
from pathlib import Path

import pytest

import nagphormer

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_pages.py"


@pytest.mark.slow
def test_every_public_name_has_its_place(tmp_path):
    pytest.importorskip("pdoc")
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    page = (tmp_path / "nagphormer.html").read_text(encoding="utf-8")
    assert [name for name in nagphormer.__all__ if f'id="{name}"' not in page] == []
    assert 'id="NodeClassifier.fit"' in page
