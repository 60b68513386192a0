import json

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import from_scipy, load_graph
from nagphormer.data.summary import summarize, training_homophily

# a triangle with a tail, and an isolated node
EDGES = ([0, 0, 1, 2], [1, 2, 2, 3])
ADJACENCY = sp.coo_array((np.ones(4), EDGES), shape=(5, 5))


def test_a_summary_by_hand():
    graph = from_scipy(
        ADJACENCY, np.eye(5), [0, 0, 1, -1, 1], {"train": [0, 2], "test": [1]}, class_names=["a", "b"], name="toy"
    )
    assert summarize(graph) == {
        "name": "toy",
        "nodes": 5,
        "edges": 4,
        "weighted": False,
        "features": 5,
        "feature_density": 0.2,
        "degree_mean": 1.6,
        "degree_median": 2.0,
        "degree_max": 3,
        "isolated_nodes": 1,
        "components": 2,
        "largest_component": 4,
        "homophily": 0.3333,  # of three edges with both ends labeled, 0-1 joins equal ones
        "classes": 2,
        "label_counts": {"a": 2, "b": 2},
        "unlabeled_nodes": 1,
        "splits": {"train": 2, "test": 1},
        "fingerprint": graph.fingerprint,
    }


def test_training_homophily_is_that_of_edges_between_training_nodes_alone():
    labels = np.arange(100) % 2
    ring = sp.coo_array((np.ones(100), (np.arange(100), (np.arange(100) + 1) % 100)), shape=(100, 100))
    pairs = sp.coo_array((np.ones(50), (np.arange(50), np.arange(50) + 50)), shape=(100, 100))
    graph = from_scipy(ring + pairs, labels=labels)  # no edge of the ring joins equal ones, and every pair does
    assert training_homophily(graph.with_splits(train=np.arange(100), val=[])) == pytest.approx(1 / 3)
    assert training_homophily(graph.with_splits(train=np.arange(50), val=np.arange(50, 100))) == 0  # 49 of the ring
    assert training_homophily(graph.with_splits(train=np.arange(30), val=np.arange(50, 100))) is None  # too few
    several = from_scipy(ring, labels=np.stack([labels, 1 - labels, labels], axis=1))
    assert training_homophily(several.with_splits(train=np.arange(100), val=[])) is None


def test_a_bare_graph_has_no_features_labels_or_homophily():
    facts = summarize(from_scipy(ADJACENCY * 2.5))
    assert facts["weighted"] is True
    assert (facts["features"], facts["feature_density"], facts["homophily"]) == (0, None, None)
    assert (facts["classes"], facts["label_counts"], facts["splits"]) == (0, {}, {})


def test_sparse_features_have_a_density():
    assert summarize(from_scipy(ADJACENCY, sp.csr_array(np.eye(5))))["feature_density"] == 0.2


def test_multi_label_counts_are_column_sums():
    facts = summarize(from_scipy(ADJACENCY, labels=np.array([[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]])))
    assert facts["label_counts"] == {"0": 3, "1": 1}
    assert facts["homophily"] is None


def test_classes_without_nodes_are_counted_as_zero():
    facts = summarize(from_scipy(ADJACENCY, labels=[0, 0, 2, 2, -1], class_names=["a", "b", "c", "d"]))
    assert facts["label_counts"] == {"a": 2, "b": 0, "c": 2, "d": 0}


@pytest.mark.parametrize(("labels", "homophily"), [([0] * 5, 1.0), ([0, 1, 2, 3, 4], 0.0), ([-1] * 5, None)])
def test_homophily_of_extremes(labels, homophily):
    assert summarize(from_scipy(ADJACENCY, labels=labels))["homophily"] == homophily


def test_a_graph_without_edges_can_be_summarized():
    facts = summarize(from_scipy(sp.csr_array((3, 3)), labels=[0, 1, 0]))
    assert (facts["components"], facts["isolated_nodes"], facts["homophily"]) == (3, 3, None)


def test_a_summary_is_plain_json_also_of_a_memory_mapped_graph(tmp_path):
    graph = from_scipy(ADJACENCY, np.eye(5), [0, 0, 1, -1, 1], {"train": [0]})
    graph.save(tmp_path / "graph")
    assert json.loads(json.dumps(summarize(load_graph(tmp_path / "graph")))) == summarize(graph)
