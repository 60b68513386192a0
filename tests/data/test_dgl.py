from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nagphormer import UserError, from_dgl


class FakeGraph:
    """The methods of `dgl.DGLGraph` that are used."""

    is_homogeneous = True

    def __init__(self, ndata=None, edata=None):
        self.ndata, self.edata = ndata or {}, edata or {}

    def edges(self):
        return torch.tensor([0, 1, 2]), torch.tensor([1, 2, 2])

    def num_nodes(self):
        return 4


def test_edges_features_labels_and_masks_are_read():
    graph = from_dgl(
        FakeGraph(
            {
                "feat": torch.ones(4, 3),
                "label": torch.tensor([0, 1, 1, 0]),
                "train_mask": torch.tensor([1, 0, 0, 0], dtype=torch.uint8),
                "val_mask": torch.tensor([0, 1, 0, 0], dtype=torch.uint8),
                "test_mask": torch.tensor([0, 0, 1, 1], dtype=torch.uint8),
            }
        )
    )
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (4, 2, 3, 2)
    assert {name: idx.tolist() for name, idx in graph.splits.items()} == {
        "train": [0],
        "val": [1],
        "test": [2, 3],
    }


def test_a_graph_may_hold_nothing_but_edges():
    graph = from_dgl(FakeGraph())
    assert (graph.features, graph.labels, graph.weights, graph.splits) == (None, None, None, {})


@pytest.mark.parametrize("name", ["weight", "w"])
def test_edge_weights_are_read(name):
    graph = from_dgl(FakeGraph(edata={name: torch.tensor([[2.0], [3.0], [4.0]])}))
    np.testing.assert_array_equal(graph.weights, [2, 2, 3, 3])


def test_one_of_several_splits_can_be_chosen():
    masks = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]], dtype=torch.bool)
    assert from_dgl(FakeGraph(ndata={"train_mask": masks}), split=1).splits["train"].tolist() == [1]


def test_a_data_set_of_one_graph_is_that_graph():
    assert from_dgl([FakeGraph()]).num_nodes == 4
    with pytest.raises(UserError, match="holds 2 graphs"):
        from_dgl([FakeGraph(), FakeGraph()])


def test_heterogeneous_graphs_are_refused_with_the_way_out():
    graph = FakeGraph()
    graph.is_homogeneous = False
    with pytest.raises(UserError, match=r"dgl\.to_homogeneous"):
        from_dgl(graph)


def test_other_objects_are_refused():
    with pytest.raises(UserError, match="not a DGL graph"):
        from_dgl(SimpleNamespace(ndata={}))
