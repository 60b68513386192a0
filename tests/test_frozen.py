"""Folders that 0.1.0 wrote load, and say what they said, for ever; see frozen/README.md."""

import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from safetensors.numpy import load_file

from nagphormer import NodeClassifier, TokenStore, TrainConfig, UserError, hop_tokens, load_graph, read_tables

# main() reads sys.argv, as a user's shell fills it
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

FROZEN = Path(__file__).parent / "frozen"
STORES = {
    "store-float16": {"dtype": "float16"},
    "store-bfloat16": {"dtype": "bfloat16", "feature_scaling": "standardize"},
    "store-float32": {"dtype": "float32", "feature_scaling": "row", "encoding_dim": 2},
}
RUNS = ("run-default", "run-tokens")


@pytest.fixture(scope="module")
def graph():
    return load_graph(FROZEN / "graph")


@pytest.fixture
def folder(tmp_path):
    """A copy, since using a run may write beside it."""
    return Path(shutil.copytree(FROZEN, tmp_path / "frozen"))


def test_a_graph_of_0_1_0_is_what_its_tables_give_today(graph):
    today = read_tables(FROZEN / "edges.csv", FROZEN / "nodes.csv")
    assert today.fingerprint == graph.fingerprint
    assert today.class_names == graph.class_names == ("ash", "birch", "cedar")
    assert today.node_ids.tolist() == graph.node_ids.tolist()
    np.testing.assert_array_equal(today.labels, graph.labels)
    for split, nodes in graph.splits.items():
        np.testing.assert_array_equal(today.splits[split], nodes)


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_0_1_0_holds_the_tokens_that_are_made_today(name, graph):
    store = TokenStore.open(FROZEN / name)
    store.verify()
    today = hop_tokens(graph, 2, device="cpu", **STORES[name])
    assert (store.shape, store.dtype, store.hops) == (today.shape, today.dtype, 2)
    closeness = {"atol": 1e-4} if "encoding_dim" in STORES[name] else {"rtol": 0}  # eigenvectors differ by machine
    np.testing.assert_allclose(np.asarray(store), np.asarray(today), **closeness)


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_0_1_0_is_used_again(name, graph, folder):
    before = {path.name: path.read_bytes() for path in (folder / name).iterdir()}
    hop_tokens(graph, 2, out=folder / name, device="cpu", **STORES[name])
    assert {path.name: path.read_bytes() for path in (folder / name).iterdir()} == before


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_0_1_0_predicts_what_it_predicted(name, graph, folder):
    classifier = NodeClassifier.load(folder / name)
    tokens = TokenStore.open(folder / "store-float32") if name == "run-tokens" else None
    table = pyarrow.parquet.read_table(FROZEN / name / "predictions.parquet")
    assert table["node_id"].to_pylist() == graph.node_ids.tolist()
    expected = np.stack([table[f"p_{label}"].to_numpy() for label in classifier.classes_], axis=1)
    np.testing.assert_allclose(classifier.predict_proba(graph, tokens=tokens), expected, atol=2e-6)
    assert classifier.predict(graph, tokens=tokens).tolist() == table["prediction"].to_pylist()


@pytest.mark.parametrize("name", RUNS)
def test_the_command_line_predicts_from_a_run_of_0_1_0(name, run, folder):
    code, _, err = run("predict", folder / name, folder / "graph", "--out", "labels.parquet", "--device", "cpu")
    assert code == 0, err
    today, table = (
        pyarrow.parquet.read_table(path) for path in ("labels.parquet", FROZEN / name / "predictions.parquet")
    )
    assert today.column_names[: table.num_columns] == table.column_names  # later columns stand after those of old
    assert today.select(table.column_names).schema == table.schema
    assert today["prediction"] == table["prediction"]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_0_1_0_that_is_saved_again_has_the_same_files(name, folder):
    NodeClassifier.load(folder / name).save(folder / "again")
    for file in ("config.yaml", "metrics.jsonl", "splits.safetensors", "model.safetensors"):
        assert (folder / "again" / file).read_bytes() == (FROZEN / name / file).read_bytes(), file


YOUNG = {each.name: each.metadata["before"] for each in fields(TrainConfig) if "before" in each.metadata}


def test_settings_of_0_1_0_without_fields_that_changed_nothing_mean_the_same(graph, folder):
    """A folder in which any field at its `before` value is missing loads, and predicts as it did."""
    path = folder / "run-tokens" / "config.yaml"
    whole, tokens = yaml.safe_load(path.read_text()), TokenStore.open(folder / "store-float32")
    expected = NodeClassifier.load(folder / "run-tokens").predict_proba(graph, tokens=tokens)
    absent = [name for name in whole if name in YOUNG and whole[name] == YOUNG[name]]
    assert absent == ["linear", "averaging"]
    for missing in ([name] for name in absent):
        path.write_text(yaml.safe_dump({name: value for name, value in whole.items() if name not in missing}))
        loaded = NodeClassifier.load(folder / "run-tokens")
        assert loaded.config_ == TrainConfig(**YOUNG | whole)
        np.testing.assert_array_equal(loaded.predict_proba(graph, tokens=tokens), expected)


@pytest.mark.parametrize("name", [field.name for field in fields(TrainConfig) if field.name not in YOUNG])
def test_any_other_field_that_is_missing_is_refused_by_its_name(name, folder):
    path = folder / "run-tokens" / "config.yaml"
    whole = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({key: value for key, value in whole.items() if key != name}))
    with pytest.raises(UserError, match=f"config.yaml lacks the setting '{name}'"):
        NodeClassifier.load(folder / "run-tokens")


@pytest.mark.usefixtures("one_thread")
def test_a_run_that_0_1_0_did_not_end_goes_on_to_the_same_weights(run, folder):
    flags = "--hidden-dim 8 --num-heads 2 --batch-size 20 --epochs 12 --warmup-updates 5 --lr 0.02 --device cpu"
    flags += " --precision fp32 --hops 2 --encoding-dim 0 --resume"
    code, _, err = run("train", folder / "graph", "--out", folder / "run-stopped", *flags.split())
    assert code == 0, err
    assert "going on after epoch 7" in err
    ended, expected = (
        load_file(path / "model.safetensors") for path in (folder / "run-stopped", FROZEN / "run-default")
    )
    assert ended.keys() == expected.keys()
    for tensor in expected:
        one, other = ended[tensor], expected[tensor]
        if tensor.endswith(
            "attention.project.bias"
        ):  # that of the keys has no gradient but rounding, which Adam blows up
            one, other = (bias.reshape(3, -1)[[0, 2]] for bias in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-5, err_msg=tensor)
