import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit, log_softmax
from sklearn.utils.class_weight import compute_class_weight

from nagphormer import UserError, from_scipy, random_split
from nagphormer.metrics import accuracy, micro_f1
from nagphormer.training.task import Classes, Task, check_trainable, with_splits

LABELS = np.array([0, 0, 0, 0, 1, 1, 2, 0, 1, 2])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 1]])


def graph_with(labels, train=(), val=(), **parts):
    labels = None if labels is None else np.asarray(labels)
    num_nodes = 6 if labels is None else len(labels)
    splits = {name: nodes for name, nodes in (("train", train), ("val", val)) if len(nodes)}
    return from_scipy(sp.csr_array((num_nodes, num_nodes)), labels=labels, splits=splits, **parts)


def task_of(graph, class_weights="none"):
    return Task(graph, Classes.of(graph), "cpu", class_weights)


def some_logits(num_nodes, num_classes):
    return torch.from_numpy(np.random.default_rng(1).standard_normal((num_nodes, num_classes)))


def test_a_graph_with_labels_and_both_splits_may_be_trained_on():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_trainable(graph_with([0, 1, 0, 1, -1], train=[0, 1], val=[2]))
        check_trainable(graph_with(SEVERAL, train=[0, 1], val=[2]))


def test_a_graph_without_labels_is_refused():
    with pytest.raises(UserError, match="no labels"):
        check_trainable(graph_with(None, train=[0, 1], val=[2]))


@pytest.mark.parametrize("labels", [LABELS[:5], SEVERAL])
def test_an_empty_or_missing_split_is_refused(labels):
    with pytest.raises(UserError, match="split 'train' is empty"):
        check_trainable(graph_with(labels, val=[1]))
    with pytest.raises(UserError, match="split 'val' is empty"):
        check_trainable(graph_with(labels, train=[0, 4]))
    with pytest.raises(UserError, match="split 'train' is empty"):
        check_trainable(graph_with(labels).with_splits(train=[], val=[1]))


def test_a_node_of_unknown_label_in_a_split_is_refused():
    with pytest.raises(UserError, match="2 nodes of the split 'train' have no label"):
        check_trainable(graph_with([0, 1, -1, -1, 0], train=[0, 1, 2, 3], val=[4]))
    with pytest.raises(UserError, match="1 nodes of the split 'val' have no label"):
        check_trainable(graph_with([0, 1, -1, -1, 0], train=[0, 1], val=[2, 4]))


def test_training_nodes_of_one_class_are_refused_and_the_class_is_named():
    with pytest.raises(UserError, match="all training nodes have class 'red'"):
        check_trainable(graph_with(["red", "red", "blue"], train=[0, 1], val=[2]))
    with pytest.raises(UserError, match="all training nodes have class '0'"):
        check_trainable(graph_with([0, 0, 0], train=[0, 1], val=[2]))


def test_classes_without_a_training_node_are_warned_of_by_name():
    graph = graph_with(["a", "b", "c", "d", "a"], train=[0, 1], val=[2])
    with pytest.warns(UserWarning, match="2 of 4 classes have no training node and can never be predicted: c, d"):
        check_trainable(graph)


def test_classes_are_those_of_the_labels():
    assert Classes.of(graph_with([0, 2, -1])) == Classes(3, None, multi_label=False)
    assert Classes.of(graph_with(["b", "a", None])) == Classes(2, ("a", "b"), multi_label=False)
    assert Classes.of(graph_with(SEVERAL)) == Classes(3, None, multi_label=True)


def test_values_are_names_or_else_numbers():
    assert Classes(2, ("a", "b"), False).values.tolist() == ["a", "b"]
    assert Classes(2, None, False).values.tolist() == [0, 1]


def test_targets_of_the_graph_itself_are_its_labels():
    for graph in (graph_with(LABELS), graph_with(SEVERAL), graph_with(["b", "a", "c", "a"])):
        nodes = np.array([3, 0, 2])
        np.testing.assert_array_equal(Classes.of(graph).targets(graph, nodes), graph.labels[nodes])


def test_targets_of_another_graph_are_matched_by_class_name():
    known = Classes(3, ("cat", "dog", "fox"), multi_label=False)
    graph = graph_with(["fox", "dog", "fox"])  # here dog is 0 and fox is 1
    assert known.targets(graph, np.arange(3)).tolist() == [2, 1, 2]


def test_targets_without_names_on_both_sides_are_matched_by_number():
    assert Classes(3, None, False).targets(graph_with([0, 2]), np.arange(2)).tolist() == [0, 2]
    assert Classes(3, ("a", "b", "c"), False).targets(graph_with([0, 2]), np.arange(2)).tolist() == [0, 2]


def test_labels_the_model_has_never_seen_are_refused():
    with pytest.raises(UserError, match="2 nodes have class 'owl', which the model has never seen: it knows cat, dog"):
        Classes(2, ("cat", "dog"), False).targets(graph_with(["owl", "dog", "owl"]), np.arange(3))
    with pytest.raises(UserError, match="1 nodes have class '2', which the model has never seen: it knows 0, 1"):
        Classes(2, None, False).targets(graph_with([0, 2]), np.arange(2))


def test_an_unseen_class_outside_the_nodes_asked_for_does_not_matter():
    graph = graph_with(["owl", "dog", "cat"])
    assert Classes(2, ("cat", "dog"), False).targets(graph, np.array([1, 2])).tolist() == [1, 0]


def test_nodes_without_a_label_have_no_target():
    with pytest.raises(UserError, match="1 of the nodes have no label"):
        Classes(2, None, False).targets(graph_with([0, -1, 1]), np.arange(3))
    with pytest.raises(UserError, match="no labels to compare with"):
        Classes(2, None, False).targets(graph_with(None), np.arange(3))


def test_one_label_and_several_labels_do_not_mix():
    with pytest.raises(UserError, match="trained on one label per node, but this graph has several"):
        Classes(3, None, False).targets(graph_with(SEVERAL), np.arange(2))
    with pytest.raises(UserError, match="trained on several labels per node, but this graph has one"):
        Classes(3, None, True).targets(graph_with(LABELS), np.arange(2))
    with pytest.raises(UserError, match="knows 2 labels, but the graph has 3"):
        Classes(2, None, True).targets(graph_with(SEVERAL), np.arange(2))


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


def test_a_graph_without_splits_gets_a_random_one_and_a_warning_names_the_seed():
    graph = graph_with(np.arange(20) % 3)
    with pytest.warns(UserWarning, match="no splits.*60 % train.*seed 5"):
        drawn = with_splits(graph, seed=5)
    expected = random_split(graph, train=0.6, val=0.2, seed=5).splits
    assert {name: nodes.tolist() for name, nodes in drawn.splits.items()} == {
        name: nodes.tolist() for name, nodes in expected.items()
    }


def test_a_graph_with_splits_keeps_them_without_a_warning():
    graph = graph_with(LABELS, train=[0, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_splits(graph, seed=5) is graph


def test_labels_of_a_multi_label_graph_are_matched_by_name():
    graph = from_scipy(sp.csr_array((2, 2)), labels=np.array([[1, 0], [1, 0]]), class_names=["b", "a"])
    assert Classes(2, ("a", "b"), True).targets(graph, np.arange(2)).tolist() == [[0, 1], [0, 1]]
    with pytest.raises(UserError, match="'c'"):
        Classes(2, ("a", "c"), True).targets(graph, np.arange(2))
