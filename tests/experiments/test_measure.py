import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from experiments import measure
from experiments.baselines.method import Method
from experiments.measure import (
    Budget,
    baseline,
    measure_best,
    measure_default,
    measure_defaults,
    measure_ours,
    measure_recipe,
)
from nagphormer import NodeClassifier
from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
from tests.experiments.small import small_task

GRAPH = small_task().graph


class Scripted(Method):
    """Right on so many of the validation nodes as a list says for each epoch; remembers what it was asked."""

    def __init__(self, task, script):
        super().__init__(task)
        self.script = script
        self.epoch = nn.Parameter(torch.zeros(()))
        self.asked = []

    def train_epoch(self):
        assert self.training
        with torch.no_grad():
            self.epoch += 1

    def logits(self, nodes):
        assert not self.training
        assert not torch.is_grad_enabled()
        self.asked.append(nodes)
        right = self.script[int(self.epoch) - 1]
        scores = nn.functional.one_hot(self.task.labels[nodes], 3).float()
        scores[right:] = scores[right:].roll(1, dims=1)
        return scores

    def infer(self):
        return nn.functional.one_hot((self.task.labels + int(self.epoch) % 2) % 3, 3)


def measured(script, **budget):
    methods = []

    def build(task, **settings):
        methods.append(Scripted(task, **settings))
        return methods[-1]

    return baseline(build)(GRAPH, {"script": script}, 0, "cpu", Budget(**budget)), methods[0]


def test_the_weights_of_the_best_epoch_are_kept():
    facts, method = measured([3, 9, 5, 4], epochs=4, patience=10)
    assert (facts["best_epoch"], facts["epochs"]) == (2, 4)
    assert int(method.epoch) == 2
    assert facts["test_accuracy"] == 1.0


def test_features_are_on_the_device_before_a_method_is_built():
    found = []

    def build(task, **settings):
        found.append({"features", "labels", "splits"} & vars(task).keys())
        return Scripted(task, **settings)

    baseline(build)(GRAPH, {"script": [3]}, 0, "cpu", Budget(epochs=1))
    assert found == [{"features", "labels", "splits"}]


def test_training_ends_when_patience_does():
    facts, _ = measured([5, 9, 5, 5, 5, 18], epochs=6, patience=3)
    assert (facts["best_epoch"], facts["epochs"]) == (2, 5)


def test_only_validation_nodes_are_looked_at_while_training():
    _, method = measured([1, 2], epochs=2, patience=2)
    assert all(torch.equal(nodes, method.task.splits["val"]) for nodes in method.asked)


def test_accuracy_and_the_commonest_class_by_hand():
    facts, _ = measured([3], epochs=1, patience=1)
    labels, splits = np.asarray(GRAPH.labels), GRAPH.splits
    commonest = np.bincount(labels[splits["train"]]).argmax()
    assert facts["majority"] == pytest.approx((labels[splits["test"]] == commonest).mean())
    assert facts["test_accuracy"] == facts["val_accuracy"] == 0.0


def test_a_loss_that_is_no_number_ends_it():
    class Broken(Scripted):
        def logits(self, nodes):
            return super().logits(nodes) * torch.nan

    with pytest.raises(FloatingPointError, match="epoch 1"):
        baseline(lambda task: Broken(task, [1]))(GRAPH, {}, 0, "cpu", Budget())


def test_the_seed_sets_the_weights():
    class Drawn(Scripted):
        def __init__(self, task):
            super().__init__(task, [1])
            seen.append(torch.rand(1).item())

    seen: list[float] = []
    for seed in (0, 1, 0):
        baseline(Drawn)(GRAPH, {}, seed, "cpu", Budget(epochs=1))
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.usefixtures("one_thread")
def test_ours_is_measured_with_the_same_facts_and_its_settings():
    facts = measure_ours(GRAPH, {"hidden_dim": 16, "num_heads": 2, "hops": 2}, 0, "cpu", Budget(epochs=3, patience=3))
    other, _ = measured([3], epochs=1, patience=1)
    assert facts.keys() == other.keys()
    assert facts["epochs"] == 3
    assert facts["parameters"] < 5000
    assert min(facts["stages"].values()) >= 0


