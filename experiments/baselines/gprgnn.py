"""GPRGNN (Chien et al., ICLR 2021): an MLP's scores, summed over hops with learned weights.

Z = Σ_k γ_k Â^k MLP(X), k = 0 … K; γ starts as personalized PageRank: γ_k = α (1 − α)^k, γ_K = (1 − α)^K.

Shapes: N nodes, F features, C classes, K hops
"""

import torch
from torch import nn

from experiments.baselines.method import FullBatch, Settings, Task, product
from experiments.baselines.mlp import perceptron


class GPRGNN(FullBatch):
    """Generalized PageRank whose weights may become negative, and so filter as the graph needs."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        hops: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
        hop_dropout: float = 0.5,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.inputs(row_normalized)
        self.hop_dropout = hop_dropout
        self.predict = perceptron(task.num_features, hidden_dim, task.num_classes, dropout)
        self.gamma = nn.Parameter(pagerank_weights(hops, alpha))
        self.to(task.device)
        groups = [
            {"params": self.predict.parameters(), "weight_decay": weight_decay},
            {"params": [self.gamma], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.Adam(groups, lr=lr)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        hop = self.predict(self.inputs)  # (N, C)
        hop = nn.functional.dropout(hop, self.hop_dropout, self.training)
        total = self.gamma[0] * hop
        for weight in self.gamma[1:]:
            hop = product(self.task.propagation, hop)
            total = total + weight * hop
        return total


def pagerank_weights(hops: int, alpha: float) -> torch.Tensor:
    """γ_k = α (1 − α)^k with the rest of the sum on the last hop, (K+1,)."""
    weights = alpha * (1 - alpha) ** torch.arange(hops + 1)
    weights[-1] = (1 - alpha) ** hops
    return weights


PUBLISHED: dict[str, Settings] = {
    "pubmed": {"lr": 0.05, "alpha": 0.2},
    "computers": {"lr": 0.05, "alpha": 0.5},
    "photo": {"lr": 0.01, "alpha": 0.5},
}
"""For splits with few training nodes."""


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first."""
    first = {**PUBLISHED.get(dataset, {"lr": 0.01, "alpha": 0.1}), "row_normalized": True}
    return [
        first,
        {**first, "weight_decay": 5e-5, "hop_dropout": 0.0},
        {"lr": 0.01, "alpha": 0.9},
        {"lr": 0.01, "alpha": 0.2, "hidden_dim": 256, "weight_decay": 5e-5, "hop_dropout": 0.0},
    ]
