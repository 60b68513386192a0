import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small import class_graph, quick, source_of, sparse_graph

from nagphormer import UserError, from_scipy
from nagphormer.training import comparison
from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
from nagphormer.training.loop import Outcome

GRAPH = class_graph(300, noise=1.0)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(comparison, "WEIGHT_DECAYS", (0.001,))
    monkeypatch.setitem(comparison.COMMON, "epochs", 60)


def logistic(graph, **changes):
    config = quick(**changes)
    return logistic_accuracy(graph, config, source_of(graph, config))


def test_the_hops_help_logistic_regression_but_the_mlp_does_not_see_them():
    assert logistic(GRAPH) > 0.85
    assert logistic(GRAPH) > mlp_accuracy(GRAPH, quick()) + 0.1


def test_the_mlp_does_not_see_edges_or_encoding():
    without = from_scipy(np.zeros((300, 300)), GRAPH.features, GRAPH.labels, GRAPH.splits)
    found = [mlp_accuracy(graph, quick(encoding_dim=2, hops=5)) for graph in (GRAPH, without)]
    assert found[0] == found[1] == mlp_accuracy(GRAPH, quick(encoding_dim=0, hops=1))


def test_both_are_the_same_with_the_same_seed_whatever_the_networks_own_settings():
    other = {"hidden_dim": 64, "lr": 0.5, "epochs": 1, "patience": 1, "warmup_updates": 7, "dropout": 0.5}
    assert mlp_accuracy(GRAPH, quick()) == mlp_accuracy(GRAPH, quick(**other))
    assert logistic(GRAPH) == logistic(GRAPH, **other)


def test_another_split_can_be_asked_for():
    config = quick()
    source = source_of(GRAPH, config)
    found = {split: logistic_accuracy(GRAPH, config, source, split) for split in ("train", "test")}
    assert found["train"] != found["test"] == logistic_accuracy(GRAPH, config, source)
    assert mlp_accuracy(GRAPH, config, "train") > mlp_accuracy(GRAPH, config, "test")


@pytest.mark.parametrize("project_first", ["auto", "never", "always"])
def test_tokens_may_come_either_way(project_first):
    config = quick(project_first=project_first)
    graph = sparse_graph()
    assert 0.3 < mlp_accuracy(graph, config) <= 1
    assert 0.3 < logistic_accuracy(graph, config, source_of(graph, config)) <= 1


def test_several_labels_per_node_are_compared():
    labels = np.stack([GRAPH.labels == 0, GRAPH.labels != 2], axis=1)
    assert logistic(from_scipy(GRAPH.adjacency(), GRAPH.features, labels, GRAPH.splits)) > 0.9


def test_logistic_regression_learns_as_much_as_scikit_learns(monkeypatch):
    monkeypatch.setitem(comparison.COMMON, "epochs", 500)
    graph = from_scipy(GRAPH.adjacency(), GRAPH.features[:, :3] / 20, GRAPH.labels, GRAPH.splits)  # a long way to go
    config = quick()
    source = source_of(graph, config)
    tokens, labels = source.gather(torch.arange(300)).flatten(1).numpy(), np.asarray(graph.labels)
    train = graph.splits["train"]
    solved = LogisticRegression(C=1e6, max_iter=10_000).fit(tokens[train], labels[train])
    found = logistic_accuracy(graph, config, source, "train")
    assert found > solved.score(tokens[train], labels[train]) - 0.02


def test_the_settings_that_are_best_in_validation_count(monkeypatch):
    validation = iter([(0.7, 0.5), (0.9, 0.6), (0.9, 0.4), (0.8, 0.1)])  # the third: ties go to the lower loss
    test = iter([0.99, 0.98, 0.55, 0.97])

    class Stub:
        def __init__(self, model, source, task, splits, config):
            tried.append(config.weight_decay)

        def run(self):
            return Outcome(1, *next(validation), 1)

    tried = []
    monkeypatch.setattr(comparison, "WEIGHT_DECAYS", (0.1, 0.2, 0.3, 0.4))
    monkeypatch.setattr(comparison, "Trainer", Stub)
    monkeypatch.setattr(comparison, "evaluate", lambda *_: (0.0, next(test)))
    assert mlp_accuracy(GRAPH, quick()) == 0.55
    assert tried == [0.1, 0.2, 0.3, 0.4]


def test_models_that_all_diverge_are_an_error_with_a_way_out(monkeypatch):
    monkeypatch.setattr(comparison.Trainer, "run", lambda self: Outcome(0, None, None, 1))
    with pytest.raises(UserError, match="MLP diverged with every setting: are the features very large"):
        mlp_accuracy(GRAPH, quick())
