import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from nagphormer import UserError, from_scipy, per_class_split, random_split
from nagphormer.data.splits import budget_split, draw_folds, with_splits


def graph_with(labels, **parts):
    labels = np.asarray(labels)
    return from_scipy(sp.csr_array((len(labels), len(labels))), labels=labels, **parts)


def sizes(graph):
    return tuple(len(graph.splits[name]) for name in ("train", "val", "test"))


def test_random_split_is_the_permutation_cut_at_60_and_80_percent():
    graph = random_split(graph_with(np.arange(13) % 3), seed=7)
    order = np.random.RandomState(7).permutation(13)
    np.testing.assert_array_equal(graph.splits["train"], np.sort(order[:7]))
    np.testing.assert_array_equal(graph.splits["val"], np.sort(order[7:10]))
    np.testing.assert_array_equal(graph.splits["test"], np.sort(order[10:]))


def test_random_split_leaves_unlabeled_nodes_out():
    graph = random_split(graph_with([0, -1, 1, -1, 0, 1, 0]))
    assert sizes(graph) == (3, 1, 1)
    assert not set(np.concatenate(list(graph.splits.values()))) & {1, 3}


def test_every_node_of_a_multi_label_graph_is_split():
    assert sizes(random_split(graph_with(np.zeros((10, 3), int)))) == (6, 2, 2)


def test_fractions_that_add_up_inexactly_lose_no_node():
    assert sizes(random_split(graph_with(np.zeros(10, int)), train=0.7, val=0.1)) == (7, 1, 2)
    assert sizes(random_split(graph_with(np.zeros(10, int)), train=1.0, val=0.0)) == (10, 0, 0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_numpy_does_not_take_is_refused(seed):
    with pytest.raises(UserError, match=rf"seed must be at least 0 and below 2\*\*32, not {seed}"):
        random_split(graph_with(np.arange(13) % 3), seed=seed)


def test_seeds_differ_and_repeat():
    graph = graph_with(np.zeros(50, int))
    first, again, other = (random_split(graph, seed=seed).splits["train"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("train", "val"), [(0, 0.5), (0.8, 0.3), (-0.1, 0.2), (0.6, -0.1), (float("nan"), 0.2)])
def test_fractions_that_do_not_fit_are_refused(train, val):
    with pytest.raises(UserError, match=r"do not fit|finite number, not nan"):
        random_split(graph_with([0, 1, 0, 1]), train=train, val=val)


def test_too_few_labeled_nodes_are_refused():
    with pytest.raises(UserError, match="less than one node"):
        random_split(graph_with([0, -1]))


def test_graphs_without_labels_are_refused():
    with pytest.raises(UserError, match="no labels"):
        random_split(from_scipy(sp.csr_array((3, 3))))
    with pytest.raises(UserError, match="every label"):
        per_class_split(graph_with([-1, -1, -1]))


def test_per_class_split_takes_the_same_number_of_every_class():
    labels = np.repeat([0, 1, 2], [60, 80, 100])
    graph = per_class_split(graph_with(labels), train=20, val=30)
    assert np.bincount(labels[graph.splits["train"]]).tolist() == [20, 20, 20]
    assert np.bincount(labels[graph.splits["val"]]).tolist() == [30, 30, 30]
    assert np.bincount(labels[graph.splits["test"]]).tolist() == [10, 30, 50]


def test_per_class_split_draws_as_grand_plus_does():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, -1])
    graph = per_class_split(graph_with(labels), train=1, val=2, seed=5)
    draw = np.random.RandomState(5)
    evens, odds = [0, 2, 4, 6], [1, 3, 5, 7]
    train = [*draw.choice(evens, 1, replace=False), *draw.choice(odds, 1, replace=False)]
    val = [draw.choice([i for i in nodes if i not in train], 2, replace=False) for nodes in (evens, odds)]
    assert graph.splits["train"].tolist() == sorted(train)
    assert graph.splits["val"].tolist() == sorted(np.concatenate(val))
    assert sizes(graph) == (2, 4, 2)


def test_a_class_that_is_too_small_is_named():
    with pytest.raises(UserError, match="class 'rare' has 3 labeled nodes"):
        per_class_split(graph_with(["often"] * 9 + ["rare"] * 3), train=2, val=2)
    with pytest.raises(UserError, match="class 1 has 0 labeled nodes"):
        per_class_split(graph_with([0, 0, 2, 2]), train=1, val=1)


