"""The temperature of a trained model: what its scores are divided by, so that it is as sure as it is right.

Trained networks are too sure of themselves, and those that stopped early not sure enough. One number mends most of it
(Guo et al., "On Calibration of Modern Neural Networks", ICML 2017), and no decision changes.

Shapes: n validation nodes, C classes
"""

import numpy as np
import torch
from torch.nn import functional

SPREAD = 1.0
"""Deviation of a temperature's logarithm that is expected beforehand: of few nodes, all of them right perhaps, it is
not believed that a model may be as sure as it likes."""
WIDEST = 5.0
"""Logarithms of temperatures are looked for between this and its negative."""


def temperature(scores: torch.Tensor, target: torch.Tensor) -> float:
    """The temperature at which the target is likeliest, given what is expected beforehand.

    Args:
        scores: (n, C), before softmax, or before sigmoid for several labels a node.
        target: (n,) classes, or (n, C) of 0 and 1.

    >>> sure = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]] * 50)
    >>> temperature(sure, torch.tensor([0, 0, 0, 1] * 50)) > 5  # three of four are right
    True
    """
    from scipy.optimize import minimize_scalar

    scores, target = scores.double().cpu(), target.cpu()
    several = target.ndim == 2

    def surprise(log: float) -> float:
        cooled = scores * np.exp(-log)
        if several:
            loss = functional.binary_cross_entropy_with_logits(cooled, target.double()) * len(scores)
        else:
            loss = functional.cross_entropy(cooled, target.long(), reduction="sum")
        return float(loss) + (log / SPREAD) ** 2 / 2

    found = minimize_scalar(surprise, bounds=(-WIDEST, WIDEST), method="bounded", options={"xatol": 1e-5})
    return float(np.exp(found.x))
