import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops

from experiments.baselines.edges import attend, neighbors
from experiments.baselines.polynormer import gat
from tests.experiments.small import small_task

PATH = sp.csr_array(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=np.float32))
"""0 – 1 – 2, and 3 alone."""


def test_neighbors_of_a_path_by_hand():
    along = neighbors(PATH)
    assert along.starts.tolist() == [0, 2, 5, 7, 8]
    assert along.sources.tolist() == [0, 1, 0, 1, 2, 1, 2, 3]
    assert along.back.tolist() == [0, 2, 1, 3, 5, 4, 6, 7]


def test_attention_on_a_path_by_hand():
    source = torch.tensor([[1.0], [-3.0], [0.5], [9.0]])
    target = torch.tensor([[0.0], [1.0], [-1.0], [0.0]])
    values = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[2.0, 2.0]], [[5.0, 6.0]]])
    mixed = attend(neighbors(PATH), source, target, values)[:, 0]
    weights = np.exp([2.0, 0.2 * -2.0, 1.5])  # of 0, 1 and 2 for node 1
    weights /= weights.sum()
    expected = weights[0] * np.array([1, 0]) + weights[1] * np.array([0, 1]) + weights[2] * np.array([2, 2])
    np.testing.assert_allclose(mixed[1], expected, rtol=1e-5)
    assert mixed[3].tolist() == [5.0, 6.0]  # an isolated node has itself


def test_large_scores_do_not_overflow():
    source = torch.full((4, 1), 1e4)
    assert attend(neighbors(PATH), source, source, torch.ones(4, 1, 2)).allclose(torch.ones(4, 1, 2))


@pytest.mark.parametrize("heads", [1, 3])
def test_values_and_gradients_are_those_of_torch_geometric(heads):
    task = small_task()
    torch.manual_seed(0)
    layer = GATConv(6, 5, heads=heads, add_self_loops=False, bias=False)
    hidden, weight = torch.randn(task.num_nodes, 6, requires_grad=True), torch.randn(task.num_nodes, 5 * heads)
    edges = add_self_loops(task.edge_index, num_nodes=task.num_nodes)[0]
    inputs = [hidden, *layer.parameters()]
    found, expected = gat(layer, hidden, neighbors(task.adjacency)), layer(hidden, edges)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad((output * weight).sum(), inputs) for output in (found, expected)]
    assert len(gradients[0]) == 4
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
