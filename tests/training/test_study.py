import pickle
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from small import class_graph
from tuning import SPACE, complete, study_in

from nagphormer import UserError, from_scipy
from nagphormer.training import study as study_file
from nagphormer.training.space import OneOf, Space
from nagphormer.training.study import KILLS, STARTUP

optuna = pytest.importorskip("optuna", reason="needs the extra 'tune'")
GRAPH = class_graph()
pytestmark = pytest.mark.usefixtures("hasty")


def value_of(begun):
    """A made-up result that follows from the settings alone."""
    return complete(round(1 / (1 + abs(np.log(begun.tried["lr"]) + 4)) + 0.01 * begun.tried["hops"], 6))


def run(folder, trials, **changes):
    with study_in(folder, GRAPH, **changes) as study:
        while (begun := study.begin(trials)) is not None:
            study.end(begun, value_of(begun))
        return study.ended


def test_the_first_trial_has_the_settings_to_start_from(tmp_path):
    with study_in(tmp_path, GRAPH, hops=2, lr=0.01, linear=True) as study:
        begun = study.begin(3)
        assert begun.tried == {"hops": 2, "num_layers": 0, "lr": 0.01, "linear": True}
        assert begun.config == study.about.base


def test_the_same_seed_tries_the_same_and_another_something_else(tmp_path):
    one, again, other = (run(tmp_path / name, 14, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert one == again
    assert one[0].tried == other[0].tried
    assert all(mine.tried != theirs.tried for mine, theirs in zip(one[1:], other[1:], strict=True))
    assert len({str(each.tried) for each in one}) == 14


def test_trials_go_on_as_if_they_had_never_stopped(tmp_path):
    whole = run(tmp_path / "whole", 14)
    assert len(run(tmp_path / "parts", 5)) == 5
    with study_in(tmp_path / "parts", GRAPH) as study:
        study.end(begun := study.begin(14), value_of(begun))
        assert study.begin(14).number == 7  # which does not end
    assert run(tmp_path / "parts", 14) == whole


def test_several_at_once_try_different_things_and_places_that_were_lost_are_filled(tmp_path):
    with study_in(tmp_path, GRAPH) as study:
        first, second, third = (study.begin(4) for _ in range(3))
        assert len({str(each.tried) for each in (first, second, third)}) == 3
        study.end(third, value_of(third))
    with study_in(tmp_path, GRAPH) as study:
        assert [study.begin(4).number for _ in range(3)] == [1, 2, 4]
        assert study.begin(4) is None


def test_a_trial_that_was_killed_is_tried_again_but_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(study_file.Study, "leave", lambda self: None)  # as where the process is killed
    for _ in range(KILLS):
        with study_in(tmp_path, GRAPH) as study:
            assert study.ended == []
            assert study.begin(2).number == 1
    with study_in(tmp_path, GRAPH) as study:
        (lost,) = study.ended
        assert (lost.number, lost.state) == (1, "failed")
        assert "killed 3 times" in lost.reason
        assert study.begin(2).number == 2


def test_a_trial_that_ends_after_all_is_not_given_up_later(tmp_path, monkeypatch):
    monkeypatch.setattr(study_file.Study, "leave", lambda self: None)
    for _ in range(KILLS):
        with study_in(tmp_path, GRAPH) as study:
            begun = study.begin(1)
            if study._begun["1"] == KILLS:
                study.end(begun, complete(0.5))
    with study_in(tmp_path, GRAPH) as study:
        assert [each.state for each in study.ended] == ["complete"]


def test_a_trial_that_is_left_in_good_order_may_be_begun_as_often_as_one_likes(tmp_path):
    for _ in range(KILLS + 2):
        with study_in(tmp_path, GRAPH) as study:
            assert study.begin(1).number == 1


def test_the_best_has_the_best_value_then_the_lowest_loss_then_came_first(tmp_path):
    results = [complete(0.5, 0.1), complete(0.7, 0.9), complete(0.7, 0.8), complete(0.7, 0.8)]
    results.append(complete(0.9, state="pruned"))
    for monitor, number in (("accuracy", 3), ("loss", 1)):
        with study_in(tmp_path / monitor, GRAPH, monitor=monitor) as study:
            assert study.best is None
            for result in results:
                study.end(study.begin(9), result)
            assert study.best.number == number


@pytest.mark.parametrize(("monitor", "sign"), [("accuracy", 1), ("loss", -1)])
@pytest.mark.parametrize("length", [{"patience": 8, "epochs": 100}, {"patience": 50, "epochs": 16}])
def test_a_trial_worse_than_the_median_at_its_epoch_is_not_to_go_on(monitor, sign, length, tmp_path):
    def goes_on(study, value, epochs=10):
        begun = study.begin(99)
        answers = [study.report(begun, epoch, sign * value) for epoch in range(1, epochs + 1)]
        study.end(begun, complete(sign * value, state="complete" if all(answers) else "pruned"))
        return answers

    with study_in(tmp_path, GRAPH, monitor=monitor, **length) as study:
        assert all(goes_on(study, 0.9))
        assert all(goes_on(study, 0.1))  # too few to compare with
        for _ in range(STARTUP - 2):
            assert all(goes_on(study, 0.5))
        assert all(goes_on(study, 0.6))
        assert goes_on(study, 0.4) == [True] * 7 + [False] * 3
        assert all(goes_on(study, 0.4, epochs=7))
    with study_in(tmp_path, GRAPH, monitor=monitor, **length) as study:
        assert goes_on(study, 0.4) == [True] * 7 + [False] * 3


def test_failed_and_pruned_trials_count_and_are_kept(tmp_path):
    with study_in(tmp_path, GRAPH) as study:
        study.end(study.begin(3), complete(None, None, state="failed", reason="the loss became nan"))
        study.end(study.begin(3), complete(None, None, state="pruned", reason="no room"))
        before = study.ended
    with study_in(tmp_path, GRAPH) as study:
        assert study.ended == before
        assert [each.state for each in before] == ["failed", "pruned"]
        assert study.best is None
        assert study.begin(3).number == 3


def other_graph(**changes):
    parts = {"features": GRAPH.features, "labels": GRAPH.labels, "splits": GRAPH.splits} | changes
    return from_scipy(GRAPH.adjacency(), **parts)


def flipped(split):
    labels = GRAPH.labels.copy()
    labels[GRAPH.splits[split]] = np.roll(labels[GRAPH.splits[split]], 1)
    return other_graph(labels=labels)


def moved(one, other):
    first, second = (GRAPH.splits[split].copy() for split in (one, other))
    first[0], second[0] = second[0], first[0]
    return other_graph(splits=GRAPH.splits | {one: first, other: second})


FEWER = Space("wide", None, {**SPACE.choices, "hops": OneOf((1, 2, 3))})
REFUSED = [
    (other_graph(features=GRAPH.features + 1), {}, "on another graph: choose another folder"),
    (moved("train", "val"), {}, "on other nodes"),
    (flipped("val"), {}, "on other labels"),
    (flipped("train"), {}, "on other labels"),
    (GRAPH, {"space": replace(SPACE, name="paper")}, "of the space 'wide', not 'paper': give that, or choose another"),
    (GRAPH, {"space": FEWER}, "that tried other values of hops: give the same flags"),
    (GRAPH, {"space": SPACE.without(["hops", "lr"])}, "that tried other values of hops, lr: "),
    (GRAPH, {"seed": 1}, "with seed=0, not 1: give that, or choose another folder"),
    (GRAPH, {"monitor": "loss"}, "with monitor='accuracy', not 'loss'"),
]


@pytest.mark.parametrize(("graph", "changes", "message"), REFUSED)
def test_trials_about_something_else_are_refused(graph, changes, message, tmp_path):
    run(tmp_path, 1)
    before = (tmp_path / "trials.sqlite").read_bytes()
    with pytest.raises(UserError, match=f"{tmp_path} holds trials .*{message}"), study_in(tmp_path, graph, **changes):
        pass
    assert (tmp_path / "trials.sqlite").read_bytes() == before


@pytest.mark.parametrize("graph", [flipped("test"), other_graph(splits={k: GRAPH.splits[k] for k in ("train", "val")})])
def test_test_nodes_make_no_difference(graph, tmp_path):
    run(tmp_path, 1)
    with study_in(tmp_path, graph) as study:
        assert len(study.ended) == 1


def test_trials_may_go_on_on_another_device(tmp_path):
    run(tmp_path, 1, device="cpu")
    assert len(run(tmp_path, 2, device=None)) == 2


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no trials"), study_in(tmp_path, GRAPH):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "trials.sqlite").write_text("no database, but longer than the header of one would be" * 9)
    with (
        pytest.raises(UserError, match=r"cannot use .*trials.sqlite \(file is not a database\)"),
        study_in(tmp_path, GRAPH),
    ):
        pass


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"), study_in(tmp_path / "file" / "folder", GRAPH):
        pass


def test_another_process_in_the_folder_is_refused(tmp_path):
    message = "another process is tuning in"
    with study_in(tmp_path, GRAPH), pytest.raises(UserError, match=message), study_in(tmp_path, GRAPH):
        pass
    run(tmp_path, 1)


def test_a_path_may_hold_any_character(tmp_path):
    folder = tmp_path / "50% {new}?#é"
    run(folder, 1)
    assert (folder / "trials.sqlite").is_file()


def test_no_pickle_is_written_or_read(tmp_path, monkeypatch):
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    run(tmp_path, 12)
    run(tmp_path, 13)
    with sqlite3.connect(tmp_path / "trials.sqlite") as database:
        kinds = database.execute(
            "SELECT DISTINCT typeof(value_json) FROM trial_user_attributes UNION "
            "SELECT DISTINCT typeof(distribution_json) FROM trial_params"
        )
        assert kinds.fetchall() == [("text",)]


def test_optuna_reads_the_trials(tmp_path):
    ended = run(tmp_path, 3)
    found = optuna.load_study(study_name="nagphormer tune", storage=f"sqlite:///{tmp_path / 'trials.sqlite'}")
    assert [trial.value for trial in found.trials] == [each.value for each in ended]
    assert found.best_params["hops"] in (1, 2)
