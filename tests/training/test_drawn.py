"""What is read in which epoch: copies of the graph in turn, and labels, of which no node's own is ever among them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small import HERE, class_graph, quick, same_weights, sparse_graph, train_model, weights_of

from nagphormer import from_scipy
from nagphormer.model.embedding import Embedding, HopMaps
from nagphormer.settings import TokenSettings
from nagphormer.tokens import hop2token
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.labels import ROUNDS, Shown, label_tokens
from nagphormer.training import sources
from nagphormer.training.plan import decide
from nagphormer.training.sources import training_source

GRAPH = class_graph(noise=3)
HOPS, LABELS, WIDTH = 2, 2, 8
EVERY = torch.arange(GRAPH.num_nodes)


def source_of(graph=GRAPH, made=None, **changes):
    config = quick(feature_scaling="standardize", reduce_dim=0, **changes)
    return training_source(graph, decide(graph, config, HERE), "cpu", made=made)


def read(source, nodes=EVERY, labels=0):
    """What a network is given of some nodes, (n, K+1+L, F): its maps pass everything on."""
    passing = HopMaps(HOPS + 1, WIDTH, WIDTH)
    passing.weight.data, passing.bias.data = torch.eye(WIDTH).repeat(HOPS + 1, 1, 1), torch.zeros(HOPS + 1, WIDTH)
    if labels:
        passing.labels = HopMaps(labels, 3, WIDTH)
        passing.labels.weight.data = torch.eye(WIDTH, 3).repeat(labels, 1, 1)
        passing.labels.bias.data.zero_()
    with torch.no_grad():
        (batch,) = source.batches([nodes])
        return source.embedder(passing)(batch).numpy()


def read_labels(source, nodes):
    """The tokens of labels that a network is given, (n, L, C); hops may go through a map that all share."""
    if not source.projects_first:
        return read(source, nodes, LABELS)[:, HOPS + 1 :]
    shared = Embedding(source.width, WIDTH)
    shared.labels = HopMaps(LABELS, 3, WIDTH)
    shared.labels.weight.data = torch.eye(WIDTH, 3).repeat(LABELS, 1, 1)
    shared.labels.bias.data.zero_()
    with torch.no_grad():
        (batch,) = source.batches([nodes])
        return source.embedder(shared)(batch)[:, HOPS + 1 :].numpy()


def shown(graph):
    found = Shown.of(graph)
    return found.nodes, found.labels


def store_of(copy):
    return np.asarray(make_tokens(GRAPH, TokenSettings(hops=HOPS, feature_scaling="standardize", copy=copy)))


# copies


def test_every_epoch_reads_another_copy_in_turn():
    source = source_of(edge_copies=3)
    for epoch, copy in enumerate((1, 2, 3, 1, 2), start=1):
        np.testing.assert_array_equal(read(source.in_training(epoch)), store_of(copy))


def test_what_is_validated_and_predicted_is_the_graph_itself():
    source = source_of(edge_copies=3)
    source.in_training(2)
    np.testing.assert_array_equal(read(source), store_of(0))


def test_without_copies_every_epoch_reads_the_graph_itself():
    source = source_of()
    assert source.in_training(5) is source


def test_copies_are_scaled_and_reduced_as_the_graph_is(monkeypatch):
    graph, fitted = sparse_graph(), []
    make = sources.make_tokens
    monkeypatch.setattr(
        sources, "make_tokens", lambda *given, **named: fitted.append(named["fitted"]) or make(*given, **named)
    )
    config = quick(feature_scaling="standardize", reduce_dim=5, encoding_dim=3, edge_copies=2)
    source = training_source(graph, decide(graph, config, HERE), "cpu")
    own, *copies = fitted
    assert own is None
    for each in copies:
        np.testing.assert_array_equal(each.components, source.components)
        np.testing.assert_array_equal(each.encoding, source.encoding)
        assert each.statistics == source.statistics != {}
    for epoch in (1, 2):
        drawn = source.in_training(epoch)
        np.testing.assert_array_equal(drawn.components, source.components)
        np.testing.assert_array_equal(drawn.encoding, source.encoding)


def test_trainings_that_want_the_same_tokens_share_them(monkeypatch):
    made, count = {}, []
    make = hop2token._make
    monkeypatch.setattr(hop2token, "_make", lambda *given: count.append(1) or make(*given))
    source_of(made=made, edge_copies=2)
    assert len(count) == 3
    source_of(made=made, edge_copies=3, label_hops=1, seed=4)
    assert len(count) == 4
    source_of(made=made, hops=1)
    assert len(count) == 5


# labels


def test_labels_stand_behind_the_hops():
    source, labels = source_of(label_hops=LABELS), label_tokens(GRAPH, *shown(GRAPH), 3, LABELS, 0)
    found = read(source, labels=LABELS)
    np.testing.assert_array_equal(found[:, : HOPS + 1], store_of(0))
    np.testing.assert_array_equal(found[:, HOPS + 1 :, :3], labels.whole)
    train = GRAPH.splits["train"]
    for epoch in range(1, 2 * ROUNDS + 1):
        found = read(source.in_training(epoch), torch.from_numpy(train), LABELS)
        np.testing.assert_array_equal(found[:, HOPS + 1 :, :3], labels.rounds[(epoch - 1) % ROUNDS])


def test_the_seed_deals_the_training_nodes():
    one, same, other = (read(source_of(label_hops=1, seed=seed).in_training(1), EVERY, 1) for seed in (0, 0, 7))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_labels_and_copies_go_together():
    both, copies = source_of(edge_copies=2, label_hops=1), source_of(edge_copies=2)
    labels = source_of(label_hops=1)
    train = torch.from_numpy(GRAPH.splits["train"])
    for epoch in range(1, 6):
        found = read(both.in_training(epoch), train, 1)
        np.testing.assert_array_equal(found[:, : HOPS + 1], read(copies.in_training(epoch), train))
        np.testing.assert_array_equal(found[:, HOPS + 1 :], read(labels.in_training(epoch), train, 1)[:, HOPS + 1 :])
    np.testing.assert_array_equal(read(both, labels=1), read(labels, labels=1))


@pytest.mark.parametrize("changes", [{}, {"edge_copies": 2}, {"project_first": "always"}])
def test_what_a_node_is_given_never_depends_on_its_own_label(changes):
    graph = GRAPH
    if changes.get("project_first"):
        graph = class_graph(sparse=True)
    before = source_of(graph, label_hops=LABELS, **changes)
    for node in graph.splits["train"][::9]:
        labels = graph.labels.copy()
        labels[node] = (labels[node] + 1) % 3
        after, alone = source_of(replace(graph, labels=labels), label_hops=LABELS, **changes), torch.tensor([node])
        for epoch in range(1, ROUNDS + 1):
            one, other = (read_labels(each.in_training(epoch), alone) for each in (before, after))
            assert np.array_equal(one, other)
        assert np.array_equal(read_labels(before, alone), read_labels(after, alone))
        assert not np.array_equal(read_labels(before, EVERY), read_labels(after, EVERY))


@pytest.mark.parametrize("epoch", [None, 1, 2])
def test_what_is_given_never_depends_on_labels_of_validation_and_test_nodes(epoch):
    garbage = np.where(np.isin(np.arange(GRAPH.num_nodes), GRAPH.splits["train"]), GRAPH.labels, 0)
    garbage[GRAPH.splits["val"]] = 1
    assert (garbage != GRAPH.labels).sum() > 30
    found = [source_of(graph, label_hops=LABELS) for graph in (GRAPH, replace(GRAPH, labels=garbage))]
    one, other = (read(each if epoch is None else each.in_training(epoch), EVERY, LABELS) for each in found)
    assert np.array_equal(one, other)


# training


@pytest.mark.parametrize("network", ["transformer", "mlp", "linear"])
def test_a_run_that_goes_on_reads_what_it_would_have_read(network, tmp_path):
    changes = {"network": network, "edge_copies": 3, "label_hops": 2, "dropout": 0.2}
    whole, _ = train_model(GRAPH, quick(**changes, epochs=7))
    for epochs in (2, 4, 7):
        found, _ = train_model(GRAPH, quick(**changes, epochs=epochs), folder=tmp_path / "run")
    assert same_weights(weights_of(found.best.model), weights_of(whole.best.model))
    assert found.temperature == whole.temperature


@pytest.mark.parametrize("network", ["transformer", "mlp", "linear"])
def test_products_in_bfloat16_learn_alike(network):
    changes = {"network": network, "edge_copies": 2, "label_hops": 2, "lr": 0.003}
    exact, rounded = (train_model(GRAPH, quick(**changes, precision=each))[0].best.history for each in ("fp32", "bf16"))
    assert exact[-1]["val_loss"] != rounded[-1]["val_loss"]
    assert exact[-1]["val_loss"] == pytest.approx(rounded[-1]["val_loss"], rel=0.05)


@pytest.mark.parametrize("changes", [{"edge_copies": 2}, {"label_hops": 2}])
def test_copies_and_labels_change_what_is_learned(changes):
    plain, changed = (train_model(GRAPH, quick(**each))[0].best.history for each in ({}, changes))
    assert plain[0]["train_loss"] != changed[0]["train_loss"]


def test_a_graph_without_edges_is_trained_on_with_copies_and_labels():
    bare = from_scipy(GRAPH.adjacency() * 0, GRAPH.features, GRAPH.labels, GRAPH.splits)
    run, _ = train_model(bare, quick(edge_copies=2, label_hops=2, network="mlp"))
    assert run.best.outcome["best_epoch"] > 0
