import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from examples import SETTINGS, multi_label_graph, named_graph, train_model

from nagphormer import NodeClassifier, TrainConfig, UserError, from_scipy, hop_tokens, load_graph, random_split
from nagphormer.inference import predict
from nagphormer.metrics import METRICS, decide, measure

pytestmark = pytest.mark.usefixtures("one_thread")
GRAPH = named_graph()


@pytest.fixture(scope="module")
def model():
    """A trained model and its tokens."""
    return train_model(GRAPH, TrainConfig(**SETTINGS))


def scores(run, source, graph, split):
    nodes, target = predict.question(run, graph, split)
    return measure(target, predict.probabilities(run, source, nodes))


def with_ids(ids):
    return from_scipy(sp.coo_array((3, 3)), node_ids=ids)


# which nodes


def test_all_nodes_unless_told_otherwise():
    assert predict.positions(GRAPH, None, None).tolist() == list(range(120))


MASK = np.arange(120) % 40 == 1


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([5, 3, 5], [5, 3, 5]),
        ((1, 2), [1, 2]),
        (range(2, 4), [2, 3]),
        (np.array([7], np.uint8), [7]),
        (np.int64(4), [4]),
        (torch.tensor([8, 9]), [8, 9]),
        (slice(0, 6, 2), [0, 2, 4]),
        (slice(-2, None), [118, 119]),
        (MASK, [1, 41, 81]),
        (MASK.tolist(), [1, 41, 81]),
        ([], []),
        (np.zeros(120, bool), []),
        (119, [119]),
    ],
)
def test_nodes_are_positions_a_slice_or_a_mask(nodes, expected):
    found = predict.positions(GRAPH, nodes, None)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 120], "there is no node 120: positions are 0 to 119"),
        ([-1], "there is no node -1"),
        (np.ones(3, bool), r"mask of nodes has shape \(3,\), not \(120,\)"),
        (["node-0"], "your own ids go into node_ids="),
        ("node-0", "your own ids go into node_ids="),
        ([1.0], "nodes must be positions"),
        ([[1, 2]], "nodes must be positions"),
        ({1, 2}, "nodes must be positions"),
    ],
)
def test_nodes_that_are_none_are_refused(nodes, message):
    with pytest.raises(UserError, match=message):
        predict.positions(GRAPH, nodes, None)


@pytest.mark.parametrize(
    ("ids", "wanted", "expected"),
    [
        (["b", "a", "c"], ["c", "b", "c"], [2, 0, 2]),
        (["b", "a", "c"], "a", [1]),
        (["b", "a", "c"], np.array(["a"], object), [1]),
        (["1", "0", "2"], ["1"], [0]),
        ([30, 10, 20], [10, 30], [1, 0]),
        ([30, 10, 20], np.array([20], np.int32), [2]),
        ([30, 10, 20], 20, [2]),
        ([2**40, 10, 20], [2**40], [0]),
        ([30, 10, 20], [], []),
        (["b", "a", "c"], [], []),
        (None, [2, 0], [2, 0]),
    ],
)
def test_node_ids_are_the_users_own(ids, wanted, expected):
    found = predict.positions(with_ids(ids), None, wanted)
    assert found.tolist() == expected
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("ids", "wanted", "message"),
    [
        (["b", "a", "c"], ["a", "x", "y"], r"no node with id 'x' \(2 of the ids are unknown\)"),
        ([30, 10, 20], [10, 0], r"no node with id 0 \(1 of the ids"),
        ([30, 10, 20], ["ten"], "node_ids are string, but the graph's ids are int64"),
        ([30, 10, 20], [1.5], "node_ids are double, but the graph's ids are int64"),
        (None, [3], "no node with id 3"),
    ],
)
def test_unknown_node_ids_are_refused(ids, wanted, message):
    with pytest.raises(UserError, match=message):
        predict.positions(with_ids(ids), None, wanted)


@pytest.mark.parametrize("wanted", [[[10, 20]], {10, 20}], ids=["nested", "set"])
def test_node_ids_of_a_wrong_shape_are_refused(wanted):
    with pytest.raises(UserError):
        predict.positions(with_ids([30, 10, 20]), None, wanted)


def test_positions_and_ids_together_are_refused():
    with pytest.raises(UserError, match=r"give nodes \(positions\) or node_ids \(your own ids\), not both"):
        predict.positions(GRAPH, [0], ["node-0"])


# which graph


def test_a_graph_of_another_width_is_refused(model):
    trained, _ = model
    with pytest.raises(UserError, match="trained on 8 features, but this graph has 7"):
        predict.fitting(trained, named_graph(num_features=7))


