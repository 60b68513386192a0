"""GCN (Kipf and Welling, ICLR 2017): two layers of Â X W."""

import torch
from torch_geometric.nn import GCN as Layers

from experiments.baselines.method import FullBatch, Settings, Task


class GCN(FullBatch):
    """The original two-layer model."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
    ):
        super().__init__(task)
        self.layers = Layers(task.num_features, hidden_dim, 2, task.num_classes, dropout=dropout, cached=True)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        return self.layers(self.task.features, self.task.edge_index)


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first."""
    return [{}, {"weight_decay": 5e-5}, {"hidden_dim": 256, "weight_decay": 5e-5}, {"hidden_dim": 256, "dropout": 0.2}]
