import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from experiments.baselines.method import Task
from experiments.baselines.sign import SIGN, settings
from nagphormer import from_scipy
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def without_edges(task):
    empty = sp.csr_array((task.num_nodes, task.num_nodes), dtype=np.float32)
    return Task(from_scipy(empty, task.features.numpy(), task.graph.labels))


def test_it_is_the_formula():
    task = small_task()
    method = SIGN(task, hops=2, hidden_dim=5).eval()
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    hop, parts = task.features.numpy().astype(np.float64), []
    for linear in method.project:
        parts.append(hop @ linear.weight.detach().numpy().T + linear.bias.detach().numpy())
        hop = (scale[:, None] * looped * scale) @ hop
    joined = np.concatenate(parts, axis=1) / np.sqrt(1 + 1e-5)  # fresh statistics: mean 0, variance 1
    joined = np.where(joined > 0, joined, 0.25 * joined)
    last = method.classify[-1]
    expected = joined @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    np.testing.assert_allclose(method.infer().detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("hops", "blind"), [(0, True), (1, False)])
def test_without_hops_it_sees_no_graph(hops, blind):
    task = small_task()
    method = SIGN(task, hops=hops, hidden_dim=5).eval()
    alone = SIGN(without_edges(task), hops=hops, hidden_dim=5).eval()
    alone.load_state_dict(method.state_dict())
    assert torch.equal(alone.infer(), method.infer()) == blind


@pytest.mark.parametrize("batch_size", [1, 7, 53, 1000])
def test_an_epoch_sees_every_training_node_once(batch_size, monkeypatch):
    method = SIGN(small_task(), hidden_dim=2, batch_size=batch_size)
    if batch_size == 1:  # batch normalization cannot train on one node
        method.classify[0] = nn.Identity()
    seen = []
    plain = method.forward
    monkeypatch.setattr(method, "forward", lambda nodes: seen.append(nodes) or plain(nodes))
    method.train().train_epoch()
    assert sorted(torch.cat(seen).tolist()) == sorted(method.task.splits["train"].tolist())
    assert {len(nodes) for nodes in seen} <= {54 // len(seen), 54 // len(seen) + 1}
    assert max(len(nodes) for nodes in seen) <= batch_size


def test_batched_inference_is_the_whole():
    method = SIGN(small_task(), batch_size=2).eval()
    with torch.no_grad():
        torch.testing.assert_close(method.infer(), method(torch.arange(method.task.num_nodes)))


def test_hop_features_are_not_stored_with_the_weights():
    state = SIGN(small_task(), hidden_dim=5).state_dict()
    assert all(90 not in tensor.shape for tensor in state.values())


def test_depth_is_that_of_the_classifier():
    method = SIGN(small_task(), hops=1, hidden_dim=5, num_layers=3)
    shapes = [layer.weight.shape for layer in method.classify if isinstance(layer, nn.Linear)]
    assert shapes == [(5, 10), (5, 5), (3, 5)]


def test_it_learns_communities():
    torch.manual_seed(0)
    method = SIGN(small_task())
    train(method, 60)
    assert accuracy(method) > 0.8


def test_settings_build():
    for setting in settings("cora"):
        SIGN(small_task(), **setting)
