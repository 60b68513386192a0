import numpy as np
import pytest
import torch
from torch_geometric.nn import APPNP as Propagation

from experiments.baselines.appnp import APPNP, settings
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def dense_propagation(task):
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    return scale[:, None] * looped * scale


def perceptron_in_numpy(method):
    _, first, _, _, second = method.predict
    hidden = np.maximum(method.task.features.numpy() @ first.weight.detach().numpy().T, 0)
    return hidden @ second.weight.detach().numpy().T


def test_alpha_one_is_the_mlp():
    method = APPNP(small_task(), hidden_dim=5, alpha=1.0).eval()
    np.testing.assert_allclose(method().detach().numpy(), perceptron_in_numpy(method), atol=1e-5)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_steps_are_the_dense_recursion(steps):
    method = APPNP(small_task(), hidden_dim=5, steps=steps, alpha=0.3).eval()
    scores = perceptron_in_numpy(method)
    expected = scores
    for _ in range(steps):
        expected = 0.7 * dense_propagation(method.task) @ expected + 0.3 * scores
    np.testing.assert_allclose(method().detach().numpy(), expected, atol=1e-5)


def test_many_steps_reach_personalized_pagerank():
    method = APPNP(small_task(), steps=100, alpha=0.2).eval()
    pagerank = 0.2 * np.linalg.inv(np.eye(method.task.num_nodes) - 0.8 * dense_propagation(method.task))
    np.testing.assert_allclose(method().detach().numpy(), pagerank @ perceptron_in_numpy(method), atol=1e-5)


def test_propagation_is_that_of_torch_geometric():
    method = APPNP(small_task()).eval()
    scores = torch.rand(method.task.num_nodes, 3)
    torch.testing.assert_close(method.propagate(scores), Propagation(10, 0.1)(scores, method.task.edge_index))


def test_every_step_drops_entries_anew():
    """Only then is the mean over many draws what no dropout gives: entries kept twice would count for more."""
    method = APPNP(small_task(num_nodes=12), steps=4, alpha=0.1).train()
    torch.manual_seed(0)
    scores = torch.ones(12, 1)
    drawn = torch.stack([method.propagate(scores) for _ in range(3000)])
    assert drawn.std(dim=0).min() > 0.1
    error = drawn.std(dim=0) / len(drawn) ** 0.5
    assert ((drawn.mean(dim=0) - method.eval().propagate(scores)).abs() < 5 * error).all()


def test_only_the_first_layer_decays():
    method = APPNP(small_task(), weight_decay=0.02)
    _, first, _, _, second = method.predict
    decay = {id(p): group["weight_decay"] for group in method.optimizer.param_groups for p in group["params"]}
    assert decay == {id(first.weight): 0.02, id(second.weight): 0.0}


def test_gradients_pass_through_dropped_propagation():
    """The adjoint of a dropped, no longer symmetric matrix is its transpose."""
    method = APPNP(small_task(num_nodes=12), steps=1, alpha=0.0).train()
    scores = torch.rand(12, 3, requires_grad=True)
    weight = torch.rand(12, 3)
    torch.manual_seed(0)
    (method.propagate(scores) * weight).sum().backward()
    torch.manual_seed(0)
    matrix = method._dropped(scores)[0].to_dense()
    assert not torch.equal(matrix, matrix.T)
    torch.testing.assert_close(scores.grad, matrix.T @ weight)


def test_it_learns_communities():
    torch.manual_seed(0)
    method = APPNP(small_task(), **settings("cora")[0])
    train(method, 60)
    assert accuracy(method) > 0.8
