from dataclasses import replace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from examples import SETTINGS, multi_label_graph, named_graph, train_model

from nagphormer import TrainConfig, UserError, from_scipy
from nagphormer.inference import predict, table
from nagphormer.inference.table import check_table_path, write_predictions

pytestmark = pytest.mark.usefixtures("one_thread")
GRAPH = named_graph()
KNOWN = ["label", "split", "correct"]
COLUMNS = ["node_id", "prediction", "probability", "p_ash", "p_birch", "p_cedar", *KNOWN]


@pytest.fixture(scope="module")
def model():
    """A trained model and its tokens."""
    return train_model(GRAPH, TrainConfig(**SETTINGS))


def read(path):
    reader = pyarrow.parquet.read_table if path.suffix == ".parquet" else pyarrow.csv.read_csv
    return reader(path)


def test_a_large_table_has_few_row_groups(model, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "rows_at_once", lambda *_: 3)
    write_predictions(*model, GRAPH, tmp_path / "found.parquet")
    assert pyarrow.parquet.ParquetFile(tmp_path / "found.parquet").num_row_groups == 1


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_table_has_a_row_for_every_node_with_its_id_and_names(ending, model, tmp_path):
    path = tmp_path / f"found.{ending}"
    write_predictions(*model, GRAPH, path)
    found = read(path)
    probability = predict.probabilities(*model, np.arange(120))
    assert found.column_names == COLUMNS
    assert found["node_id"].to_pylist() == GRAPH.node_ids.tolist()
    assert found["prediction"].to_pylist() == np.array(GRAPH.class_names)[probability.argmax(axis=1)].tolist()
    np.testing.assert_allclose(found["probability"], probability.max(axis=1), rtol=1e-6)
    for column, name in enumerate(GRAPH.class_names):
        np.testing.assert_allclose(found[f"p_{name}"], probability[:, column], rtol=1e-6)


def test_a_table_written_in_many_blocks_is_the_same(model, tmp_path, monkeypatch):
    write_predictions(*model, GRAPH, tmp_path / "one.parquet")
    monkeypatch.setattr(predict, "rows_at_once", lambda *_: 7)
    write_predictions(*model, GRAPH, tmp_path / "many.parquet")
    one, many = (read(tmp_path / f"{name}.parquet") for name in ("one", "many"))
    assert many.drop("probability").schema == one.drop("probability").schema
    assert many["node_id"].to_pylist() == one["node_id"].to_pylist()
    np.testing.assert_allclose(many["p_ash"], one["p_ash"], rtol=1e-5)


def test_without_names_the_table_has_numbers(tmp_path):
    plain = replace(GRAPH, ids=None, class_names=None)
    write_predictions(*train_model(plain, TrainConfig(**SETTINGS)), plain, tmp_path / "found.csv")
    found = read(tmp_path / "found.csv")
    assert found.column_names == ["node_id", "prediction", "probability", "p_0", "p_1", "p_2", *KNOWN]
    assert found["node_id"].to_pylist() == list(range(120))
    assert set(found["prediction"].to_pylist()) <= {0, 1, 2}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_several_labels_of_a_node_are_joined_by_a_bar(ending, tmp_path):
    graph = multi_label_graph()
    trained, source = train_model(graph, TrainConfig(**SETTINGS | {"epochs": 20}))
    path = tmp_path / f"found.{ending}"
    write_predictions(trained, source, graph, path)
    found = read(path)
    assert found.column_names == COLUMNS
    probability = predict.probabilities(trained, source, np.arange(120))
    names = np.array(graph.class_names)
    assert found["prediction"].to_pylist() == ["|".join(names[row > 0.5]) for row in probability]
    assert any("|" in text for text in found["prediction"].to_pylist())
    assert found["label"].to_pylist() == ["|".join(names[row > 0]) for row in graph.labels]
    same = [
        one == other for one, other in zip(found["label"].to_pylist(), found["prediction"].to_pylist(), strict=True)
    ]
    assert found["correct"].to_pylist() == same


