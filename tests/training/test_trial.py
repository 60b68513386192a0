import json

import pytest
from examples import multi_label_graph
from small import HERE, class_graph, quick, train_model

from nagphormer.tokens import hop2token
from nagphormer.training.task import Task
from nagphormer.training.trial import run_trial, watched

GRAPH = class_graph()


def trial(folder, report=lambda epoch, best: True, graph=GRAPH, **changes):
    return run_trial(graph, quick(**changes), HERE, folder, report)


@pytest.mark.parametrize("monitor", ["accuracy", "loss", "macro_f1"])
def test_a_trial_is_judged_as_its_training_is(monitor, tmp_path):
    member = train_model(GRAPH, quick(epochs=6, lr=0.05, monitor=monitor), here=HERE)[0].best
    best = member.history[member.outcome["best_epoch"] - 1]
    reported = []
    found = trial(tmp_path, lambda *said: bool(reported.append(said)) or True, epochs=6, lr=0.05, monitor=monitor)
    assert (found.state, found.best_epoch, found.epochs) == ("complete", member.outcome["best_epoch"], 6)
    assert (found.value, found.loss) == (best[f"val_{monitor}"], best["val_loss"])
    assert [epoch for epoch, _ in reported] == [1, 2, 3, 4, 5, 6]
    values = [record[f"val_{monitor}"] for record in member.history]
    better = min if monitor == "loss" else max
    assert [value for _, value in reported] == [better(values[:epoch]) for epoch in range(1, 7)]


def test_equal_values_are_judged_by_their_loss(tmp_path, monkeypatch):
    losses = iter([0.5, 0.3, 0.4])
    monkeypatch.setattr("nagphormer.training.loop.evaluate", lambda *_, **__: (next(losses), 0.75))
    found = trial(tmp_path, epochs=3)
    assert (found.value, found.loss, found.best_epoch) == (0.75, 0.3, 2)


def test_a_trial_ends_after_the_epoch_that_is_answered_by_no(tmp_path):
    found = trial(tmp_path, lambda epoch, best: epoch < 2, epochs=6)
    assert (found.state, found.epochs, found.reason) == ("pruned", 2, "")


def test_a_loss_that_is_no_number_fails_the_trial(tmp_path, monkeypatch):
    loss = Task.loss
    monkeypatch.setattr(Task, "loss", lambda *given: loss(*given) * float("nan"))
    found = trial(tmp_path)
    assert (found.state, found.value, found.epochs) == ("failed", None, 0)
    assert "the loss became nan in epoch 1" in found.reason
    json.dumps(vars(found), allow_nan=False)


def test_settings_that_cannot_be_had_prune_the_trial(tmp_path):
    found = trial(tmp_path, project_first="always")
    assert (found.state, found.best_epoch) == ("pruned", 0)
    assert "needs sparse features" in found.reason


def test_tokens_are_made_once_for_all_trials_with_the_same_and_kept_in_the_cache(tmp_path, monkeypatch, own_cache):
    make, made = hop2token._make, []
    monkeypatch.setattr(hop2token, "_make", lambda *given: made.append(given[1].hops) or make(*given))
    for changes in ({"hops": 2}, {"hops": 2, "lr": 0.1}, {"hops": 3}, {"hops": 2}):
        trial(tmp_path, epochs=1, **changes)
    assert made == [2, 3]
    assert len(list(own_cache.glob("tokens/*/tokens-*"))) == 2


def test_features_that_are_projected_first_need_no_store(tmp_path, own_cache):
    assert trial(tmp_path, graph=class_graph(sparse=True), project_first="always", epochs=1).state == "complete"
    assert not list(own_cache.glob("tokens/*/tokens-*"))


def test_accuracy_of_several_labels_is_micro_f1():
    assert watched(GRAPH, quick()) == "accuracy"
    several = multi_label_graph()
    assert watched(several, quick()) == "micro_f1"
    assert watched(several, quick(monitor="loss")) == "loss"
