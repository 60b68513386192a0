"""MLP: one hidden layer on a node's raw features; it sees no graph.

Shapes: N nodes, F features, D hidden units, C classes
"""

import torch
from torch import nn

from experiments.baselines.method import FullBatch, Settings, Task, dropped, linear


def perceptron(input_dim: int, hidden_dim: int, output_dim: int, dropout: float, bias: bool = True) -> nn.Sequential:
    """Two linear maps with a ReLU between, and dropout before each."""
    return nn.Sequential(
        nn.Dropout(dropout),
        nn.Linear(input_dim, hidden_dim, bias=bias),  # (N, F) -> (N, D)
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden_dim, output_dim, bias=bias),  # (N, D) -> (N, C)
    )


class MLP(FullBatch):
    """The network alone, trained on all training nodes at once."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 256,
        dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
    ):
        super().__init__(task)
        self.inputs = task.factors()
        self.layers = perceptron(task.num_features, hidden_dim, task.num_classes, dropout)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        dropout, first, *rest = self.layers
        hidden = linear(first, dropped(self.inputs, dropout))  # (N, F) -> (N, D)
        for layer in rest:
            hidden = layer(hidden)
        return hidden  # (N, C)


QUICK: Settings = {"hidden_dim": 64}


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set; nothing is published for these splits."""
    return [{}, {"weight_decay": 5e-5}, {"weight_decay": 5e-3}, {"lr": 1e-3, "dropout": 0.2, "weight_decay": 5e-5}]