def test_an_older_table_is_replaced_whole_or_not_at_all(model, tmp_path, monkeypatch):
    path = tmp_path / "found.csv"
    path.write_text("old")

    def fail(*_):
        raise RuntimeError("half way")

    with monkeypatch.context() as broken:
        broken.setattr(table, "_table", fail)
        with pytest.raises(RuntimeError, match="half way"):
            write_predictions(*model, GRAPH, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["found.csv"]
    assert path.read_text() == "old"
    write_predictions(*model, GRAPH, path)
    assert read(path).num_rows == 120


def test_a_folder_is_no_table(tmp_path):
    (tmp_path / "found.csv").mkdir()
    with pytest.raises(UserError, match=r"found\.csv is a folder: name a file to write"):
        check_table_path(tmp_path / "found.csv")


@pytest.mark.parametrize("name", ["found.txt", "found", "found.parquet.gz", "csv"])
def test_an_ending_that_names_no_format_is_refused(name):
    with pytest.raises(UserError, match=f"{name} should end in .parquet or .csv"):
        check_table_path(name)


def test_endings_that_name_a_format_are_taken():
    check_table_path("found.parquet")
    check_table_path("folder/found.csv")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_of_many_row_groups_has_every_node_once(ending, model, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "rows_at_once", lambda *_: 7)
    monkeypatch.setattr(table, "GROUP_ROWS", 20)
    write_predictions(*model, GRAPH, tmp_path / f"found.{ending}")
    found = read(tmp_path / f"found.{ending}")
    assert found["node_id"].to_pylist() == GRAPH.node_ids.tolist()
    np.testing.assert_allclose(found["p_ash"], predict.probabilities(*model, np.arange(120))[:, 0], rtol=1e-5)


def test_a_part_of_the_table_has_the_ids_of_its_own_nodes(model, tmp_path):
    write_predictions(*model, GRAPH, tmp_path / "part.parquet", np.arange(50, 90))
    found = read(tmp_path / "part.parquet")
    assert found["node_id"].to_pylist() == GRAPH.node_ids[50:90].tolist()
    np.testing.assert_allclose(found["p_ash"], predict.probabilities(*model, np.arange(50, 90))[:, 0], rtol=1e-5)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_what_a_graph_knows_of_a_node_stands_beside_its_prediction(ending, model, tmp_path):
    labels, path = GRAPH.labels.copy(), tmp_path / f"found.{ending}"
    labels[[0, 5]] = -1
    graph = replace(GRAPH, labels=labels, splits={"val": np.array([3, 4]), "test": np.array([5])}, drawn=False)
    write_predictions(*model, graph, path, np.arange(7))
    found = read(path)
    names = [GRAPH.class_names[label] for label in GRAPH.labels]
    empty = None if ending == "parquet" else ""
    assert found["label"].to_pylist() == [empty, *names[1:5], empty, names[6]]
    assert found["split"].to_pylist() == [empty, empty, empty, "val", "val", "test", empty]
    right = [one == other for one, other in zip(found["prediction"].to_pylist(), names, strict=False)]
    assert found["correct"].to_pylist() == [None, *right[1:5], None, right[6]]


def test_classes_are_compared_by_name(model, tmp_path):
    order = [2, 0, 1]  # cedar, ash, birch
    labels = np.argsort(order)[GRAPH.labels]
    graph = replace(GRAPH, labels=labels, class_names=tuple(GRAPH.class_names[place] for place in order))
    for name, of in (("one", GRAPH), ("other", graph)):
        write_predictions(*model, of, tmp_path / f"{name}.parquet")
    one, other = (read(tmp_path / f"{name}.parquet") for name in ("one", "other"))
    assert other["label"].to_pylist() == one["label"].to_pylist()
    assert other["correct"].to_pylist() == one["correct"].to_pylist()
    assert sum(one["correct"].to_pylist()) > 60


def test_a_class_that_the_model_never_saw_is_not_what_it_predicted(model, tmp_path):
    graph = replace(GRAPH, labels=np.full(120, 1), class_names=("ash", "elm"))
    write_predictions(*model, graph, tmp_path / "found.parquet")
    found = read(tmp_path / "found.parquet")
    assert (set(found["label"].to_pylist()), set(found["correct"].to_pylist())) == ({"elm"}, {False})


def test_columns_that_would_be_empty_are_left_out(model, tmp_path):
    bare = from_scipy(GRAPH.adjacency(), GRAPH.features)
    other = replace(GRAPH, labels=np.eye(3, dtype=np.int64)[GRAPH.labels], splits={})  # several labels a node
    for graph, known in ((bare, ["split"]), (other, ["split"]), (replace(GRAPH, splits={}), KNOWN)):
        write_predictions(*model, graph, tmp_path / "found.parquet")
        found = read(tmp_path / "found.parquet")
        assert found.column_names == COLUMNS[:-3] + known  # it is the graph of training, and the run knows its splits
    away = from_scipy(GRAPH.adjacency(), 2 * GRAPH.features)
    write_predictions(*model, away, tmp_path / "found.parquet")
    assert read(tmp_path / "found.parquet").column_names == COLUMNS[:-3]
