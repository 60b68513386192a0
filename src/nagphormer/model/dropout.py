"""Dropout whose random numbers do not cost more than the products around it."""

import torch
from torch import nn
from torch.nn import functional

from nagphormer.model.recorded import recorded


class Dropout(nn.Module):
    """Zero each entry with probability `rate` and scale the rest by 1 / (1 - rate).

    torch draws a full random number for every entry on one core, a seventh of a training step; on the CPU sixteen
    bits decide here, so the rate is kept to within 1/131072.
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    @property
    def active_rate(self) -> float:
        """The rate in training, else 0."""
        return self.rate if self.training else 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape, kept."""
        if self.active_rate == 0:
            return x
        if x.device.type != "cpu" or recorded():
            return functional.dropout(x, self.rate)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        threshold = min(round(self.rate * 2**16), 2**16 - 1) - 2**15
        return x.masked_fill(bits < threshold, 0) * (1 / (1 - self.rate))
