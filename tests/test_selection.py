"""Settings judged by labels that were held out."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from examples import SETTINGS, multi_label_graph, named_graph
from sklearn.model_selection import ParameterGrid

from nagphormer import NodeClassifier, UserError, cross_validate, search, selection
from nagphormer.data.splits import draw_folds

GRAPH = named_graph()
CLF = NodeClassifier(**SETTINGS)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def made(monkeypatch):
    """The settings of tokens that are made, one by one."""
    found, make = [], selection.make_tokens
    monkeypatch.setattr(
        selection, "make_tokens", lambda graph, tokens, **more: found.append(tokens) or make(graph, tokens, **more)
    )
    return found


def without_time(results):
    return [{name: value for name, value in each.items() if name != "seconds"} for each in results]


# cross_validate


def test_every_labeled_node_is_held_out_once_and_never_trained_on_meanwhile():
    unknown = GRAPH.labels.copy()
    unknown[:7] = -1
    graphs = selection._folded(replace(GRAPH, labels=unknown), np.flatnonzero(unknown >= 0), 4, seed=0)
    assert sorted(np.concatenate([graph.splits["test"] for graph in graphs])) == list(range(7, 120))
    for graph in graphs:
        assert sorted(np.concatenate(list(graph.splits.values()))) == list(range(7, 120))


def test_a_folds_score_is_that_of_a_fit_on_the_others():
    found = cross_validate(CLF, GRAPH, folds=4, metric="macro_f1", seed=3)
    parts = draw_folds(GRAPH, np.arange(120), 4, seed=3)
    assert [fold["fold"] for fold in found] == [0, 1, 2, 3]
    for number, fold in enumerate(found):
        test, val = parts[number], parts[(number + 1) % 4]
        train = np.concatenate([parts[(number + 2) % 4], parts[(number + 3) % 4]])
        alone = NodeClassifier(**SETTINGS).fit(GRAPH.with_splits(train=train, val=val, test=test))
        assert fold["score"] == alone.score(GRAPH.with_splits(**alone.splits_), metric="macro_f1")
        assert (fold["best_epoch"], fold["train"], fold["val"], fold["test"]) == (alone.best_epoch_, 60, 30, 30)
    assert len({fold["score"] for fold in found}) > 1
    assert not CLF.__sklearn_is_fitted__()


def test_labels_that_are_held_out_reach_no_fit(monkeypatch):
    """The first fold's weights are the same, whatever its labels are."""
    weights = []
    fit = NodeClassifier.fit

    def noted(self, graph, **more):
        fit(self, graph, **more)
        weights.append(next(self.model_.parameters()).detach().clone())
        return self

    monkeypatch.setattr(NodeClassifier, "fit", noted)
    (held_out, *_) = selection._folded(GRAPH, np.arange(120), 3, seed=0)
    other = GRAPH.labels.copy()
    other[held_out.splits["test"]] = 0
    for labels in (GRAPH.labels, other):
        graph = replace(held_out, labels=labels)
        selection._fits(CLF, [graph], "accuracy", "test", selection._Tokens())
    assert weights[0].equal(weights[1])


def test_tokens_are_made_once_for_all_folds(made):
    cross_validate(CLF, GRAPH, folds=3)
    assert made == [CLF.settings_for(GRAPH).tokens("none")]


def test_several_labels_are_validated_too():
    found = cross_validate(CLF, multi_label_graph(), folds=3, metric="micro_f1")
    assert [fold["test"] for fold in found] == [40, 40, 40]


@pytest.mark.parametrize("folds", [2, 121])
def test_too_few_or_too_many_folds_are_refused(folds):
    with pytest.raises(UserError, match=f"folds={folds} of 120 labeled nodes.*give from 3 to 120"):
        cross_validate(CLF, GRAPH, folds=folds)


# search


def test_a_search_tries_every_combination_and_keeps_the_best_on_validation_nodes():
    found = search(CLF, GRAPH, {"hops": [0, 2], "lr": [0.0001, 0.01]})
    assert [each["params"] for each in found.results_] == [
        {"hops": hops, "lr": lr} for hops in (0, 2) for lr in (0.0001, 0.01)
    ]
    for each in found.results_:
        alone = NodeClassifier(**SETTINGS | each["params"]).fit(GRAPH)
        assert each["scores"] == [each["score"]] == [alone.score(GRAPH, "val")]
    scores = [each["score"] for each in found.results_]
    assert found.best_score_ == max(scores) > min(scores)
    assert found.best_params_ == found.results_[scores.index(max(scores))]["params"]
    assert found.best_.score(GRAPH, "val") == found.best_score_
    assert found.best_.get_params() == CLF.get_params() | found.best_params_
    assert not CLF.__sklearn_is_fitted__()


