"""Several ranks must learn what one process learns, and survive the death of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from examples import MEMBERS, write_recipe
from small import SETTINGS, class_graph

from nagphormer.training.history import read_history
from nagphormer.training.ranks import ALONE, Ranks

HERE = Path(__file__).parent
EPOCHS = 4
LEARNING = {"dropout": 0.2, "attention_dropout": 0.2, "feature_dropout": 0.1}


class Place:
    """A folder with a graph in it, where runs are made."""

    def __init__(self, path):
        self.path = path
        class_graph(sparse=True).save(path / "graph")

    def train(self, run, *more, ranks=2, deaths=None, restarts=0, recipe=None, **changes):
        """`nagphormer train` under torchrun; gives its exit code and what each rank printed."""
        for log in self.path.glob(f"{run}.log-*"):
            log.unlink()
        settings = SETTINGS | {"batch_size": 20, "epochs": EPOCHS} | changes
        if recipe is not None:
            settings = changes | {"recipe": recipe}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        script = [str(HERE / "rank.py"), str(self.path / f"{run}.log"), json.dumps(deaths or {})]
        where = ["train", str(self.path / "graph"), f"--out={self.path / run}", "--predictions"]
        arguments = ["--threads=1", *where, *flags, *more]
        done = subprocess.run(
            [*launch, f"--max-restarts={restarts}", "--monitor-interval=0.1", "--", *script, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, [(self.path / f"{run}.log-{rank}").read_text() for rank in range(ranks)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def whole(place):
    """Two ranks that nothing interrupts."""
    code, printed = place.train("whole", **LEARNING)
    assert code == 0, printed
    return place.path / "whole"


def history(run):
    return [record | {"seconds": 0} for record in read_history(run / "metrics.jsonl")]


def kill_after(update):
    """Die in the middle of an epoch: it has five updates."""
    assert update % 5 not in (0, 1)
    return {"update": update, "share": float("inf")}


def test_a_share_is_the_same_for_all_give_or_take_one():
    nodes = torch.arange(10)
    shares = [Ranks(rank, 4).share(nodes) for rank in range(4)]
    assert torch.equal(torch.cat(shares), nodes)
    assert [len(share) for share in shares] == [3, 3, 2, 2]
    assert len(Ranks(2, 4).share(nodes[:2])) == 0
    assert torch.equal(ALONE.share(nodes), nodes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 20},  # of 90: the last one is smaller
        {"batch_size": 89, "project_first": "always", "class_weights": "balanced"},  # one node for two ranks
        # the readout's weights have no part; no class is a third of a batch, where a gradient would be all rounding
        {"batch_size": 44, "hops": 0, "clip_norm": 0.5, "monitor": "average_precision"},
    ],
)
def test_two_ranks_learn_what_one_does(place, changes):
    for ranks in (1, 2):
        code, printed = place.train(f"{ranks}-of-{changes['batch_size']}", ranks=ranks, **changes)
        assert code == 0, printed
    one, two = (place.path / f"{ranks}-of-{changes['batch_size']}" for ranks in (1, 2))
    for ours, theirs in zip(history(two), history(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    ours, theirs = (parquet.read_table(run / "predictions.parquet").drop("node_id") for run in (two, one))
    for name in theirs.column_names[1:]:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-4, err_msg=name)
    losses = [record["train_loss"] for record in history(one)]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.slow
def test_only_the_first_rank_speaks(place, whole):
    first, second = ((place.path / f"whole.log-{rank}").read_text() for rank in (0, 1))
    assert "2 ranks" in first
    assert "wrote" in first
    assert [line for line in second.splitlines() if not line.endswith("begins")] == []
    assert {path.name for path in whole.iterdir()} >= {"model.safetensors", "predictions.parquet", "metrics.jsonl"}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_in_mid_epoch_ends_the_job_which_goes_on_to_the_same_weights(place, whole, rank):
    run = place.path / f"dead-{rank}"
    code, printed = place.train(run.name, deaths={str(rank): kill_after(13)}, **LEARNING)
    assert code != 0
    assert json.loads((place.path / f"{run.name}.log-{rank}.json").read_text()) == {"update": 13, "epoch": 3}
    assert "run it again with --resume" in printed[1 - rank], printed
    assert not (run / "model.safetensors").exists()
    assert [record["epoch"] for record in history(run)] == [1, 2]
    code, printed = place.train(run.name, "--resume", **LEARNING)
    assert code == 0, printed
    assert "epoch 3 begins" in printed[0]
    assert "epoch 2 begins" not in printed[0]
    assert_same(run, whole)


@pytest.mark.slow
def test_torchrun_restarts_what_died(place, whole):
    code, printed = place.train("restarted", "--resume", deaths={"1": kill_after(8)}, restarts=1, **LEARNING)
    assert code == 0, printed
    assert json.loads((place.path / "restarted.log-1.json").read_text())["update"] == 8
    assert_same(place.path / "restarted", whole)


# several members


@pytest.fixture(scope="module")
def recipe(place):
    members = MEMBERS | {"labels": {"label_hops": 2, "dropout": 0.0}}
    return write_recipe(place.path, members, batch_size=20, dropout=0.0, attention_dropout=0.0)


@pytest.mark.slow
def test_two_ranks_train_several_members_as_one_does(place, recipe):
    for ranks in (1, 2):
        code, printed = place.train(f"{ranks}-members", ranks=ranks, recipe=recipe)
        assert code == 0, printed
    one, two = (json.loads((place.path / f"{ranks}-members" / "manifest.json").read_text()) for ranks in (1, 2))
    assert [member["name"] for member in two["members"]] == list(MEMBERS)
    for ours, theirs in zip(two["members"], one["members"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["weight"] == pytest.approx(theirs["weight"], abs=0.02)
    tables = [parquet.read_table(place.path / f"{ranks}-members" / "predictions.parquet") for ranks in (1, 2)]
    for name in tables[0].column_names[2:]:
        np.testing.assert_allclose(*(table[name] for table in tables), atol=0.01, err_msg=name)
    first, second = ((place.path / f"2-members.log-{rank}").read_text() for rank in (0, 1))
    assert "4 of 4 members answer together" in first
    assert [line for line in second.splitlines() if not line.endswith("begins")] == []


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 1])
def test_ranks_whose_clocks_differ_leave_out_the_same_members(place, recipe, late):
    run = f"late-{late}"
    code, printed = place.train(run, "--time-limit=1000s", recipe=recipe, deaths={str(late): {"late": 10_000}})
    assert code == 0, printed
    members = json.loads((place.path / run / "manifest.json").read_text())["members"]
    assert len(members) == (1 if late == 0 else 4)  # the first one's clock counts


@pytest.mark.slow
def test_members_whose_ranks_died_go_on_to_the_same_weights(place, recipe):
    code, printed = place.train("members-dead", recipe=recipe, deaths={"1": kill_after(13)})
    assert code != 0
    assert "run it again with --resume" in printed[0]
    for name, more in (("members-dead", ["--resume"]), ("members-whole", [])):
        code, printed = place.train(name, *more, recipe=recipe)
        assert code == 0, printed
    for name in MEMBERS:
        ours, theirs = (
            place.path / run / "members" / name / "model.safetensors" for run in ("members-dead", "members-whole")
        )
        assert ours.read_bytes() == theirs.read_bytes(), name
    ours, theirs = (place.path / run / "predictions.parquet" for run in ("members-dead", "members-whole"))
    assert ours.read_bytes() == theirs.read_bytes()


def assert_same(run, expected):
    for name in ("model.safetensors", "predictions.parquet"):
        assert (run / name).read_bytes() == (expected / name).read_bytes(), name
    assert history(run) == history(expected)


@pytest.mark.slow
def test_a_folder_that_holds_a_run_is_refused_once(place, whole):
    code, (first, second) = place.train("whole", **LEARNING)
    assert code != 0
    assert "holds a run already" in first
    assert "holds a run already" not in second
