"""A data set of predictions made by Ray's workers must hold what one process predicts."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pyarrow.parquet as parquet
import pytest
from examples import write_recipe

from nagphormer import NodeClassifier, UserError, hop_tokens, load_graph, random_split, synthetic_graph
from nagphormer.inference import cluster
from nagphormer.inference.predict import open_source, open_sources
from nagphormer.inference.table import write_predictions
from nagphormer.training.ensemble_folder import load_trained
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


@pytest.fixture
def members(tmp_path, run):
    """A graph and a run of several members in folders."""
    synthetic_graph(600, 2500, 12, 3).save(tmp_path / "graph")
    code, _, error = run("train", "graph", "--out=run", f"--recipe={write_recipe(tmp_path, epochs=2)}")
    assert code == 0, error
    return tmp_path


def test_parts_of_several_members_together_are_the_whole_table(members, own_cache, monkeypatch):
    monkeypatch.setattr(cluster, "PART_ROWS", 250)
    trained, graph = load_trained(members / "run"), load_graph(members / "graph")
    sources = open_sources(trained, graph, "cpu", None, members / "run")
    write_predictions(trained, sources, graph, members / "whole.parquet")
    for number, count in enumerate((250, 250, 100)):  # as a worker does it
        parts = cluster.Parts(*map(str, (members / "run", members / "graph")), None, str(members))
        assert parts.write(number) == count
    tables = [parquet.read_table(path) for path in sorted(members.glob("part-*.parquet"))]
    whole = parquet.read_table(members / "whole.parquet")
    for name in ("node_id", "prediction"):
        assert [value for table in tables for value in table[name].to_pylist()] == whole[name].to_pylist()
    found = [value for table in tables for value in table["probability"].to_pylist()]
    assert found == pytest.approx(whole["probability"].to_pylist(), abs=1e-6)


@pytest.mark.slow
def test_a_local_cluster_predicts_with_several_members(members, run):
    code, _, error = run("predict", "run", "graph", "--out=labels", "--cluster")
    assert code == 0, error
    assert run("predict", "run", "graph", "--out=alone.parquet")[0] == 0
    ours, theirs = (parquet.read_table(members / name) for name in ("labels", "alone.parquet"))
    assert ours["prediction"].to_pylist() == theirs["prediction"].to_pylist()


def test_several_members_want_all_their_tokens_before_any_worker_starts(members, own_cache, monkeypatch):
    monkeypatch.setattr(cluster, "connected", lambda address: pytest.fail("asked the cluster"))
    trained, graph = load_trained(members / "run"), load_graph(members / "graph")
    next(own_cache.glob("tokens/*/*hops0*")).rename(members / "elsewhere")
    with pytest.raises(UserError, match="nagphormer prepare"):
        cluster.write_data_set(trained, members / "run", graph, members / "out", "local")
    with pytest.raises(UserError, match="hops"):
        cluster.write_data_set(trained, members / "run", graph, members / "out", "local", members / "elsewhere")


def test_several_members_of_one_kind_take_the_tokens_that_are_given(tmp_path, run, own_cache, monkeypatch):
    synthetic_graph(600, 2500, 12, 3).save(tmp_path / "graph")
    recipe = write_recipe(tmp_path, {"one": {}, "other": {"network": "linear"}}, epochs=2)
    assert run("train", "graph", "--out=run", f"--recipe={recipe}")[0] == 0
    next(own_cache.glob("tokens/*/*")).rename(tmp_path / "tokens")
    monkeypatch.setattr(cluster, "gather", lambda ray, parts, *_, **__: parts.write(0))  # as a worker does it
    monkeypatch.setattr(cluster, "connected", lambda address: nullcontext())
    monkeypatch.setattr(cluster, "workers", lambda ray: [SimpleNamespace(memory=1)])
    code, _, error = run("predict", "run", "graph", "--out=out", "--tokens=tokens", "--cluster=local")
    assert code == 0, error
    assert len(parquet.read_table(tmp_path / "out")) == 600
    assert not list(own_cache.glob("tokens/*/*"))


def test_tokens_with_other_statistics_are_refused_before_any_worker_starts(tmp_path, own_cache, monkeypatch):
    monkeypatch.setattr(cluster, "connected", lambda address: pytest.fail("asked the cluster"))
    graph = synthetic_graph(300, 900, 12, 3)
    whole, part = random_split(graph), graph.subgraph(range(200))
    clf = NodeClassifier(epochs=1, hidden_dim=16, num_heads=2, hops=2, feature_scaling="standardize").fit(whole)
    clf.save(tmp_path / "run")
    part.save(tmp_path / "part")
    tokens = hop_tokens(part, 2, feature_scaling="standardize", out=tmp_path / "tokens", device="cpu")
    trained, opened = load_run(tmp_path / "run"), load_graph(tmp_path / "part")
    with pytest.raises(UserError, match="standardized by another mean and deviation"):
        cluster.write_data_set(trained, tmp_path / "run", opened, tmp_path / "out", "local", tokens.path)


def test_features_in_another_order_reach_the_workers(tmp_path, run, own_cache, monkeypatch):
    graph = synthetic_graph(300, 900, 4, 3)
    named = random_split(replace(graph, feature_names=("a", "b", "c", "d")))
    clf = NodeClassifier(epochs=1, hidden_dim=16, num_heads=2, hops=2).fit(named)
    clf.save(tmp_path / "run")
    order = [3, 1, 0, 2]
    names = tuple("abcd"[column] for column in order)
    turned = replace(named, features=named.features[:, order], feature_names=names)
    turned.save(tmp_path / "turned")
    hop_tokens(turned, 2, statistics=clf, out=tmp_path / "tokens", device="cpu")
    monkeypatch.setattr(cluster, "gather", lambda ray, parts, *_, **__: parts.write(0))  # as a worker does it
    monkeypatch.setattr(cluster, "connected", lambda address: nullcontext())
    monkeypatch.setattr(cluster, "workers", lambda ray: [SimpleNamespace(memory=1)])
    code, _, error = run("predict", "run", "turned", "--out=out", "--tokens=tokens", "--cluster=local")
    assert code == 0, error
    found = parquet.read_table(tmp_path / "out" / "part-00000.parquet")
    probability = clf.predict_proba(named)
    assert found["p_0"].to_pylist() == pytest.approx(probability[:, 0].tolist(), abs=1e-6)


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
