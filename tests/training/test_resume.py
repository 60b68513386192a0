"""Runs that are killed and resumed must end as if nothing had happened, to the bit."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
from multiprocessing import forkserver

import killable
import numpy as np
import pytest
from examples import MEMBERS, write_recipe
from small import SETTINGS, class_graph

from nagphormer.training.history import read_history

pytestmark = pytest.mark.slow

FORKS = multiprocessing.get_context("forkserver")
UPDATES = 5  # of an epoch: 90 nodes to train on, 20 at a time, so the last batch is smaller
EPOCHS = 8
WAYS = [(way, precision) for way in ("never", "always") for precision in ("fp32", "bf16")]
LEARNING = {"dropout": 0.2, "attention_dropout": 0.2, "feature_dropout": 0.1, "lr": 0.02, "decay_updates": 30}


class Place:
    """A folder with a graph in it, where runs are made."""

    def __init__(self, path):
        self.path = path
        class_graph(sparse=True).save(path / "graph")

    def train(self, run, *more, graph="graph", death=None, **changes):
        """`nagphormer train` in a process of its own; gives its exit code and what it printed."""
        log = self.path / f"{run}.log"
        log.unlink(missing_ok=True)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings(**changes).items()]
        where = ["train", str(self.path / graph), f"--out={self.path / run}", "--predictions"]
        arguments = ["--threads=1", *where, *flags, *more]
        process = FORKS.Process(target=killable.act, args=(arguments, str(log), death or {}))
        process.start()
        process.join(60)
        assert process.exitcode is not None, "it hangs"
        return process.exitcode, log.read_text()

    def kill_in(self, run, epoch, update, *more, **changes):
        """Start a run that kills itself after an update in the middle of an epoch."""
        assert 1 < update < UPDATES
        share = changes.pop("share", float("inf"))  # a checkpoint after every epoch
        number = (epoch - 1) * UPDATES + update
        code, printed = self.train(run, *more, death={"update": number, "share": share}, **changes)
        assert code == -signal.SIGKILL, printed
        assert json.loads((self.path / f"{run}.log.json").read_text()) == {"update": number, "epoch": epoch}
        assert epochs_of(self.path / run) == list(range(1, epoch))
        assert not (self.path / run / "model.safetensors").exists()

    def resume(self, run, **changes):
        code, printed = self.train(run, "--resume", **changes)
        assert code == 0, printed
        return printed


def settings(**changes):
    chosen = SETTINGS | LEARNING | {"batch_size": 20, "epochs": EPOCHS, "patience": 50} | changes
    return {name: value for name, value in chosen.items() if value is not None}


def epochs_of(run):
    return [record["epoch"] for record in read_history(run / "metrics.jsonl")]


def begun(printed):
    """The epochs that a process trained."""
    return [int(line.split()[1]) for line in printed.splitlines() if line.endswith(" begins")]


def checkpoints_of(run):
    return sorted(path.name for path in (run / "state").glob("*.json"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 16
    path.write_bytes(content)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    FORKS.set_forkserver_preload(["killable"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # where the server looks for it
        forkserver.ensure_running()
    return Place(tmp_path_factory.mktemp("resume"))


@pytest.fixture(scope="module")
def whole(place):
    """Runs that were never interrupted, by project_first and precision."""
    for way, precision in WAYS:
        code, printed = place.train(f"whole-{way}-{precision}", project_first=way, precision=precision)
        assert code == 0, printed
    return {(way, precision): place.path / f"whole-{way}-{precision}" for way, precision in WAYS}


def assert_same_run(found, expected):
    for name in ("model.safetensors", "predictions.parquet", "config.yaml"):
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    ours, theirs = (read_history(run / "metrics.jsonl") for run in (found, expected))
    assert [record["epoch"] for record in ours] == list(range(1, EPOCHS + 1))
    assert [record | {"seconds": 0} for record in ours] == [record | {"seconds": 0} for record in theirs]
    outcomes = [json.loads((run / "manifest.json").read_text())["outcome"] for run in (found, expected)]
    assert outcomes[0] == outcomes[1]


def test_the_runs_to_compare_with_differ_from_each_other(whole):
    assert len({(run / "model.safetensors").read_bytes() for run in whole.values()}) == 4
    for run in whole.values():
        losses = [record["train_loss"] for record in read_history(run / "metrics.jsonl")]
        assert len(set(losses)) == EPOCHS
        assert losses[-1] < losses[0]


@pytest.mark.parametrize(("way", "precision"), WAYS)
def test_a_run_killed_in_an_epoch_and_resumed_is_the_uninterrupted_run(place, whole, way, precision):
    run, changes = f"killed-{way}-{precision}", {"project_first": way, "precision": precision}
    place.kill_in(run, 5, 3, **changes)
    assert checkpoints_of(place.path / run) == ["000003.json", "000004.json"]
    assert begun(place.resume(run, **changes)) == [5, 6, 7, 8]
    assert_same_run(place.path / run, whole[way, precision])


def test_checkpoints_made_as_time_allows_are_enough(place, whole):
    place.kill_in("seldom", 7, 2, share=1e-6)
    assert checkpoints_of(place.path / "seldom") == ["000001.json"]
    assert begun(place.resume("seldom"))[0] == 2
    assert_same_run(place.path / "seldom", whole["never", "fp32"])


def test_a_run_killed_twice_is_the_uninterrupted_run(place, whole):
    place.kill_in("twice", 3, 2)
    place.kill_in("twice", 6, 4, "--resume")
    assert begun(place.resume("twice"))[0] == 6
    assert_same_run(place.path / "twice", whole["never", "fp32"])


def test_a_damaged_newest_checkpoint_costs_an_epoch_and_nothing_else(place, whole):
    place.kill_in("damaged", 5, 3)
    flip(place.path / "damaged" / "state" / "000004.safetensors")
    printed = place.resume("damaged")
    assert "warning: the checkpoint 000004 cannot be used" in printed
    assert begun(printed)[0] == 4
    assert_same_run(place.path / "damaged", whole["never", "fp32"])


def test_a_run_whose_checkpoints_are_all_damaged_starts_again(place, whole):
    place.kill_in("ruined", 5, 3)
    for stem in ("000003", "000004"):
        flip(place.path / "ruined" / "state" / f"{stem}.safetensors")
    assert begun(place.resume("ruined"))[0] == 1
    assert_same_run(place.path / "ruined", whole["never", "fp32"])


def test_a_run_killed_before_its_first_checkpoint_is_resumed_from_the_start(place, whole):
    place.kill_in("early", 1, 2)
    assert not (place.path / "early" / "state").exists()
    place.resume("early")
    assert_same_run(place.path / "early", whole["never", "fp32"])


@pytest.mark.parametrize("part", ["tensors_of", "facts_of"])
def test_a_run_killed_while_a_checkpoint_is_written_uses_the_one_before(place, whole, part):
    code, printed = place.train(part, death={part: 5, "share": float("inf")})
    assert code == -signal.SIGKILL, printed
    state = place.path / part / "state"
    assert (state / "000005.safetensors").exists() == (part == "facts_of")
    assert checkpoints_of(place.path / part) == ["000003.json", "000004.json"]
    assert any(".partial-" in path.name for path in state.iterdir())
    assert epochs_of(place.path / part) == [1, 2, 3, 4, 5]
    printed = place.resume(part)
    assert begun(printed)[0] == 5
    assert "warning: the checkpoint" not in printed
    assert_same_run(place.path / part, whole["never", "fp32"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_politely_says_how_to_go_on(place, whole, number):
    run = f"stopped-{number}"
    code, printed = place.train(run, death={"update": 18, "share": float("inf"), "signal": number})
    assert code == 128 + number
    assert "run it again with --resume to go on" in printed
    place.resume(run)
    assert_same_run(place.path / run, whole["never", "fp32"])


def test_a_record_cut_short_by_a_full_disk_is_made_again(place, whole):
    place.kill_in("cut", 5, 3)
    with open(place.path / "cut" / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 5, "train_lo')
    place.resume("cut")
    assert_same_run(place.path / "cut", whole["never", "fp32"])


@pytest.mark.parametrize("exists", [False, True])
def test_resume_starts_afresh_where_there_is_nothing(place, whole, exists):
    run = f"fresh-{exists}"
    if exists:
        (place.path / run).mkdir()
    place.resume(run)
    assert_same_run(place.path / run, whole["never", "fp32"])


def test_a_finished_run_resumed_stays_the_same(place, whole):
    shutil.copytree(whole["never", "fp32"], place.path / "finished")
    before = (place.path / "finished" / "metrics.jsonl").read_bytes()
    assert begun(place.resume("finished")) == []
    assert (place.path / "finished" / "metrics.jsonl").read_bytes() == before
    assert_same_run(place.path / "finished", whole["never", "fp32"])


def content_of(run):
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def recipe(place):
    """Three epochs for the first member, and eight for the others, of five updates each."""
    members = {name: own | {"epochs": 3 if name == "copies" else EPOCHS} for name, own in MEMBERS.items()}
    return write_recipe(place.path, members, batch_size=20, dropout=0.2)


def test_several_members_killed_in_the_second_and_resumed_are_the_uninterrupted_ones(place, recipe):
    given = dict.fromkeys(settings())
    code, printed = place.train("members-whole", f"--recipe={recipe}", **given)
    assert code == 0, printed
    death = {"update": 3 * UPDATES + 3, "share": float("inf")}
    code, printed = place.train("members", f"--recipe={recipe}", death=death, **given)
    assert code == -signal.SIGKILL, printed
    assert begun(printed) == [1, 2, 3, 1, 2, 3, 4]
    code, printed = place.train("members", f"--recipe={recipe}", "--resume", **given)
    assert code == 0, printed
    assert begun(printed) == [*range(4, EPOCHS + 1), *range(1, EPOCHS + 1), *range(1, EPOCHS + 1)]
    ours, theirs = (place.path / name for name in ("members", "members-whole"))
    for name in MEMBERS:
        for file in ("model.safetensors", "config.yaml"):
            assert (ours / "members" / name / file).read_bytes() == (theirs / "members" / name / file).read_bytes()
    for file in ("predictions.parquet", "config.yaml"):
        assert (ours / file).read_bytes() == (theirs / file).read_bytes()


def test_an_existing_run_is_refused_without_resume(place, whole):
    run = whole["never", "fp32"]
    before = content_of(run)
    code, printed = place.train(run.name)
    assert code == 2
    assert "holds a run already" in printed
    assert "--resume" in printed
    assert content_of(run) == before


def test_going_on_with_other_settings_another_graph_or_other_nodes_is_refused(place, whole):
    graph = class_graph(sparse=True)
    class_graph(noise=0.5, sparse=True).save(place.path / "other-graph")
    moved = {"train": np.append(graph.splits["train"], graph.splits["test"][0]), "test": graph.splits["test"][1:]}
    graph.with_splits(val=graph.splits["val"], **moved).save(place.path / "other-nodes")
    run = whole["never", "fp32"]
    before = content_of(run)
    cases = [
        ({"lr": 0.5}, "holds a run with lr=0.02, not 0.5"),
        ({"seed": 3}, "holds a run with seed=0, not 3"),
        ({"hidden_dim": 32}, "holds a run with hidden_dim=16, not 32"),
        ({"graph": "other-graph"}, "holds a run on another graph"),
        ({"graph": "other-nodes"}, "holds a run on other training, validation or test nodes"),
    ]
    for changes, message in cases:
        code, printed = place.train(run.name, "--resume", **changes)
        assert code == 2
        assert message in printed
    assert content_of(run) == before


def test_going_on_with_a_split_more_is_refused(place):
    graph = class_graph(sparse=True)
    graph.with_splits(train=graph.splits["train"], val=graph.splits["val"]).save(place.path / "no-test")
    assert place.train("no-test-run", graph="no-test")[0] == 0
    assert place.train("no-test-run", "--resume")[0] == 2
