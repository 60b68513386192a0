"""What is to be learned: labels on the device, and the loss.

Shapes: N nodes, B nodes in a batch, C classes
"""

import numpy as np
import torch
from torch.nn import functional

from nagphormer.data.classes import Classes
from nagphormer.data.graph import Graph
from nagphormer.metrics import METRICS


class Task:
    """Labels on the device, and the loss of scores against them."""

    def __init__(self, graph: Graph, classes: Classes, device: str, class_weights: str = "none"):
        labels = graph.labels
        assert labels is not None
        self.multi_label, self.num_classes = classes.multi_label, classes.num_classes
        self.metric = "micro_f1" if classes.multi_label else "accuracy"
        self.labels = torch.from_numpy(np.array(labels)).to(device)
        self._weights = None
        if self.multi_label:
            self.labels = self.labels.float()
        if class_weights == "balanced":
            self._weights = torch.from_numpy(_balance(labels[graph.splits["train"]], classes.num_classes)).to(device)

    def loss(self, logits: torch.Tensor, nodes: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        """Sum of the losses of a batch: cross-entropy, or binary cross-entropy averaged over labels.

        A share of the target, `smoothing`, is spread over all classes alike.
        """
        target, logits = self.labels[nodes], logits.float()
        if not self.multi_label:
            return functional.cross_entropy(logits, target, self._weights, reduction="sum", label_smoothing=smoothing)
        if smoothing:
            target = target * (1 - smoothing) + smoothing / 2
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

    def measure(self, metric: str, logits: torch.Tensor, nodes: np.ndarray) -> float:
        """One of `METRICS`, of the scores of some nodes, (n, C)."""
        probability = logits.sigmoid() if self.multi_label else logits.softmax(dim=1)
        target = self.labels[torch.from_numpy(np.array(nodes)).to(logits.device)].long()
        return METRICS[metric](target.cpu().numpy(), probability.cpu().numpy())


def _balance(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Weights that give every class the same total; for multi-label tasks the weight of a 1 against a 0."""
    if labels.ndim == 2:
        positive = labels.sum(axis=0)
        return (np.maximum(len(labels) - positive, 1) / np.maximum(positive, 1)).astype(np.float32)
    count = np.bincount(labels, minlength=num_classes)
    present = (count > 0).sum()
    return np.where(count > 0, len(labels) / (present * np.maximum(count, 1)), 0).astype(np.float32)
