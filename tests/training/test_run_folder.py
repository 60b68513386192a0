import json
import os
import pickle
import shutil
import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from small import HERE, SETTINGS, class_graph, quick, same_weights, sparse_graph, tokens_of, train_model, weights_of

from nagphormer import TrainConfig, UserError, from_scipy, hop_tokens
from nagphormer.device import Machine
from nagphormer.inference import predict
from nagphormer.settings import settings_to_write
from nagphormer.training.run import StoreFacts
from nagphormer.training.run_folder import RunFolder, check_vacant_run, is_finished, load_run
from nagphormer.training.sources import tokens_folder

GRAPH = class_graph()


def trained(graph=GRAPH, store=None, folder=None, here=None, **changes):
    return train_model(graph, quick(**changes), store, folder, here)[0]


@pytest.fixture
def folder(tmp_path):
    """A finished run."""
    trained(folder=tmp_path / "run")
    return tmp_path / "run"


class Bomb:
    """A pickle that makes a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_run_folder_holds_all_that_is_needed_and_no_pickle(folder):
    files = {path.name for path in folder.iterdir()}
    assert files == {
        "manifest.json",
        "model.safetensors",
        "config.yaml",
        "metrics.jsonl",
        "splits.safetensors",
        "state",
    }
    assert is_finished(folder)
    assert tokens_folder(folder, GRAPH, tokens_of(quick())).is_dir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["kind"], manifest["seed"], manifest["num_classes"], manifest["input_dim"]) == ("run", 0, 3, 8)
    assert manifest["graph"]["fingerprint"] == GRAPH.fingerprint
    assert manifest["outcome"]["epochs"] == 4
    assert set(manifest["versions"]) == {"nagphormer", "torch", "numpy", "python"}
    assert [json.loads(line)["epoch"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4]


def test_the_settings_are_saved_resolved(tmp_path):
    trained(folder=tmp_path / "run", precision="auto", project_first="auto")
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["precision"] in ("fp32", "bf16")
    assert saved["project_first"] == "never"
    assert saved.keys() == settings_to_write(TrainConfig(**SETTINGS)).keys()


def test_a_run_comes_back_as_it_was(folder):
    expected, loaded = trained(), load_run(folder)
    assert same_weights(weights_of(loaded.best.model), weights_of(expected.best.model))
    assert not loaded.best.model.training
    assert loaded.config == expected.config
    assert loaded.classes == expected.classes
    assert loaded.best.outcome == expected.best.outcome
    assert (loaded.graph, loaded.best.num_parameters) == (expected.graph, expected.best.num_parameters)
    assert [record["val_loss"] for record in loaded.best.history] == [
        record["val_loss"] for record in expected.best.history
    ]
    for split, nodes in GRAPH.splits.items():
        np.testing.assert_array_equal(loaded.splits[split], nodes)


def test_saving_writes_what_training_would_have_written(folder, tmp_path):
    result = trained()
    RunFolder.take(tmp_path / "saved").write(result)
    for name in ("model.safetensors", "config.yaml", "splits.safetensors"):
        assert (tmp_path / "saved" / name).read_bytes() == (folder / name).read_bytes()
    assert load_run(tmp_path / "saved").best.history == result.best.history


def test_class_names_come_back(tmp_path):
    names = np.array(["art", "biology", "chess"])[GRAPH.labels]
    graph = from_scipy(GRAPH.adjacency(), GRAPH.features, names, GRAPH.splits)
    trained(graph, folder=tmp_path / "run")
    assert load_run(tmp_path / "run").classes.names == ("art", "biology", "chess")


def test_a_graph_without_test_nodes_is_trained_on(tmp_path):
    splits = {split: GRAPH.splits[split] for split in ("train", "val")}
    graph = GRAPH.with_splits(**splits)
    assert same_weights(
        weights_of(trained(graph, folder=tmp_path / "run").best.model), weights_of(trained().best.model)
    )
    assert set(load_run(tmp_path / "run").splits) == {"train", "val"}


def test_a_diverged_run_says_so_and_what_is_left(tmp_path):
    result = trained(folder=tmp_path / "run", lr=1e30, warmup_updates=0, epochs=20)
    assert "became" in result.diverged
    assert "lower lr, or set clip_norm to 1" in result.diverged
    result.best.outcome["best_epoch"] = 0
    assert "only the initial weights are left" in result.diverged
    result.best.outcome["best_epoch"] = 7
    assert "the weights of epoch 7 are kept" in result.diverged
    assert all(weight.isfinite().all() for weight in load_run(tmp_path / "run").best.model.parameters())
    assert trained().diverged == ""


def test_a_run_that_has_not_ended_is_not_opened(folder):
    (folder / "model.safetensors").unlink()
    assert not is_finished(folder)
    with pytest.raises(UserError, match=r"has not ended: go on with nagphormer train … --out .* --resume"):
        load_run(folder)


def test_what_is_no_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="is not a run folder"):
            load_run(path)


def test_a_setting_of_a_newer_version_names_that_version(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"versions": {"nagphormer": "99.1.0"}}))
    with open(folder / "config.yaml", "a") as file:
        file.write("tomorrow: 1\n")
    with pytest.raises(UserError, match=r"unknown setting 'tomorrow'; nagphormer 99\.1\.0 wrote it and this is .* pip"):
        load_run(folder)


def test_weights_of_another_network_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    for changed in ({"norm.weight": torch.ones(5)}, {}):
        save_file({name: tensor for name, tensor in weights.items() if name != "norm.weight"} | changed, folder / "new")
        (folder / "new").replace(folder / "model.safetensors")
        with pytest.raises(
            UserError, match=r"does not fit config.yaml and manifest.json: norm.weight should be \(16,\)"
        ):
            load_run(folder)


def test_damaged_weights_are_refused(folder):
    os.truncate(folder / "model.safetensors", 500)
    with pytest.raises(UserError, match="is not a safetensors file or is damaged"):
        load_run(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "splits.safetensors", "config.yaml", "manifest.json"])
def test_a_planted_pickle_is_refused_and_never_run(folder, tmp_path, name):
    bomb = Bomb(tmp_path / "mark")
    torch.save(bomb, folder / "zip")
    for content in (pickle.dumps(bomb), pickle.dumps(bomb, protocol=0), (folder / "zip").read_bytes()):
        (folder / name).write_bytes(content)
        with pytest.raises(UserError):
            load_run(folder)
    assert not (tmp_path / "mark").exists()


def test_yaml_that_builds_objects_is_refused_and_never_run(folder, tmp_path):
    (folder / "config.yaml").write_text(f"!!python/object/apply:os.mkdir ['{tmp_path / 'mark'}']\n")
    with pytest.raises(UserError):
        load_run(folder)
    assert not (tmp_path / "mark").exists()


def test_only_an_empty_folder_is_vacant(folder, tmp_path):
    check_vacant_run(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    check_vacant_run(tmp_path / "empty")
    with pytest.raises(UserError, match="holds a run already: choose another folder"):
        check_vacant_run(folder)
    (tmp_path / "file").touch()
    for wrong in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match="is not empty: choose another folder"):
            check_vacant_run(wrong)


def test_going_on_with_other_settings_is_refused(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for name, value in {"lr": 0.5, "epochs": 3, "seed": 1, "dropout": 0.1, "feature_scaling": "row"}.items():
        assert asdict(quick())[name] != value
        with pytest.raises(UserError, match=f"holds a run with {name}={SETTINGS[name]!r}, not {value!r}"):
            trained(folder=folder, **{name: value})
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_going_on_with_another_graph_is_refused(folder):
    with pytest.raises(UserError, match="holds a run on another graph"):
        trained(class_graph(noise=0.5), folder=folder)


def test_going_on_with_other_nodes_is_refused(folder):
    for split in ("train", "val", "test"):
        splits = dict(GRAPH.splits) | {split: GRAPH.splits[split][1:]}
        with pytest.raises(UserError, match="other training, validation or test nodes"):
            trained(GRAPH.with_splits(**splits), folder=folder)


def test_going_on_without_a_split_is_refused(folder):
    with pytest.raises(UserError, match="other training, validation or test nodes"):
        trained(GRAPH.with_splits(train=GRAPH.splits["train"], val=GRAPH.splits["val"]), folder=folder)


def test_going_on_with_one_more_split_is_refused(tmp_path):
    trained(GRAPH.with_splits(train=GRAPH.splits["train"], val=GRAPH.splits["val"]), folder=tmp_path / "run")
    with pytest.raises(UserError, match="other training, validation or test nodes"):
        trained(folder=tmp_path / "run")


def test_going_on_with_other_labels_is_refused(folder):
    labels = GRAPH.labels.copy()
    labels[GRAPH.splits["train"][0]] += 1
    labels %= 3
    with pytest.raises(UserError, match="labels"):
        trained(from_scipy(GRAPH.adjacency(), GRAPH.features, labels, GRAPH.splits), folder=folder)


def test_a_finished_run_stays_readable_while_it_is_taken_up_again(folder, monkeypatch):
    def run(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("nagphormer.training.loop.Trainer.run", run)
    expected = load_run(folder).best.outcome
    with pytest.raises(KeyboardInterrupt):
        trained(folder=folder)
    assert load_run(folder).best.outcome == expected


def test_a_run_killed_before_it_began_is_begun_anew(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("hops: 3")
    trained(folder=tmp_path / "run")
    assert is_finished(tmp_path / "run")


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def shown(monkeypatch):
    """Lines about what is going on."""
    lines = []
    monkeypatch.setattr("nagphormer.training.run_folder.note", lines.append)
    return lines


LEARNING = {"dropout": 0.2, "attention_dropout": 0.2, "feature_dropout": 0.1, "averaging": 0.7}


@pytest.mark.parametrize("way", ["never", "always"])
def test_a_run_that_goes_on_with_more_epochs_is_one_long_run(way, tmp_path):
    graph = class_graph(sparse=True)
    for name, numbers in (("long", [7]), ("longer", [2, 3, 7])):
        for epochs in numbers:
            trained(graph, folder=tmp_path / name, epochs=epochs, project_first=way, **LEARNING)
    one, other = (load_run(tmp_path / name) for name in ("long", "longer"))
    assert one.config == other.config
    assert one.best.outcome == other.best.outcome
    assert same_weights(weights_of(one.best.model), weights_of(other.best.model))
    losses = [[record["train_loss"] for record in run.best.history] for run in (one, other)]
    assert len(losses[0]) == 7
    assert losses[0] == losses[1]


def test_a_run_that_goes_on_has_not_ended_meanwhile(folder, monkeypatch):
    def run(self):
        raise KeyboardInterrupt

    (folder / "predictions.parquet").touch()
    with monkeypatch.context() as stopped:
        stopped.setattr("nagphormer.training.loop.Trainer.run", run)
        with pytest.raises(KeyboardInterrupt):
            trained(folder=folder, epochs=6)
    assert not is_finished(folder)
    assert not (folder / "predictions.parquet").exists()
    assert same_weights(
        weights_of(trained(folder=folder, epochs=6).best.model), weights_of(trained(epochs=6).best.model)
    )


@pytest.mark.parametrize("epochs", [300, 400])
def test_a_run_that_patience_ended_keeps_no_checkpoint_and_says_so_when_resumed(epochs, tmp_path, shown):
    first = trained(folder=tmp_path / "run", epochs=300, patience=4)
    ended = first.best.outcome["epochs"]
    assert ended < 300
    assert first.best.ended_by == "patience"
    assert not (tmp_path / "run" / "state").exists()
    before = files_of(tmp_path / "run")
    again = trained(folder=tmp_path / "run", epochs=epochs, patience=4)
    (line,) = shown
    assert line.endswith(f"was ended by patience after epoch {ended} and keeps no state/: nothing is left to do")
    assert same_weights(weights_of(again.best.model), weights_of(first.best.model))
    assert files_of(tmp_path / "run") == before


def test_a_run_that_was_saved_stays_as_it_is_and_cannot_go_on(tmp_path, shown):
    RunFolder.take(tmp_path / "run").write(trained())
    before = files_of(tmp_path / "run")
    trained(folder=tmp_path / "run")
    assert len(shown) == 1
    with pytest.raises(UserError, match=r"holds a run of 4 epochs without state/.*: it cannot go on to 5"):
        trained(folder=tmp_path / "run", epochs=5)
    assert files_of(tmp_path / "run") == before


def test_the_store_of_training_is_remembered_as_seen_from_the_run(tmp_path):
    store = hop_tokens(GRAPH, 2, dtype="bfloat16", out=tmp_path / "tokens", device="cpu")
    trained(store=store, folder=tmp_path / "runs" / "one", epochs=1)
    assert load_run(tmp_path / "runs" / "one").store == StoreFacts("../../tokens", "bfloat16")


def test_tensorboard_that_is_missing_is_said_before_tokens_are_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"nagphormer\[tensorboard\]"):
        train_model(GRAPH, quick(epochs=1), folder=tmp_path / "run", tensorboard=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["graph", "tokens"])
def test_what_a_later_version_adds_to_a_manifest_is_passed_over(part, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[part]["tomorrow"] = 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert load_run(folder).graph.fingerprint == GRAPH.fingerprint


def test_weights_settings_and_manifest_alone_are_enough_to_predict(folder):
    expected = probabilities(load_run(folder), np.arange(len(GRAPH.labels)))
    for path in folder.iterdir():
        if path.name not in ("manifest.json", "model.safetensors", "config.yaml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    carried = load_run(folder)
    assert carried.splits == {}
    np.testing.assert_array_equal(probabilities(carried, np.arange(len(GRAPH.labels))), expected)


def probabilities(run, nodes):
    return predict.probabilities(run, predict.open_source(run, GRAPH, "cpu"), nodes)


def test_a_manifest_that_lacks_a_fact_is_refused_by_its_name(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["graph"]["num_nodes"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="it lacks 'num_nodes'"):
        load_run(folder)


def test_events_for_tensorboard_are_written_where_asked_for(tmp_path):
    pytest.importorskip("tensorboard")
    train_model(GRAPH, quick(epochs=1), folder=tmp_path / "run", tensorboard=True)
    assert any((tmp_path / "run" / "tensorboard").iterdir())


@pytest.mark.parametrize("pays", [True, False])
def test_a_run_that_was_begun_keeps_what_it_chose_on_another_machine(pays, tmp_path, monkeypatch):
    monkeypatch.setattr("nagphormer.training.plan.projecting_pays", lambda *_: pays)
    first = trained(sparse_graph(), folder=tmp_path / "run", project_first="auto", precision="auto", here=HERE)
    monkeypatch.setattr("nagphormer.training.plan.projecting_pays", lambda *_: not pays)
    elsewhere = Machine("cpu", memory=0, gpu_memory=0, fast_bf16=True)
    again = trained(sparse_graph(), folder=tmp_path / "run", project_first="auto", precision="auto", here=elsewhere)
    assert again.config == first.config
    assert (first.config.project_first, first.config.precision) == ("always" if pays else "never", "fp32")


def test_what_was_given_comes_back_beside_what_was_decided(tmp_path):
    first = trained(folder=tmp_path / "run", precision="auto", feature_dropout=None)
    plan = load_run(tmp_path / "run").best.plan
    assert plan == first.best.plan
    assert (plan.given.precision, plan.given.feature_dropout) == ("auto", None)
