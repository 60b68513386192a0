"""Which nodes to train, validate and test on: the paper's three ways to draw them.

Shapes: N nodes, n labeled nodes, C classes
"""

import warnings
from typing import Any

import numpy as np

from nagphormer.data.graph import Graph, check_graph
from nagphormer.errors import UserError, check_finite, check_whole


def random_split(graph: Graph, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Graph:
    """Split the labeled nodes at random; what `train` and `val` leave is the test split.

    Args:
        graph: a graph with labels; nodes with an unknown label (-1) join no split.
        train: share of the labeled nodes to train on.
        val: share of the labeled nodes to validate on.
        seed: of `np.random.RandomState`, whose permutation of the labeled nodes is cut in three.

    >>> import numpy as np, scipy.sparse as sp
    >>> from nagphormer import from_scipy
    >>> graph = random_split(from_scipy(sp.eye_array(10), labels=np.arange(10) % 2))
    >>> [len(graph.splits[name]) for name in ("train", "val", "test")]
    [6, 2, 2]
    """
    check_finite("train", train)
    check_finite("val", val)
    if not (train > 0 and val >= 0 and train + val <= 1):
        raise UserError(
            f"train={train} and val={val} do not fit: train must be above 0, val at least 0, "
            f"and both together at most 1"
        )
    nodes = _random_state(seed).permutation(labeled_nodes(graph))  # (n,)
    # a millionth of a node more: .29 · 100 is a hair below 29, and .7 + .1 below .8
    val_start, test_start = (int(share * len(nodes) + 1e-6) for share in (train, train + val))
    if val_start == 0:
        raise UserError(
            f"train={train} of {len(nodes)} labeled nodes is less than one node: label more nodes or raise train"
        )
    return _drawn(graph, train=nodes[:val_start], val=nodes[val_start:test_start], test=nodes[test_start:])


def per_class_split(graph: Graph, train: int = 20, val: int = 30, seed: int = 0) -> Graph:
    """Draw `train` and `val` nodes of every class; all other labeled nodes are the test split.

    The rule of the paper's large sets AMiner-CS and Reddit. The draws are those of GRAND+, from which the
    paper takes it: first the training nodes class by class, then the validation nodes class by class.

    Args:
        graph: a graph with one label per node.
        train: training nodes per class.
        val: validation nodes per class.
        seed: of `np.random.RandomState`.
    """
    _check_counts(train, val)
    nodes = labeled_nodes(graph)
    assert graph.labels is not None
    if graph.labels.ndim == 2:
        raise UserError("a multi-label graph cannot be split per class: use random_split")
    members = [nodes[graph.labels[nodes] == label] for label in range(graph.num_classes)]
    for label, found in enumerate(members):
        if len(found) < train + val:
            name = repr(graph.class_names[label]) if graph.class_names else str(label)
            raise UserError(
                f"class {name} has {len(found)} labeled nodes, but {train} to train and {val} to validate "
                f"are wanted: lower train and val, or use random_split"
            )
    draw = _random_state(seed)
    train_idx = [draw.choice(found, train, replace=False) for found in members]
    left = [np.setdiff1d(found, taken) for found, taken in zip(members, train_idx, strict=True)]
    val_idx = [draw.choice(found, val, replace=False) for found in left]
    return _rest_is_test(graph, nodes, np.concatenate(train_idx), np.concatenate(val_idx))


def budget_split(graph: Graph, train: int = 20, val: int = 30, seed: int = 0) -> Graph:
    """Draw `train`·C and `val`·C nodes whatever their class; all other labeled nodes are the test split.

    The rule of Amazon2M, some of whose classes are too small for `per_class_split`; the draws are GRAND+'s.

    Args:
        graph: a graph with labels.
        train: training nodes, times the number of classes.
        val: validation nodes, times the number of classes.
        seed: of `np.random.RandomState`.
    """
    _check_counts(train, val)
    nodes = labeled_nodes(graph)
    num_train, num_val = train * graph.num_classes, val * graph.num_classes
    if num_train + num_val > len(nodes):
        raise UserError(
            f"{num_train:,} nodes to train and {num_val:,} to validate are wanted, but only {len(nodes):,} "
            f"are labeled: lower train and val"
        )
    draw = _random_state(seed)
    train_idx = draw.choice(nodes, num_train, replace=False)
    val_idx = draw.choice(np.setdiff1d(nodes, train_idx), num_val, replace=False)
    return _rest_is_test(graph, nodes, train_idx, val_idx)


def draw_folds(graph: Graph, nodes: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    """Labeled nodes dealt into parts of one size, give or take a node, and so is each class of them.

    Nodes with several labels are dealt at random.

    Args:
        graph: a graph with labels.
        nodes: positions of labeled nodes.
        folds: how many parts.
        seed: of `np.random.RandomState`.
    """
    assert graph.labels is not None
    dealt = _random_state(seed).permutation(nodes)
    if graph.labels.ndim == 1:
        dealt = dealt[np.argsort(graph.labels[dealt], kind="stable")]  # class after class
    return [dealt[first::folds] for first in range(folds)]


def with_splits(graph: Graph, seed: int) -> Graph:
    """The graph as it is trained on, with a random split if it has none; a warning says so.

    Nodes to train and validate on that have no label are left out of these splits, which a warning counts. Test nodes
    are left alone: their labels may be kept elsewhere.
    """
    if graph.splits:
        return _labeled_splits(graph)
    warnings.warn(
        f"the graph has no splits: of its labeled nodes 60 % train, 20 % validate and 20 % are left for the test "
        f"(at random, seed {seed})",
        stacklevel=3,
    )
    return random_split(graph, seed=seed)


def _labeled_splits(graph: Graph) -> Graph:
    """Without the training and validation nodes that have no label; a split with none that has one stays as it is."""
    kept = {
        split: labeled_among(graph, nodes) if split in ("train", "val") else nodes
        for split, nodes in graph.splits.items()
    }
    counts = ", ".join(
        f"{len(graph.splits[split]) - len(nodes):,} of {len(graph.splits[split]):,} {split}"
        for split, nodes in kept.items()
        if 0 < len(nodes) < len(graph.splits[split])
    )
    if not counts:
        return graph
    warnings.warn(f"nodes without a label are left out of the splits: {counts}", stacklevel=4)
    labeled = graph.with_splits(
        **{split: nodes if len(nodes) else graph.splits[split] for split, nodes in kept.items()}
    )
    return labeled.altered(drawn=graph.drawn)


def labeled_among(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    """Those of some nodes that have a label; every node of a multi-label graph has."""
    if graph.labels is None or graph.labels.ndim == 2:
        return nodes
    return nodes[graph.labels[nodes] >= 0]


def labeled_nodes(graph: Graph) -> np.ndarray:
    """Positions of the nodes with a known label, ascending; every node of a multi-label graph counts."""
    check_graph(graph)
    if graph.labels is None:
        raise UserError("the graph has no labels to split: give labels when building it")
    if graph.labels.ndim == 2:
        return np.arange(graph.num_nodes)
    nodes = np.flatnonzero(graph.labels >= 0)
    if len(nodes) == 0:
        raise UserError("every label of the graph is unknown (-1): at least one node must be labeled")
    return nodes


def _check_counts(train: int, val: int) -> None:
    check_whole("train", train)
    check_whole("val", val)
    if train < 1 or val < 0:
        raise UserError(f"train={train} and val={val} do not fit: train must be at least 1 and val at least 0")


def _rest_is_test(graph: Graph, nodes: np.ndarray, train_idx: np.ndarray, val_idx: np.ndarray) -> Graph:
    test_idx = np.setdiff1d(nodes, np.concatenate([train_idx, val_idx]))
    return _drawn(graph, train=train_idx, val=val_idx, test=test_idx)


def _drawn(graph: Graph, **splits: Any) -> Graph:
    """The graph with splits that a seed can give again."""
    return graph.with_splits(**splits).altered(drawn=True)


def _random_state(seed: int) -> np.random.RandomState:
    check_whole("seed", seed)
    if not 0 <= seed < 2**32:
        raise UserError(f"seed must be at least 0 and below 2**32, not {seed}")
    return np.random.RandomState(seed)
