"""Of experiments/baselines/grand_plus.py; tests/data has the test file of that name."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from experiments.baselines import grand_plus
from experiments.baselines.grand_plus import (
    GrandPlus,
    Network,
    coefficients,
    consistency,
    push_generalized,
    random_propagation,
    settings,
    sharpen,
)
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def exact_propagation(task, weights):
    """Σ_i w_i P^i with P = D̃^-1 (A + I)."""
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    walk = looped / looped.sum(axis=1, keepdims=True)
    return sum(weight * np.linalg.matrix_power(walk, power) for power, weight in enumerate(weights))


def pushed(task, weights, r_max, topk):
    """The result of the push as a dense matrix."""
    nodes, scores = push_generalized(task.adjacency, np.arange(task.num_nodes), weights, r_max, topk)
    dense = np.zeros((task.num_nodes, task.num_nodes))
    np.add.at(dense, (np.arange(task.num_nodes)[:, None], nodes), scores)
    return dense


def test_coefficients_are_as_by_hand():
    np.testing.assert_allclose(coefficients("ppr", 2, 0.5), np.array([4, 2, 1]) / 7)
    np.testing.assert_allclose(coefficients("avg", 3), [0.25] * 4)
    np.testing.assert_allclose(coefficients("single", 2), [0, 0, 1])
    with pytest.raises(ValueError, match="'heat'"):
        coefficients("heat", 2)


@pytest.mark.parametrize("mode", ["ppr", "avg", "single"])
@pytest.mark.parametrize("r_max", [1e-2, 1e-3, 1e-6])
def test_the_push_is_short_of_the_propagation_by_at_most_its_bound(mode, r_max):
    task = small_task(inside=0.1)
    weights = coefficients(mode, 4)
    short = exact_propagation(task, weights) - pushed(task, weights, r_max, task.num_nodes)
    degrees = dense_adjacency(task).sum(axis=1) + 1
    assert short.min() > -1e-6
    assert (short <= (weights * np.arange(5)).sum() * r_max * degrees + 1e-6).all()
    if r_max == 1e-2:
        assert short.max() > 1e-3  # it is an approximation


def test_the_top_k_are_kept():
    task = small_task(inside=0.1)
    weights = coefficients("ppr", 3)
    full, kept = (pushed(task, weights, 1e-4, topk) for topk in (task.num_nodes, 5))
    for row, whole in zip(kept, full, strict=True):
        assert (row > 0).sum() == min(5, (whole > 0).sum())  # one node is isolated
        np.testing.assert_allclose(np.sort(row)[-5:], np.sort(whole)[-5:])
        np.testing.assert_allclose(row[row > 0], whole[row > 0])


def test_without_dropping_propagation_is_the_weighted_mean():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    nodes, weights = torch.tensor([[0, 1], [2, 0]]), torch.tensor([[0.3, 0.1], [0.2, 0.0]])
    for found in (
        random_propagation(features, nodes, weights, 0.0, training=True),
        random_propagation(features, nodes, weights, 0.5, training=False),
    ):
        torch.testing.assert_close(found, torch.tensor([[0.75, 0.25], [2.0, 2.0]]))


def test_dropping_nodes_keeps_the_expectation():
    torch.manual_seed(0)
    features = torch.randn(12, 3)
    nodes = torch.arange(12).expand(20_000, 12)
    draws = random_propagation(features, nodes, torch.full((20_000, 12), 0.05), 0.5, training=True)
    torch.testing.assert_close(draws.mean(dim=0), features.mean(dim=0), atol=0.01, rtol=0)
    assert draws.std(dim=0).min() > 0.1


def test_a_node_that_lost_all_its_neighbors_has_no_features():
    found = random_propagation(torch.ones(2, 3), torch.tensor([[0, 1]]), torch.ones(1, 2), 1.0, training=True)
    torch.testing.assert_close(found, torch.zeros(1, 3))


def test_sharpening_is_the_formula():
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    power = probabilities**2
    torch.testing.assert_close(sharpen(probabilities, 0.5), power / power.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("distance", ["l2", "kl"])
def test_equal_predictions_are_consistent(distance):
    same = F.log_softmax(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1).expand(2, 6, 4)
    assert consistency(same, 1.0, 0.0, distance).item() == pytest.approx(0, abs=1e-6)
    assert consistency(same, 0.5, 0.0, distance).item() > 0.01  # they are not sharp yet
    sure = torch.log(torch.tensor([[1.0, 1e-30]])).expand(2, 1, 2)
    assert consistency(sure, 0.1, 0.0, distance).item() == pytest.approx(0, abs=1e-6)


def test_consistency_is_as_by_hand_and_only_of_confident_nodes():
    first = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    second = torch.tensor([[0.7, 0.3], [0.6, 0.4]])
    draws = torch.log(torch.stack([first, second]))
    target = 0.64 / (0.64 + 0.04)  # 0.8 and 0.2, squared
    squares = ((0.9 - target) ** 2 + (0.7 - target) ** 2) * 2 / 2
    assert consistency(draws, 0.5, 0.6, "l2").item() == pytest.approx(squares, rel=1e-4)
    crossed = -(target * np.log(0.9 * 0.7) + (1 - target) * np.log(0.1 * 0.3)) / 2
    entropy = -(target * np.log(target) + (1 - target) * np.log(1 - target))
    assert consistency(draws, 0.5, 0.6, "kl").item() == pytest.approx(crossed - entropy, rel=1e-4)
    assert consistency(draws, 0.5, 0.95, "l2").item() == 0
    with pytest.raises(ValueError, match="'l1'"):
        consistency(draws, 0.5, 0.6, "l1")


def test_the_target_of_consistency_has_no_gradient():
    draws = torch.log(torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]]])).requires_grad_()
    consistency(draws, 0.5, 0.0, "kl").backward()
    target = 0.64 / 0.68
    expected = -torch.tensor([[[target, 1 - target]]]).expand(2, 1, 2) / 2
    torch.testing.assert_close(draws.grad, expected)


@pytest.mark.parametrize("batch", [7, 10_000])
def test_inference_is_the_network_on_exactly_propagated_features(monkeypatch, batch):
    monkeypatch.setattr(grand_plus, "INFERENCE_BATCH", batch)
    task = small_task()
    before = task.features.clone()
    torch.manual_seed(0)
    method = GrandPlus(task, order=3, alpha=0.4, r_max=1e-8, topk=task.num_nodes).eval()
    exact = exact_propagation(task, coefficients("ppr", 3, 0.4)) @ task.features.numpy()
    first, second = method.network.linears
    hidden = np.maximum(exact @ first.weight.detach().numpy().T + first.bias.detach().numpy(), 0)
    expected = hidden @ second.weight.detach().numpy().T + second.bias.detach().numpy()
    with torch.no_grad():
        np.testing.assert_allclose(method.infer().numpy(), expected, atol=1e-5)
        assert torch.equal(task.features, before)
        np.testing.assert_allclose(method.logits(torch.tensor([7, 3])).numpy(), expected[[7, 3]], atol=1e-5)


def test_the_weight_of_consistency_grows_to_its_limit():
    task = small_task()
    method = GrandPlus(task, dropout=0.0, input_dropout=0.0, drop_node=0.0, warmup=10, consistency_weight=3.0)
    train(method, 6)  # until some nodes are confident
    method.eval()
    batch = task.splits["train"][:8]
    method.unlabeled_batch_size = len(method.unlabeled)  # all, so that nothing is left to chance
    losses = []
    for method.num_steps in (0, 5, 10, 1000):
        losses.append(method.loss(batch).item())
    assert losses[0] == pytest.approx(F.cross_entropy(method(batch), task.labels[batch]).item(), rel=1e-5)
    assert losses[2] - losses[0] == pytest.approx(2 * (losses[1] - losses[0]), rel=1e-3)
    assert losses[2] > losses[0] + 1e-3
    assert losses[3] == pytest.approx(losses[2])


def test_unlabeled_nodes_are_neither_for_training_nor_for_validation():
    task = small_task()
    method = GrandPlus(task, num_unlabeled=7)
    assert len(method.unlabeled.unique()) == 7
    assert torch.isin(method.unlabeled, task.splits["test"]).all()
    assert len(method.pushed.nodes) == len(task.splits["train"]) + len(task.splits["val"]) + 7


@pytest.mark.parametrize("dataset", ["cora", "citeseer", "pubmed", "photo"])
def test_every_setting_can_be_trained(dataset):
    task = small_task(num_nodes=30)
    for setting in settings(dataset):
        method = GrandPlus(task, **setting)
        train(method, 1)
        assert method.eval().infer().isfinite().all()  # on batch norms too


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GrandPlus(small_task(), batch_size=16, unlabeled_batch_size=18, warmup=50)
    train(method, 40)
    assert accuracy(method) > 0.8


def test_rows_are_scaled_and_normalized_before_each_layer():
    torch.manual_seed(0)
    network = Network([4, 3, 2], 0.0, 0.0, node_norm=True, batch_norm=True).train()
    hidden = features = torch.randn(20, 4)
    for number, linear in enumerate(network.linears):
        hidden = hidden.relu() if number else hidden
        hidden = hidden / hidden.norm(dim=1, keepdim=True).clamp(min=1e-12)
        hidden = (hidden - hidden.mean(dim=0)) / (hidden.var(dim=0, correction=0) + 1e-5).sqrt()
        hidden = hidden @ linear.weight.T + linear.bias
    torch.testing.assert_close(network(features), hidden, rtol=1e-4, atol=1e-4)


def test_every_batch_is_a_step_of_the_warm_up_with_a_clipped_gradient():
    method = GrandPlus(small_task(), batch_size=20, clip_norm=1e-3)
    train(method, 2)
    assert method.num_steps == 6
    assert torch.stack([p.grad.norm() for p in method.parameters()]).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_consistency_is_that_of_unlabeled_nodes_with_twice_the_chance_of_one_class():
    task = small_task()
    method = GrandPlus(task, drop_node=0.0, warmup=1, consistency_weight=3.0, unlabeled_batch_size=90)
    train(method, 6)
    method.eval()
    batch = task.splits["train"][:8]
    scores = method(method.unlabeled).log_softmax(dim=1).expand(2, -1, -1)
    assert scores.exp().max(dim=2).values.min() < 2 / 3  # some are not confident
    expected = F.cross_entropy(method(batch), task.labels[batch]) + 3 * consistency(scores, 0.1, 2 / 3, "l2")
    torch.testing.assert_close(method.loss(batch), expected)
