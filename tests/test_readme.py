"""The README's blocks are run, in order, in one folder with a small edge list and node table."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    names = [f"user_{number:02d}" for number in range(20)]
    edges = [f"{names[i]},{names[(i + step) % 20]}" for i in range(20) for step in (1, 3)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    nodes = [f"{name},{'odd' if i % 2 else 'even'},train,{i},{i * i}" for i, name in enumerate(names)]
    (folder / "nodes.csv").write_text("id,label,split,age,score\n" + "\n".join(nodes) + "\n")
    return folder


def test_the_readme_has_blocks_of_every_kind():
    assert {"bash", "python", "text"} <= {language for language, _ in BLOCKS}


def test_nothing_is_left_to_be_filled_in():
    assert not re.search(r"\b(RESULTS|DEMO_OUTPUT|TODO|TBD)\b", TEXT)


@pytest.mark.parametrize(("language", "block"), [entry for entry in BLOCKS if entry[0] != "text"])
def test_a_block_of_the_readme_runs(language, block, folder):
    pytest.importorskip("duckdb", reason="needs DuckDB for tables")
    if language == "python":
        subprocess.run([sys.executable, "-c", block], cwd=folder, check=True)
        return
    for line in block.splitlines():
        command, *arguments = shlex.split(line)
        if command == "make":  # what runs these very tests
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        else:
            assert command == "nagphormer"
            subprocess.run([sys.executable, "-m", "nagphormer", *arguments], cwd=folder, check=True)
