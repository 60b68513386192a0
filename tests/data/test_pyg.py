from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric", reason="needs torch-geometric")

from torch_geometric.data import Data, HeteroData  # noqa: E402

from nagphormer import UserError, from_pyg  # noqa: E402

EDGES = torch.tensor([[0, 1, 2, 2, 0], [1, 0, 1, 2, 1]])  # both ways, one way, a self-loop, a duplicate


def path_of_four(**parts):
    return Data(edge_index=EDGES, num_nodes=4, **parts)


def neighbors(graph):
    return [graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist() for i in range(graph.num_nodes)]


def test_edges_become_undirected_and_isolated_nodes_stay():
    graph = from_pyg(path_of_four())
    assert neighbors(graph) == [[1], [0, 2], [1], []]
    assert (graph.features, graph.labels, graph.weights, graph.splits) == (None, None, None, {})


def test_features_labels_and_masks_are_read():
    x = torch.arange(8.0).reshape(4, 2)
    graph = from_pyg(
        path_of_four(x=x, y=torch.tensor([0, 2, 1, -1]), train_mask=torch.arange(4) < 2, test_mask=torch.arange(4) == 3)
    )
    np.testing.assert_array_equal(graph.features, x.numpy())
    assert graph.labels.tolist() == [0, 2, 1, -1]
    assert {name: idx.tolist() for name, idx in graph.splits.items()} == {"train": [0, 1], "test": [3]}


def test_of_several_splits_the_first_is_taken():
    masks = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=torch.bool)
    assert from_pyg(path_of_four(train_mask=masks)).splits["train"].tolist() == [0]


def test_edge_weights_come_from_edge_weight_or_one_dimensional_edge_attr():
    weights = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    for parts in ({"edge_weight": weights}, {"edge_weight": weights[:, None]}, {"edge_attr": weights}):
        graph = from_pyg(path_of_four(**parts))
        assert graph.weights.tolist() == [13, 13, 5, 5]  # 2 + 11 one way against 3 the other
    assert from_pyg(path_of_four(edge_attr=torch.ones(5, 3))).weights is None


def test_labels_of_ogb_and_multi_labels_are_read():
    column = torch.tensor([[1.0], [float("nan")], [0.0], [1.0]])
    assert from_pyg(path_of_four(y=column)).labels.tolist() == [1, -1, 0, 1]
    assert from_pyg(path_of_four(y=torch.ones(4, 3))).labels.shape == (4, 3)


def test_sparse_features_stay_sparse():
    graph = from_pyg(path_of_four(x=torch.eye(4).to_sparse_coo()))
    assert sp.issparse(graph.features)
    assert graph.num_features == 4


def test_an_adjacency_stands_in_for_edges():
    adjacency = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]).to_sparse_coo()
    graph = from_pyg(Data(adj_t=adjacency, x=torch.ones(3, 1)))
    assert neighbors(graph) == [[1], [0, 2], [1]]


def test_any_object_with_the_same_attributes_will_do():
    graph = from_pyg(SimpleNamespace(edge_index=EDGES, x=torch.ones(4, 2)))
    assert graph.num_nodes == 4


def test_a_data_set_of_one_graph_is_that_graph():
    assert from_pyg([path_of_four()]).num_nodes == 4
    with pytest.raises(UserError, match="holds 2 graphs"):
        from_pyg([path_of_four(), path_of_four()])


def test_the_split_of_an_ogb_data_set_is_taken():
    class OgbDataset(list):
        def get_idx_split(self):
            return {"train": torch.tensor([3, 0]), "valid": torch.tensor([1]), "test": torch.tensor([2])}

    splits = from_pyg(OgbDataset([path_of_four()])).splits
    assert {name: idx.tolist() for name, idx in splits.items()} == {"train": [0, 3], "val": [1], "test": [2]}


def test_heterogeneous_data_is_refused_with_the_way_out():
    data = HeteroData()
    data["paper"].x = torch.ones(2, 2)
    with pytest.raises(UserError, match="to_homogeneous"):
        from_pyg(data)


def test_objects_without_edges_or_size_are_refused():
    with pytest.raises(UserError, match="neither edge_index nor adj_t"):
        from_pyg(Data(x=torch.ones(2, 2)))
    with pytest.raises(UserError, match=r"set data\.num_nodes"):
        from_pyg(SimpleNamespace(edge_index=EDGES))
    with pytest.raises(UserError, match="features has 3 rows"):
        from_pyg(path_of_four(x=torch.ones(3, 2)))
