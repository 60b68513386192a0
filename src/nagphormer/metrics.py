"""How good predictions are, on NumPy arrays.

`target` is (n,) classes 0 … C-1, or (n, C) of 0 and 1 for multi-label tasks; `probability` is (n, C).

Shapes: n nodes, C classes
"""

from collections.abc import Callable

import numpy as np

from nagphormer.errors import UserError, nearest

BINS = 15
"""Bins of equal width for the calibration error."""


def decide(probability: np.ndarray, multi_label: bool) -> np.ndarray:
    """The predicted class of every node, (n,); for multi-label tasks every label above one half, (n, C)."""
    return (probability > 0.5).astype(np.int64) if multi_label else probability.argmax(axis=1)


def accuracy(target: np.ndarray, probability: np.ndarray) -> float:
    """Share of nodes that are right; for multi-label tasks right in every label.

    >>> accuracy(np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]]))
    0.5
    """
    target, probability = _checked(target, probability)
    right = decide(probability, target.ndim == 2) == target
    return float((right.all(axis=1) if target.ndim == 2 else right).mean())


def macro_f1(target: np.ndarray, probability: np.ndarray) -> float:
    """F1 of each class, averaged; without classes that are neither true nor predicted, but with all labels."""
    target, probability = _checked(target, probability)
    found, wrong, missed = _counts(target, probability)
    seen = found + wrong + missed > 0 if target.ndim == 1 else slice(None)
    total = 2 * found + wrong + missed
    return float((2 * found / np.maximum(total, 1))[seen].mean())


def micro_f1(target: np.ndarray, probability: np.ndarray) -> float:
    """F1 over all decisions together; for single labels the same as accuracy."""
    target, probability = _checked(target, probability)
    found, wrong, missed = (count.sum() for count in _counts(target, probability))
    return float(2 * found / max(2 * found + wrong + missed, 1))


def roc_auc(target: np.ndarray, probability: np.ndarray) -> float:
    """Area under the ROC curve: of class 1 for two classes, else of each class against the rest, averaged.

    Classes that no node or every node has are left out.
    """
    from scipy.stats import rankdata  # takes a second to import

    def area(truth: np.ndarray, scores: np.ndarray) -> float:
        positive = int(truth.sum())
        above = rankdata(scores)[truth].sum() - positive * (positive + 1) / 2
        return above / (positive * (len(truth) - positive))

    return _each_against_the_rest(target, probability, area, "roc_auc")


def average_precision(target: np.ndarray, probability: np.ndarray) -> float:
    """Precision at every step of recall, averaged: of class 1 for two classes, else of each class, averaged.

    Unlike the area under the ROC curve it is low where a rare class is lost among many nodes of others. Classes that no
    node or every node has are left out.
    """

    def area(truth: np.ndarray, scores: np.ndarray) -> float:
        order = np.argsort(-scores, kind="stable")
        last = np.flatnonzero(np.diff(scores[order], append=np.nan))  # of each score: ties are found together
        found = np.cumsum(truth[order])[last]
        steps = np.diff(found, prepend=0)
        return (steps * found / (last + 1)).sum() / found[-1]

    return _each_against_the_rest(target, probability, area, "average_precision")


def log_loss(target: np.ndarray, probability: np.ndarray) -> float:
    """Mean negative log-probability of the truth; for multi-label tasks averaged over labels, too."""
    target, probability = _checked(target, probability)
    tiny = np.finfo(probability.dtype).eps
    likely = np.clip(probability, tiny, 1 - tiny)
    if target.ndim == 2:
        return float(-(np.log(likely) * target + np.log(1 - likely) * (1 - target)).mean())
    return float(-np.log(likely[np.arange(len(target)), target]).mean())


def ece(target: np.ndarray, probability: np.ndarray) -> float:
    """Expected calibration error: |accuracy - confidence| in 15 bins of equal width, weighted by their size.

    For multi-label tasks every label of every node is a prediction of its own, its confidence the probability of 1.
    """
    target, probability = _checked(target, probability)
    if target.ndim == 2:
        confidence, right = probability.ravel(), target.ravel()
    else:
        confidence, right = probability.max(axis=1), probability.argmax(axis=1) == target
    edges = np.linspace(0, 1, BINS + 1)
    which = np.digitize(confidence, edges[1:-1], right=True)
    size = np.bincount(which, minlength=BINS)
    gap = np.bincount(which, right, BINS) - np.bincount(which, confidence, BINS)
    return float(np.abs(gap).sum() / size.sum())


def _checked(target: np.ndarray, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays that fit together."""
    target, probability = np.asarray(target), np.asarray(probability)
    if probability.ndim != 2 or target.shape not in ((len(probability),), probability.shape):
        raise UserError(
            f"a metric wants classes (n,), or 0 and 1 (n, C), and probabilities (n, C), not shapes {target.shape} and "
            f"{probability.shape}"
        )
    if len(target) == 0:
        raise UserError("a metric of no nodes at all is not defined: give at least one")
    if (
        target.dtype.kind not in "iub"
        or target.min() < 0
        or (target.ndim == 1 and target.max() >= probability.shape[1])
    ):
        raise UserError(
            f"the true classes must be whole numbers from 0 to {probability.shape[1] - 1}, the columns of the "
            f"probabilities"
        )
    return target, probability


def _each_against_the_rest(
    target: np.ndarray, probability: np.ndarray, area: Callable[[np.ndarray, np.ndarray], float], name: str
) -> float:
    """An area under a curve, given truth and scores (n,): of class 1 for two classes, else of each class, averaged."""
    target, probability = _checked(target, probability)
    binary = target.ndim == 1 and probability.shape[1] == 2
    areas = []
    for label in range(1 if binary else 0, probability.shape[1]):  # one at a time: ranks are wide
        truth = target == label if target.ndim == 1 else target[:, label] > 0
        if 0 < truth.sum() < len(truth):
            areas.append(area(truth, probability[:, label]))
    if not areas:
        raise UserError(f"{name} needs at least two classes among the nodes it is computed on")
    return float(np.mean(areas))


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "log_loss": log_loss,
    "ece": ece,
}


def measure(target: np.ndarray, probability: np.ndarray) -> dict[str, float | None]:
    """Every metric; None for one that the nodes do not allow."""
    target, probability = _checked(target, probability)
    found: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        try:
            found[name] = metric(target, probability)
        except UserError:
            found[name] = None
    return found


def check_metric(metric: str) -> None:
    """Refuse a name that is none of `METRICS`."""
    if not isinstance(metric, str) or metric not in METRICS:
        raise UserError(f"unknown metric {metric!r}: use {', '.join(METRICS)}.{nearest(metric, list(METRICS))}")


def _counts(target: np.ndarray, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each class: decisions that found it, claimed it wrongly, and missed it."""
    if target.ndim == 1:
        predicted, classes = probability.argmax(axis=1), probability.shape[1]
        found = np.bincount(target[predicted == target], minlength=classes)
        claimed, true = np.bincount(predicted, minlength=classes), np.bincount(target, minlength=classes)
    else:
        decided = decide(probability, multi_label=True)
        found, claimed, true = (decided & target).sum(axis=0), decided.sum(axis=0), target.sum(axis=0)
    return found, claimed - found, true - found
