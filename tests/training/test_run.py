import warnings

import numpy as np
import pytest
import torch
from small import class_graph, quick, same_weights, sparse_graph, train_model, weights_of

from nagphormer import UserError, from_scipy, hop_tokens
from nagphormer.training.history import History

GRAPH = class_graph()


def trained(graph=GRAPH, store=None, folder=None, here=None, history=None, **changes):
    return train_model(graph, quick(**changes), store, folder, here, history=history)[0]


def test_a_graph_without_features_is_trained_on_its_degrees():
    graph = from_scipy(GRAPH.adjacency(), None, GRAPH.labels, GRAPH.splits)
    assert trained(graph, encoding_dim=2).best.model.config.input_dim == 3
    assert trained(graph).best.model.config.input_dim == 1


def test_labels_of_test_nodes_are_not_looked_at():
    hidden = GRAPH.labels.copy()
    hidden[GRAPH.splits["test"]] = -1
    graph = from_scipy(GRAPH.adjacency(), GRAPH.features, hidden, GRAPH.splits)
    assert same_weights(weights_of(trained(graph).best.model), weights_of(trained().best.model))


def unlearnable(rare=1):
    """Features say nothing; of 20 validation nodes some are of class `rare`, all others `common`."""
    labels = np.array(["common"] * 100)
    labels[50 : 50 + rare] = labels[0] = "rare"
    splits = {"train": np.arange(50), "val": np.arange(50, 70)}
    return from_scipy(np.zeros((100, 100)), np.ones((100, 3)), labels, splits)


def test_a_rare_class_that_accuracy_overlooks_is_told_of_with_what_helps():
    told = "validation accuracy, 0.9500, is the share of the commonest class, 'common'.*as rare as 'rare' may never be"
    with pytest.warns(UserWarning, match=told + ".*class_weights='balanced'.*monitor='average_precision'"):
        trained(unlearnable())
    with pytest.warns(UserWarning, match=told + "[^;]*; class_weights='balanced' has it weigh more$"):
        trained(unlearnable(), monitor="macro_f1")


@pytest.mark.parametrize("graph", [unlearnable(rare=2), GRAPH])  # one in ten is not rare; all is found
def test_nothing_is_said_where_no_class_is_overlooked(graph):
    with warnings.catch_warnings(action="error"):
        trained(graph)


def test_projecting_first_learns_what_stored_tokens_learn():
    graph = sparse_graph()
    losses = [trained(graph, project_first=way, lr=1e-3).best.outcome["best_loss"] for way in ("never", "always")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)  # tokens are stored as float16


def test_a_store_is_trained_on_and_must_have_the_settings_asked_for():
    graph = sparse_graph()
    store = hop_tokens(graph, 4, encoding_dim=2, feature_scaling="row", device="cpu")
    settings = {"hops": 4, "encoding_dim": 2, "feature_scaling": "row", "project_first": "auto"}
    result, source = train_model(graph, quick(**settings), store)
    assert source._host is store.blocks
    assert result.config.project_first == "never"
    assert same_weights(
        weights_of(result.best.model), weights_of(trained(graph, **settings | {"project_first": "never"}).best.model)
    )
    with pytest.raises(UserError, match="hops=4, not 3"):
        trained(graph, store, **settings | {"hops": 3})


def test_nothing_is_written_when_the_graph_cannot_be_trained_on(tmp_path):
    with pytest.raises(UserError, match="no labels"):
        trained(from_scipy(GRAPH.adjacency()), folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_initial_weights_leave_torchs_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trained(dropout=0.2)
    assert torch.equal(torch.get_rng_state(), before)


def test_running_out_of_memory_is_explained(monkeypatch):
    def run(self):
        raise MemoryError

    monkeypatch.setattr("nagphormer.training.loop.Trainer.run", run)
    with pytest.raises(UserError, match="out of memory while training with batch_size=32"):
        trained()


def test_class_weights_reach_the_loss():
    losses = [
        trained(class_weights=weights, epochs=1).best.history[0]["train_loss"] for weights in ("none", "balanced")
    ]
    assert losses[0] != losses[1]


def test_initial_weights_follow_the_seed():
    still = {"epochs": 1, "lr": 1e-12}
    one, other = (weights_of(trained(seed=seed, **still).best.model)["head.0.weight"] for seed in (0, 1))
    assert not torch.allclose(one, other)


def test_what_a_history_raises_ends_the_training():
    class Enough(Exception):
        pass

    class Short(History):
        def add(self, record):
            super().add(record)
            if len(self.records) == 2:
                raise Enough

    history, state = Short(), torch.random.get_rng_state()
    with pytest.raises(Enough):
        trained(epochs=5, history=history)
    assert [record["epoch"] for record in history.records] == [1, 2]
    assert torch.equal(torch.random.get_rng_state(), state)
