"""`NodeClassifier` with a recipe of several members: fitted, asked, saved and loaded like any other."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from examples import MEMBERS, SETTINGS, multi_label_graph, named_graph, write_recipe
from sklearn.base import clone

from nagphormer import NodeClassifier, UserError, cross_validate, from_scipy, hop_tokens, random_split, search
from nagphormer.metrics import METRICS
from nagphormer.training import ensemble
from nagphormer.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def graph():
    return named_graph()


@pytest.fixture(scope="module")
def fitted(graph, recipe):
    return NodeClassifier(recipe=recipe).fit(graph)


# fitting


def test_it_answers_like_any_other(graph, fitted):
    probability = fitted.predict_proba(graph)
    assert probability.shape == (120, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(fitted.predict(graph), fitted.classes_[probability.argmax(axis=1)])
    some = [7, 3, 7]
    np.testing.assert_allclose(fitted.predict_proba(graph, some), probability[some], atol=1e-6)
    ids = ["node-7", "node-3"]
    assert fitted.predict(graph, node_ids=ids).tolist() == fitted.predict(graph)[[7, 3]].tolist()
    assert len(fitted.predict(graph, split="val")) == 24


def test_fitting_again_gives_the_same(graph, recipe, fitted):
    again = NodeClassifier(recipe=recipe).fit(graph)
    assert np.array_equal(again.predict_proba(graph), fitted.predict_proba(graph))
    assert [row["weight"] for row in again.leaderboard()] == [row["weight"] for row in fitted.leaderboard()]


def test_what_is_fitted_is_of_the_heaviest_member(graph, fitted):
    lead = fitted.leaderboard()[0]["name"]
    own = MEMBERS[lead]
    assert all(getattr(fitted.config_, name) == value for name, value in own.items())
    assert fitted.history_[fitted.best_epoch_ - 1]["val_accuracy"] == pytest.approx(fitted.leaderboard()[0]["score"])
    assert fitted.temperature_ > 0
    assert (fitted.n_features_in_, fitted.splits_.keys()) == (8, graph.splits.keys())
    assert sum(weight.numel() for weight in fitted.model_.parameters()) > 4 * 300


def test_the_leaderboard_has_a_row_for_each_member_the_heaviest_first(fitted):
    rows = fitted.leaderboard()
    assert {row["name"] for row in rows} == set(MEMBERS)
    assert [row["weight"] for row in rows] == sorted((row["weight"] for row in rows), reverse=True)
    assert sum(row["weight"] for row in rows) == pytest.approx(1)
    columns = ["name", "weight", "score", "loss", "train_seconds", "predict_seconds"]
    assert [list(row) for row in rows] == [columns] * 4
    frame = fitted.leaderboard(as_frame=True)
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_dict("records") == rows
    assert fitted.leaderboard(as_frame="arrow").to_pylist() == rows


def test_the_leaderboard_of_one_model_has_one_row(graph):
    clf = NodeClassifier(**SETTINGS).fit(graph)
    (row,) = clf.leaderboard()
    assert (row["name"], row["weight"], row["predict_seconds"]) == ("transformer", 1.0, None)
    assert row["score"] == clf.history_[clf.best_epoch_ - 1]["val_accuracy"]
    assert row["train_seconds"] == pytest.approx(sum(record["seconds"] for record in clf.history_), abs=0.01)
    assert len(clf.leaderboard(as_frame=True)) == 1
    with pytest.raises(UserError, match="not fitted yet"):
        NodeClassifier().leaderboard()


def test_arguments_win_over_members_and_members_over_the_common_settings(graph, recipe):
    clf = NodeClassifier(recipe=recipe, hops=1, epochs=np.int64(2), lr=np.float32(0.125)).fit(graph)
    configs = [part.run.config for part in clf._run.parts]
    assert {config.hops for config in configs} == {1}
    assert {config.epochs for config in configs} == {2}
    assert {config.lr for config in configs} == {0.125}
    assert [config.network for config in configs] == ["mlp", "mlp", "transformer", "linear"]
    assert clf.settings_for(graph).edge_copies == 2
    assert clf.has_members(graph)
    assert not NodeClassifier(hops=1).has_members(graph)


def test_one_member_alone_is_one_model(graph, tmp_path):
    recipe = write_recipe(tmp_path, {"only": {"hops": 1}})
    clf = NodeClassifier(recipe=recipe).fit(graph)
    assert (clf.config_.hops, len(clf.leaderboard())) == (1, 1)
    same = NodeClassifier(**SETTINGS | {"network": "mlp", "linear": False, "hops": 1}).fit(graph)
    assert np.array_equal(clf.predict_proba(graph), same.predict_proba(graph))


def test_best_is_a_recipe_of_several_members(graph):
    clf = NodeClassifier(recipe="best", epochs=3, hidden_dim=16, device="cpu").fit(graph)
    assert len(clf.leaderboard()) > 3
    assert clf.score(graph, "val") >= 0


# limits


def test_a_time_limit_gives_what_was_trained_by_then(graph, recipe):
    clf = NodeClassifier(recipe=recipe, time_limit=1e-3).fit(graph)
    assert [row["name"] for row in clf.leaderboard()] == ["copies"]
    assert len(NodeClassifier(recipe=recipe, time_limit="10m").fit(graph).leaderboard()) == 4


@pytest.mark.parametrize("limit", ["soon", "0", 0, -1, "10 days", True, float("nan")])
def test_a_time_limit_that_is_none_is_refused_before_any_work(limit, graph, recipe, monkeypatch):
    monkeypatch.setattr(ensemble, "_train_one", lambda *_: pytest.fail("trained"))
    with pytest.raises(UserError, match=r"as a time: write it like 90s, 10m or 1\.5h"):
        NodeClassifier(recipe=recipe, time_limit=limit).fit(graph)


def test_a_time_limit_of_one_model_is_refused(graph):
    with pytest.raises(UserError, match=r"time_limit is for a recipe with several members, such as recipe='best'"):
        NodeClassifier(**SETTINGS, time_limit="10m").fit(graph)


def test_tokens_that_are_given_are_refused_since_members_want_several(graph, recipe, fitted):
    tokens = hop_tokens(graph, hops=2)
    with pytest.raises(UserError, match="members of this recipe read tokens of several kinds: leave tokens out"):
        NodeClassifier(recipe=recipe).fit(graph, tokens=tokens)
    for ask in (fitted.predict, fitted.predict_proba, fitted.embed, fitted.score):
        with pytest.raises(UserError, match="members of this run read tokens of several kinds: leave tokens out"):
            ask(graph, tokens=tokens)


def test_members_of_one_kind_take_the_tokens_that_are_given(graph, tmp_path):
    recipe = write_recipe(tmp_path, {"one": {}, "other": {"network": "linear"}})
    clf = NodeClassifier(recipe=recipe).fit(graph)
    expected = clf.predict_proba(graph)
    assert np.array_equal(clf.predict_proba(graph, tokens=hop_tokens(graph, hops=2)), expected)
    with pytest.raises(UserError, match="tokens with hops=1, not 2"):
        clf.predict(graph, tokens=hop_tokens(graph, hops=1))


# asking


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("split", ["val", "test"])
def test_score_is_the_metric_on_the_split(metric, split, graph, fitted):
    nodes = graph.splits[split]
    expected = METRICS[metric](graph.labels[nodes], fitted.predict_proba(graph, nodes))
    assert fitted.score(graph, split, metric) == pytest.approx(expected, abs=1e-5)


def test_no_nodes_give_no_rows(graph, fitted):
    assert fitted.predict(graph, []).shape == (0,)
    assert fitted.predict_proba(graph, []).shape == (0, 3)
    assert fitted.embed(graph, []).shape == (0, fitted.embed(graph, [0]).shape[1])
    assert fitted.hop_attention(graph, []).shape == (0, 2)
    assert fitted.predict(graph, [], as_frame=True).shape == (0, 6)


def test_a_frame_has_the_members_mean(graph, fitted):
    frame = fitted.predict(graph, as_frame=True)
    assert frame["node_id"].tolist() == graph.node_ids.tolist()
    np.testing.assert_allclose(frame[["p_ash", "p_birch", "p_cedar"]], fitted.predict_proba(graph), rtol=1e-6)
    assert frame["prediction"].tolist() == fitted.predict(graph).tolist()


def test_representations_of_members_stand_side_by_side_each_times_its_weight(graph, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    parts = []
    for row in fitted.leaderboard():
        alone = NodeClassifier.load(tmp_path / "run" / "members" / row["name"])
        parts.append(row["weight"] * alone.embed(graph))
    np.testing.assert_allclose(fitted.embed(graph), np.hstack(parts), rtol=1e-4, atol=1e-6)


def test_hop_attention_is_that_of_the_members_that_weigh_hops(graph, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    alone = NodeClassifier.load(tmp_path / "run" / "members" / "paper")
    np.testing.assert_allclose(fitted.hop_attention(graph), alone.hop_attention(graph), rtol=1e-5)
    np.testing.assert_allclose(fitted.hop_attention(graph).sum(axis=1), 1, rtol=1e-5)


def test_hop_attention_is_the_weighted_mean_over_as_many_hops_as_there_are(graph, tmp_path):
    paper = {"network": "transformer", "lr": 0.05}
    members = {"one": paper | {"hops": 1}, "three": paper | {"hops": 3}, "none": paper | {"hops": 0}, "mlp": {}}
    clf = NodeClassifier(recipe=write_recipe(tmp_path, members)).fit(graph)
    clf.save(tmp_path / "run")
    found, weights = clf.hop_attention(graph), {row["name"]: row["weight"] for row in clf.leaderboard()}
    one, three = (
        NodeClassifier.load(tmp_path / "run" / "members" / name).hop_attention(graph) for name in ("one", "three")
    )
    total = weights["one"] + weights["three"]
    expected = weights["three"] / total * three
    expected[:, :1] += weights["one"] / total * one
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_members_that_weigh_no_hops_say_so(graph, tmp_path):
    recipe = write_recipe(tmp_path, {"one": {}, "other": {"network": "linear"}})
    with pytest.raises(UserError, match=r"no member of this run weighs hops: .*leaderboard\(\) names the members"):
        NodeClassifier(recipe=recipe, epochs=1).fit(graph).hop_attention(graph)


def test_several_labels_a_node_go_through_all_of_it(recipe, tmp_path):
    graph = multi_label_graph()
    clf = NodeClassifier(recipe=recipe).fit(graph)
    probability = clf.predict_proba(graph)
    assert np.array_equal(clf.predict(graph), (probability > 0.5).astype(int))
    assert abs(probability.sum(axis=1) - 1).max() > 0.01
    clf.save(tmp_path / "run")
    assert np.array_equal(NodeClassifier.load(tmp_path / "run").predict_proba(graph), probability)


def test_another_graph_and_back_changes_nothing(graph, fitted):
    before = fitted.predict_proba(graph)
    part = graph.subgraph(np.setdiff1d(np.arange(120), graph.splits["train"][30:]))
    with pytest.warns(UserWarning, match="members that read their labels: labels are not asked"):
        there = fitted.predict_proba(part)
    np.testing.assert_allclose(there.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(fitted.predict_proba(graph), before)


def test_nodes_in_another_order_are_predicted_alike(graph, fitted):
    order = np.random.default_rng(0).permutation(120)
    turned = graph.subgraph(order)
    np.testing.assert_allclose(fitted.predict_proba(turned), fitted.predict_proba(graph)[order], atol=2e-3)


# tools


def test_parameters_survive_a_round_trip(recipe, graph, fitted):
    clf = NodeClassifier(recipe=recipe, time_limit="10m", hops=1)
    assert clone(clf).get_params() == clf.get_params()
    assert NodeClassifier().set_params(**clf.get_params()).get_params() == clf.get_params()
    assert np.array_equal(clone(fitted).fit(graph).predict_proba(graph), fitted.predict_proba(graph))


def test_cross_validation_and_search_take_members(graph, recipe):
    clf = NodeClassifier(recipe=recipe, epochs=2)
    assert [fold["test"] for fold in cross_validate(clf, graph, folds=3)] == [40, 40, 40]
    found = search(clf, graph, {"hops": [1, 2], "recipe": [recipe]})
    assert found.best_.has_members(graph)
    assert len(found.results_) == 2
    assert all(result["score"] is not None for result in found.results_)


# saving and loading


def test_what_was_saved_comes_back(graph, recipe, tmp_path):
    clf = NodeClassifier(recipe=Path(recipe), epochs=np.int64(3), lr=np.float32(0.125)).fit(graph)
    clf.save(tmp_path / "run")
    loaded = NodeClassifier.load(tmp_path / "run")
    assert np.array_equal(loaded.predict_proba(graph), clf.predict_proba(graph))
    assert loaded.leaderboard() == clf.leaderboard()
    assert loaded.config_ == clf.config_
    assert loaded.history_ == clf.history_
    given = {name: value for name, value in loaded.get_params().items() if value is not None}
    assert given == {"recipe": recipe, "epochs": 3, "lr": 0.125}
    assert np.array_equal(clone(loaded).fit(graph).predict_proba(graph), clf.predict_proba(graph))


def test_saving_over_a_run_replaces_it_whole_or_not_at_all(graph, fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "run")
    with pytest.raises(UserError, match="holds a run already"):
        fitted.save(tmp_path / "run")
    one = NodeClassifier(**SETTINGS | {"epochs": 1}).fit(graph)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with monkeypatch.context() as broken:
        broken.setattr(RunFolder, "finish", lambda *_: 1 / 0)
        for other in (one, fitted):
            with pytest.raises(ZeroDivisionError):
                other.save(tmp_path / "run", overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    one.save(tmp_path / "run", overwrite=True)
    assert NodeClassifier.load(tmp_path / "run").leaderboard()[0]["name"] == "transformer"
    fitted.save(tmp_path / "run", overwrite=True)
    assert len(NodeClassifier.load(tmp_path / "run").leaderboard()) == 4


# few nodes, few features


def bare(num_nodes=20, num_features=3, num_classes=2, **parts):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, num_nodes, (2, 3 * num_nodes))
    adjacency = np.zeros((num_nodes, num_nodes))
    adjacency[tuple(ends)] = 1
    features = rng.standard_normal((num_nodes, num_features)) if num_features else None
    return from_scipy(adjacency, features, np.arange(num_nodes) % num_classes, **parts)


SMALL = {
    "twenty nodes": random_split(bare()),
    "no features": random_split(bare(num_features=0)),
    "one feature": random_split(bare(num_features=1)),
    "more features than nodes": random_split(bare(num_features=600)),
    "one class to validate": bare().with_splits(train=range(10), val=[12, 14], test=[15]),
    "one node to validate": bare().with_splits(train=range(10), val=[12]),
    "two labels": bare().with_splits(train=[0, 1], val=[2, 3]),
    "no edges": random_split(from_scipy(np.zeros((20, 20)), np.eye(20, 4), np.arange(20) % 2)),
    "features of zeros": random_split(from_scipy(np.eye(20, k=1), np.zeros((20, 4)), np.arange(20) % 2)),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("recipe", [None, "best"])
def test_small_graphs_are_learned(name, recipe):
    clf = NodeClassifier(recipe=recipe, epochs=3, hidden_dim=32, device="cpu").fit(SMALL[name])
    probability = clf.predict_proba(SMALL[name])
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert np.isfinite(clf.embed(SMALL[name], [0])).all()


@pytest.mark.parametrize("recipe", [None, "best"])
def test_a_batch_of_one_is_enough(recipe):
    clf = NodeClassifier(recipe=recipe, batch_size=1, epochs=2, hidden_dim=32, device="cpu").fit(bare_split())
    assert np.isfinite(clf.predict_proba(bare_split())).all()


def bare_split():
    return random_split(bare())


def test_a_transformer_with_everything_tells_how_it_weighed_hops(graph):
    changes = {"network": "transformer", "own_maps": True, "readout": "dynamic", "label_hops": 2, "edge_copies": 2}
    clf = NodeClassifier(**SETTINGS | changes).fit(graph)
    attention = clf.hop_attention(graph)
    assert attention.shape == (120, 2)
    np.testing.assert_allclose(attention.sum(axis=1), 1, rtol=1e-5)


def test_the_default_weighs_no_hops_and_says_what_does(graph):
    clf = NodeClassifier(epochs=1, device="cpu").fit(graph)
    with pytest.raises(UserError, match=r"NodeClassifier\(network='transformer', readout='attention'\)"):
        clf.hop_attention(graph)