def test_another_graph_is_warned_about_where_0_1_0_kept_nothing_that_was_fitted(model):
    trained, _ = model
    other = named_graph(seed=1)
    encoded, _ = train_model(GRAPH, TrainConfig(**SETTINGS | {"encoding_dim": 2, "epochs": 1}))
    with warnings.catch_warnings(action="error"):
        predict.fitting(encoded, other)
        predict.fitting(replace(trained, fitted=None), other)
        predict.fitting(replace(encoded, fitted=None), GRAPH)
    with pytest.warns(UserWarning, match="this graph's own are taken, so predictions may be poor"):
        predict.fitting(replace(encoded, fitted=None), other)


def test_splits_are_the_graphs_own_before_those_of_training(model):
    trained, _ = model
    wanted = np.sort(GRAPH.splits["val"][:2])
    assert np.array_equal(predict.split_nodes(trained, GRAPH.with_splits(test=wanted), "test"), wanted)
    bare = GRAPH.with_splits()
    assert np.array_equal(predict.split_nodes(trained, bare, "test"), GRAPH.splits["test"])
    with pytest.raises(UserError, match=r"the split 'test' is empty: .* graph.with_splits\(test="):
        predict.split_nodes(trained, named_graph(seed=1, split=False), "test")
    with pytest.raises(UserError, match="unknown split 'tests': use train, val or test"):
        predict.split_nodes(trained, GRAPH, "tests")


def test_splits_drawn_from_a_seed_give_way_to_those_of_training(model):
    trained, _ = model
    again = random_split(GRAPH, seed=5)
    assert again.drawn
    with pytest.warns(UserWarning, match="those of training are taken, 24; to judge by others"):
        assert np.array_equal(predict.split_nodes(trained, again, "test"), GRAPH.splits["test"])
    with warnings.catch_warnings(action="error"):
        assert np.array_equal(predict.split_nodes(trained, GRAPH.with_splits(), "test"), GRAPH.splits["test"])
    other = named_graph(seed=1)
    assert np.array_equal(predict.split_nodes(trained, other, "test"), other.splits["test"])


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked", "always:.* were trained on")
def test_the_command_line_and_python_judge_by_the_same_nodes(tmp_path, run):
    graph = random_split(GRAPH, seed=5)
    graph.save(tmp_path / "graph")  # a file gives them
    _, _ = train_model(GRAPH, TrainConfig(**SETTINGS | {"epochs": 1}), folder=tmp_path / "run")
    with pytest.warns(UserWarning, match="were trained on"):
        score = NodeClassifier.load(tmp_path / "run").score(load_graph(tmp_path / "graph"))
    code, printed, words = run("--json", "evaluate", "run", "graph")
    assert code == 0
    assert json.loads(printed)["accuracy"] == score
    assert f"judged by the {len(graph.splits['test'])} test nodes of the graph" in words
    assert words.count("were trained on") == 1


def test_a_model_trained_on_sparse_features_reads_the_same_numbers_in_an_array():
    sparse = named_graph(sparse=True)
    trained, source = train_model(sparse, TrainConfig(**SETTINGS | {"project_first": "always"}))
    assert source.projects_first
    dense = replace(sparse, features=sparse.features.toarray())
    again = predict.open_source(trained, dense, "cpu")
    assert again.projects_first
    nodes = np.arange(120)
    expected = predict.probabilities(trained, source, nodes)
    np.testing.assert_array_equal(predict.probabilities(trained, again, nodes), expected)


# outputs


def test_blocks_of_any_size_give_the_same(model, monkeypatch):
    nodes = np.arange(119, -1, -1)
    outputs = (predict.probabilities, predict.embeddings, predict.hop_attention)
    whole = [output(*model, nodes) for output in outputs]
    monkeypatch.setattr(predict, "rows_at_once", lambda *_: 7)
    for output, expected in zip(outputs, whole, strict=True):
        np.testing.assert_allclose(output(*model, nodes), expected, rtol=1e-5)


def test_one_node_alone_gives_what_it_gives_among_others(model):
    together = predict.probabilities(*model, np.arange(120))
    np.testing.assert_allclose(predict.probabilities(*model, np.array([60])), together[60:61], rtol=1e-5)


def test_a_slice_may_run_backwards(model):
    nodes = predict.positions(GRAPH, slice(5, None, -1), None)
    assert predict.probabilities(*model, nodes).shape == (6, 3)


def test_predicting_leaves_no_gradient_and_no_training_mode(model):
    trained, source = model
    trained.best.model.train()
    one, other = (predict.probabilities(trained, source, np.arange(120)) for _ in range(2))
    assert np.array_equal(one, other)  # dropout is off
    assert not trained.best.model.training
    assert all(weight.grad is None or not weight.grad.requires_grad for weight in trained.best.model.parameters())


