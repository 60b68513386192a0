import numpy as np
import pytest
import torch

from experiments.baselines.gprgnn import GPRGNN, pagerank_weights, settings
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def perceptron_in_numpy(method):
    _, first, _, _, second = method.predict
    hidden = method.task.features.numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy()
    return np.maximum(hidden, 0) @ second.weight.detach().numpy().T + second.bias.detach().numpy()


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_weights_start_as_personalized_pagerank(alpha):
    weights = pagerank_weights(4, alpha).numpy()
    rest = 1 - alpha
    expected = [alpha, alpha * rest, alpha * rest**2, alpha * rest**3, rest**4]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(GPRGNN(small_task(), hops=4, alpha=alpha).gamma.detach().numpy(), weights)


def test_weight_on_hop_zero_alone_is_the_mlp():
    method = GPRGNN(small_task(), hidden_dim=5).eval()
    with torch.no_grad():
        method.gamma.copy_(torch.eye(11)[0])
    np.testing.assert_allclose(method().detach().numpy(), perceptron_in_numpy(method), atol=1e-5)


def test_hops_are_the_dense_sum():
    method = GPRGNN(small_task(), hidden_dim=5, hops=3).eval()
    with torch.no_grad():
        method.gamma.copy_(torch.tensor([0.5, -2.0, 0.25, 1.5]))
    looped = dense_adjacency(method.task) + np.eye(method.task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    matrix = scale[:, None] * looped * scale
    weights = zip(range(4), [0.5, -2.0, 0.25, 1.5], strict=True)
    total = sum(weight * np.linalg.matrix_power(matrix, hop) for hop, weight in weights)
    np.testing.assert_allclose(method().detach().numpy(), total @ perceptron_in_numpy(method), atol=1e-4)


def test_hop_weights_learn_without_decay():
    method = GPRGNN(small_task(), weight_decay=0.02)
    decay = {id(p): group["weight_decay"] for group in method.optimizer.param_groups for p in group["params"]}
    assert {decay[id(p)] for p in method.predict.parameters()} == {0.02}
    assert decay[id(method.gamma)] == 0
    before = method.gamma.detach().clone()
    train(method, 1)
    assert (method.gamma != before).all()


def test_hop_dropout_acts_in_training_alone():
    method = GPRGNN(small_task(), dropout=0.0, hop_dropout=0.5)
    assert torch.equal(method.eval()(), method())
    assert not torch.equal(method.train()(), method())


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GPRGNN(small_task())
    train(method, 60)
    assert accuracy(method) > 0.8


@pytest.mark.parametrize("dataset", ["pubmed", "cora"])
def test_settings_build(dataset):
    assert len(settings(dataset)) <= 4
    for setting in settings(dataset):
        GPRGNN(small_task(), **setting)
