import numpy as np
from reference import degrees, isolated, path_graph, random_graph

from nagphormer import from_scipy
from nagphormer.tokens.normalization import loop_degrees, weighted_degrees


def test_degrees_by_hand_on_a_path_of_four():
    assert weighted_degrees(path_graph(4)).tolist() == [1, 2, 2, 1]
    assert loop_degrees(path_graph(4)).tolist() == [2, 3, 3, 2]


def test_weighted_degrees_by_hand():
    graph = from_scipy(np.array([[0, 2, 0, 0], [2, 0, 0.5, 0], [0, 0.5, 0, 0], [0, 0, 0, 0]]))
    assert weighted_degrees(graph).tolist() == [2, 2.5, 0.5, 0]
    assert loop_degrees(graph).tolist() == [3, 3.5, 1.5, 1]


def test_degrees_equal_the_row_sums_of_a_random_graph():
    for weighted in (False, True):
        graph = random_graph(80, 1, seed=3, weighted=weighted)
        np.testing.assert_allclose(weighted_degrees(graph), degrees(graph), rtol=1e-12)
        assert weighted_degrees(graph).dtype == np.float64


def test_isolated_nodes_have_degree_zero_at_either_end_of_the_ids():
    adjacency = np.zeros((5, 5))
    adjacency[1, 3] = 2.5
    assert weighted_degrees(from_scipy(adjacency)).tolist() == [0, 2.5, 0, 2.5, 0]
    assert loop_degrees(isolated(3)).tolist() == [1, 1, 1]


def test_tiny_weights_survive_beside_huge_ones():
    adjacency = np.zeros((5, 5))
    adjacency[0, 1], adjacency[2, 3], adjacency[3, 4] = 1e10, 1e-7, 2e-7
    np.testing.assert_allclose(weighted_degrees(from_scipy(adjacency)), [1e10, 1e10, 1e-7, 3e-7, 2e-7], rtol=1e-6)
