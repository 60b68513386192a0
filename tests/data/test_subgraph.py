import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer import UserError, from_scipy, load_graph, synthetic_graph

#  0 - 1 - 2 - 3   4, with weights 2, 3, 5
ENDS = ([0, 1, 2], [1, 2, 3])
FEATURES = np.arange(10.0).reshape(5, 2)


def path_and_a_lone_node(weights=(2.0, 3.0, 5.0), features=FEATURES, **parts):
    parts = {"labels": ["b", "a", "a", "", "c"], "splits": {"train": [3, 1], "test": [2]}} | parts
    return from_scipy(sp.coo_array((list(weights), ENDS), shape=(5, 5)), features, **parts)


def test_nodes_come_in_the_order_asked_for_with_the_edges_between_them():
    part = path_and_a_lone_node().subgraph([3, 1, 2])
    assert part.adjacency().toarray().tolist() == [[0, 0, 5], [0, 0, 3], [5, 3, 0]]
    assert part.indices.tolist() == [2, 2, 0, 1]
    assert part.features.tolist() == [[6, 7], [2, 3], [4, 5]]


def test_labels_class_names_and_what_is_left_of_splits_come_along():
    part = path_and_a_lone_node(name="small").subgraph([3, 1, 4])
    assert part.labels.tolist() == [-1, 0, 2]
    assert (part.class_names, part.name) == (("a", "b", "c"), "small")
    assert {split: idx.tolist() for split, idx in part.splits.items()} == {"train": [0, 1], "test": []}


def test_ids_come_along_and_positions_become_ids_where_there_are_none():
    assert path_and_a_lone_node(node_ids=list("vwxyz")).subgraph([3, 1]).node_ids.tolist() == ["y", "w"]
    assert path_and_a_lone_node().subgraph([3, 1]).node_ids.tolist() == [3, 1]
    assert path_and_a_lone_node().subgraph([4, 3, 1]).subgraph([2, 0]).node_ids.tolist() == [1, 4]


@pytest.mark.parametrize(
    "asked",
    [
        {"nodes": slice(1, 3)},
        {"nodes": np.array([False, True, True, False, False])},
        {"nodes": (1, 2)},
        {"node_ids": ["w", "x"]},
    ],
)
def test_nodes_are_positions_a_slice_a_mask_or_ids(asked):
    part = path_and_a_lone_node(node_ids=list("vwxyz")).subgraph(**asked)
    assert part.node_ids.tolist() == ["w", "x"]


def test_a_part_of_edges_that_weigh_one_has_no_weights():
    assert path_and_a_lone_node(weights=(1, 1, 7)).subgraph([0, 1, 2]).weights is None
    assert path_and_a_lone_node(weights=(1, 1, 1)).subgraph([0, 1, 2]).weights is None


def test_nodes_without_edges_or_features_are_a_graph():
    part = path_and_a_lone_node(features=None, labels=None, splits=None).subgraph([4, 0])
    assert (part.num_nodes, part.num_edges, part.num_features, part.labels) == (2, 0, 0, None)


@pytest.mark.parametrize("features", [FEATURES, sp.csr_array(FEATURES), None])
@pytest.mark.parametrize("weights", [(2.0, 3.0, 5.0), (1, 1, 1)])
def test_all_nodes_are_the_same_graph(features, weights):
    whole = path_and_a_lone_node(weights, features)
    assert whole.subgraph(slice(None)).fingerprint == whole.fingerprint


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(12)), st.integers(1, 12))
def test_a_part_is_rows_and_columns_of_the_adjacency(order, kept):
    whole = synthetic_graph(12, 30, 3, 2)
    part, nodes = whole.subgraph(order[:kept]), order[:kept]
    np.testing.assert_array_equal(part.adjacency().toarray(), whole.adjacency().toarray()[np.ix_(nodes, nodes)])
    again = from_scipy(part.adjacency(), part.features)
    assert part.fingerprint == again.fingerprint


def test_a_part_of_a_memory_mapped_graph_is_held_in_memory_and_can_be_saved(tmp_path):
    path_and_a_lone_node().save(tmp_path / "whole")
    part = load_graph(tmp_path / "whole").subgraph([2, 3])
    assert part.folder is None
    part.save(tmp_path / "part")
    assert load_graph(tmp_path / "part").fingerprint == path_and_a_lone_node().subgraph([2, 3]).fingerprint


def test_a_node_twice_and_no_node_at_all_are_refused():
    with pytest.raises(UserError, match="holds a node twice"):
        path_and_a_lone_node().subgraph([1, 2, 1])
    with pytest.raises(UserError, match="would be empty"):
        path_and_a_lone_node().subgraph([])
