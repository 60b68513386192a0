import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components as scipy_components

from nagphormer import from_scipy, synthetic_graph
from nagphormer.data.components import connected_components
from nagphormer.data.graph import from_edges


def test_components_are_numbered_by_their_lowest_node_by_hand():
    graph = from_edges(np.array([5, 1, 4]), np.array([1, 3, 2]), 7)
    assert connected_components(graph).tolist() == [0, 1, 2, 1, 2, 1, 3]


def test_every_node_is_its_own_component_without_edges():
    assert connected_components(from_scipy(sp.csr_array((3, 3)))).tolist() == [0, 1, 2]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60))
def test_components_equal_scipys(num_nodes, pairs):
    ends = np.array(pairs, int).reshape(-1, 2) % num_nodes
    graph = from_edges(ends[:, 0], ends[:, 1], num_nodes)
    assert connected_components(graph).tolist() == scipy_components(graph.adjacency())[1].tolist()


def test_a_long_path_in_the_worst_order_is_one_component():
    nodes = np.arange(50_000)
    assert not connected_components(from_edges(nodes[:-1][::-1], nodes[1:][::-1], 50_000)).any()


def test_a_graph_with_hubs_equals_scipys():
    graph = synthetic_graph(3000, 2500, 0, 2)
    assert connected_components(graph).tolist() == scipy_components(graph.adjacency())[1].tolist()


def test_memory_mapped_graphs_are_read(tmp_path):
    from nagphormer import load_graph

    from_edges(np.array([0]), np.array([2]), 3).save(tmp_path / "graph")
    assert connected_components(load_graph(tmp_path / "graph")).tolist() == [0, 1, 0]