def test_patience_waits_for_a_method_that_asks_for_it():
    class Slow(Scripted):
        patience_from = 4

    facts = baseline(lambda task: Slow(task, [9, 8, 8, 8, 8, 8, 8, 8]))(GRAPH, {}, 0, "cpu", Budget(8, 2))
    assert facts["epochs"] == 6


def test_a_method_hears_of_every_validation_loss():
    class Listening(Scripted):
        def validated(self, loss):
            heard.append(loss)

    heard: list[float] = []
    facts = baseline(lambda task: Listening(task, [3, 9, 5]))(GRAPH, {}, 0, "cpu", Budget(3, 5))
    assert len(heard) == 3
    assert facts["val_loss"] == pytest.approx(heard[1])


def one_hot(found, num_classes=3):
    return np.eye(num_classes, dtype=np.float32)[found]


def test_accuracies_are_those_of_their_own_splits():
    labels, splits = np.asarray(GRAPH.labels), GRAPH.splits
    found = (labels + 1) % 3
    found[splits["val"][:9]] = labels[splits["val"][:9]]
    found[splits["test"][:6]] = labels[splits["test"][:6]]
    facts = measure._quality(GRAPH, one_hot(found))
    assert (facts["val_accuracy"], facts["test_accuracy"]) == (9 / 18, 6 / 18)


def test_calibration_and_log_loss_by_hand():
    """Three of four right with a confidence of 0.8 on the test nodes; one half sure, always right, on the others."""
    labels, splits = np.asarray(GRAPH.labels), GRAPH.splits
    probability = 0.25 + 0.25 * one_hot(labels)
    wrong = splits["test"][:6]
    sure = 0.1 + 0.7 * one_hot(labels)
    sure[wrong] = 0.1 + 0.7 * one_hot((labels[wrong] + 1) % 3)
    probability[splits["test"]] = sure[splits["test"]]
    facts = measure._quality(GRAPH, probability)
    assert facts["test_accuracy"] == pytest.approx(2 / 3)
    assert facts["test_ece"] == pytest.approx(0.8 - 2 / 3, rel=1e-5)
    assert facts["test_log_loss"] == pytest.approx(-(2 * np.log(0.8) + np.log(0.1)) / 3, rel=1e-5)
    assert facts["val_log_loss"] == pytest.approx(np.log(2), rel=1e-5)
    assert "test_roc_auc" not in facts  # there are three classes


def binary(name=None):
    """The small graph with two classes, of which the first is the commonest."""
    labels = (np.asarray(GRAPH.labels) == 2).astype(np.int64)
    return dataclasses.replace(GRAPH, labels=labels, name=name)


def test_of_two_classes_the_area_under_the_roc_curve_is_told():
    graph = binary()
    labels, splits = np.asarray(graph.labels), graph.splits
    scores = np.where(labels == 1, 0.3, 0.2).astype(np.float32)  # in order, but never above one half
    scores[splits["test"]] = 0.3  # no order at all
    facts = measure._quality(graph, np.stack([1 - scores, scores], axis=1))
    assert (facts["val_roc_auc"], facts["test_roc_auc"]) == (1.0, 0.5)
    assert facts["val_accuracy"] < 1


def test_probabilities_of_a_rival_are_its_softmax():
    class Unsure(Scripted):
        def infer(self):
            return torch.log(torch.tensor([[0.5, 0.25, 0.25]])).repeat(90, 1) + 7

    facts = baseline(lambda task: Unsure(task, [9]))(GRAPH, {}, 0, "cpu", Budget(1, 1))
    labels = np.asarray(GRAPH.labels)[GRAPH.splits["test"]]
    share = (labels == 0).mean()
    assert facts["test_log_loss"] == pytest.approx(share * np.log(2) + (1 - share) * np.log(4), rel=1e-5)
    assert facts["test_ece"] == pytest.approx(abs(0.5 - share), rel=1e-5)


class Ranked(Scripted):
    """Of two classes: each epoch's scores of class 1, in the order of the validation nodes."""

    def logits(self, nodes):
        scores = torch.tensor(self.script[int(self.epoch) - 1])
        return torch.stack([torch.zeros(len(nodes)), scores], dim=1)

    def infer(self):
        return torch.zeros(len(self.task.labels), 2)