def test_labels_of_test_nodes_change_nothing_in_a_search():
    labels = GRAPH.labels.copy()
    labels[GRAPH.splits["test"]] = 0
    for folds in (None, 3):
        one, other = (
            search(CLF, graph, {"lr": [0.001, 0.01]}, folds=folds) for graph in (GRAPH, replace(GRAPH, labels=labels))
        )
        assert without_time(one.results_) == without_time(other.results_)


def test_a_search_by_folds_judges_by_nodes_to_train_and_validate_on(monkeypatch):
    seen, fit = [], NodeClassifier.fit
    monkeypatch.setattr(
        NodeClassifier, "fit", lambda self, graph, **more: seen.append(graph.splits) or fit(self, graph, **more)
    )
    found = search(CLF, GRAPH, [{"lr": 0.01}, {"lr": 0.001}], folds=3)
    assert [len(each["scores"]) for each in found.results_] == [3, 3]
    assert found.best_score_ == pytest.approx(np.mean(found.results_[[0.01, 0.001].index(found.best_.lr)]["scores"]))
    judged = np.concatenate([GRAPH.splits["train"], GRAPH.splits["val"]])
    *folds, last = seen
    for splits in folds:
        assert sorted(np.concatenate(list(splits.values()))) == sorted(judged)
    assert all(np.array_equal(last[split], GRAPH.splits[split]) for split in ("train", "val", "test"))


def test_tokens_of_one_setting_are_made_once_and_others_not_held_meanwhile(made):
    found = search(CLF, GRAPH, {"lr": [0.0001, 0.001], "hops": [1, 2]})
    assert [tokens.hops for tokens in made[:2]] == [1, 2]
    assert len(made) == 2 + (found.best_.hops == 1)
    assert [each["params"]["hops"] for each in found.results_] == [1, 2, 1, 2]


def test_scikit_learns_grid_and_lists_of_candidates_are_tried_one_by_one():
    grid = {"hops": [1, 2], "seed": [0]}
    found = [search(CLF, GRAPH, each) for each in (grid, ParameterGrid(grid), [{"hops": 1, "seed": 0}, {"hops": 2}])]
    scores = [[each["score"] for each in one.results_] for one in found]
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.parametrize(("metric", "better"), [("log_loss", min), ("roc_auc", max)])
def test_the_metric_says_whether_more_is_better(metric, better):
    found = search(CLF, GRAPH, {"lr": [0.0001, 0.01, 0.001]}, metric=metric)
    assert found.best_score_ == better(each["score"] for each in found.results_)


@pytest.mark.parametrize(
    ("monitor", "several", "metric"),
    [(None, False, "accuracy"), (None, True, "micro_f1"), ("loss", False, "log_loss"), ("roc_auc", False, "roc_auc")],
)
def test_a_search_judges_by_what_is_monitored_unless_told_otherwise(monitor, several, metric):
    graph, clf = multi_label_graph() if several else GRAPH, NodeClassifier(**SETTINGS, monitor=monitor)
    found = search(clf, graph, [{}])
    assert found.best_score_ == found.best_.score(graph, "val", metric)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"hopps": [1]}, "no parameter 'hopps'. Did you mean 'hops'"),
        ({"hops": [1, -1]}, "hops must be 0 or more, not -1"),
        ({"hops": 2}, "'hops': 2: give a list of values to try, such as .2."),
        ({"readout": "sum"}, "'readout': 'sum': give a list"),
        (["hops"], "the grid holds 'hops': give a dict of lists"),
        ({"hops": []}, "nothing to try"),
        ([], "nothing to try"),
    ],
)
def test_a_grid_that_cannot_be_tried_is_refused_before_any_work(grid, message, monkeypatch):
    monkeypatch.setattr(NodeClassifier, "fit", None)
    with pytest.raises(UserError, match=message):
        search(CLF, GRAPH, grid)


def test_a_candidate_that_diverges_is_told_of_and_the_others_are_judged():
    wild = {"lr": 1e30, "final_lr": 1e30, "linear": False}
    with pytest.warns(UserWarning, match="1 of 2 candidates could not be judged: .*training stopped"):
        found = search(CLF, GRAPH, [wild, {"lr": 0.01}])
    assert found.best_params_ == {"lr": 0.01}
    assert found.results_[0]["score"] is None
    assert "training stopped" in found.results_[0]["error"]
    with pytest.raises(UserError, match=r"no candidate could be judged; the first one says: .*training stopped"):
        search(CLF, GRAPH, [wild])


def test_a_graph_without_splits_gets_one_and_its_test_nodes_are_left_for_the_end():
    with pytest.warns(UserWarning, match="no splits"):
        found = search(CLF, named_graph(split=False), {"hops": [1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 <= found.best_.score(named_graph(split=False)) <= 1
