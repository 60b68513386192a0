import numpy as np
import pytest
import torch

from experiments.baselines.logistic import Logistic, settings
from nagphormer import hop_tokens
from tests.experiments.small import accuracy, small_task, train


@pytest.mark.parametrize(("hops", "encoding_dim"), [(3, 4), (1, 0), (0, 2)])
def test_scores_are_tokens_times_weights(hops, encoding_dim):
    task = small_task()
    method = Logistic(task, hops, encoding_dim).eval()
    torch.manual_seed(0)
    torch.nn.init.normal_(method.weight)
    torch.nn.init.normal_(method.bias)
    tokens = np.asarray(hop_tokens(task.graph, hops, encoding_dim, dtype="float32"))  # (N, K+1, F + s)
    expected = np.einsum("nkf,kfc->nc", tokens, method.weight.detach().numpy()) + method.bias.detach().numpy()
    np.testing.assert_allclose(method().detach().numpy(), expected, atol=1e-4)


def test_gradients_are_those_of_plain_logistic_regression():
    task = small_task()
    method = Logistic(task, hops=2, encoding_dim=3, weight_decay=0.0)
    train(method, 5)
    nodes = task.splits["train"].numpy()
    tokens = np.asarray(hop_tokens(task.graph, 2, 3, dtype="float32"))[nodes]
    probability = method()[nodes].softmax(dim=1).detach().numpy()
    error = (probability - np.eye(3)[task.graph.labels[nodes]]) / len(nodes)
    method.optimizer.zero_grad()
    scores = method()[task.splits["train"]]
    torch.nn.functional.cross_entropy(scores, task.labels[task.splits["train"]]).backward()
    np.testing.assert_allclose(method.weight.grad.numpy(), np.einsum("nkf,nc->kfc", tokens, error), atol=1e-5)
    np.testing.assert_allclose(method.bias.grad.numpy(), error.sum(axis=0), atol=1e-5)


def test_only_weights_decay_and_are_stored():
    method = Logistic(small_task(), weight_decay=0.02)
    decay = {id(p): group["weight_decay"] for group in method.optimizer.param_groups for p in group["params"]}
    assert decay == {id(method.weight): 0.02, id(method.bias): 0.0}
    assert set(method.state_dict()) == {"weight", "bias"}


def test_it_learns_communities():
    method = Logistic(small_task())
    train(method, 100)
    assert accuracy(method) > 0.8


def test_settings_build():
    for setting in settings("cora"):
        Logistic(small_task(), **setting)
