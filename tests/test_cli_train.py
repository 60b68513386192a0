import json
import os
import pickle
import resource
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
import yaml
from examples import SETTINGS, multi_label_graph, named_graph, train_model
from safetensors.numpy import load_file

from nagphormer import NodeClassifier, TokenStore, TrainConfig, __version__, hop_tokens, load_graph, random_split
from nagphormer.data.datasets import BUNDLED
from nagphormer.metrics import METRICS
from nagphormer.settings import settings_to_write
from nagphormer.training import comparison, loop
from nagphormer.training.task import Task

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # main() reads sys.argv, as a user's shell fills it
    pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens"),
]

COLUMNS = ["node_id", "prediction", "probability", "p_ash", "p_birch", "p_cedar"]
COLUMNS += ["label", "split", "correct"]
RUN_FILES = [
    "config.yaml",
    "manifest.json",
    "metrics.jsonl",
    "model.safetensors",
    "predictions.parquet",
]
RUN_FILES += ["splits.safetensors", "state"]


def flags(**changes):
    """All settings of `train`, and that it is to predict."""
    found = [(name.replace("_", "-"), value) for name, value in (SETTINGS | changes).items()]
    return [
        f"--{'' if value else 'no-'}{name}" if isinstance(value, bool) else f"--{name}={value}" for name, value in found
    ] + ["--predictions"]


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def graph(tmp_path):
    """A graph with string ids and class names, also saved as the folder `graph`."""
    graph = named_graph()
    graph.save(tmp_path / "graph")
    return graph


@pytest.fixture
def trained(run, graph, tmp_path):
    """A run folder that the command line wrote."""
    code, _, err = run("train", "graph", "--out", "run", *flags())
    assert code == 0, err
    return tmp_path / "run"


# train


def test_train_writes_a_run_folder_and_says_where_and_what_next(run, graph, tmp_path):
    code, out, err = run("train", "graph", "--out", "run", *flags())
    assert code == 0
    assert out.startswith("wrote run: best of 4 epochs is ")
    assert out.count("\n") == 1
    assert "training on 72 train, 24 val, 24 test nodes" in err
    assert err.endswith("next: nagphormer evaluate run graph --split test\n")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == RUN_FILES


@pytest.mark.usefixtures("graph")
def test_what_is_monitored_is_in_the_history_and_said_beside_the_accuracy(run, tmp_path):
    code, out, _ = run("train", "graph", "--out", "run", *flags(), "--monitor", "roc_auc")
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = max(metrics, key=lambda record: record["val_roc_auc"])
    assert code == 0
    assert f"validation accuracy {best['val_accuracy']:.4f}, roc_auc {best['val_roc_auc']:.4f}; " in out
    facts = json.loads(run("info", "run", "--json")[1])
    assert (facts["val_accuracy"], facts["val_roc_auc"]) == (best["val_accuracy"], best["val_roc_auc"])


def test_the_run_holds_settings_metrics_versions_and_checkpoints(trained, graph):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config == settings_to_write(TrainConfig(**SETTINGS | {"project_first": "never"}))
    metrics = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in metrics] == [1, 2, 3, 4]
    assert {"train_loss", "val_loss", "val_accuracy", "lr", "seconds"} <= set(metrics[0])
    manifest = json.loads((trained / "manifest.json").read_text())
    assert {"nagphormer", "torch", "numpy", "python"} <= set(manifest["versions"])
    assert (manifest["seed"], manifest["graph"]["fingerprint"]) == (0, graph.fingerprint)
    assert manifest["outcome"]["epochs"] == 4
    assert {path.suffix for path in (trained / "state").iterdir()} == {".json", ".safetensors"}


def test_nothing_in_the_run_folder_is_a_pickle(trained):
    for path in trained.rglob("*"):
        assert path.suffix in (".yaml", ".json", ".jsonl", ".safetensors", ".parquet", "")
        if path.is_file():
            with pytest.raises(Exception), open(path, "rb") as file:  # noqa: B017, PT011 (any will do)
                pickle.load(file)


