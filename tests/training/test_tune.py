import multiprocessing
import os
import signal

import numpy as np
import pytest
from small import HERE, class_graph
from tuning import study_in, tuned, without_seconds

from nagphormer import UserError, from_scipy
from nagphormer.device import Machine
from nagphormer.training import study as study_file
from nagphormer.training import tune as tune_file
from nagphormer.training.task import Task
from nagphormer.training.tune import Setup, tune

pytest.importorskip("optuna", reason="needs the extra 'tune'")
pytestmark = pytest.mark.usefixtures("hasty", "one_thread")
GRAPH = class_graph()


def test_trials_are_run_until_there_are_as_many_as_asked_for(tmp_path):
    assert [each.number for each in tuned(tmp_path, GRAPH, 2)] == [1, 2]
    assert [each.number for each in tuned(tmp_path, GRAPH, 4)] == [1, 2, 3, 4]
    assert len(tuned(tmp_path, GRAPH, 3)) == 4


def test_an_interrupted_tuning_goes_on_as_if_it_had_never_stopped(tmp_path, monkeypatch):
    whole = tuned(tmp_path / "whole", GRAPH, 12)
    loss, calls = Task.loss, []

    def interrupted(self, logits, nodes, *smoothing):
        calls.append(len(nodes))
        if len(calls) == 150:
            raise KeyboardInterrupt
        return loss(self, logits, nodes, *smoothing)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path / "parts", GRAPH, 12)
    with study_in(tmp_path / "parts", GRAPH) as study:
        assert 3 < len(study.ended) < 12
    assert without_seconds(tuned(tmp_path / "parts", GRAPH, 12)) == without_seconds(whole)
    assert len({each.state for each in whole} | {str(each.tried) for each in whole}) > 12


def test_labels_of_test_nodes_are_not_looked_at(tmp_path):
    labels = GRAPH.labels.copy()
    labels[GRAPH.splits["test"]] = np.random.default_rng(1).permutation(labels[GRAPH.splits["test"]])
    garbage = from_scipy(GRAPH.adjacency(), GRAPH.features, labels, GRAPH.splits)
    assert (garbage.labels != GRAPH.labels).sum() > 10
    one, other = (tuned(tmp_path / name, graph, 4) for name, graph in (("true", GRAPH), ("garbage", garbage)))
    assert without_seconds(one) == without_seconds(other)


def test_what_does_badly_is_pruned(tmp_path, monkeypatch):
    monkeypatch.setattr(study_file, "STARTUP", 2)
    ended = tuned(tmp_path, GRAPH, 8, epochs=6)
    pruned = [each for each in ended if each.state == "pruned"]
    assert pruned
    assert all(3 <= each.epochs < 6 and not each.reason for each in pruned)
    assert max(each.value for each in pruned) < max(each.value for each in ended)


def test_a_diverged_trial_counts_as_failed_and_others_follow(tmp_path, monkeypatch):
    loss, calls = Task.loss, []

    def spoiled(self, logits, nodes, *smoothing):
        calls.append(len(nodes))
        return loss(self, logits, nodes, *smoothing) * (float("nan") if len(calls) < 3 else 1)

    monkeypatch.setattr(Task, "loss", spoiled)
    first, second = tuned(tmp_path, GRAPH, 2)
    assert (first.state, second.state) == ("failed", "complete")
    assert "the loss became nan" in first.reason


def test_when_nothing_can_be_run_the_tuning_ends(tmp_path):
    with pytest.raises(UserError, match="3 trials in a row could not be run, the last one because: project_first='alw"):
        tuned(tmp_path, GRAPH, 50, project_first="always")
    with study_in(tmp_path, GRAPH, project_first="always") as study:
        assert [each.state for each in study.ended] == ["pruned"] * 3


def test_when_the_time_is_up_what_runs_is_dropped(tmp_path, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(tune_file.time, "perf_counter", lambda: next(now))
    assert tuned(tmp_path, GRAPH, 4, seconds=2) == []  # within the first trial
    ended = tuned(tmp_path, GRAPH, 4, seconds=25)
    assert 0 < len(ended) < 4
    assert [each.number for each in ended] == list(range(1, len(ended) + 1))


def test_a_machine_is_shared_between_jobs():
    gpu = Machine("cuda", memory=10**9, gpu_memory=9 * 10**9, fast_bf16=True)
    assert Setup.of("g", False, 0, "", 3, gpu).gpu_memory == 3 * 10**9
    assert Setup.of("g", False, 0, "", 1, gpu).gpu_memory is None
    assert Setup.of("g", False, 0, "", 3, HERE).gpu_memory is None
    assert Setup.of("g", False, 0, "", 3, HERE).threads == 1


# jobs


@pytest.fixture
def path(tmp_path):
    GRAPH.save(tmp_path / "graph")
    return tmp_path / "graph"


def workers():
    return multiprocessing.active_children()


@pytest.mark.slow
def test_two_jobs_run_all_trials_as_one_would_run_each(tmp_path, path):
    ended = tuned(tmp_path / "two", GRAPH, 5, jobs=2, path=path)
    assert [each.number for each in ended] == [1, 2, 3, 4, 5]
    alone = tuned(tmp_path / "one", GRAPH, 5)
    assert without_seconds(ended[:1]) == without_seconds(alone[:1])
    assert workers() == []
    more = tuned(tmp_path / "two", GRAPH, 6)
    assert more[:5] == ended


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_trial_and_is_replaced(tmp_path, path):
    with study_in(tmp_path / "out", GRAPH, epochs=40) as study:
        setup = Setup.of(str(path), False, 0, tmp_path / "out", 2, HERE)
        trials = tune(study, GRAPH, HERE, setup, 6)
        next(trials)
        victim = workers()[0].pid
        os.kill(victim, signal.SIGKILL)
        states = [each.state for each in trials]
        assert len(study.ended) == 6
    (lost,) = [each for each in study.ended if each.state == "failed"]
    assert "was killed (exit code -9)" in lost.reason
    assert "complete" in states


@pytest.mark.slow
def test_when_a_tuning_is_left_its_workers_end(tmp_path, path):
    with study_in(tmp_path / "out", GRAPH, epochs=200) as study:
        setup = Setup.of(str(path), False, 0, tmp_path / "out", 2, HERE)
        trials = tune(study, GRAPH, HERE, setup, 6)
        next(trials)
        assert len(workers()) == 2
        trials.close()
        assert workers() == []
    with study_in(tmp_path / "out", GRAPH, epochs=200) as study:
        assert study.begin(6).number == 2


@pytest.mark.slow
def test_what_a_worker_raises_ends_the_tuning(tmp_path, path, capfd):
    (path / "labels.npy").unlink()
    with pytest.raises(RuntimeError, match="a worker process ended by itself"):
        tuned(tmp_path / "out", GRAPH, 2, jobs=2, path=path)
    assert "labels.npy" in capfd.readouterr().err
    assert workers() == []


@pytest.mark.slow
def test_time_that_is_up_ends_workers(tmp_path, path):
    ended = tuned(tmp_path / "out", GRAPH, 50, jobs=2, path=path, seconds=0.5)
    assert ended == []
    assert workers() == []
