"""The folder of a run with several members: whole, gone on with to the bit, and refused where it is damaged."""

import json
import shutil
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import yaml
from examples import MEMBERS, NAMES, multi_label_graph, named_graph
from examples import SETTINGS as EXAMPLE
from small import HERE, same_weights, weights_of

from nagphormer import NodeClassifier, TrainConfig, UserError, hop_tokens
from nagphormer.device import Machine
from nagphormer.inference import predict
from nagphormer.settings import resolve_members
from nagphormer.training import checkpoint, ensemble, loop, sources
from nagphormer.training.ensemble import Ensemble, train_members
from nagphormer.training.ensemble_folder import (
    EnsembleFolder,
    as_begun,
    is_ensemble,
    load_trained,
    replace_trained,
    write_trained,
)
from nagphormer.training.run import Run
from nagphormer.training.run_folder import RunFolder, load_run

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens"),
]
GRAPH = named_graph()
COMMON = EXAMPLE | {"network": "mlp", "linear": False, "dropout": 0.2}


def train(folder=None, graph=GRAPH, members=MEMBERS, recipe="mine", given=None, resume=False, **more):
    configs = {name: TrainConfig(**COMMON | own | (given or {})) for name, own in members.items()}
    taken = None if folder is None else EnsembleFolder.take(folder, resume)
    return train_members(graph, configs, more.pop("here", HERE), recipe, given or {}, taken, **more)


def answer(run, graph=GRAPH):
    return predict.probabilities(run, predict.open_sources(run, graph, "cpu"), np.arange(graph.num_nodes))


def assert_same_run(one, other):
    """To the bit, but for the seconds they took."""
    for ours, theirs in zip(one.parts, other.parts, strict=True):
        assert (ours.name, ours.weight, ours.score, ours.loss) == (
            theirs.name,
            theirs.weight,
            theirs.score,
            theirs.loss,
        )
        assert same_weights(weights_of(ours.run.best.model), weights_of(theirs.run.best.model))
        assert ours.run.config == theirs.run.config
    assert (one.temperature, one.recipe, one.given) == (other.temperature, other.recipe, other.given)
    assert (one.classes, one.graph) == (other.classes, other.graph)


