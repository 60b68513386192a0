from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric", reason="needs torch-geometric")

import torch_geometric.utils  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402

from nagphormer import UserError, from_pyg, progress  # noqa: E402

EDGES = torch.tensor([[0, 1, 2, 2, 0], [1, 0, 1, 2, 1]])  # both ways, one way, a self-loop, a duplicate


def path_of_four(**parts):
    return Data(edge_index=EDGES, num_nodes=4, **parts)


@pytest.fixture
def said(monkeypatch, capsys):
    """The lines about what is going on since they were last asked for."""
    monkeypatch.setattr(progress, "_plain_lines", True)
    return lambda: [line.strip() for line in capsys.readouterr().err.splitlines()]


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


def several_splits():
    masks = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=torch.bool)
    return path_of_four(train_mask=masks, test_mask=torch.arange(4) == 3)


def test_of_several_splits_the_first_is_taken_or_the_one_asked_for():
    assert from_pyg(several_splits()).splits["train"].tolist() == [0]
    assert from_pyg(several_splits(), split=2).splits["train"].tolist() == [1]


def test_a_mask_of_one_dimension_counts_for_every_split():
    assert from_pyg(several_splits(), split=2).splits["test"].tolist() == [3]


@pytest.mark.parametrize("split", [3, -1, "public"])
def test_a_split_that_is_not_there_is_refused_with_those_that_are(split):
    with pytest.raises(UserError, match="there are 3 splits, 0 to 2"):
        from_pyg(several_splits(), split=split)


def test_a_line_says_how_many_splits_there_are_and_which_was_taken(said):
    from_pyg(several_splits(), split=1)
    assert said() == ["the masks hold 3 splits: number 1 is taken, another by split="]
    from_pyg(path_of_four(train_mask=torch.arange(4) < 2))
    assert said() == []


@pytest.mark.parametrize("name", ["val_idx", "valid_idx"])
def test_positions_of_splits_are_read_where_there_are_no_masks(name):
    positions = {"train_idx": torch.tensor([2, 0]), name: torch.tensor([1]), "test_idx": torch.tensor([3])}
    splits = from_pyg(path_of_four(**positions)).splits
    assert {name: idx.tolist() for name, idx in splits.items()} == {"train": [0, 2], "val": [1], "test": [3]}
    masked = from_pyg(path_of_four(**positions, train_mask=torch.arange(4) == 1))
    assert {name: idx.tolist() for name, idx in masked.splits.items()} == {"train": [1]}


@pytest.mark.parametrize("name", ["edge_weight", "weight", "edge_attr"])
def test_weights_are_one_number_an_edge(name):
    weights = torch.tensor([2.0, 3.0, 5.0, 7.0, 11.0])
    for values in (weights, weights[:, None]):
        graph = from_pyg(path_of_four(**{name: values}))
        assert graph.weights.tolist() == [13, 13, 5, 5]  # 2 + 11 one way against 3 the other


def test_weights_of_pygs_own_from_networkx_are_read():
    networkx = pytest.importorskip("networkx", reason="needs networkx")
    drawn = networkx.Graph()
    drawn.add_weighted_edges_from([(0, 1, 2.0), (1, 2, 3.0)])
    for grouped in (None, ["weight"]):
        data = torch_geometric.utils.from_networkx(drawn, group_edge_attrs=grouped)
        assert from_pyg(data).weights.tolist() == [2, 2, 3, 3]


def test_a_weight_of_nodes_is_no_weight_of_edges(said):
    assert from_pyg(path_of_four(weight=torch.ones(4) * 3)).weights is None
    assert said() == []


def test_edge_attributes_of_several_columns_are_not_used_and_a_line_says_so(said):
    assert from_pyg(path_of_four(edge_attr=torch.ones(5, 3))).weights is None
    assert said() == ["edge_attr of shape (5, 3) is not used: a weight is one number an edge"]


def test_weights_that_cannot_be_name_their_attribute():
    with pytest.raises(UserError, match=r"edge 0 has weight -1.0: .*these are data\.edge_attr"):
        from_pyg(path_of_four(edge_attr=-torch.ones(5, 1)))


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

    data_set = OgbDataset([path_of_four()])
    splits = from_pyg(data_set).splits
    assert {name: idx.tolist() for name, idx in splits.items()} == {"train": [0, 3], "val": [1], "test": [2]}
    with pytest.raises(UserError, match="there is one split, number 0"):
        from_pyg(data_set, split=1)


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
