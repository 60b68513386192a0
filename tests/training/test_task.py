import numpy as np
import pytest
import torch
from labeled import LABELS, SEVERAL, graph_with
from scipy.special import expit, log_softmax
from sklearn.utils.class_weight import compute_class_weight

from nagphormer.data.classes import Classes
from nagphormer.metrics import accuracy, micro_f1
from nagphormer.training.task import Task


def task_of(graph, class_weights="none"):
    return Task(graph, Classes.of(graph), "cpu", class_weights)


def some_logits(num_nodes, num_classes):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((num_nodes, num_classes)))


def test_the_loss_is_the_sum_of_cross_entropies():
    logits, nodes = some_logits(4, 3), np.array([9, 4, 0, 6])
    expected = -log_softmax(logits.numpy(), axis=1)[np.arange(4), LABELS[nodes]].sum()
    loss = task_of(graph_with(LABELS)).loss(logits, torch.from_numpy(nodes))
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_several_labels_is_the_sum_of_binary_ones_averaged_over_labels():
    logits, nodes = some_logits(3, 3), np.array([4, 0, 2])
    chance, truth = expit(logits.numpy()), SEVERAL[nodes]
    expected = -np.log(np.where(truth, chance, 1 - chance)).mean(axis=1).sum()
    loss = task_of(graph_with(SEVERAL)).loss(logits, torch.from_numpy(nodes))
    assert loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("labels", [LABELS, np.tile(SEVERAL, (2, 1))])
@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_losses_and_hits_of_batches_add_up(labels, class_weights):
    task = task_of(graph_with(labels, train=range(8)), class_weights)
    logits, nodes = some_logits(10, 3), torch.arange(10)
    for count in (task.loss, task.hits):
        parts = sum(count(part, some) for part, some in zip(logits.split(3), nodes.split(3), strict=True))
        torch.testing.assert_close(parts, count(logits, nodes))


def test_the_loss_of_bf16_scores_is_taken_in_float32():
    logits, nodes = some_logits(10, 3).bfloat16(), torch.arange(10)
    for labels in (LABELS, np.tile(SEVERAL, (2, 1))):
        task = task_of(graph_with(labels))
        assert task.loss(logits, nodes).dtype == torch.float32
        assert torch.equal(task.loss(logits, nodes), task.loss(logits.float(), nodes))


def test_hits_give_accuracy_for_one_label():
    task, logits = task_of(graph_with(LABELS)), some_logits(10, 3)
    found, possible = task.hits(logits, torch.arange(10)).tolist()
    assert task.metric == "accuracy"
    assert 2 * found / possible == accuracy(LABELS, logits.softmax(dim=1).numpy())
    assert 0 < found < 10


def test_hits_give_micro_f1_for_several_labels():
    task, logits = task_of(graph_with(SEVERAL)), some_logits(5, 3)
    found, possible = task.hits(logits, torch.arange(5)).tolist()
    assert task.metric == "micro_f1"
    assert 2 * found / possible == pytest.approx(micro_f1(SEVERAL, logits.sigmoid().numpy()))
    assert 0 < found < SEVERAL.sum()


def test_balanced_weights_are_scikit_learns_for_the_training_nodes():
    train = np.arange(7)
    task = task_of(graph_with(LABELS, train=train), "balanced")
    weights = compute_class_weight("balanced", classes=np.arange(3), y=LABELS[train])
    logits = some_logits(10, 3)
    each = -log_softmax(logits.numpy(), axis=1)[np.arange(10), LABELS]
    expected = (weights[LABELS] * each).sum()
    assert task.loss(logits, torch.arange(10)).item() == pytest.approx(expected, rel=1e-6)


def test_balanced_classes_weigh_the_same_in_total_and_all_together_as_before():
    train = np.arange(7)
    task, even = task_of(graph_with(LABELS, train=train), "balanced"), torch.zeros(7, 3)
    totals = [task.loss(even[LABELS[train] == c], torch.from_numpy(train[LABELS[train] == c])) for c in range(3)]
    torch.testing.assert_close(torch.stack(totals), torch.full((3,), 7 / 3 * np.log(3)))


def test_a_class_without_training_nodes_leaves_balanced_weights_finite():
    task = task_of(graph_with([0, 0, 0, 1, 2], train=[0, 1, 2, 3]), "balanced")
    each = torch.stack([task.loss(torch.zeros(1, 3), torch.tensor([node])) for node in (0, 3, 4)])
    torch.testing.assert_close(each, torch.tensor([4 / 6, 4 / 2, 0]) * np.log(3))


def test_balanced_labels_weigh_a_1_by_how_rare_it_is():
    graph = graph_with(SEVERAL, train=[0, 1, 2, 4])  # ones: 3, 3 and 1 of 4
    task = task_of(graph, "balanced")
    each = torch.tensor([1 / 3, 1 / 3, 3])
    one_node = task.loss(torch.zeros(1, 3), torch.tensor([4]))  # all its labels are 1
    torch.testing.assert_close(one_node, each.mean() * np.log(2))
    other_node = task.loss(torch.zeros(1, 3), torch.tensor([0]))  # its first label is 1
    torch.testing.assert_close(other_node, torch.tensor((1 / 3 + 1 + 1) / 3 * np.log(2), dtype=torch.float32))


def test_a_label_that_no_training_node_has_leaves_the_loss_finite():
    task = task_of(graph_with(SEVERAL, train=[0, 1, 2]), "balanced")
    assert task.loss(some_logits(5, 3), torch.arange(5)).isfinite()
