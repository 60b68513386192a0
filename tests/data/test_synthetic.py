import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer import UserError, synthetic_graph
from nagphormer.data.summary import summarize


@settings(deadline=None, max_examples=40)
@given(num_nodes=st.integers(3, 300), share=st.floats(0, 1), num_classes=st.integers(1, 9), seed=st.integers(0, 99))
def test_edges_are_within_one_percent_of_those_asked_for(num_nodes, share, num_classes, seed):
    num_edges = max(1, int(share * (num_nodes * (num_nodes - 1) // 4)))
    graph = synthetic_graph(num_nodes, num_edges, 2, num_classes, seed)
    assert abs(graph.num_edges - num_edges) <= 0.01 * num_edges
    assert graph.num_nodes == num_nodes
    assert graph.features.shape == (num_nodes, 2)
    assert graph.labels.min() >= 0
    assert graph.num_classes <= num_classes


@pytest.mark.parametrize("num_edges", [20_000, 200_000])
def test_larger_graphs_have_their_edges_too(num_edges):
    assert abs(synthetic_graph(10_000, num_edges, 0, 5).num_edges - num_edges) <= 0.01 * num_edges


def test_the_adjacency_is_symmetric_sorted_and_without_loops():
    graph = synthetic_graph(500, 2000, 0, 3)
    matrix = graph.adjacency()
    assert (matrix != matrix.T).nnz == 0
    assert not matrix.diagonal().any()
    assert matrix.has_canonical_format
    assert graph.weights is None


def test_the_same_seed_gives_the_same_graph_and_another_seed_another():
    first, again, other = (synthetic_graph(300, 900, 4, 3, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.labels.tolist() == again.labels.tolist()


def test_degrees_have_a_heavy_tail():
    degrees = synthetic_graph(20_000, 100_000, 0, 4).degrees
    assert degrees.max() > 20 * degrees.mean()
    assert np.median(degrees) < degrees.mean()


def test_labels_follow_the_edges():
    facts = summarize(synthetic_graph(5000, 50_000, 0, 5))
    assert facts["homophily"] > 0.5
    assert min(facts["label_counts"].values()) > 300


def test_features_follow_the_labels():
    graph = synthetic_graph(5000, 20_000, 32, 4)
    means = np.stack([graph.features[graph.labels == label].mean(axis=0) for label in range(4)])
    distance = ((graph.features[:, None] - means) ** 2).sum(axis=2)
    assert (distance.argmin(axis=1) == graph.labels).mean() > 0.5


def test_ids_are_shuffled_unless_told_not_to():
    def mean_distance(shuffle):
        matrix = synthetic_graph(5000, 20_000, 0, 4, shuffle=shuffle).adjacency().tocoo()
        return np.abs(matrix.row - matrix.col).mean()

    assert mean_distance(False) < 0.7 * mean_distance(True)


def test_without_features_there_are_none():
    assert synthetic_graph(100, 300, 0, 2).features is None


@pytest.mark.parametrize("wrong", [(1, 1, 0, 1), (10, 0, 0, 1), (10, 5, -1, 1), (10, 5, 0, 0)])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(UserError, match="needs at least"):
        synthetic_graph(*wrong)


def test_too_many_edges_are_refused():
    with pytest.raises(UserError, match="30 edges are too many for 10 nodes"):
        synthetic_graph(10, 30, 0, 1)
