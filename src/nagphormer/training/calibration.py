"""The temperature of a trained model: what its scores are divided by, so that it is as sure as it is right.

Trained networks are too sure of themselves, and those that stopped early not sure enough. One number mends most of it
(Guo et al., "On Calibration of Modern Neural Networks", ICML 2017), and no decision changes. Where labels are noisy it
does not: a few that nobody could foresee would have the model doubt all of them. There a second number is the share of
labels that may be any, and no decision changes, either.

Shapes: n validation nodes, C classes
"""

import numpy as np
import torch
from torch.nn import functional

SPREAD = 1.0
"""Deviation of a temperature's logarithm that is expected beforehand: of few nodes, all of them right perhaps, it is
not believed that a model may be as sure as it likes."""
DOUBTED = 20.0
"""What a share of labels that may be any has to be worth, in nats of all nodes for each unit of it."""
WORTH = 2.0
"""Nats that it must gain on all nodes together to be believed."""
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


def doubt(scores: torch.Tensor, target: torch.Tensor, heat: float) -> tuple[float, float]:
    """A temperature, and the share of labels that may be any class; 0 and the temperature that is there in most cases.

    Args:
        scores: (n, C), before softmax.
        target: (n,) classes; for several labels a node there is no doubt.
        heat: the temperature without a doubt.

    >>> import numpy as np
    >>> labels = torch.tensor([0] * 90 + [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 1).repeat(10)
    >>> sure = torch.zeros(1000, 50).index_fill(1, torch.tensor([0]), 1.0) * torch.linspace(3, 12, 1000)[:, None]
    >>> 0.05 < doubt(sure, labels, temperature(sure, labels))[1] < 0.2  # one of ten is none of the model's
    True
    """
    from scipy.optimize import minimize

    if target.ndim == 2:
        return heat, 0.0
    values, classes = scores.double().cpu().numpy(), scores.shape[1]
    wanted = np.arange(len(values)), target.cpu().numpy()

    def surprise(log: float, share: float) -> float:
        found = probability_of(torch.from_numpy(values), float(np.exp(log)), share)[wanted]
        return float(-found.clamp_min(1e-12).log().sum()) + (log / SPREAD) ** 2 / 2 + DOUBTED * share

    def unbounded(point: np.ndarray) -> float:
        return surprise(float(np.clip(point[0], -WIDEST, WIDEST)), float(1 / (1 + np.exp(-np.clip(point[1], -20, 20)))))

    before = surprise(np.log(heat), 0.0)
    if classes < 2 or surprise(np.log(heat), 1e-4) >= before:  # not even a little of it helps
        return heat, 0.0
    start = np.array([min(np.log(heat), 0.0), -2.0])
    found = minimize(unbounded, start, method="Nelder-Mead", options={"maxiter": 120, "xatol": 1e-3, "fatol": 1e-3})
    if not found.fun < before - WORTH:
        return heat, 0.0
    log, share = float(np.clip(found.x[0], -WIDEST, WIDEST)), float(1 / (1 + np.exp(-np.clip(found.x[1], -20, 20))))
    return float(np.exp(log)), share


def probability_of(scores: torch.Tensor, heat: float, share: float = 0.0, several: bool = False) -> torch.Tensor:
    """Calibrated probabilities of scores, (n, C); of several labels a node each on its own."""
    cooled = scores / heat
    if several:
        return cooled.sigmoid()
    found = cooled.softmax(dim=1)
    return found if share == 0 else found * (1 - share) + share / scores.shape[1]