def test_the_command_line_trains_the_model_of_the_estimator(trained, graph):
    loaded = NodeClassifier.load(trained)
    assert np.array_equal(loaded.predict_proba(graph), NodeClassifier(**SETTINGS).fit(graph).predict_proba(graph))


def test_predictions_of_all_nodes_come_with_the_run(trained, graph):
    table = pyarrow.parquet.read_table(trained / "predictions.parquet")
    assert table.column_names == COLUMNS[:-3]  # nothing of the labels, which would be those of test nodes, too
    assert table["node_id"].to_pylist() == [f"node-{number}" for number in range(120)]
    assert table["prediction"].to_pylist() == NodeClassifier.load(trained).predict(graph).tolist()


@pytest.fixture(scope="module")
def own_process(tmp_path_factory):
    """A run of `python -m nagphormer` in a process of its own: its folder and what it wrote on stderr."""
    folder = tmp_path_factory.mktemp("process")
    named_graph().save(folder / "graph")
    command = [sys.executable, "-m", "nagphormer", "--quiet", "train", "graph", "--out", "run", *flags()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=folder, check=True, env=environment, capture_output=True, text=True)
    return folder / "run", done.stderr


@pytest.mark.slow
def test_a_run_in_a_process_of_its_own_is_the_same_run(own_process, trained):
    for name in ("config.yaml", "model.safetensors", "splits.safetensors", "predictions.parquet"):
        assert (own_process[0] / name).read_bytes() == (trained / name).read_bytes()


@pytest.mark.slow
def test_a_graph_folder_with_splits_gives_no_warning(own_process):
    assert own_process[1] == ""


