"""What is to be learned: labels, classes and the loss; checked before any work.

Shapes: N nodes, B nodes in a batch, C classes
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from nagphormer.data.graph import Graph
from nagphormer.data.splits import random_split
from nagphormer.errors import UserError


@dataclass(frozen=True)
class Classes:
    """The classes a model knows, in the order of its outputs."""

    num_classes: int
    names: tuple[str, ...] | None
    multi_label: bool

    @classmethod
    def of(cls, graph: Graph) -> "Classes":
        """The classes of a graph's labels."""
        if graph.labels is None:
            raise UserError("the graph has no labels: give labels when building it")
        return cls(graph.num_classes, graph.class_names, graph.labels.ndim == 2)

    @property
    def values(self) -> np.ndarray:
        """Names where there are any, else 0 … C-1."""
        return np.arange(self.num_classes) if self.names is None else np.array(self.names)

    def targets(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        """Labels of some nodes in the order of these classes; refuses unknown and unheard-of ones."""
        if graph.labels is None:
            raise UserError("the graph has no labels to compare with")
        labels = graph.labels[nodes]
        if (labels.ndim == 2) != self.multi_label:
            kinds = ("one label per node", "several labels per node")
            raise UserError(
                f"the model was trained on {kinds[self.multi_label]}, but this graph has {kinds[labels.ndim - 1]}"
            )
        if self.multi_label:
            return labels[:, self._columns(graph)]
        if (labels < 0).any():
            raise UserError(f"{(labels < 0).sum():,} of the nodes have no label: leave them out of the split")
        names, known = graph.class_names, np.arange(graph.num_classes)
        if self.names is not None and names is not None:
            place = {name: number for number, name in enumerate(self.names)}
            known = np.array([place.get(name, -1) for name in names])
        known = np.where(known < self.num_classes, known, -1)
        mapped = known[labels]
        if (mapped < 0).any():
            label = labels[mapped < 0][0]
            raise UserError(
                f"{(mapped < 0).sum():,} nodes have class {_name(names, label)!r}, which the model has never seen: "
                f"it knows {', '.join(map(str, self.values[:20]))}"
            )
        return mapped

    def _columns(self, graph: Graph) -> np.ndarray:
        """Where each label of a multi-label model stands in a graph's labels; by name where both have names."""
        if graph.num_classes != self.num_classes:
            raise UserError(f"the model knows {self.num_classes} labels, but the graph has {graph.num_classes}")
        if self.names is None or graph.class_names is None:
            return np.arange(self.num_classes)
        missing = set(self.names) - set(graph.class_names)
        if missing:
            raise UserError(f"the model knows label {min(missing)!r}, which the graph has not")
        return np.array([graph.class_names.index(name) for name in self.names])


def _name(names: tuple[str, ...] | None, label: int) -> str:
    return str(label) if names is None else names[label]


class Task:
    """Labels on the device, and the loss of scores against them."""

    def __init__(self, graph: Graph, classes: Classes, device: str, class_weights: str = "none"):
        labels = graph.labels
        assert labels is not None
        self.multi_label = classes.multi_label
        self.metric = "micro_f1" if classes.multi_label else "accuracy"
        self.labels = torch.from_numpy(np.array(labels)).to(device)
        self._weights = None
        if self.multi_label:
            self.labels = self.labels.float()
        if class_weights == "balanced":
            self._weights = torch.from_numpy(_balance(labels[graph.splits["train"]], classes.num_classes)).to(device)

    def loss(self, logits: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Sum of the losses of a batch: cross-entropy, or binary cross-entropy averaged over labels."""
        target, logits = self.labels[nodes], logits.float()
        if not self.multi_label:
            return functional.cross_entropy(logits, target, self._weights, reduction="sum")
        losses = functional.binary_cross_entropy_with_logits(logits, target, pos_weight=self._weights, reduction="none")
        return losses.mean(dim=1).sum()

    def hits(self, logits: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Counts that give the validation metric when summed over batches, (2,): F1 is 2·first / second.

        For single labels that is accuracy; for multi-label tasks micro-F1.
        """
        target = self.labels[nodes]
        if not self.multi_label:
            right = (logits.argmax(dim=1) == target).sum()
            return torch.stack([right, torch.full_like(right, 2 * len(nodes))])
        decided = logits > 0
        return torch.stack([(decided & target.bool()).sum(), decided.sum() + target.bool().sum()])


def _balance(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Weights that give every class the same total; for multi-label tasks the weight of a 1 against a 0."""
    if labels.ndim == 2:
        positive = labels.sum(axis=0)
        return (np.maximum(len(labels) - positive, 1) / np.maximum(positive, 1)).astype(np.float32)
    count = np.bincount(labels, minlength=num_classes)
    present = (count > 0).sum()
    return np.where(count > 0, len(labels) / (present * np.maximum(count, 1)), 0).astype(np.float32)


def check_trainable(graph: Graph) -> None:
    """Refuse a graph that cannot be trained on, before any work."""
    classes = Classes.of(graph)
    for split in ("train", "val"):
        nodes = graph.splits.get(split, np.empty(0, np.int64))
        if len(nodes) == 0:
            raise UserError(
                f"the split {split!r} is empty: name its nodes in the node table's column 'split' or with "
                f"graph.with_splits(train=…, val=…, test=…), or draw one with random_split(graph)"
            )
        assert graph.labels is not None
        unknown = 0 if classes.multi_label else int((graph.labels[nodes] < 0).sum())
        if unknown:
            raise UserError(f"{unknown:,} nodes of the split {split!r} have no label (-1): leave them out of it")
    if classes.multi_label:
        return
    assert graph.labels is not None
    present = np.bincount(graph.labels[graph.splits["train"]], minlength=classes.num_classes) > 0
    if present.sum() < 2:
        only = _name(classes.names, int(present.argmax()))
        raise UserError(f"all training nodes have class {only!r}: there is nothing to learn; give at least two classes")
    if not present.all():
        missing = [_name(classes.names, int(label)) for label in np.flatnonzero(~present)]
        warnings.warn(
            f"{len(missing)} of {classes.num_classes} classes have no training node and can never be predicted: "
            f"{', '.join(missing[:10])}",
            stacklevel=2,
        )


def with_splits(graph: Graph, seed: int) -> Graph:
    """The graph, with a random split if it has none; a warning says so."""
    if graph.splits:
        return graph
    warnings.warn(
        f"the graph has no splits: of its labeled nodes 60 % train, 20 % validate and 20 % are left for the test "
        f"(at random, seed {seed})",
        stacklevel=3,
    )
    return random_split(graph, seed=seed)
