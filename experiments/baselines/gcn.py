"""GCN (Kipf and Welling, ICLR 2017): two layers of Â X W.

Shapes: N nodes, F features, D hidden units, C classes
"""

import torch
from torch import nn
from torch_geometric.nn import GCNConv

from experiments.baselines.method import FullBatch, Settings, Task


class GCN(FullBatch):
    """The original two-layer model: dropout before each layer, weight decay on the first alone."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.inputs(row_normalized)
        self.dropout = nn.Dropout(dropout)
        self.first = GCNConv(task.num_features, hidden_dim, cached=True)
        self.second = GCNConv(hidden_dim, task.num_classes, cached=True)
        self.to(task.device)
        groups = [
            {"params": self.first.parameters(), "weight_decay": weight_decay},
            {"params": self.second.parameters(), "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.Adam(groups, lr=lr)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        hidden = self.first(self.dropout(self.inputs), self.task.edge_index).relu()  # (N, F) -> (N, D)
        return self.second(self.dropout(hidden), self.task.edge_index)  # (N, D) -> (N, C)


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first; the others suit more training nodes."""
    return [
        {"row_normalized": True},
        {"weight_decay": 5e-5},
        {"hidden_dim": 256, "weight_decay": 5e-5},
        {"hidden_dim": 256, "dropout": 0.2},
    ]