def scores_of(graph, right, high, low):
    """Scores of the validation nodes: `right` of those of class 1, and no other, are above the rest."""
    labels = np.asarray(graph.labels)[graph.splits["val"]]
    ones = np.flatnonzero(labels == 1)
    scores = np.full(len(labels), low, dtype=np.float32)
    scores[ones[:right]] = high
    return scores.tolist()


@pytest.mark.parametrize(("name", "epoch"), [("minesweeper", 2), ("cora", 1)])
def test_the_epoch_is_chosen_by_what_a_data_set_is_judged_by(name, epoch):
    graph = binary(name)
    script = [scores_of(graph, 2, 1.0, -1.0), scores_of(graph, 5, -1.0, -2.0)]  # more are right, or in order
    facts = baseline(lambda task: Ranked(task, script))(graph, {}, 0, "cpu", Budget(2, 2))
    assert facts["best_epoch"] == epoch
    assert facts["monitor"] == ("roc_auc" if name == "minesweeper" else "accuracy")


def test_an_area_that_still_grows_is_worth_waiting_for():
    graph = binary("minesweeper")
    script = [scores_of(graph, right, 3.0 * right, 2.5 * right) for right in range(5)]  # the loss rises
    facts = baseline(lambda task: Ranked(task, script))(graph, {}, 0, "cpu", Budget(5, 1))
    assert (facts["epochs"], facts["best_epoch"]) == (5, 5)


def test_a_loss_that_is_no_number_ends_it_whatever_is_monitored():
    graph = binary("minesweeper")
    script = [[float("nan")] * len(graph.splits["val"])]
    with pytest.raises(FloatingPointError, match="epoch 1"):
        baseline(lambda task: Ranked(task, script))(graph, {}, 0, "cpu", Budget())


def test_the_commonest_class_is_that_of_the_training_nodes():
    labels = np.ones(90, dtype=np.int64)
    labels[GRAPH.splits["train"][:30]] = 0
    graph = dataclasses.replace(GRAPH, labels=labels)
    assert measure._quality(graph, one_hot(labels))["majority"] == 0.0


def test_a_method_is_given_the_seed():
    class Asked(Scripted):
        def __init__(self, task):
            super().__init__(task, [1])
            seen.append(task.seed)

    seen = []
    baseline(Asked)(GRAPH, {}, 7, "cpu", Budget(epochs=1))
    assert seen == [7]


def test_seconds_are_told_by_stage(monkeypatch):
    laps = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(measure._Clock, "__init__", lambda self, device: None)
    monkeypatch.setattr(measure._Clock, "lap", lambda self: next(laps))
    facts, _ = measured([3], epochs=1, patience=1)
    assert facts["stages"] == {"prepare": 1.0, "train": 2.0, "infer": 3.0}


def test_parameters_are_counted_one_by_one():
    class Wide(Scripted):
        def __init__(self, task):
            super().__init__(task, [1])
            self.more = nn.Parameter(torch.zeros(3, 2))

    assert baseline(Wide)(GRAPH, {}, 0, "cpu", Budget(epochs=1))["parameters"] == 7


@pytest.mark.usefixtures("one_thread")
def test_ours_is_what_the_estimator_gives_with_this_seed_budget_and_recipe(monkeypatch):
    built = []
    plain = NodeClassifier.__init__
    monkeypatch.setattr(
        NodeClassifier, "__init__", lambda self, **options: built.append(options) or plain(self, **options)
    )
    monkeypatch.setattr(measure._Clock, "lap", lambda self: 100.0)
    settings = {"hidden_dim": 16, "num_heads": 2, "hops": 2, "recipe": "paper-photo", "lr": 0.3}
    facts = measure_ours(GRAPH, settings, 5, "cpu", Budget(epochs=30, patience=4))
    expected = settings | {"epochs": 30, "patience": 4, "restart_on_ties": False, "seed": 5, "device": "cpu"}
    assert built == [expected]
    twin = NodeClassifier(**expected).fit(GRAPH)
    assert facts["val_accuracy"] == twin.score(GRAPH, "val")
    assert facts["best_epoch"] == twin.best_epoch_ < facts["epochs"]
    assert facts["val_loss"] == pytest.approx(twin.history_[twin.best_epoch_ - 1]["val_loss"])
    assert facts["stages"]["prepare"] + facts["stages"]["train"] == pytest.approx(100.0)


