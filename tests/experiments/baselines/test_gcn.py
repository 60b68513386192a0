import numpy as np
import torch

from experiments.baselines.gcn import GCN
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def test_two_layers_are_the_formula():
    task = small_task()
    method = GCN(task, hidden_dim=5).eval()
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    propagate = scale[:, None] * looped * scale
    hidden = task.features.numpy().astype(np.float64)
    for number, layer in enumerate((method.first, method.second)):
        hidden = propagate @ hidden @ layer.lin.weight.detach().numpy().T + layer.bias.detach().numpy()
        hidden = np.maximum(hidden, 0) if number == 0 else hidden
    np.testing.assert_allclose(method().detach().numpy(), hidden, atol=1e-5)
    np.testing.assert_allclose((task.propagation @ task.features).numpy(), propagate @ task.features.numpy(), atol=1e-5)


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GCN(small_task())
    train(method, 60)
    assert accuracy(method) > 0.8


def test_rows_are_normalized_where_asked_for():
    task = small_task()
    sizes = np.abs(task.features.numpy()).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(GCN(task, row_normalized=True).inputs, task.features.numpy() / sizes, rtol=1e-5)
    assert GCN(task).inputs is task.features


def test_only_the_first_layer_decays():
    method = GCN(small_task(), weight_decay=0.02)
    decay = {id(p): group["weight_decay"] for group in method.optimizer.param_groups for p in group["params"]}
    assert {decay[id(p)] for p in method.first.parameters()} == {0.02}
    assert {decay[id(p)] for p in method.second.parameters()} == {0.0}