@pytest.mark.parametrize("graph", [named_graph(), multi_label_graph()], ids=["one label", "several"])
def test_decisions_are_what_the_probabilities_say(graph):
    given = train_model(graph, TrainConfig(**SETTINGS | {"epochs": 20}))
    nodes = np.arange(graph.num_nodes)[::-1]
    expected = decide(predict.probabilities(*given, nodes), multi_label=graph.labels.ndim == 2)
    found = predict.decisions(*given, nodes)
    assert found.dtype == expected.dtype
    assert len(np.unique(found)) > 1
    np.testing.assert_array_equal(found, expected)


def test_scores_are_all_the_metrics_of_a_split(model):
    found = scores(*model, GRAPH, "val")
    nodes, target = predict.question(model[0], GRAPH, "val")
    assert found == {name: work(target, predict.probabilities(*model, nodes)) for name, work in METRICS.items()}


def test_a_class_that_was_never_seen_cannot_be_scored(model):
    with pytest.raises(UserError, match="class 'date', which the model has never seen: it knows ash, birch, cedar"):
        scores(*model, replace(GRAPH, class_names=("ash", "birch", "date")), "test")


def test_nodes_without_a_label_are_left_out_of_a_score(model):
    labels = GRAPH.labels.copy()
    labels[GRAPH.splits["test"][:2]] = -1
    graph = replace(GRAPH, labels=labels)
    with pytest.warns(UserWarning, match="2 of the 24 test nodes have no label and are left out"):
        assert np.array_equal(predict.split_nodes(model[0], graph, "test"), GRAPH.splits["test"][2:])
    labels[GRAPH.splits["test"]] = -1
    with pytest.raises(UserError, match="none of the 24 test nodes has a label"):
        scores(*model, graph, "test")


def test_a_split_of_one_class_has_an_accuracy(model):
    alike = np.setdiff1d(np.flatnonzero(GRAPH.labels == 0), GRAPH.splits["train"])
    assert 0 <= scores(*model, GRAPH.with_splits(test=alike), "test")["accuracy"] <= 1


def test_testing_on_nodes_that_were_trained_on_warns(model):
    trained, _ = model
    with pytest.warns(UserWarning, match="2 of the 2 test nodes were trained on"):
        predict.split_nodes(trained, GRAPH.with_splits(test=GRAPH.splits["train"][:2]), "test")


def test_predictions_are_made_in_the_precision_of_training(model):
    trained, source = model
    (member,) = trained.members
    rough = replace(trained, members=(replace(member, plan=replace(member.plan, precision="bf16")),))
    exact, found = (predict.probabilities(each, source, np.arange(120)) for each in (trained, rough))
    assert not np.array_equal(found, exact)
    np.testing.assert_allclose(found, exact, atol=0.02)


def test_tokens_made_anew_are_stored_as_in_training():
    store = hop_tokens(GRAPH, 2, dtype="float32", device="cpu")
    trained, _ = train_model(GRAPH, TrainConfig(**SETTINGS | {"epochs": 1}), store)
    assert predict.open_source(trained, GRAPH, "cpu")._kind == torch.float32


def test_tokens_of_training_serve_the_graph_of_training_only(tmp_path):
    store = hop_tokens(GRAPH, 2, out=tmp_path / "tokens", device="cpu")
    run = tmp_path / "run"
    trained, _ = train_model(GRAPH, TrainConfig(**SETTINGS | {"epochs": 1}), store, run)
    assert predict.store_of(trained, GRAPH, run).samefile(tmp_path / "tokens")
    assert predict.store_of(trained, named_graph(seed=1), run) is None


def test_tokens_that_are_given_go_before_those_of_training(tmp_path):
    store, given = hop_tokens(GRAPH, 2, out=tmp_path / "tokens", device="cpu"), hop_tokens(GRAPH, 2, device="cpu")
    run = tmp_path / "run"
    trained, _ = train_model(GRAPH, TrainConfig(**SETTINGS | {"epochs": 1}), store, run)
    assert predict.open_source(trained, GRAPH, "cpu", given, run)._host is given.blocks


def test_nodes_of_another_graph_were_not_trained_on(model):
    trained, _ = model
    other = named_graph(seed=1).with_splits(test=GRAPH.splits["train"][:2])
    with warnings.catch_warnings(action="error"):
        predict.split_nodes(trained, other, "test")


def test_a_metric_that_a_split_does_not_allow_is_none(model):
    alike = np.setdiff1d(np.flatnonzero(GRAPH.labels == 0), GRAPH.splits["train"])
    found = scores(*model, GRAPH.with_splits(test=alike), "test")
    assert [metric for metric, value in found.items() if value is None] == ["roc_auc", "average_precision"]
