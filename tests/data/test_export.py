import sys

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("networkx", reason="needs networkx")
pytest.importorskip("torch_geometric", reason="needs torch-geometric")

from nagphormer import UserError, from_networkx, from_pyg, from_scipy, load_graph, synthetic_graph

FEATURES = np.arange(8.0).reshape(4, 2)
LABELS = ["b", "a", "", "c"]
SPLITS = {"train": [3, 1], "test": [0]}


def graph(weights=(2.0, 3.0), features=FEATURES, labels=LABELS, splits=SPLITS, **parts):
    """0 - 1 - 2, and a lone node 3."""
    return from_scipy(sp.coo_array((list(weights), ([0, 1], [1, 2])), shape=(4, 4)), features, labels, splits, **parts)


def splits_of(graph):
    return {split: idx.tolist() for split, idx in graph.splits.items()}


def test_parts_have_the_names_that_pyg_gives_them():
    data = graph().to_pyg()
    assert sorted(data.keys()) == ["edge_index", "edge_weight", "test_mask", "train_mask", "x", "y"]
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.edge_weight.tolist() == [2, 2, 3, 3]
    assert data.y.tolist() == [1, 0, -1, 2]
    assert data.train_mask.tolist() == [False, True, False, True]
    assert data.validate()


def test_what_is_not_there_is_left_out_of_a_pyg_graph():
    data = graph((1, 1), None, None, {}).to_pyg()
    assert sorted(data.keys()) == ["edge_index", "num_nodes"]
    assert data.num_nodes == 4


@pytest.mark.parametrize("features", [FEATURES, FEATURES.astype(np.float16), None])
@pytest.mark.parametrize("weights", [(2.0, 3.0), (1, 1)])
def test_a_pyg_graph_reads_back_the_same(weights, features):
    given = graph(weights, features)
    back = from_pyg(given.to_pyg())
    assert back.fingerprint == given.fingerprint
    assert back.labels.tolist() == given.labels.tolist()
    assert splits_of(back) == splits_of(given)


def test_sparse_features_stay_sparse():
    data = graph(features=sp.csr_array(FEATURES)).to_pyg()
    assert data.x.is_sparse
    back = from_pyg(data)
    assert sp.issparse(back.features)
    np.testing.assert_array_equal(back.features.toarray(), FEATURES)


def test_several_labels_of_a_node_are_floats_and_read_back():
    labels = np.eye(4, 3, dtype=int)
    data = graph(labels=labels).to_pyg()
    assert data.y.is_floating_point()
    assert from_pyg(data).labels.tolist() == labels.tolist()


def test_nothing_is_shared_with_the_graph():
    given = graph()
    before, data = given.fingerprint, given.to_pyg()
    for part in ("edge_index", "edge_weight", "x", "y", "train_mask"):
        data[part].zero_()
    assert graph().fingerprint == before == from_pyg(graph().to_pyg()).fingerprint
    assert (given.features[1, 1], given.weights[0], given.labels[0], given.indices[0]) == (3, 2, 1, 1)


@pytest.mark.filterwarnings("error")
def test_a_memory_mapped_graph_gives_memory_that_can_be_written_to(tmp_path):
    graph().save(tmp_path / "graph")
    load_graph(tmp_path / "graph").to_pyg().x.add_(1)


def test_ids_are_nodes_and_what_is_unknown_is_left_out():
    found = graph(node_ids=["ann", "bob", "cem", "dan"]).to_networkx()
    assert dict(found.nodes(data=True)) == {
        "ann": {"label": "b", "split": "test"},
        "bob": {"label": "a", "split": "train"},
        "cem": {},
        "dan": {"label": "c", "split": "train"},
    }
    assert list(found.edges(data="weight")) == [("ann", "bob", 2.0), ("bob", "cem", 3.0)]


def test_edges_without_weights_have_none():
    found = graph((1, 1), labels=None, splits={}).to_networkx()
    assert list(found.edges(data=True)) == [(0, 1, {}), (1, 2, {})]
    assert list(found.nodes) == [0, 1, 2, 3]


@pytest.mark.parametrize("weights", [(2.0, 3.0), (1, 1)])
@pytest.mark.parametrize("labels", [LABELS, [1, 0, -1, 2]])
def test_a_networkx_graph_reads_back_the_same(weights, labels):
    given = graph(weights, None, labels, node_ids=[7, 5, 3, 1])
    back = from_networkx(given.to_networkx(), label="label", split="split")
    assert back.fingerprint == given.fingerprint
    assert (back.labels.tolist(), back.class_names) == (given.labels.tolist(), given.class_names)
    assert back.node_ids.tolist() == [7, 5, 3, 1]
    assert splits_of(back) == splits_of(given)


def test_every_edge_of_a_larger_graph_comes_back():
    given = synthetic_graph(200, 800, 0, 3)
    assert from_networkx(given.to_networkx()).fingerprint == given.fingerprint


def test_a_frame_has_ids_labels_and_splits():
    table = graph(node_ids=["ann", "bob", "cem", "dan"]).nodes_frame("arrow")
    assert table.to_pydict() == {
        "id": ["ann", "bob", "cem", "dan"],
        "label": ["b", "a", None, "c"],
        "split": ["test", "train", None, "train"],
    }


def test_a_frame_has_no_column_for_what_the_graph_has_not():
    assert graph(labels=None, splits={}).nodes_frame("arrow").to_pydict() == {"id": [0, 1, 2, 3]}


def test_labels_of_a_frame_are_numbers_where_classes_have_no_names_and_lists_where_a_node_has_several():
    assert graph(labels=[1, 0, -1, 2]).nodes_frame("arrow")["label"].to_pylist() == [1, 0, None, 2]
    several = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    assert graph(labels=several).nodes_frame("arrow")["label"].to_pylist() == [[0, 2], [], [1], [0, 1, 2]]
    named = graph(labels=several, class_names=["x", "y", "z"]).nodes_frame("arrow")
    assert named["label"].to_pylist() == [["x", "z"], [], ["y"], ["x", "y", "z"]]


@pytest.mark.parametrize(
    ("convert", "library", "extra"), [("to_pyg", "torch_geometric", "pyg"), ("to_networkx", "networkx", "networkx")]
)
def test_a_library_that_is_not_there_is_named_with_its_extra(convert, library, extra, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library] + [library]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf"pip install 'nagphormer\[{extra}\]'"):
        getattr(graph(), convert)()
