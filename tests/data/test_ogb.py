import gzip
import shutil

import numpy as np
import pytest

from nagphormer import UserError, read_ogb
from nagphormer.data import ogb

EDGES = np.array([[0, 1], [1, 2], [2, 1], [3, 3]])
FEATURES = np.array([[0.5, -1], [0, 2], [1e-8, 3], [7, 8]], np.float32)


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, np.atleast_1d(row))) + "\n" for row in rows)


def write_split(folder, scheme="time"):
    for part, nodes in (("train", [2, 0]), ("valid", [1]), ("test", [3])):
        write_csv(folder / "split" / scheme / f"{part}.csv.gz", nodes)


def write_text(folder, labels=("3", "nan", "", "0")):
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", EDGES)
    write_csv(raw / "num-node-list.csv.gz", [4])
    write_csv(raw / "num-edge-list.csv.gz", [4])
    write_csv(raw / "node-feat.csv.gz", FEATURES)
    write_csv(raw / "node-label.csv.gz", labels)
    write_split(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_text(tmp_path / "arxiv")


def test_text_files_are_read(folder):
    graph = read_ogb(folder)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes, graph.name) == (4, 2, 4, "arxiv")
    np.testing.assert_array_equal(graph.features, FEATURES)
    assert graph.features.dtype == np.float32
    assert graph.labels.tolist() == [3, -1, -1, 0]
    assert {name: idx.tolist() for name, idx in graph.splits.items()} == {
        "train": [0, 2],
        "val": [1],
        "test": [3],
    }


def test_binary_files_give_the_same_graph(folder, tmp_path):
    binary = tmp_path / "papers"
    write_split(binary)
    (binary / "raw").mkdir()
    np.savez(
        binary / "raw/data.npz",
        edge_index=EDGES.T,
        num_nodes_list=np.array([4]),
        num_edges_list=np.array([4]),
        node_feat=FEATURES,
        node_year=np.zeros(4),
    )
    np.savez(binary / "raw/node-label.npz", node_label=np.array([[3], [np.nan], [np.nan], [0]]))
    text, graph = read_ogb(folder), read_ogb(binary)
    assert graph.fingerprint == text.fingerprint
    assert graph.labels.tolist() == text.labels.tolist()
    assert graph.splits["train"].tolist() == [0, 2]


def test_several_tasks_are_multi_label(tmp_path):
    graph = read_ogb(write_text(tmp_path / "proteins", labels=["0,1,1", "1,0,0", "0,0,0", "1,1,1"]))
    assert graph.labels.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_features_labels_and_splits_may_be_absent(folder):
    (folder / "raw/node-feat.csv.gz").unlink()
    (folder / "raw/node-label.csv.gz").unlink()
    shutil.rmtree(folder / "split")
    graph = read_ogb(folder)
    assert (graph.features, graph.labels, graph.splits) == (None, None, {})


def test_one_of_several_schemes_must_be_named(folder):
    write_split(folder, "random")
    with pytest.raises(UserError, match="random, time: name one"):
        read_ogb(folder)
    assert read_ogb(folder, scheme="random").splits["val"].tolist() == [1]
    with pytest.raises(UserError, match="no split 'year': it has random, time"):
        read_ogb(folder, scheme="year")


def test_files_are_read_in_pieces_and_types_not_guessed_from_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(ogb, "BLOCK_BYTES", 64)
    folder = write_text(tmp_path / "long")
    features = np.arange(1000).reshape(500, 2)
    write_csv(folder / "raw/num-node-list.csv.gz", [500])
    write_csv(folder / "raw/node-feat.csv.gz", [*features[:-1], "0.25,1"])
    (folder / "raw/node-label.csv.gz").unlink()
    result = read_ogb(folder).features
    np.testing.assert_array_equal(result[:-1], features[:-1])
    assert result[-1].tolist() == [0.25, 1]


def test_folders_that_are_no_single_graph_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="not an OGB folder"):
        read_ogb(tmp_path)
    write_csv(folder / "raw/num-node-list.csv.gz", [2, 2])
    with pytest.raises(UserError, match="holds 2 graphs"):
        read_ogb(folder)
    write_csv(folder / "raw/triplet-type-list.csv.gz", ["a,b,c"])
    with pytest.raises(UserError, match="several types"):
        read_ogb(folder)


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("edge", ["0,1", "1,2"], "2 rows instead of 4"),
        ("edge", ["0,1"] * 5, "5 rows instead of 4"),
        ("edge", ["0,1", "1,", "2,1", "3,3"], "missing number"),
        ("edge", ["0,1", "1,x", "2,1", "3,3"], "damaged"),
        ("edge", ["0,1", "1,9", "2,1", "3,3"], "target 9"),
        ("edge", ["0,1,5"] * 4, "3 columns"),
        ("node-feat", ["1,2", "3"] * 2, "damaged"),
        ("node-feat", ["1,2", "3,nan", "1,1", "1,1"], "feature 1 of node 1"),
        ("node-label", ["0"] * 3, "3 rows instead of 4"),
    ],
)
def test_wrong_rows_are_refused(folder, name, rows, message):
    write_csv(folder / f"raw/{name}.csv.gz", rows)
    with pytest.raises(UserError, match=message):
        read_ogb(folder)


def test_missing_and_damaged_files_are_refused(folder):
    edges = folder / "raw/edge.csv.gz"
    write_csv(edges, np.random.default_rng(0).integers(0, 4, (4, 2)))
    edges.write_bytes(edges.read_bytes()[:-12])
    with pytest.raises(UserError, match="damaged"):
        read_ogb(folder)
    edges.unlink()
    with pytest.raises(UserError, match="is missing"):
        read_ogb(folder)
    (folder / "raw/data.npz").write_bytes(b"PK nothing")
    with pytest.raises(UserError, match="damaged"):
        read_ogb(folder)