SMALL = {"hidden_dim": 16, "num_heads": 2, "encoding_dim": 2}


@pytest.mark.usefixtures("one_thread")
def test_ours_is_judged_by_what_it_monitors_with_its_calibrated_probabilities():
    graph, small = binary(), {"hidden_dim": 16, "num_heads": 2, "hops": 2, "monitor": "roc_auc"}
    facts = measure_ours(graph, small, 0, "cpu", Budget(12, 12))
    assert facts["monitor"] == "roc_auc"
    twin = NodeClassifier(recipe="paper", **small, epochs=12, patience=12, seed=0, device="cpu").fit(graph)
    assert facts["val_roc_auc"] == twin.score(graph, "val", metric="roc_auc")
    assert facts["test_ece"] == twin.score(graph, metric="ece")
    assert facts["val_log_loss"] == twin.score(graph, "val", metric="log_loss")
    assert measure_ours(GRAPH, SMALL, 0, "cpu", Budget(1, 1))["monitor"] == "accuracy"


@pytest.mark.usefixtures("one_thread")
def test_the_recipe_is_what_its_users_have_in_the_precision_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    for precision in ({}, {"precision": "bf16"}):
        facts = measure_recipe(GRAPH, SMALL | precision, 3, "cpu", Budget(4, 4, restart_on_ties=True))
        twin = NodeClassifier(recipe="paper", **SMALL, **precision, epochs=4, patience=4, seed=3, device="cpu").fit(
            GRAPH
        )
        assert facts["config"] == dataclasses.asdict(twin.config_)
        assert facts["config"]["precision"] == precision.get("precision", "fp32")
        assert (facts["test_accuracy"], facts["val_accuracy"]) == (twin.score(GRAPH), twin.score(GRAPH, "val"))
        assert (facts["epochs"], facts["best_epoch"]) == (4, twin.best_epoch_)
    assert not asked  # products stay exact to float32, as they are for users


@pytest.mark.usefixtures("one_thread")
def test_the_defaults_are_measured_beside_two_plain_models_on_the_same_tokens():
    facts = measure_defaults(GRAPH, SMALL, 3, "cpu", Budget(4, 4))
    twin = NodeClassifier(**SMALL, epochs=4, patience=4, seed=3, device="cpu").fit(GRAPH)
    assert facts["config"] == dataclasses.asdict(twin.config_)
    assert facts["config"]["linear"]
    assert facts["test_accuracy"] == twin.score(GRAPH)
    assert facts["mlp"] == mlp_accuracy(GRAPH, twin.config_)
    assert facts["logistic_regression"] == logistic_accuracy(GRAPH, twin.config_, twin.tokens_)


@pytest.mark.usefixtures("one_thread")
def test_the_seconds_of_the_defaults_are_without_those_of_the_plain_models(monkeypatch):
    ended = []
    monkeypatch.setattr(measure, "measured", lambda work, device: work() | {"seconds": len(ended), "peak_gb": 1.0})
    monkeypatch.setattr(measure, "mlp_accuracy", lambda *rest: ended.append("mlp") or 0.5)
    facts = measure_defaults(GRAPH, SMALL, 0, "cpu", Budget(1, 1))
    assert (facts["seconds"], facts["peak_gb"], facts["mlp"]) == (0, 1.0, 0.5)


@pytest.mark.parametrize(("function", "recipe"), [(measure_default, {}), (measure_best, {"recipe": "best"})])
def test_ours_as_it_is_is_given_no_budget(monkeypatch, function, recipe):
    built = []

    class Fake:
        def __init__(self, **options):
            built.append(options)

    monkeypatch.setattr(measure, "NodeClassifier", Fake)
    monkeypatch.setattr(measure, "_measure_estimator", lambda classifier, graph, device: {"device": device})
    assert function(GRAPH, {"monitor": "roc_auc"}, 4, "cpu", Budget()) == {"device": "cpu"}
    assert built == [recipe | {"monitor": "roc_auc", "seed": 4, "device": "cpu"}]
