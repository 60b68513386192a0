"""Logistic regression on hop tokens, the same few for every data set: what they give without a Transformer.

Z = Σ_k Â^k (X‖U) W_k + b, k = 0 … K. Tokens are not held: Â^k (X‖U) W_k is Â^k applied to C columns, which is
exact and small however wide the features are.

Shapes: N nodes, F features, s encoding columns, K hops, C classes
"""

import torch
from torch import nn

from experiments.baselines.method import FullBatch, Settings, Task, multiplied, product
from nagphormer import laplacian_encoding


class Logistic(FullBatch):
    """One weight for every column of every token, and class."""

    def __init__(
        self,
        task: Task,
        hops: int = 3,
        encoding_dim: int = 10,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
    ):
        super().__init__(task)
        self.features = task.factors()  # (N, F)
        encoding = laplacian_encoding(task.graph, encoding_dim, device=task.device) if encoding_dim else None
        self.encoding = None if encoding is None else torch.from_numpy(encoding).to(task.device)  # (N, s)
        width = task.num_features + (0 if self.encoding is None else self.encoding.shape[1])
        # the problem is convex: zeros are as good a start as any
        self.weight = nn.Parameter(torch.zeros(hops + 1, width, task.num_classes))  # (K+1, F + s, C)
        self.bias = nn.Parameter(torch.zeros(task.num_classes))
        self.to(task.device)
        groups = [{"params": [self.weight], "weight_decay": weight_decay}, {"params": [self.bias], "weight_decay": 0.0}]
        self.optimizer = torch.optim.Adam(groups, lr=lr)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        flat = self.weight.transpose(0, 1).flatten(1)  # (F + s, (K+1)·C)
        scores = multiplied(self.features, flat[: self.task.num_features])  # (N, F) -> (N, (K+1)·C)
        if self.encoding is not None:
            scores = scores + self.encoding @ flat[self.task.num_features :]
        *nearer, total = scores.chunk(len(self.weight), dim=1)  # each (N, C)
        for own in reversed(nearer):  # Horner's rule: S_0 + Â (S_1 + Â (S_2 + …))
            total = own + product(self.task.propagation, total)
        return total + self.bias


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set."""
    return [{}, {"weight_decay": 5e-3}, {"weight_decay": 5e-5}, {"weight_decay": 0.0}]
