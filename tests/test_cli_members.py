"""The command line with a recipe of several members: trained, gone on with, described and used like one model."""

import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest
import torch
import yaml
from examples import MEMBERS, SETTINGS, multi_label_graph, named_graph, write_recipe

from nagphormer import NodeClassifier, hop_tokens
from nagphormer.metrics import METRICS
from nagphormer.training import loop
from nagphormer.training.task import Task

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens"),
]
BYTES = 120 * 3 * 8 * 2
"""Of tokens with two hops."""


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A graph, a recipe, and what its members learned."""
    folder = tmp_path_factory.mktemp("members")
    graph = named_graph()
    graph.save(folder / "graph")
    NodeClassifier(recipe=write_recipe(folder)).fit(graph).save(folder / "fitted")
    return folder


@pytest.fixture
def place(finished, run, tmp_path):
    """The graph and the recipe, where commands are run."""
    shutil.copytree(finished / "graph", tmp_path / "graph")
    shutil.copy(finished / "mine.yaml", tmp_path)
    return tmp_path


@pytest.fixture
def trained(place, run):
    code, _, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml")
    assert code == 0, err
    return place / "run"


def weights_of(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("members/*/model.safetensors")}


def facts_of(folder):
    """What the manifest says, but for seconds."""
    manifest = json.loads((folder / "manifest.json").read_text())
    members = [{name: each[name] for name in ("name", "weight", "score", "loss")} for each in manifest["members"]]
    return manifest["temperature"], members


# train


def test_the_command_line_trains_what_the_estimator_does(trained, finished):
    assert weights_of(trained) == weights_of(finished / "fitted")
    assert facts_of(trained) == facts_of(finished / "fitted")
    graph = named_graph()
    ours, theirs = (NodeClassifier.load(folder) for folder in (trained, finished / "fitted"))
    assert np.array_equal(ours.predict_proba(graph), theirs.predict_proba(graph))


def test_train_tells_of_every_member_and_what_next(place, run):
    code, out, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml")
    assert code == 0
    first, *rows = out.splitlines()
    assert first == "wrote run: 4 of 4 members answer together"
    assert {row.split()[0] for row in rows} == set(MEMBERS)
    assert all("validation accuracy 0." in row for row in rows)
    assert "member 3 of 4, paper" in err
    assert err.endswith("next: nagphormer evaluate run graph --split test\n")


def test_json_and_quiet_are_kept(place, run):
    code, out, err = run("--quiet", "train", "graph", "--out", "run", "--recipe", "mine.yaml", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["path"] == "run"
    assert facts["members"] == NodeClassifier.load("run").leaderboard()


def test_best_is_trained_by_its_name(place, run):
    code, _, err = run("train", "graph", "--out", "run", "--recipe", "best", "--epochs", 1, "--hidden-dim", 16)
    assert code == 0, err
    loaded = NodeClassifier.load("run")
    assert (loaded.recipe, loaded.epochs, loaded.hidden_dim) == ("best", 1, 16)
    assert len(loaded.leaderboard()) > 3


def test_predictions_come_with_the_run_where_they_are_asked_for(place, run):
    assert run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--predictions")[0] == 0
    table = pyarrow.parquet.read_table(place / "run" / "predictions.parquet")
    assert table.column_names == ["node_id", "prediction", "probability", "p_ash", "p_birch", "p_cedar"]
    graph = named_graph()
    expected = NodeClassifier.load("run").predict_proba(graph)
    np.testing.assert_allclose(table["p_birch"], expected[:, 1], rtol=1e-5)
    assert run("train", "graph", "--out", "other", "--recipe", "mine.yaml")[0] == 0
    assert not (place / "other" / "predictions.parquet").exists()


def test_several_labels_a_node_go_through_all_the_commands(place, run):
    multi_label_graph().save(place / "labels")
    code, out, err = run("train", "labels", "--out", "run", "--recipe", "mine.yaml")
    assert code == 0, err
    assert "validation micro-F1" in out
    assert set(json.loads(run("evaluate", "run", "labels", "--json")[1])) == set(METRICS)
    assert run("predict", "run", "labels", "--out", "found.csv")[0] == 0


def test_a_time_limit_leaves_members_out(place, run):
    code, out, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--time-limit", "0.001s")
    assert code == 0
    assert out.startswith("wrote run: 1 of 1 members")
    assert "3 of 4 members are left out" in err
    assert run("train", "graph", "--out", "other", "--recipe", "mine.yaml", "--time-limit", "10m")[0] == 0
    assert len(NodeClassifier.load("other").leaderboard()) == 4


def test_too_little_disk_leaves_copies_out_and_then_members(place, run):
    code, out, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--disk", f"{BYTES}B")
    assert code == 0
    assert out.startswith("wrote run: 3 of 3 members")
    assert "copies with fewer edges do not fit 5.76 kB: copies go without" in err
    assert "members whose tokens do not fit 5.76 kB are left out: flat" in err
    assert NodeClassifier.load(place / "run" / "members" / "copies").config_.edge_copies == 0


def test_half_of_what_is_free_is_taken_unless_told_otherwise(place, run, monkeypatch):
    usage = shutil.disk_usage(place)
    for name, free in (("little", 2 * 3 * BYTES - 2), ("enough", 2 * 4 * BYTES)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        _, _, err = run("train", "graph", "--out", name, "--recipe", "mine.yaml", "--epochs", 1)
        assert ("copies go without" in err) == (name == "little")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "tokens"], "the members of recipe mine.yaml read tokens of several kinds: leave --tokens out"),
        (["--tensorboard"], "--tensorboard is for one model, and recipe mine.yaml has several members: leave it out"),
        (["--disk", "much"], "cannot read 'much' as a size"),
        (["--time-limit", "soon"], "no time"),
        (["--hops", "-1"], "hops must be 0 or more"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(flags, message, place, run):
    hop_tokens(named_graph(), 2, out=place / "tokens")
    code, out, err = run("--quiet", "train", "graph", "--out", "run", "--recipe", "mine.yaml", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (place / "run").exists()


@pytest.mark.parametrize("flag", [["--time-limit", "10m"], ["--disk", "1GB"]])
def test_limits_of_members_are_refused_for_one_model(flag, place, run):
    code, _, err = run("train", "graph", "--out", "run", *flag)
    assert (code, err) == (
        2,
        "nagphormer: --time-limit and --disk are for a recipe with several members, such as --recipe best\n",
    )


# going on


def interrupt(monkeypatch, epochs):
    """Stop training before one of the epochs of all members together."""
    train_epoch, begun = loop.Trainer._train_epoch, []

    def interrupted(self, epoch):
        begun.append(epoch)
        if len(begun) > epochs:
            raise KeyboardInterrupt
        return train_epoch(self, epoch)

    monkeypatch.setattr(loop.Trainer, "_train_epoch", interrupted)


@pytest.mark.parametrize("epochs", [0, 2, 4, 7, 15])
@pytest.mark.parametrize("named", [False, True])
def test_an_interrupted_run_goes_on_to_the_uninterrupted_one(epochs, named, place, run, finished, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, epochs)
        code, out, err = run("--quiet", "train", "graph", "--out", "run", "--recipe", "mine.yaml")
    assert (code, out) == (130, "")
    assert "run it again with --resume to go on: what was learned so far is in run" in err
    code, out, err = run("evaluate", "run", "graph")
    assert code == 2
    assert "the run in run has not ended: go on with nagphormer train … --out run --resume" in err
    assert run("train", "graph", "--out", "run", "--recipe", "mine.yaml")[0] == 2
    again = ["--recipe", "mine.yaml"] if named else []
    code, _, err = run("train", "graph", "--out", "run", "--resume", *again)
    assert code == 0, err
    assert weights_of(place / "run") == weights_of(finished / "fitted")
    assert facts_of(place / "run") == facts_of(finished / "fitted")


def test_going_on_takes_recipe_and_settings_of_the_begun_run(place, run):
    code, _, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--hops", 1, "--time-limit", "0.001s")
    assert code == 0, err
    assert len(NodeClassifier.load("run").leaderboard()) == 1
    assert run("train", "graph", "--out", "run", "--resume")[0] == 0
    loaded = NodeClassifier.load("run")
    assert len(loaded.leaderboard()) == 4
    assert loaded.config_.hops == 1


def test_going_on_with_one_model_takes_its_settings_too(place, run):
    settings = SETTINGS | {"hops": 1, "lr": 0.25, "final_lr": 0.125}
    (place / "one.yaml").write_text(yaml.safe_dump(settings))
    assert run("train", "graph", "--out", "run", "--recipe", "one.yaml", "--epochs", 2)[0] == 0
    assert run("train", "graph", "--out", "whole", "--recipe", "one.yaml", "--epochs", 5)[0] == 0
    (place / "one.yaml").unlink()
    code, _, err = run("train", "graph", "--out", "run", "--resume", "--epochs", 5)
    assert code == 0, err
    config = NodeClassifier.load("run").config_
    assert (config.hops, config.lr, config.epochs) == (1, 0.25, 5)
    ours, theirs = ((place / name / "model.safetensors").read_bytes() for name in ("run", "whole"))
    assert ours == theirs
    code, _, err = run("train", "graph", "--out", "run", "--resume", "--lr", 0.5)
    assert code == 2
    assert "holds a run with lr=0.25, not 0.5" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epochs", "9"], "run holds a run of the recipe 'mine.yaml' with {}, not of 'mine.yaml' with {'epochs': 9}"),
        (
            ["--recipe", "best"],
            "run holds a run of the recipe 'mine.yaml' with {}, not of 'best' with {}: give the same",
        ),
        (["--recipe", "transformer"], "run holds a run with several members, not of one model: give no other recipe"),
    ],
)
def test_going_on_with_something_else_is_refused(flags, message, trained, run):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    code, _, err = run("--quiet", "train", "graph", "--out", "run", "--resume", *flags)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_one_model_does_not_go_on_as_several(place, run):
    assert run("train", "graph", "--out", "run", "--epochs", 1)[0] == 0
    code, _, err = run("train", "graph", "--out", "run", "--resume", "--recipe", "mine.yaml")
    assert code == 2
    assert "run holds a run of one model, not of several: choose another folder" in err


def test_a_folder_of_the_users_is_left_alone(place, run):
    for flags in ([], ["--resume"]):
        code, _, err = run("--quiet", "train", "graph", "--out", ".", "--recipe", "mine.yaml", *flags)
        assert (code, err) == (2, "nagphormer: . is not empty: choose another folder\n")
    assert sorted(path.name for path in place.iterdir()) == ["graph", "mine.yaml"]


def test_a_member_whose_loss_is_no_number_is_left_out(place, run, monkeypatch):
    loss, calls = Task.loss, []

    def spoiled(self, logits, nodes, *smoothing):
        calls.append(1)
        return loss(self, logits, nodes, *smoothing) * (float("nan") if len(calls) == 1 else 1)

    monkeypatch.setattr(Task, "loss", spoiled)
    code, out, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml")
    assert code == 0
    assert out.startswith("wrote run: 3 of 3 members")
    assert "copies is left out: its loss stopped being a number" in err
    assert run("evaluate", "run", "graph")[0] == 0


# info, evaluate and predict


def test_info_describes_members(trained, run):
    code, out, err = run("info", "run", "--verify")
    assert (code, err) == (0, "next: nagphormer evaluate run GRAPH --split test\n")
    lines = out.splitlines()
    told = dict(line.split(None, 1) for line in lines[:-4])
    assert (told["recipe"], told["ended"], told["can"]) == ("mine.yaml", "True", "evaluate, predict")
    assert told["splits"] == "train 72, val 24, test 24"
    assert told["weights"] == "fit"
    loaded = NodeClassifier.load(trained)
    for line, row in zip(lines[-4:], loaded.leaderboard(), strict=True):
        assert line.split()[:3] == [row["name"], "weight", f"{row['weight']:.2f},"]
    facts = json.loads(run("info", "run", "--json")[1])
    assert facts["members"] == loaded.leaderboard()
    assert (facts["temperature"], facts["nodes"], facts["can"]) == (loaded.temperature_, 120, ["evaluate", "predict"])
    assert facts["given"] == {}


def test_info_says_how_to_go_on_with_members_that_have_not_ended(place, run, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, 6)
        run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--hops", 1)
    for flag in ([], ["--verify"]):
        code, out, err = run("info", "run", *flag)
        assert (code, err) == (0, "next: nagphormer train GRAPH --out run --resume\n")
        told = dict(line.split(None, 1) for line in out.splitlines())
        assert (told["ended"], told["given"], told["can"]) == ("False", "hops 1", "resume")
    facts = json.loads(run("info", "run", "--json")[1])
    assert (facts["ended"], facts["members"], facts["temperature"], facts["can"]) == (False, [], None, ["resume"])


def test_info_can_see_that_weights_of_a_member_are_damaged(trained, run):
    (trained / "members" / "paper" / "model.safetensors").write_bytes(b"not")
    assert run("info", "run")[0] == 0
    code, _, err = run("info", "run", "--verify")
    assert code == 2
    assert "members/paper/model.safetensors is not a safetensors file or is damaged" in err


def test_evaluate_and_predict_give_what_the_estimator_does(trained, run, place):
    graph, loaded = named_graph(), NodeClassifier.load(trained)
    facts = json.loads(run("evaluate", "run", "graph", "--json")[1])
    assert facts == {name: pytest.approx(loaded.score(graph, "test", name), abs=1e-5) for name in METRICS}
    assert run("predict", "run", "graph", "--out", "found.parquet")[0] == 0
    table = pyarrow.parquet.read_table(place / "found.parquet")
    assert table["prediction"].to_pylist() == loaded.predict(graph).tolist()
    assert table.column_names[-3:] == ["label", "split", "correct"]
    code, out, _ = run("predict", "run", "graph", "--out", "-", "--nodes", "node-7,node-3")
    assert code == 0
    assert [row.split(",")[0] for row in out.splitlines()[1:]] == ['"node-7"', '"node-3"']


def test_tokens_that_were_made_are_used_again(trained, run, own_cache):
    stores = sorted(own_cache.glob("tokens/small/*"))
    assert len(stores) == 4
    before = [(store / "block-000.bin").stat().st_mtime_ns for store in stores]
    for command in (["evaluate", "run", "graph"], ["train", "graph", "--out", "again", "--recipe", "mine.yaml"]):
        code, _, err = run(*command)
        assert code == 0
        assert "storing columns" not in err
    assert sorted(own_cache.glob("tokens/small/*")) == stores
    assert [(store / "block-000.bin").stat().st_mtime_ns for store in stores] == before


def test_a_graph_with_few_training_nodes_is_answered_without_members_that_read_labels(trained, run, place):
    graph = named_graph()
    graph.subgraph(np.setdiff1d(np.arange(120), graph.splits["train"][30:])).save(place / "part")
    code, _, err = run("--quiet", "predict", "run", "part", "--out", "found.csv")
    assert code == 0
    assert "too few of the training nodes for members that read their labels: labels are not asked" in err
    assert run("evaluate", "run", "part", "--split", "test")[0] == 0
