"""GraphGPS (Rampášek et al., "Recipe for a General, Powerful, Scalable Graph Transformer", NeurIPS 2022).

Every layer runs message passing and global attention side by side, adds them, and ends with an MLP.

Shapes: N nodes, F features, D model width, P width of the encoding, m eigenpairs, C classes
"""

from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GCNConv, GPSConv

from experiments.baselines.method import FullBatch, Settings, Task
from experiments.baselines.spectral import eigenpairs, flip_signs
from experiments.baselines.transformer import MOMENTUM, attend

QUICK: Settings = {"num_layers": 1, "num_heads": 1, "attention_dropout": 0.0, "lr": 5e-3}


class GraphGPS(FullBatch):
    """GCN and full attention, with the Laplacian encoding beside the features."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        num_layers: int = 3,
        num_heads: int = 4,
        num_eigenpairs: int = 10,
        encoding_dim: int = 16,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 1e-5,
    ):
        super().__init__(task)
        self.eigenvectors, self.eigenvalues = eigenpairs(task, num_eigenpairs)
        self.embed = nn.Linear(task.num_features, hidden_dim - encoding_dim)
        self.encode = EigenpairEncoding(encoding_dim)
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            layer = GPSConv(
                hidden_dim,
                GCNConv(hidden_dim, hidden_dim, cached=True),
                heads=num_heads,
                dropout=dropout,
                norm_kwargs={"momentum": MOMENTUM},
            )
            layer.attn = Attention(hidden_dim, num_heads, attention_dropout, batch_first=True)
            self.layers.append(layer)
        self.classify = nn.Linear(hidden_dim, task.num_classes)
        self.to(task.device)
        # differs from the paper: no schedule of the learning rate, since early stopping leaves the steps open
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=lr, weight_decay=weight_decay)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        vectors = flip_signs(self.eigenvectors) if self.training else self.eigenvectors
        positions = self.encode(vectors, self.eigenvalues)  # (N, P)
        hidden = torch.cat([self.embed(self.task.features), positions], dim=1)  # (N, D)
        for layer in self.layers:
            hidden = layer(hidden, self.task.edge_index)
        return self.classify(hidden)


class EigenpairEncoding(nn.Module):
    """LapPE of the paper: an MLP on each eigenpair (φ_i, λ_i), summed, and another MLP (a DeepSet)."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, momentum=MOMENTUM)  # entries of unit vectors shrink with the size of the graph
        self.each = nn.Sequential(nn.Linear(2, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim), nn.ReLU())
        self.together = nn.Sequential(nn.Linear(dim, dim), nn.ReLU())

    def forward(self, vectors: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """(N, m), (m,) -> (N, P)."""
        pairs = torch.stack([vectors, values.expand_as(vectors)], dim=1)  # (N, 2, m)
        return self.together(self.each(self.norm(pairs).transpose(1, 2)).sum(dim=1))


class Attention(nn.MultiheadAttention):
    """torch's, by `attend`: neither a mask, which one graph needs none of, nor its path for inference."""

    def forward(self, query: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, None]:
        """(1, N, D) -> (1, N, D)."""
        projected = nn.functional.linear(query[0], self.in_proj_weight, self.in_proj_bias)  # (N, 3 D)
        query, key, value = projected.unflatten(1, (3, self.num_heads, -1)).permute(1, 2, 0, 3)  # (H, N, d) each
        attended = attend(query, key, value, dropout=self.dropout if self.training else 0.0)
        return self.out_proj(attended.transpose(0, 1).flatten(1))[None], None


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set; none was published for these."""
    return [
        {},
        {"num_layers": 2, "lr": 5e-3},
        {"hidden_dim": 128, "dropout": 0.3},
        {"hidden_dim": 128, "num_layers": 2, "lr": 5e-3},
    ]
