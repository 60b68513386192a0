import numpy as np
import pytest

from nagphormer import UserError, from_networkx

nx = pytest.importorskip("networkx", reason="needs networkx")


def neighbors(graph):
    return [graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist() for i in range(graph.num_nodes)]


def test_names_become_node_ids():
    graph = from_networkx(nx.Graph([("b", "a"), ("a", "c")]))
    assert graph.node_ids.tolist() == ["b", "a", "c"]
    assert neighbors(graph) == [[1], [0, 2], [1]]
    assert graph.weights is None


def test_integer_names_stay_integers_and_mixed_names_become_text():
    assert from_networkx(nx.Graph([(7, 3)])).node_ids.tolist() == [7, 3]
    assert from_networkx(nx.Graph([(7, "x"), ("x", (1, 2))])).node_ids.tolist() == ["7", "x", "(1, 2)"]
    assert from_networkx(nx.Graph([(2**70, 3)])).node_ids.tolist() == [str(2**70), "3"]


def test_names_that_read_alike_are_refused():
    with pytest.raises(UserError, match="'7' appears 2 times"):
        from_networkx(nx.Graph([(7, "7")]))


def test_directed_edges_and_self_loops_follow_the_general_rule():
    graph = nx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 2)])
    graph.add_node(3)
    assert neighbors(from_networkx(graph)) == [[1], [0, 2], [1], []]


def test_parallel_edges_are_merged_and_their_weights_summed():
    graph = nx.MultiGraph()
    graph.add_edge(0, 1, weight=2)
    graph.add_edge(1, 0, weight=3)
    graph.add_edge(1, 2)
    assert from_networkx(graph).weights.tolist() == [5, 5, 1, 1]
    assert from_networkx(graph, weight=None).weights is None
    assert from_networkx(nx.MultiGraph([(0, 1), (0, 1)])).weights is None


def test_of_two_directions_the_larger_weight_counts():
    graph = nx.DiGraph()
    graph.add_edge(0, 1, strength=2)
    graph.add_edge(1, 0, strength=5)
    assert from_networkx(graph, weight="strength").weights.tolist() == [5, 5]


def test_features_come_from_a_vector_or_from_numbers():
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, {0: [1.0, 2.0], 1: [3.0, 4.0]}, "x")
    nx.set_node_attributes(graph, {0: 5, 1: 6}, "age")
    assert from_networkx(graph, features="x").features.tolist() == [[1, 2], [3, 4]]
    both = from_networkx(graph, features=["age", "x"])
    assert both.features.tolist() == [[5, 1, 2], [6, 3, 4]]
    assert both.feature_names == ("age", "x[0]", "x[1]")  # as in a table


def test_labels_are_numbers_or_names_and_may_be_missing():
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: np.int64(2), 2: 0}, "y")
    nx.set_node_attributes(graph, {1: "red", 2: "blue"}, "color")
    assert from_networkx(graph, label="y").labels.tolist() == [2, -1, 0]
    named = from_networkx(graph, label="color")
    assert named.labels.tolist() == [-1, 1, 0]
    assert named.class_names == ("blue", "red")


def test_splits_come_from_an_attribute():
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: "test", 1: "train", 3: "train"}, "role")
    splits = from_networkx(graph, split="role").splits
    assert {name: idx.tolist() for name, idx in splits.items()} == {"test": [0], "train": [1, 3]}
    graph.nodes[2]["role"] = "valid"
    assert from_networkx(graph, split="role").splits["val"].tolist() == [2]
    graph.nodes[2]["role"] = float("nan")
    assert "val" not in from_networkx(graph, split="role").splits
    graph.nodes[2]["role"] = "vaild"
    with pytest.raises(UserError, match="node 2 has role 'vaild'"):
        from_networkx(graph, split="role")


def test_missing_and_uneven_features_are_refused():
    graph = nx.path_graph(2)
    graph.nodes[0]["x"] = [1.0]
    with pytest.raises(UserError, match="node 1 has no attribute 'x'"):
        from_networkx(graph, features="x")
    graph.nodes[1]["x"] = [1.0, 2.0]
    with pytest.raises(UserError, match="1 to 2 numbers"):
        from_networkx(graph, features="x")
    graph.nodes[1]["x"] = ["red"]
    with pytest.raises(UserError, match="must be numbers"):
        from_networkx(graph, features="x")


def test_wrong_names_and_objects_are_refused():
    with pytest.raises(UserError, match="no node has the attribute 'y'"):
        from_networkx(nx.path_graph(2), label="y")
    with pytest.raises(UserError, match="graph is empty"):
        from_networkx(nx.Graph())
    for wrong in ([(0, 1)], nx):
        with pytest.raises(UserError, match="not a NetworkX graph"):
            from_networkx(wrong)
    with pytest.raises(UserError, match="names no edge attribute"):
        from_networkx(nx.path_graph(2), weight=["weight"])
    graph = nx.Graph()
    graph.add_edge(0, 1, weight="heavy")
    with pytest.raises(UserError, match="'weight' is not a number"):
        from_networkx(graph)
    graph.edges[0, 1]["weight"] = [1.0]
    with pytest.raises(UserError, match="'weight' is not a number"):
        from_networkx(graph)
    with pytest.raises(UserError, match="no edge has the attribute 'wieght'"):
        from_networkx(graph, weight="wieght")


@pytest.mark.parametrize("features", [True, [], np.eye(2), {"x": 1}])
def test_features_that_name_no_attribute_are_refused(features):
    with pytest.raises(UserError, match="names no node attributes"):
        from_networkx(nx.path_graph(2), features=features)


@pytest.mark.parametrize("value", [{"a": 1}, {1, 2}, np.datetime64("2020-01-01"), 1j, [[1], [2, 3]]])
def test_features_that_are_no_numbers_are_refused(value):
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, {0: value, 1: value}, "x")
    with pytest.raises(UserError, match=r"must be numbers|cannot be read as an array"):
        from_networkx(graph, features="x")


def test_labels_with_gaps_are_those_of_a_table():
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: 0.0, 1: 1.0, 2: float("nan"), 3: np.float64(1)}, "y")
    found = from_networkx(graph, label="y")
    assert (found.class_names, found.labels.tolist()) == (None, [0, 1, -1, 1])
    nx.set_node_attributes(graph, {0: "a", 1: "b", 2: float("nan"), 3: ""}, "z")
    found = from_networkx(graph, label="z")
    assert (found.class_names, found.labels.tolist()) == (("a", "b"), [0, 1, -1, -1])
