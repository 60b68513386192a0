import numpy as np
import pytest
import scipy.sparse as sp
import torch

from experiments.baselines import pprgo
from experiments.baselines.method import Task
from experiments.baselines.pprgo import PPRGo, keep_top, push_pagerank
from nagphormer import from_scipy
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def exact_pagerank(dense, alpha):
    """Each row a source: α (I − (1−α) D^-1 A)^-1."""
    walk = dense / dense.sum(axis=1, keepdims=True).clip(min=1)
    return alpha * np.linalg.inv(np.eye(len(dense)) - (1 - alpha) * walk)


def pushed(adjacency, alpha, epsilon, topk):
    """The result of the push as a dense matrix."""
    nodes, scores = push_pagerank(adjacency, np.arange(adjacency.shape[0]), alpha, epsilon, topk)
    dense = np.zeros(adjacency.shape)
    np.add.at(dense, (np.arange(len(nodes))[:, None], nodes), scores)
    return dense


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-5])
def test_the_push_is_short_of_pagerank_by_at_most_epsilon_times_degree(alpha, epsilon):
    task = small_task(inside=0.1)
    dense = dense_adjacency(task)
    short = exact_pagerank(dense, alpha) - pushed(task.adjacency, alpha, epsilon, task.num_nodes)
    assert short.min() > -1e-6
    assert (short <= epsilon * dense.sum(axis=1) + 1e-6).all()
    if epsilon == 1e-2:
        assert short.max() > 1e-3  # it is an approximation


def test_the_push_on_a_path_is_as_by_hand():
    path = sp.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32))
    nodes, scores = push_pagerank(path, np.array([0]), alpha=0.5, epsilon=0.3, topk=3)
    # 0 keeps .5 and sends .25 to 1 (bound .5·.3·2 = .3), which waits: nothing more is pushed
    assert sorted(zip(scores[0], nodes[0], strict=True)) == [(0, 0), (0, 0), (0.5, 0)]
    nodes, scores = push_pagerank(path, np.array([0]), alpha=0.5, epsilon=0.2, topk=3)
    # 1 keeps .25 and sends .0625 to 0 and 2 (bound .1)
    assert sorted(zip(scores[0], nodes[0], strict=True)) == [(0, 0), (0.25, 1), (0.5, 0)]


def test_the_top_k_are_kept():
    task = small_task(inside=0.1)
    full = pushed(task.adjacency, 0.25, 1e-4, task.num_nodes)
    kept = pushed(task.adjacency, 0.25, 1e-4, 7)
    for row, whole in zip(kept, full, strict=True):
        assert (row > 0).sum() == min(7, (whole > 0).sum())  # one node is isolated
        np.testing.assert_allclose(np.sort(row)[-7:], np.sort(whole)[-7:])
        np.testing.assert_allclose(row[row > 0], whole[row > 0])


@pytest.mark.parametrize("topk", [1, 2, 7, 30, 60])
def test_keeping_the_top_agrees_with_sorting(topk):
    rng = np.random.default_rng(topk)
    values = rng.random(80) * (rng.random(80) < 0.6)
    candidates = rng.permutation(80)[:50]
    nodes, scores = np.full(topk, -1), np.zeros(topk, dtype=np.float32)
    keep_top(values, candidates, nodes, scores)
    expected = [node for node in candidates[np.argsort(-values[candidates])][:topk] if values[node] > 0]
    assert sorted(nodes[scores > 0]) == sorted(expected)
    np.testing.assert_allclose(scores[scores > 0], values[nodes[scores > 0]], rtol=1e-6)
    assert (nodes[scores == 0] == -1).all()


def test_the_result_does_not_depend_on_the_other_sources():
    task = small_task(inside=0.1)
    together = pushed(task.adjacency, 0.25, 1e-3, 9)
    for source in (3, 50):
        nodes, scores = push_pagerank(task.adjacency, np.array([source]), 0.25, 1e-3, 9)
        np.testing.assert_array_equal(together[source, nodes[0][scores[0] > 0]], scores[0][scores[0] > 0])


def test_class_scores_are_the_weighted_sum_of_each_nodes_own():
    task = small_task()
    torch.manual_seed(0)
    method = PPRGo(task, hidden_dim=5, topk=task.num_nodes, epsilon=1e-7).eval()
    first, second = (layer.weight.detach().numpy().T for layer in method.layers)
    own = np.maximum(task.features.numpy() @ first, 0) @ second
    dense = dense_adjacency(task)
    root = np.sqrt(dense.sum(axis=1))
    expected = root[:, None] * exact_pagerank(dense, 0.25) / root @ own
    nodes = torch.tensor([5, 80, 2, 2])
    with torch.no_grad():
        np.testing.assert_allclose(method.logits(nodes).numpy(), expected[nodes], atol=1e-4)
        assert np.abs(method.infer().numpy() - expected).max() > 1e-2  # two steps are not all
        method.num_steps = 60
        np.testing.assert_allclose(method.infer().numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("batch", [7, 10_000])
def test_two_steps_of_inference_are_the_formula(monkeypatch, batch):
    monkeypatch.setattr(pprgo, "INFERENCE_BATCH", batch)
    task = small_task()
    method = PPRGo(task, alpha=0.3).eval()
    dense = dense_adjacency(task)
    root = np.sqrt(dense.sum(axis=1))
    walk = dense / root / root[:, None]
    with torch.no_grad():
        own = method.local(task.features).numpy()
        expected = 0.3 * own + 0.7 * walk @ (0.3 * own + 0.7 * walk @ own)
        np.testing.assert_allclose(method.infer().numpy(), expected, atol=1e-5)


def test_only_the_nodes_that_are_asked_for_are_pushed():
    task = small_task()
    method = PPRGo(task).eval()
    val, test = task.splits["val"], task.splits["test"]
    before = len(method.pushed.nodes)
    assert before == task.num_nodes - len(test)
    with torch.no_grad():
        method.logits(val)
        assert len(method.pushed.nodes) == before
        alone = method.logits(test[:3])
        assert len(method.pushed.nodes) == before + 3
        together = method.logits(torch.cat([val, test]))
    torch.testing.assert_close(together[len(val) : len(val) + 3], alone)
    assert not any("push" in name for name in method.state_dict())


def test_an_isolated_node_is_classed_by_its_own_features():
    adjacency = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=np.float32))
    splits = {name: np.array([node]) for node, name in enumerate(("train", "val", "test"))}
    task = Task(from_scipy(adjacency, np.eye(3, dtype=np.float32), np.array([0, 1, 0]), splits=splits))
    method = PPRGo(task, topk=2).eval()
    with torch.no_grad():
        own = 0.25 * method.local(task.features)[2]
        torch.testing.assert_close(method.logits(torch.tensor([2]))[0], own)
        torch.testing.assert_close(method.infer()[2], own)


def test_it_learns_communities():
    torch.manual_seed(0)
    method = PPRGo(small_task(), batch_size=16)
    train(method, 40)
    assert accuracy(method) > 0.8
