"""When to stop, and which epoch's weights to keep."""

from dataclasses import dataclass
from math import inf


@dataclass
class EarlyStopping:
    """Keeps the epoch of the best validation metric, ties by lower loss; gives up after `patience` idle epochs.

    An epoch is idle when neither the metric nor the loss is better than any before it; with `restart_on_ties`, when
    neither is as good as the best.
    """

    patience: int
    restart_on_ties: bool = False
    best_epoch: int = 0
    best_metric: float = -inf
    best_loss: float = inf
    """Loss at the best epoch."""
    lowest_loss: float = inf
    idle: int = 0

    def update(self, epoch: int, metric: float, loss: float) -> bool:
        """Take in an epoch's validation; gives whether it is the best so far."""
        better = metric > self.best_metric or (metric == self.best_metric and loss < self.best_loss)
        improved = metric > self.best_metric or loss < self.lowest_loss
        if self.restart_on_ties:
            improved = improved or metric == self.best_metric or loss == self.lowest_loss
        self.idle = 0 if improved else self.idle + 1
        self.lowest_loss = min(self.lowest_loss, loss)
        if better:
            self.best_epoch, self.best_metric, self.best_loss = epoch, metric, loss
        return better

    @property
    def done(self) -> bool:
        """Whether patience has run out."""
        return self.idle >= self.patience
