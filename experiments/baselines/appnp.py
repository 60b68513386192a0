"""APPNP (Gasteiger, Bojchevski and Günnemann, ICLR 2019): an MLP's scores, spread by personalized PageRank.

H = MLP(X); Z_0 = H; Z_k = (1 − α) Â Z_{k-1} + α H, for K power steps.

Shapes: N nodes, F features, C classes
"""

import numpy as np
import torch
from torch import nn

from experiments.baselines.method import FullBatch, Settings, Task, normalized, product
from experiments.baselines.mlp import perceptron


class APPNP(FullBatch):
    """Prediction first, propagation after, trained through both."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        steps: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-3,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.inputs(row_normalized)
        self.steps, self.alpha, self.dropout = steps, alpha, dropout
        self.predict = perceptron(task.num_features, hidden_dim, task.num_classes, dropout, bias=False)
        self.mirrored = _mirrored(task)
        self.to(task.device)
        _, first, _, _, second = self.predict
        groups = [
            {"params": first.parameters(), "weight_decay": weight_decay},
            {"params": second.parameters(), "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.Adam(groups, lr=lr)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        return self.propagate(self.predict(self.inputs))

    def propagate(self, scores: torch.Tensor) -> torch.Tensor:
        """The power steps, (N, C) -> (N, C)."""
        spread = scores
        for _ in range(self.steps):
            spread = (1 - self.alpha) * product(*self._dropped(spread)) + self.alpha * scores
        return spread

    def _dropped(self, dense: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Â with entries dropped, `dense`, and the transpose of the first.

        They are dropped anew at every step; torch_geometric's APPNP drops from what the last step left.
        """
        whole = self.task.propagation
        if not self.training or self.dropout == 0:
            return whole, dense, whole
        values = nn.functional.dropout(whole.values(), self.dropout)
        places = whole.crow_indices(), whole.col_indices()
        matrix, transposed = (
            torch.sparse_csr_tensor(*places, each, whole.shape) for each in (values, values[self.mirrored])
        )
        return matrix, dense, transposed


def _mirrored(task: Task) -> torch.Tensor:
    """For every stored entry (i, j) of Â the place of (j, i), (2E + N,)."""
    matrix = normalized(task.adjacency).tocsr()
    matrix.data = np.arange(matrix.nnz)
    return torch.from_numpy(matrix.T.tocsr().data).to(task.device)


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first; the others suit more training nodes."""
    return [
        {"row_normalized": True},
        {"weight_decay": 5e-4, "alpha": 0.2},
        {"weight_decay": 5e-4, "alpha": 0.5},
        {"weight_decay": 5e-5, "alpha": 0.5, "hidden_dim": 256},
    ]
