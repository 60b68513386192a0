"""SIGN (Frasca et al., 2020): features of all hops, made once; a linear map each, then a common network.

Z = σ([X Θ_0 ‖ Â X Θ_1 ‖ … ‖ Â^r X Θ_r]), Y = softmax(Z Ω). This is SIGN(r, 0, 0): powers of the adjacency alone,
without the paper's optional operators from PageRank and triangles.

Shapes: N nodes, B nodes in a batch, F features, D hidden units, r hops, C classes
"""

import torch
from torch import nn

from experiments.baselines.method import Method, Settings, Task


class SIGN(Method):
    """Mini-batches of nodes; the graph is not needed after preparation."""

    def __init__(
        self,
        task: Task,
        hops: int = 3,
        hidden_dim: int = 256,
        num_layers: int = 1,
        dropout: float = 0.5,
        batch_size: int = 1024,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ):
        super().__init__(task)
        self.batch_size = batch_size
        self.hops = [task.features]  # each (N, F)
        for _ in range(hops):
            self.hops.append(task.propagation @ self.hops[-1])
        self.project = nn.ModuleList(nn.Linear(task.num_features, hidden_dim) for _ in self.hops)
        width = hidden_dim * len(self.hops)
        self.classify = nn.Sequential(*_activation(width, dropout))
        for _ in range(num_layers - 1):
            self.classify.extend([nn.Linear(width, hidden_dim), *_activation(hidden_dim, dropout)])
            width = hidden_dim
        self.classify.append(nn.Linear(width, task.num_classes))
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, (B,) -> (B, C)."""
        parts = [linear(hop[nodes]) for linear, hop in zip(self.project, self.hops, strict=True)]  # each (B, D)
        return self.classify(torch.cat(parts, dim=1))  # (B, (r+1)·D) -> (B, C)

    def train_epoch(self) -> None:
        """One step for every batch of the shuffled training nodes; batches are of equal size, give or take one."""
        train = self.task.splits["train"]
        order = train[torch.randperm(len(train), device=train.device)]
        for nodes in order.tensor_split(-(-len(train) // self.batch_size)):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self(nodes), self.task.labels[nodes]).backward()
            self.optimizer.step()

    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, a batch at a time."""
        return torch.cat([self(batch) for batch in nodes.split(8 * self.batch_size)])


def _activation(width: int, dropout: float) -> list[nn.Module]:
    """What follows a linear map; batch normalization as in the authors' code."""
    return [nn.BatchNorm1d(width), nn.PReLU(), nn.Dropout(dropout)]


QUICK: Settings = {"hidden_dim": 64}


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set; nothing is published for these splits."""
    return [
        {},
        {"num_layers": 2, "weight_decay": 5e-4},
        {"weight_decay": 5e-3},
        {"hops": 5, "hidden_dim": 512, "dropout": 0.7, "weight_decay": 5e-4},
    ]