def test_per_class_split_refuses_multi_label_graphs():
    with pytest.raises(UserError, match="multi-label"):
        per_class_split(graph_with(np.zeros((4, 2), int)))


def test_budget_split_ignores_the_class():
    labels = np.repeat([0, 1], [1, 99])  # a class of one node, as Amazon2M has
    graph = budget_split(graph_with(labels), train=20, val=30, seed=3)
    draw = np.random.RandomState(3)
    train = draw.choice(np.arange(100), 40, replace=False)
    assert graph.splits["train"].tolist() == sorted(train)
    assert graph.splits["val"].tolist() == sorted(draw.choice(np.setdiff1d(np.arange(100), train), 60, False))
    assert sizes(graph) == (40, 60, 0)


def test_a_budget_beyond_the_labeled_nodes_is_refused():
    with pytest.raises(UserError, match="only 4 are labeled"):
        budget_split(graph_with([0, 1, 0, 1, -1]), train=1, val=2)


@pytest.mark.parametrize("split", [per_class_split, budget_split])
def test_counts_below_one_are_refused(split):
    with pytest.raises(UserError, match="do not fit"):
        split(graph_with([0, 1]), train=0, val=1)


def test_a_share_that_is_a_hair_below_a_whole_number_of_nodes_is_that_number():
    graph = random_split(from_scipy(sp.csr_array((100, 100)), labels=np.arange(100) % 2), train=0.29, val=0.28)
    assert [len(graph.splits[name]) for name in ("train", "val", "test")] == [29, 28, 43]


def test_a_graph_without_splits_gets_a_random_one_and_a_warning_names_the_seed():
    graph = graph_with(np.arange(20) % 3)
    with pytest.warns(UserWarning, match="no splits.*60 % train.*seed 5"):
        drawn = with_splits(graph, seed=5)
    expected = random_split(graph, train=0.6, val=0.2, seed=5).splits
    assert {name: nodes.tolist() for name, nodes in drawn.splits.items()} == {
        name: nodes.tolist() for name, nodes in expected.items()
    }


def test_a_graph_with_splits_keeps_them_without_a_warning():
    graph = graph_with(np.arange(20) % 3, splits={"train": [0, 4]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_splits(graph, seed=5) is graph


def test_a_graph_knows_whether_its_splits_were_drawn():
    graph = graph_with(np.arange(90) % 3)
    drawn = [random_split(graph), per_class_split(graph, 3, 3), budget_split(graph, 3, 3)]
    assert [each.drawn for each in drawn] == [True] * 3
    assert not graph.drawn
    assert not drawn[0].with_splits(test=[1]).drawn
    assert drawn[0].with_name("new").drawn


def test_nodes_without_a_label_are_left_out_of_training_and_validation():
    graph = graph_with([0, 1, -1, -1, 0, -1], splits={"train": [0, 1, 2], "val": [3, 4], "test": [5]})
    with pytest.warns(UserWarning, match="left out of the splits: 1 of 3 train, 1 of 2 val$"):
        left = with_splits(graph, seed=0)
    assert {split: nodes.tolist() for split, nodes in left.splits.items()} == {"train": [0, 1], "val": [4], "test": [5]}


def test_a_split_none_of_whose_nodes_has_a_label_is_left_for_an_error_to_name():
    graph = graph_with([0, 1, -1, -1], splits={"train": [0, 1], "val": [2, 3]})
    with warnings.catch_warnings(action="error"):
        assert with_splits(graph, seed=0).splits["val"].tolist() == [2, 3]


def test_every_node_of_a_multi_label_graph_stays_in_its_split():
    graph = graph_with(np.zeros((4, 2), int), splits={"train": [0, 1], "val": [2, 3]})
    with warnings.catch_warnings(action="error"):
        assert with_splits(graph, seed=0) is graph


@pytest.mark.parametrize("folds", [3, 4, 5])
def test_folds_deal_out_all_nodes_and_of_every_class_its_share(folds):
    labels = np.repeat([0, 1, 2], [50, 7, 30])
    graph = graph_with(labels)
    parts = draw_folds(graph, np.arange(3, 87), folds, seed=1)
    assert sorted(np.concatenate(parts)) == list(range(3, 87))
    counts = np.array([np.bincount(labels[part], minlength=3) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1
    same, other = (draw_folds(graph, np.arange(3, 87), folds, seed) for seed in (1, 2))
    assert all(map(np.array_equal, same, parts))
    assert not all(map(np.array_equal, other, parts))
