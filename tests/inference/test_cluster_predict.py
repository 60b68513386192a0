"""A data set of predictions made by Ray's workers must hold what one process predicts."""

import pyarrow.parquet as parquet
import pytest

from nagphormer import UserError, hop_tokens, load_graph, synthetic_graph
from nagphormer.inference import cluster
from nagphormer.inference.predict import open_source
from nagphormer.inference.table import write_predictions
from nagphormer.training.run_folder import load_run

pytest.importorskip("ray", reason="needs the extra cluster")
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
SETTINGS = ("--epochs=2", "--hidden-dim=16", "--num-heads=2", "--hops=2", "--encoding-dim=0", "--project-first=never")


@pytest.fixture
def place(tmp_path, run):
    synthetic_graph(2500, 10_000, 12, 3).save(tmp_path / "graph")
    code, _, error = run("train", "graph", "--out=run", *SETTINGS)
    assert code == 0, error
    return tmp_path


def test_parts_together_are_the_whole_table(place, run, own_cache, monkeypatch):
    monkeypatch.setattr(cluster, "PART_ROWS", 1000)
    trained, graph = load_run(place / "run"), load_graph(place / "graph")
    source = open_source(trained, graph, "cpu", None, place / "run")
    write_predictions(trained, source, graph, place / "whole.parquet")
    for number in range(3):  # as a worker does it
        tokens = next(own_cache.glob("tokens/*/*"))
        parts = cluster.Parts(*map(str, (place / "run", place / "graph", tokens, place)))
        assert parts.write(number) == (1000, 1000, 500)[number]
    parts = [parquet.read_table(path) for path in sorted(place.glob("part-*.parquet"))]
    whole = parquet.read_table(place / "whole.parquet")
    assert [len(part) for part in parts] == [1000, 1000, 500]
    for name in ("node_id", "prediction"):
        assert [value for part in parts for value in part[name].to_pylist()] == whole[name].to_pylist()
    found = [value for part in parts for value in part["probability"].to_pylist()]
    assert found == pytest.approx(whole["probability"].to_pylist(), abs=1e-6)


@pytest.mark.slow
def test_a_local_cluster_writes_a_data_set(place, run):
    code, output, error = run("predict", "run", "graph", "--out=labels", "--cluster")
    assert code == 0, error
    assert "2,500 nodes" in output
    assert [path.name for path in (place / "labels").iterdir()] == ["part-00000.parquet"]
    assert len(parquet.read_table(place / "labels")) == 2500


def test_without_tokens_or_a_graph_folder_it_is_refused(place, own_cache):
    trained, graph = load_run(place / "run"), load_graph(place / "graph")
    with pytest.raises(UserError, match="graph folder"):
        cluster.write_data_set(trained, place / "run", synthetic_graph(2500, 10_000, 12, 3), place / "out", "local")
    next(own_cache.glob("tokens/*/*")).rename(place / "elsewhere")
    with pytest.raises(UserError, match="nagphormer prepare"):
        cluster.write_data_set(trained, place / "run", graph, place / "out", "local")
    other = hop_tokens(graph, 1, out=place / "one-hop", device="cpu")
    with pytest.raises(UserError, match="hops"):
        cluster.write_data_set(trained, place / "run", graph, place / "out", "local", other.path)
    assert not (place / "out").exists()