@pytest.fixture(scope="module")
def whole():
    """An ensemble whose training nothing interrupts."""
    return train()[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, whole):
    folder = tmp_path_factory.mktemp("ensemble") / "run"
    train(folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A finished run of several members, to be spoiled."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def edit(folder, **changes):
    """Change what the manifest says; ... leaves it out."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))


def member_with(folder, **changes):
    first, *rest = json.loads((folder / "manifest.json").read_text())["members"]
    edit(folder, members=[first | changes, *rest])


# what is in it


def test_it_holds_a_run_folder_for_each_member_and_what_joins_them(finished):
    assert {path.name for path in finished.iterdir()} == {
        "manifest.json",
        "config.yaml",
        "splits.safetensors",
        "members",
    }
    assert {path.name for path in (finished / "members").iterdir()} == set(MEMBERS)
    manifest = json.loads((finished / "manifest.json").read_text())
    assert (manifest["kind"], manifest["format"], manifest["recipe"], manifest["given"]) == ("run", 3, "mine", {})
    assert [member["name"] for member in manifest["members"]] == list(MEMBERS)
    assert manifest["class_names"] == list(NAMES[:3])


def test_it_comes_back_as_it_was(finished, whole):
    loaded = load_trained(finished)
    assert isinstance(loaded, Ensemble)
    assert_same_run(loaded, whole)
    assert np.array_equal(answer(loaded), answer(whole))
    for split, nodes in GRAPH.splits.items():
        np.testing.assert_array_equal(loaded.splits[split], nodes)


def test_saving_writes_what_training_would_have_written(finished, whole, tmp_path):
    write_trained(tmp_path / "saved", whole)
    assert_same_run(load_trained(tmp_path / "saved"), whole)
    saved, trained = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if "state" not in path.parts}
        for folder in (tmp_path / "saved", finished)
    )
    assert saved.keys() == trained.keys()
    timed = ("manifest.json", "metrics.jsonl")
    assert [path for path in saved if saved[path] != trained[path] and path.name not in timed] == []


def test_several_labels_a_node_come_back(tmp_path):
    graph = multi_label_graph()
    run, _ = train(tmp_path / "run", graph)
    assert np.array_equal(answer(load_trained(tmp_path / "run"), graph), answer(run, graph))


def test_a_member_is_a_run_of_its_own(finished, whole):
    for part in whole.parts:
        alone = load_trained(finished / "members" / part.name)
        assert isinstance(alone, Run)
        assert same_weights(weights_of(alone.best.model), weights_of(part.run.best.model))


def test_its_settings_are_a_recipe_that_trains_the_same(finished, whole, tmp_path):
    path = str(finished / "config.yaml")
    found = resolve_members(path, None, {})
    for part in whole.parts:
        assert found[part.name] == part.run.config  # also what is as it was before there were members
    again, _ = train_members(GRAPH, found, HERE, path, {})
    for ours, theirs in zip(again.parts, whole.parts, strict=True):
        assert same_weights(weights_of(ours.run.best.model), weights_of(theirs.run.best.model))


def test_one_is_told_from_a_run_of_one_model(finished, tmp_path):
    assert is_ensemble(finished)
    assert not is_ensemble(finished / "members" / "flat")
    assert not is_ensemble(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds a run with several members, not of one model"):
        load_run(finished)
    with pytest.raises(UserError, match="holds a run with several members, not of one model: give no other recipe"):
        RunFolder.take(finished, resume=True)
    with pytest.raises(UserError, match="holds a run of one model, not of several"):
        EnsembleFolder.take(finished / "members" / "flat", resume=True)
    with pytest.raises(UserError, match=r"has several members: name the folder of one, .*run/members/…"):
        hop_tokens(GRAPH, 1, statistics=finished)


def test_replacing_a_run_is_whole_or_not_at_all(folder, whole, monkeypatch):
    (folder / "predictions.parquet").write_text("of the model before")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with monkeypatch.context() as broken:
        broken.setattr(EnsembleFolder, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replace_trained(folder, whole)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    replace_trained(folder, whole)
    assert not (folder / "predictions.parquet").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    replace_trained(folder, load_trained(folder / "members" / "flat"))  # and by one model
    assert not is_ensemble(folder)
    replace_trained(folder, whole)
    assert is_ensemble(folder)


def test_what_is_no_run_is_not_replaced(whole, tmp_path):
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="is not a run folder"):
        replace_trained(tmp_path, whole)


# going on


class Stopped(BaseException):
    pass


def stop_in(monkeypatch, name, epoch=None):
    """Have training stop before a member, or before one of its epochs; a checkpoint is made after each."""
    monkeypatch.setattr(checkpoint, "SHARE", inf)
    train_one, train_epoch, now = ensemble._train_one, loop.Trainer._train_epoch, []

    def stopping(graph, member, *rest):
        now.append(member)
        if member == name and epoch is None:
            raise Stopped
        return train_one(graph, member, *rest)

    def stopping_epoch(self, number):
        if (now[-1], number) == (name, epoch):
            raise Stopped
        return train_epoch(self, number)

    monkeypatch.setattr(ensemble, "_train_one", stopping)
    monkeypatch.setattr(loop.Trainer, "_train_epoch", stopping_epoch)


@pytest.mark.parametrize(
    ("name", "epoch", "begun"),
    [
        ("copies", 1, []),
        ("copies", 3, ["copies"]),
        ("labels", None, ["copies"]),
        ("paper", 2, ["copies", "labels", "paper"]),
    ],
)
def test_a_run_that_was_stopped_goes_on_to_the_uninterrupted_run(name, epoch, begun, tmp_path, whole, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_in(patch, name, epoch)
        with pytest.raises(Stopped):
            train(folder)
    assert sorted(path.parent.name for path in folder.glob("members/*/manifest.json")) == begun
    with pytest.raises(UserError, match=r"has not ended: go on with nagphormer train … --out .*run --resume"):
        load_trained(folder)
    epochs = []
    monkeypatch.setattr(
        loop.Trainer,
        "_train_epoch",
        lambda self, epoch, own=loop.Trainer._train_epoch: epochs.append(epoch) or own(self, epoch),
    )
    run, _ = train(folder, resume=True)
    ended = 4 * begun.index(name) if name in begun else 4 * len(begun)
    assert len(epochs) == 16 - ended - ((epoch or 1) - 1 if name in begun else 0)
    assert_same_run(run, whole)
    assert_same_run(load_trained(folder), whole)


def test_an_ended_run_gone_on_with_stays_the_same(folder, whole, monkeypatch):
    before = {path.name: path.read_bytes() for path in (folder / "members" / "paper").iterdir() if path.is_file()}
    monkeypatch.setattr(loop.Trainer, "_train_epoch", lambda *_: pytest.fail("trained"))
    train(folder, resume=True)
    assert_same_run(load_trained(folder), whole)
    assert {
        path.name: path.read_bytes() for path in (folder / "members" / "paper").iterdir() if path.is_file()
    } == before


def test_what_members_took_is_known_after_going_on(folder):
    before = json.loads((folder / "manifest.json").read_text())["members"]
    records = [json.loads(line) for line in (folder / "members" / "flat" / "metrics.jsonl").read_text().splitlines()]
    slow = "".join(json.dumps(record | {"seconds": 100.0}) + "\n" for record in records)
    (folder / "members" / "flat" / "metrics.jsonl").write_text(slow)
    run, _ = train(folder, resume=True)
    assert run.parts[3].train_seconds == pytest.approx(400, abs=1)
    assert before[3]["train_seconds"] < 100


def test_members_that_time_left_out_are_trained_when_it_goes_on(tmp_path, whole):
    run, _ = train(tmp_path / "run", time_limit=1e-6)
    assert [part.name for part in run.parts] == ["copies"]
    assert [part.name for part in load_trained(tmp_path / "run").parts] == ["copies"]
    assert_same_run(train(tmp_path / "run", resume=True)[0], whole)


@pytest.mark.parametrize("rooms", [(1, inf), (2 * 120 * 3 * 8 * 2, inf), (inf, 1)])
def test_going_on_takes_the_members_and_copies_that_were_begun_whatever_fits_now(rooms, tmp_path):
    before, _ = train(tmp_path / "run", room=rooms[0])
    after, _ = train(tmp_path / "run", resume=True, room=rooms[1])
    assert [part.name for part in before.parts] == (["copies"] if rooms[0] == 1 else list(MEMBERS))
    assert before.parts[0].run.config.edge_copies == (2 if rooms[0] == inf else 0)
    assert_same_run(after, before)


def test_going_on_keeps_the_precision_that_was_begun(tmp_path):
    given = {"precision": "auto"}
    before, _ = train(tmp_path / "run", given=given)
    after, _ = train(tmp_path / "run", given=given, resume=True, here=Machine("cpu", 10**10, 0, fast_bf16=True))
    assert {part.run.config.precision for part in after.parts} == {"fp32"}
    assert_same_run(after, before)


def moved_node():
    splits = dict(GRAPH.splits)
    return GRAPH.with_splits(
        **splits | {"test": splits["test"][1:], "train": np.append(splits["train"], splits["test"][0])}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "other"}, "holds a run of the recipe 'mine' with {}, not of 'other' with {}: give the same"),
        ({"given": {"lr": 0.5}}, "of the recipe 'mine' with {}, not of 'mine' with {'lr': 0.5}"),
        ({"graph": named_graph(seed=1)}, "run holds a run on another graph"),
        ({"graph": moved_node()}, "run holds a run on other training, validation or test nodes"),
        ({"members": MEMBERS | {"copies": {"edge_copies": 2, "lr": 0.5}}}, "copies holds a run with lr=0.01, not 0.5"),
    ],
)
def test_going_on_with_something_else_is_refused(changes, message, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=message):
        train(folder, resume=True, **changes)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_going_on_with_other_labels_is_refused(folder):
    with pytest.raises(UserError, match="run holds a run on other labels"):
        train(folder, replace(GRAPH, labels=(GRAPH.labels + 1) % 3), resume=True)


def test_a_run_is_not_written_over(folder):
    with pytest.raises(UserError, match=r"holds a run already: choose another folder \(nagphormer train --resume"):
        train(folder)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_anything_else_in_it_is_left_alone(resume, tmp_path):
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="is not empty: choose another folder"):
        train(tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_settings_of_a_begun_run_are_found_again(folder):
    edit(folder, given={"lr": 0.5})
    assert as_begun(folder, None, {"lr": None, "hops": 2}) == ("mine", {"lr": 0.5, "hops": 2})
    assert as_begun(folder, None, {"lr": 0.25}) == ("mine", {"lr": 0.25})
    assert as_begun(folder, "best", {"lr": None}) == ("best", {"lr": None})
    for other in (folder / "members" / "flat", folder / "nowhere"):
        assert as_begun(other, None, {"lr": None}) == (None, {"lr": None})


# tokens


def test_tokens_are_kept_where_they_are_found_again(tmp_path, monkeypatch, own_cache):
    monkeypatch.setattr(sources, "can_be_written", lambda: False)
    (tmp_path / "runs").mkdir()
    train(tmp_path / "runs" / "run")
    kept = {path.name for path in (tmp_path / "runs").glob("tokens-*")}
    assert len(kept) == 4  # two hops and their two copies, and none
    assert {path.name for path in (tmp_path / "runs" / "run" / "members").iterdir()} == set(MEMBERS)
    monkeypatch.setattr(sources, "make_tokens", lambda *_, **__: pytest.fail("made tokens again"))
    run = load_trained(tmp_path / "runs" / "run")
    predict.open_sources(run, GRAPH, "cpu", folder=tmp_path / "runs" / "run")
    assert {path.name for path in (tmp_path / "runs").glob("tokens-*")} == kept


# damaged


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": "0.5"}, "must be real number, not str"),
        ({"weight": None}, "must be real number, not NoneType"),
        ({"weight": float("nan")}, "weight of copies is nan"),
        ({"weight": -0.2}, "its weights are"),
        ({"weight": 0.99}, "its weights are"),
        ({"score": "good"}, "must be real number"),
        ({"loss": float("inf")}, "loss of copies is inf"),
        ({"train_seconds": None}, "must be real number"),
        ({"name": "../../elsewhere"}, "a member is called '../../elsewhere'"),
        ({"name": ""}, "a member is called ''"),
        ({"name": 3}, "expected string"),
    ],
)
def test_what_is_wrong_with_a_member_is_said(changes, message, folder, run):
    member_with(folder, **changes)
    with pytest.raises(UserError, match=rf"manifest\.json is damaged \(.*{message}.*\): train again"):
        load_trained(folder)
    code, _, err = run("info", folder)
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0, "1", None, 2, ...])
def test_a_temperature_that_is_none_is_refused(value, folder):
    edit(folder, temperature=value)
    with pytest.raises(UserError, match=r"manifest\.json is damaged \(.*temperature.*\): train again"):
        load_trained(folder)


@pytest.mark.parametrize("value", [[], {}, None, 3, "all", [1], [{}]])
def test_members_that_are_none_are_refused(value, folder):
    edit(folder, members=value)
    with pytest.raises(UserError, match=r"manifest\.json is damaged \(.*\): train again"):
        load_trained(folder)


@pytest.mark.parametrize("name", ["given", "graph", "num_classes", "class_names", "multi_label", "tokens"])
def test_a_manifest_that_lacks_something_says_what(name, folder):
    edit(folder, **{name: ...})
    with pytest.raises(UserError, match=f"damaged .it lacks '{name}'"):
        load_trained(folder)


def test_a_member_that_is_not_there_is_named(folder):
    shutil.rmtree(folder / "members" / "paper")
    with pytest.raises(UserError, match="members/paper is not a run folder: it does not exist"):
        load_trained(folder)


def test_a_member_that_has_not_ended_is_named(folder):
    (folder / "members" / "paper" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"the run in .*members/paper has not ended"):
        load_trained(folder)


@pytest.mark.parametrize("graph", [named_graph(seed=1), named_graph(num_classes=4)])
def test_a_member_of_another_run_is_refused(graph, folder, tmp_path):
    NodeClassifier(**COMMON | {"epochs": 1}).fit(graph).save(tmp_path / "other")
    shutil.rmtree(folder / "members" / "flat")
    shutil.copytree(tmp_path / "other", folder / "members" / "flat")
    with pytest.raises(UserError, match=r"members/flat is no member of the run in .*: it was trained on other classes"):
        load_trained(folder)


def test_a_newer_format_is_refused_by_its_version(folder):
    edit(folder, format=4, versions={"nagphormer": "99.0.0"})
    with pytest.raises(UserError, match=r"nagphormer 99\.0\.0 wrote it"):
        load_trained(folder)


def test_nothing_in_it_is_a_pickle(finished):
    for path in finished.rglob("*"):
        assert path.suffix in (".yaml", ".json", ".jsonl", ".safetensors", ".arrow", "")
    yaml.safe_load((finished / "config.yaml").read_text())
