"""What a user's type checker makes of the public names."""

from pathlib import Path

import pytest

import nagphormer

api = pytest.importorskip("mypy.api")
SCRIPT = Path(__file__).with_name("script.py")
WRONG = """from nagphormer import NodeClassifier, TrainConfig, hop_tokens, synthetic_graph
NodeClassifier(nonsense=1)
NodeClassifier(hops="three")
TrainConfig(hopps=3)
hop_tokens(synthetic_graph(9, 9, 2, 2), hops=3, dtype="float")
reveal_type(NodeClassifier().predict)
"""


def test_the_script_uses_every_public_name():
    text = SCRIPT.read_text()
    assert [name for name in nagphormer.__all__ if f"ng.{name}" not in text] == []


@pytest.mark.slow
def test_a_checker_accepts_the_script_and_refuses_what_is_wrong(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    strict = ("--strict", "--config-file=", "--python-version=3.11", "--no-error-summary", "--hide-error-context")
    found, errors, _ = api.run([*strict, str(SCRIPT), str(tmp_path / "wrong.py")])
    assert errors == ""
    lines = [line.partition("wrong.py:")[2] for line in found.splitlines() if " note: " not in line]
    assert [line.partition(":")[0] for line in lines] == ["2", "3", "4", "5"], found
    assert 'Unexpected keyword argument "nonsense" for "NodeClassifier"' in lines[0]