def test_a_graph_without_splits_is_split_and_later_evaluated_on_the_rest(run, tmp_path):
    bare = named_graph(split=False)
    bare.save(tmp_path / "bare")
    code, _, err = run("train", "bare", "--out", "run", *flags(seed=3))
    assert code == 0
    assert "nagphormer: warning: the graph has no splits: " in err
    assert "seed 3" in err
    code, out, _ = run("evaluate", "run", "bare", "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] == NodeClassifier.load("run").score(random_split(bare, seed=3))


def test_several_labels_go_through_all_the_commands(run, tmp_path):
    graph = multi_label_graph()
    graph.save(tmp_path / "graph")
    code, out, err = run("train", "graph", "--out", "run", *flags(epochs=10))
    assert code == 0, err
    assert "validation micro-F1" in out
    assert set(json.loads(run("evaluate", "run", "graph", "--json")[1])) == set(METRICS)
    assert run("predict", "run", "graph", "--out", "found.csv")[0] == 0
    assert pyarrow.csv.read_csv("found.csv").column_names == COLUMNS


def test_json_is_all_that_stands_on_stdout(run, graph):
    facts = json.loads(run("train", "graph", "--out", "run", "--json", *flags())[1])
    assert (facts["path"], facts["epochs"]) == ("run", 4)
    assert set(json.loads(run("--json", "evaluate", "run", "graph")[1])) == set(METRICS)
    facts = json.loads(run("predict", "run", "graph", "--out", "found.csv", "--json")[1])
    assert facts == {"path": "found.csv", "nodes": 120, "classes": 3}


def test_quiet_leaves_stderr_empty(run, graph):
    commands = [["train", "graph", "--out", "run", *flags()]]
    commands += [["evaluate", "run", "graph"], ["predict", "run", "graph", "--out", "found.csv"]]
    for command in commands:
        code, out, err = run("--quiet", *command)
        assert (code, err) == (0, "")
        assert out


def test_tensorboard_writes_events(run, graph, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    code, _, err = run("train", "graph", "--out", "run", "--tensorboard", *flags())
    assert code == 0, err
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    events = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    losses = [event.value for event in events.Scalars("train_loss")]
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(losses, [record["train_loss"] for record in metrics], rtol=1e-6)


# settings


def test_flags_win_over_the_recipe_file(run, graph, tmp_path):
    recipe = SETTINGS | {"hops": 1, "clip_norm": 2, "lr": "1e-2"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe) + "expected: {accuracy: 1}\n")
    code, _, err = run("train", "graph", "--out", "run", "--recipe", "mine.yaml", "--hops", 0)
    assert code == 0, err
    config = NodeClassifier.load("run").config_
    assert (config.hops, config.clip_norm, config.lr, config.hidden_dim) == (0, 2, 0.01, 16)


def test_the_papers_recipe_is_picked_by_the_graphs_name(run, tmp_path):
    named_graph(name="citeseer").save(tmp_path / "graph")
    small = ["--hidden-dim", 16, "--encoding-dim", 0, "--epochs", 1, "--device", "cpu"]
    assert run("train", "graph", "--out", "run", "--recipe", "paper", *small)[0] == 0
    config = NodeClassifier.load("run").config_
    assert (config.hops, config.dropout, config.hidden_dim) == (7, 0.3, 16)


def test_the_recipes_seed_draws_the_split(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(SETTINGS | {"seed": 5, "epochs": 1}))
    bare = named_graph(split=False)
    bare.save(tmp_path / "bare")
    assert run("train", "bare", "--out", "run", "--recipe", "mine.yaml")[0] == 0
    drawn = random_split(bare, seed=5).splits["test"]
    assert np.array_equal(NodeClassifier.load("run").splits_["test"], drawn)


def test_settings_come_from_a_configuration_and_flags_win(run, graph, tmp_path):
    settings = SETTINGS | {"lr": "1e-4", "final_lr": 0, "out": "run", "hops": 1}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    code, _, err = run("train", "graph", "--hops", 0, "--config", "settings.yaml")
    assert code == 0, err
    config = NodeClassifier.load("run").config_
    assert (config.hops, config.lr, config.hidden_dim) == (0, 1e-4, 16)


def test_the_linear_classifier_can_be_left_out(run, graph, tmp_path):
    (tmp_path / "with.yaml").write_text(yaml.safe_dump(SETTINGS | {"epochs": 1}))
    widths = []
    for name, more in (("with", []), ("without", ["--no-linear"])):
        code, _, err = run("train", "graph", "--out", name, "--recipe", "with.yaml", *more)
        assert code == 0, err
        widths.append(NodeClassifier.load(name).model_.embed.out_features)
    assert widths == [16 + 3 * 3, 16]  # three tokens, three classes


# tokens


def test_tokens_are_kept_in_the_cache_and_used_again(run, trained, tmp_path, own_cache):
    (store,) = own_cache.glob("tokens/small/*")
    before = (store / "block-000.bin").stat()
    assert TokenStore.open(store).hops == 2
    for command in (["train", "graph", "--out", "again", *flags(seed=1)], ["evaluate", "run", "graph"]):
        code, _, err = run(*command)
        assert code == 0
        assert "storing columns" not in err
    assert list(own_cache.glob("tokens/*/*")) == [store]
    after = (store / "block-000.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert run("train", "graph", "--out", "other", *flags(hops=1))[0] == 0
    assert len(list(own_cache.glob("tokens/*/*"))) == 2
    assert not list(tmp_path.glob("tokens*"))


def test_tokens_that_were_prepared_are_used(run, trained, graph, tmp_path, own_cache):
    hop_tokens(graph, hops=2, out=tmp_path / "store")
    shutil.rmtree(own_cache)
    assert run("train", "graph", "--out", "again", "--tokens", "store", *flags())[0] == 0
    assert run("evaluate", "again", "graph")[0] == 0  # the run knows where its tokens are
    assert run("predict", "again", "graph", "--tokens", "store", "--out", "found.parquet")[0] == 0
    assert not own_cache.exists()
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.fixture
def other_tokens(tmp_path):
    hop_tokens(named_graph(seed=1), hops=2, out=tmp_path / "other-tokens")
    return "other-tokens"


def test_tokens_of_another_graph_are_refused(other_tokens, run, trained, tmp_path):
    for command in (
        ["train", "graph", "--out", "again", *flags()],
        ["evaluate", "run", "graph"],
        ["predict", "run", "graph", "--out", "found.csv"],
    ):
        code, out, err = run("--quiet", *command, "--tokens", other_tokens)
        assert (code, out) == (2, "")
        assert err.startswith("nagphormer: other-tokens holds tokens of another graph")
        assert err.count("\n") == 1
    assert not (tmp_path / "found.csv").exists()


def test_refused_tokens_leave_no_run_folder(other_tokens, run, graph, tmp_path):
    run("train", "graph", "--out", "run", "--tokens", other_tokens, *flags())
    assert not (tmp_path / "run").exists()
    assert run("train", "graph", "--out", "run", *flags())[0] == 0


def test_a_refused_resume_leaves_a_finished_run_as_it_was(other_tokens, run, trained):
    before = files_of(trained)
    assert run("train", "graph", "--out", "run", "--resume", "--tokens", other_tokens, *flags())[0] == 2
    assert files_of(trained) == before


# evaluate and predict


def test_evaluate_prints_every_metric_of_the_split(run, trained, graph):
    code, out, err = run("evaluate", "run", "graph", "--split", "val")
    assert code == 0
    assert err.endswith("next: nagphormer predict run graph --out predictions.parquet\n")
    classifier = NodeClassifier.load(trained)
    printed = dict(line.rsplit(None, 1) for line in out.splitlines())
    expected = {name.replace("_", " "): f"{classifier.score(graph, 'val', name):.4f}" for name in METRICS}
    assert printed == expected
    facts = json.loads(run("evaluate", "run", "graph", "--json")[1])
    assert facts == {name: classifier.score(graph, "test", name) for name in METRICS}


@pytest.mark.parametrize("name", ["found.parquet", "found.csv"])
def test_predict_writes_a_table(name, run, trained, tmp_path):
    code, out, _ = run("predict", "run", "graph", "--out", name)
    assert (code, out) == (0, f"wrote {name}: 120 nodes, 3 classes\n")
    read = pyarrow.parquet.read_table if name.endswith("parquet") else pyarrow.csv.read_csv
    table, expected = read(tmp_path / name), pyarrow.parquet.read_table(trained / "predictions.parquet")
    assert table.column_names == COLUMNS
    assert table["node_id"].to_pylist() == expected["node_id"].to_pylist()
    assert table["prediction"].to_pylist() == expected["prediction"].to_pylist()
    np.testing.assert_allclose(table["p_ash"], expected["p_ash"], rtol=1e-6)


def test_predict_takes_some_nodes_and_prints_their_table(run, trained, graph, tmp_path):
    (tmp_path / "ids.txt").write_text("node-7\nnode-3\n\nnode-7\n")
    (tmp_path / "excel.txt").write_text("node-7\nnode-3\nnode-7\n", encoding="utf-8-sig")
    for named in ("node-7, node-3,node-7", "ids.txt", "excel.txt"):
        code, out, err = run("predict", "run", "graph", "--out", "-", "--nodes", named)
        assert code == 0, err
        header, *rows = out.splitlines()
        assert header == ",".join(f'"{column}"' for column in COLUMNS)
        assert [row.split(",")[0] for row in rows] == ['"node-7"', '"node-3"', '"node-7"']
        assert "wrote stdout: 3 nodes, 3 classes" in err
    assert run("predict", "run", "graph", "--out", "test.csv", "--split", "test")[0] == 0
    table = pyarrow.csv.read_csv("test.csv")
    assert table["node_id"].to_pylist() == graph.node_ids[graph.splits["test"]].tolist()
    assert set(table["split"].to_pylist()) == {"test"}
    accuracy = json.loads(run("evaluate", "run", "graph", "--json")[1])["accuracy"]
    assert np.mean(table["correct"].to_pylist()) == pytest.approx(accuracy)


@pytest.mark.usefixtures("trained")
def test_predict_takes_a_splits_nodes_without_a_label_too(run, graph, tmp_path):
    unknown = np.where(np.isin(np.arange(graph.num_nodes), graph.splits["test"]), -1, graph.labels)
    replace(graph, labels=unknown).save(tmp_path / "tomorrow")
    code, _, err = run("predict", "run", "tomorrow", "--out", "test.csv", "--split", "test")
    assert code == 0, err
    rows = (tmp_path / "test.csv").read_text().splitlines()[1:]
    assert len(rows) == len(graph.splits["test"])


@pytest.mark.slow
def test_a_closed_pipe_ends_a_table_quietly(trained, tmp_path):
    there, here = os.pipe()
    os.close(there)
    command = [sys.executable, "-m", "nagphormer", "--quiet", "predict", "run", "graph", "--out", "-"]
    with open(here, "wb") as nobody:
        done = subprocess.run(command, cwd=tmp_path, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.filterwarnings("default:this is not the graph")
def test_another_graph_is_refused_only_where_its_eigenvectors_do_not_agree(run, graph, tmp_path):
    named_graph(seed=1).save(tmp_path / "other")
    for dim, expected in ((0, 0), (2, 2)):
        assert run("train", "graph", "--out", f"run-{dim}", *flags(encoding_dim=dim, epochs=1))[0] == 0
        code, _, err = run("--quiet", "predict", f"run-{dim}", "other", "--out", "found.csv")
        assert code == expected
        assert ("nagphormer: the eigenvectors of this graph agree with those of training by" in err) == (dim > 0)
        assert err.count("\n") == (dim > 0)


def test_tokens_made_ahead_with_the_statistics_of_a_run_are_those_it_predicts_with(run, graph, tmp_path):
    part = named_graph().subgraph(np.arange(60))
    part.save(tmp_path / "part")
    assert run("train", "graph", "--out", "run", *flags(feature_scaling="standardize", epochs=1))[0] == 0
    tokens = ("--hops", "2", "--feature-scaling", "standardize", "--out", "tokens")
    assert run("prepare", "part", *tokens, "--statistics", "run")[0] == 0
    assert run("predict", "run", "part", "--tokens", "tokens", "--out", "ahead.csv")[0] == 0
    assert run("predict", "run", "part", "--out", "now.csv")[0] == 0
    assert (tmp_path / "ahead.csv").read_text() == (tmp_path / "now.csv").read_text()
    assert run("prepare", "part", *tokens[:-1], "own")[0] == 0
    code, _, err = run("predict", "run", "part", "--tokens", "own", "--out", "x.csv")
    assert code == 2
    assert "own holds tokens standardized by another mean and deviation than training's" in err


# info


def test_info_describes_a_run(run, trained, graph):
    code, out, err = run("info", "run", "--verify")
    assert code == 0
    told = dict(line.split(None, 1) for line in out.splitlines())
    assert told["classes"] == "3: ash, birch, cedar"
    assert told["splits"] == "train 72, val 24, test 24"
    assert "hops 2, encoding_dim 0" in told["settings"]
    assert told["can"] == "evaluate, predict, train longer"
    assert err == "next: nagphormer evaluate run GRAPH --split test\n"
    loaded, facts = NodeClassifier.load(trained), json.loads(run("info", "run", "--json")[1])
    assert facts["settings"] == asdict(loaded.config_)
    assert (facts["ended_by"], facts["epochs"], facts["best_epoch"]) == ("epochs", 4, loaded.best_epoch_)
    assert facts["val_accuracy"] == loaded.history_[loaded.best_epoch_ - 1]["val_accuracy"]
    assert facts["parameters"] == sum(weight.numel() for weight in loaded.model_.parameters())
    assert (facts["graph"], facts["nodes"], facts["fingerprint"]) == ("small", 120, graph.fingerprint)
    assert facts["versions"]["nagphormer"] == __version__


def test_info_says_how_to_go_on_with_a_run_that_has_not_ended(run, trained):
    (trained / "model.safetensors").unlink()
    code, out, err = run("info", "run")
    assert (code, err) == (0, "next: nagphormer train GRAPH --out run --resume\n")
    assert "nothing: it was stopped, or is still at work" in out
    assert json.loads(run("info", "run", "--json")[1])["can"] == ["resume"]


def test_info_of_a_run_that_patience_ended_does_not_offer_to_train_longer(run, graph, tmp_path):
    assert run("train", "graph", "--out", "run", *flags(epochs=500, patience=2))[0] == 0
    (tmp_path / "run" / "state").mkdir()
    (tmp_path / "run" / "state" / "000003.json").touch()  # as 0.1.0 left it
    facts = json.loads(run("info", "run", "--json")[1])
    assert (facts["ended_by"], facts["can"]) == ("patience", ["evaluate", "predict"])


def test_info_can_see_that_weights_are_damaged(run, trained):
    (trained / "model.safetensors").write_bytes(b"not")
    assert run("info", "run")[0] == 0
    code, _, err = run("info", "run", "--verify")
    assert code == 2
    assert "model.safetensors is not a safetensors file or is damaged" in err


# what cannot be done


@pytest.fixture(scope="module")
def troubles(tmp_path_factory):
    """A folder with a run, and graphs and files that go wrong, each in its own way."""
    folder, graph = tmp_path_factory.mktemp("troubles"), named_graph()
    graph.save(folder / "graph")
    train_model(graph, TrainConfig(**SETTINGS), folder=folder / "run")
    splits = dict(graph.splits)
    graph.with_splits(**splits | {"train": []}).save(folder / "no-train")
    graph.with_splits(**splits | {"val": []}).save(folder / "no-val")
    alike = np.intersect1d(splits["train"], np.flatnonzero(graph.labels == 1))
    graph.with_splits(**splits | {"train": alike}).save(folder / "alike")
    replace(graph, labels=None, class_names=None).save(folder / "unlabeled")
    named_graph(num_features=9).save(folder / "wide")
    named_graph(num_classes=4).save(folder / "more")
    (folder / "bad.yaml").write_text("hopps: 2\n")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("keep")
    return folder


MISTAKES = [
    ("train no-train --out new", "the split 'train' is empty"),
    ("train no-val --out new", "the split 'val' is empty"),
    ("train alike --out new", "all training nodes have class 'birch': there is nothing to learn"),
    ("train unlabeled --out new", "the graph has no labels"),
    ("train nowhere --out new", "there is no data set, file or folder 'nowhere'"),
    ("train graph --out new --device cuda", "device 'cuda' was asked for, but torch sees no GPU"),
    ("train graph --out new --device tpu", "unknown device 'tpu'"),
    (
        "train graph --out new --recipe papr",
        "recipes are best, paper, transformer. Did you mean 'paper'?",
    ),
    ("train graph --out new --recipe bad.yaml", "bad.yaml has an unknown setting 'hopps'. Did you mean 'hops'?"),
    ("train graph --out new --config bad.yaml", "bad.yaml has an unknown setting 'hopps'. Did you mean 'hops'?"),
    ("train graph --out new --tokens graph", "graph is not a tokens folder"),
    ("train graph --out new --hops -1", "hops must be 0 or more"),
    ("train graph --out new --project-first always", "needs sparse features"),
    (
        "train graph --out run",
        "run holds a run already: choose another folder (nagphormer train --resume goes on with a run)",
    ),
    ("train graph --out full", "full is not empty"),
    ("train graph --out run --resume --hops 1", "run holds a run with "),
    ("predict run graph --out - --nodes node-0 --split test", "give --nodes or --split, not both"),
    ("predict run graph --out - --nodes node-0,elm", "the graph has no node with id 'elm'"),
    ("predict run graph --out - --nodes ,", "--nodes ',' names no node: give ids, separated by commas, or a file"),
    ("predict run graph --out found --cluster --split test", "a cluster predicts all nodes into a folder"),
    ("train wide --out run --resume", "run holds a run on another graph"),
    ("evaluate nowhere graph", "nowhere is not a run folder"),
    ("evaluate graph graph", "graph is not a run folder"),
    ("evaluate run graph --split tests", "unknown split 'tests'"),
    ("evaluate run graph --device cuda", "device 'cuda' was asked for"),
    ("evaluate run wide", "trained on 8 features, but this graph has 9"),
    ("evaluate run more", "class 'date', which the model has never seen"),
    ("predict run graph --out found.txt", "found.txt should end in .parquet or .csv"),
    ("predict run wide --out found.csv", "trained on 8 features, but this graph has 9"),
    ("predict run graph --out full/notes.txt/found.csv", "cannot write full/notes.txt/found.csv"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_users_mistake_is_one_line_and_exit_code_2(command, message, run, troubles, monkeypatch):
    monkeypatch.chdir(troubles)
    before, run_before = set(os.listdir()), files_of(troubles / "run")
    small = ["--epochs", "1", "--hidden-dim", "16"] if command.startswith("train") else []
    code, out, err = run("--quiet", *command.split(), *small)
    assert (code, out) == (2, "")
    assert err.startswith("nagphormer: ")
    assert err.count("\n") == 1
    assert message in err
    assert set(os.listdir()) <= before
    assert files_of(troubles / "run") == run_before


def test_resume_does_not_write_into_a_folder_that_is_no_run(run, graph, tmp_path):
    before = files_of(tmp_path / "graph")
    assert run("train", "graph", "--out", "graph", "--resume", *flags())[0] == 2
    assert files_of(tmp_path / "graph") == before


def test_a_resumed_run_that_has_ended_ends_the_same(run, trained):
    before = (trained / "model.safetensors").read_bytes()
    code, out, _ = run("train", "graph", "--out", "run", "--resume", *flags())
    assert code == 0
    assert out.startswith("wrote run: best of 4 epochs")
    assert (trained / "model.safetensors").read_bytes() == before


def test_an_interrupted_training_says_how_to_go_on_and_can(run, trained, graph, monkeypatch, tmp_path):
    loss, calls = Task.loss, []

    def interrupted(self, logits, nodes, *smoothing):
        calls.append(len(nodes))
        if len(calls) == 8:  # in the third epoch, of two updates and a validation each
            raise KeyboardInterrupt
        return loss(self, logits, nodes, *smoothing)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "loss", interrupted)
        code, out, err = run("--quiet", "train", "graph", "--out", "half", *flags())
    assert (code, out) == (130, "")
    assert err == "nagphormer: interrupted; run it again with --resume to go on: what was learned so far is in half\n"
    assert run("train", "graph", "--out", "half", *flags())[0] == 2
    assert run("train", "graph", "--out", "half", "--resume", *flags())[0] == 0
    assert (tmp_path / "half" / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.fixture
def spoiled(monkeypatch):
    """Make the loss NaN after so many calls; an epoch here has two updates, of two losses each, and one validation."""

    def spoil(after):
        loss, calls = Task.loss, []

        def spoiled_loss(self, logits, nodes, *smoothing):
            calls.append(len(nodes))
            return loss(self, logits, nodes, *smoothing) * (float("nan") if len(calls) > after else 1)

        monkeypatch.setattr(Task, "loss", spoiled_loss)

    return spoil


def test_a_loss_that_is_no_number_ends_training_with_the_best_weights_so_far(run, graph, spoiled, tmp_path):
    assert run("train", "graph", "--out", "clean", *flags(epochs=2))[0] == 0
    best = json.loads((tmp_path / "clean" / "manifest.json").read_text())["outcome"]["best_epoch"]
    spoiled(after=12)
    code, out, err = run("--quiet", "train", "graph", "--out", "run", *flags())
    assert code == 2
    assert out.startswith("wrote run: ")
    assert err == (
        f"nagphormer: the loss became nan in epoch 3, update 2 of 2: training stopped, the weights of epoch {best} "
        f"are kept; lower lr, or set clip_norm to 1\n"
    )
    kept, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "clean"))
    assert kept.keys() == expected.keys()
    assert all(np.array_equal(kept[name], expected[name]) for name in kept)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert run("evaluate", "run", "graph")[0] == 0


def test_a_validation_loss_that_is_no_number_is_said_too(run, graph, spoiled):
    spoiled(after=9)
    code, _, err = run("--quiet", "train", "graph", "--out", "run", *flags())
    assert code == 2
    assert "the validation loss became nan after epoch 2" in err


def test_a_loss_that_is_never_a_number_leaves_the_initial_weights(run, graph, spoiled):
    spoiled(after=0)
    code, _, err = run("--quiet", "train", "graph", "--out", "run", *flags())
    assert code == 2
    assert "the loss became nan in epoch 1, update 1 of 2: training stopped, only the initial weights are left" in err


def test_what_is_written_after_a_first_loss_that_is_no_number_is_json(run, graph, spoiled, tmp_path):
    def refuse(text):
        raise ValueError(f"{text} is not JSON")

    spoiled(after=0)
    _, out, _ = run("--json", "train", "graph", "--out", "run", *flags())
    json.loads(out, parse_constant=refuse)
    json.loads((tmp_path / "run" / "manifest.json").read_text(), parse_constant=refuse)


def test_running_out_of_memory_says_what_to_lower(run, graph, monkeypatch):
    def hungry(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99999 bytes")

    monkeypatch.setattr(loop.Trainer, "_step", hungry)
    code, _, err = run("--quiet", "train", "graph", "--out", "run", *flags())
    assert code == 2
    message = "nagphormer: out of memory while training with batch_size=50, hidden_dim=16, hops=2: lower batch_size"
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert not Path("run").exists()  # so that the advice can be followed


# help and demo


def test_help_lists_every_setting_with_its_text_and_default(run):
    code, out, _ = run("train", "--help")
    assert code == 0
    assert all(f"--{name.replace('_', '-')}" in out for name in asdict(TrainConfig()))
    assert all(flag in out for flag in ("--out", "--tokens", "--recipe", "--resume", "--tensorboard"))
    assert "Learning rate at its peak" in out


@pytest.mark.slow
def test_help_takes_less_than_half_a_second_of_processor_time():
    command = [sys.executable, "-m", "nagphormer", "train", "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    assert min(seconds) < 0.5


def next_commands(err):
    return [shlex.split(line.removeprefix("next: nagphormer ")) for line in err.splitlines() if line[:5] == "next:"]


@pytest.mark.parametrize("another", [False, True])
def test_the_demo_trains_compares_and_says_what_to_run_next(run, monkeypatch, tmp_path, another):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NAGPHORMER_DATA", str(tmp_path))
    if another:
        (tmp_path / "cora.npz").touch()  # another graph of that name is not what the model was trained on
    small = TrainConfig(**SETTINGS | {"batch_size": 2000, "encoding_dim": 2})
    monkeypatch.setattr("nagphormer.commands.demo.TrainConfig", lambda: small)
    monkeypatch.setitem(comparison.COMMON, "epochs", 2)
    code, out, err = run("demo", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert set(facts) == {"run", "test_accuracy", "mlp", "logistic_regression"}
    assert facts["test_accuracy"] == NodeClassifier.load("nagphormer-demo/run").score(load_graph(BUNDLED / "cora.npz"))
    assert "2,708 papers, 5,278 citations" in err
    assert "2,708 nodes × 3 tokens × 1,435 columns" in err
    predict, start = next_commands(err)
    assert start[:2] == ["import", "--edges"]
    assert (predict[2] == "cora") != another
    assert run(*predict)[0] == 0
    assert pyarrow.csv.read_csv(tmp_path / "predictions.csv").num_rows == 2708
    code, out, err = run("demo")
    assert code == 0
    assert "reused nagphormer-demo/tokens" in err
    assert out.startswith(f"test accuracy: NAGphormer {facts['test_accuracy']:.1%}, logistic regression")


@pytest.mark.slow
def test_the_demo_needs_no_file_and_no_network_and_the_graph_helps(tmp_path):
    command = [sys.executable, "-m", "nagphormer", "demo", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["test_accuracy"] > 0.85
    assert facts["test_accuracy"] > facts["mlp"] + 0.05
    assert "2,708 papers, 5,278 citations" in done.stderr
    assert [command[0] for command in next_commands(done.stderr)] == ["predict", "import"]
