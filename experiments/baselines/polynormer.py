"""Polynormer (Deng et al., ICLR 2024): products of layers make a polynomial of the features, locally, then globally.

Some epochs train the local attention with its own classifier; then linear attention over all nodes follows it, and
both are trained together. Written after the paper: PyG 2.8's `Polynormer` fails in the second phase with more than one
head, and its gates are constants.

Shapes: N nodes, E edges, F features, H heads, K width of a head, D = H·K model width, C classes
"""

import torch
from torch import nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops

from experiments.baselines.edges import Neighbors, attend, neighbors
from experiments.baselines.method import FullBatch, Inputs, Settings, Task, dropped, linear


class Polynormer(FullBatch):
    """Local attention from the first epoch, global attention after `local_epochs`.

    Args:
        hidden_dim: Width of a head.
        local_epochs: Epochs before the global attention joins. Whether it has is in `state_dict`, so that restored
            weights predict by the classifier they were measured with.
    """

    # differs from the paper: the second phase goes on from the last weights, not from the best ones
    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        num_heads: int = 8,
        num_local_layers: int = 5,
        num_global_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.1,
        local_epochs: int = 100,
        lr: float = 1e-3,
        weight_decay: float = 5e-5,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.factors(row_normalized)
        self.patience_from = local_epochs
        dim = num_heads * hidden_dim
        self.local_epochs, self.num_epochs = local_epochs, 0
        self.edges: torch.Tensor | Neighbors
        if task.device.startswith("cuda"):
            self.edges = add_self_loops(task.edge_index, num_nodes=task.num_nodes)[0]  # (2, 2E+N)
        else:
            self.edges = neighbors(task.adjacency)
        self.embed = nn.Sequential(nn.Dropout(input_dropout), nn.Linear(task.num_features, dim), nn.Dropout(dropout))
        self.local_layers = nn.ModuleList(LocalLayer(hidden_dim, num_heads, dropout) for _ in range(num_local_layers))
        self.classify_local = nn.Linear(dim, task.num_classes)
        self.norm = nn.LayerNorm(dim)
        self.global_layers = nn.ModuleList(GlobalLayer(hidden_dim, num_heads) for _ in range(num_global_layers))
        self.global_output = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(dropout))  # one for all layers
        self.classify_global = nn.Linear(dim, task.num_classes)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    @property
    def is_global(self) -> bool:
        """Whether the global attention has joined."""
        return self.num_epochs > self.local_epochs

    def train_epoch(self) -> None:
        """One step; the first after the local epochs is with global attention."""
        self.num_epochs += 1
        super().train_epoch()

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes by the classifier of the present phase, (N, C)."""
        hidden = self.read(self.inputs)  # (N, F) -> (N, D)
        local = torch.zeros_like(hidden)
        for layer in self.local_layers:
            hidden = layer(hidden, self.edges)
            local = local + hidden
        if not self.is_global:
            return self.classify_local(local)
        hidden = self.norm(local)
        for layer in self.global_layers:
            hidden = self.global_output(layer(hidden))
        return self.classify_global(hidden)

    def read(self, inputs: Inputs) -> torch.Tensor:
        """A linear map of features, with dropout before and after, (N, F) -> (N, D)."""
        before, layer, after = self.embed
        return after(linear(layer, dropped(inputs, before)))

    def get_extra_state(self) -> torch.Tensor:
        """The number of epochs, and with it the phase: `state_dict` holds it as a tensor that is never on a GPU."""
        return torch.tensor(self.num_epochs)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Return to the epoch, and with it the phase, of a state."""
        self.num_epochs = int(state)


class LocalLayer(nn.Module):
    """(1 − β) LN(relu(X W) ⊙ X') + β X', where X' = relu(GAT(X) + X V) and each channel learns its gate β."""

    def __init__(self, hidden_dim: int, num_heads: int, dropout: float):
        super().__init__()
        dim = num_heads * hidden_dim
        self.attention = GATConv(dim, hidden_dim, heads=num_heads, add_self_loops=False, bias=False)
        self.residual, self.factor = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(dim)
        self.gate = initial_gate(dim)

    def forward(self, hidden: torch.Tensor, edges: torch.Tensor | Neighbors) -> torch.Tensor:
        """(N, D), (2, edges) -> (N, D)."""
        beta = self.gate.sigmoid()
        factor = self.factor(hidden).relu()
        hidden = self.dropout((gat(self.attention, hidden, edges) + self.residual(hidden)).relu())
        return (1 - beta) * self.norm(factor * hidden) + beta * hidden


def gat(layer: GATConv, hidden: torch.Tensor, edges: torch.Tensor | Neighbors) -> torch.Tensor:
    """A layer of PyG, on a CPU without a row for every edge, (N, D) -> (N, H·K)."""
    if isinstance(edges, torch.Tensor):
        return layer(hidden, edges)
    values = layer.lin(hidden).unflatten(1, (layer.heads, -1))  # (N, D) -> (N, H, K)
    source, target = ((values * weight).sum(dim=2) for weight in (layer.att_src, layer.att_dst))  # (N, H)
    return attend(edges, source, target, values, layer.negative_slope).flatten(1)


class GlobalLayer(nn.Module):
    """LN(σ(K)(σ(K)ᵀ V) / (σ(K) Σσ(K))) ⊙ (X W + β): linear attention, with queries that are the keys."""

    def __init__(self, hidden_dim: int, num_heads: int):
        super().__init__()
        dim = num_heads * hidden_dim
        self.num_heads = num_heads
        self.key, self.value, self.factor = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.gate = initial_gate(dim)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (N, D)."""
        keys = self.split(self.key(hidden).sigmoid())  # (H, N, K)
        values = self.split(self.value(hidden))  # (H, N, K)
        mixed = keys @ (keys.transpose(1, 2) @ values)  # (H, N, K)
        total = keys @ keys.sum(dim=1)[:, :, None]  # (H, N, 1)
        mixed = (mixed / total).transpose(0, 1).flatten(1)  # (N, D)
        return self.norm(mixed) * (self.factor(hidden) + self.gate.sigmoid())

    def split(self, hidden: torch.Tensor) -> torch.Tensor:
        """(N, D) -> (H, N, K)."""
        return hidden.unflatten(1, (self.num_heads, -1)).transpose(0, 1)


def initial_gate(dim: int) -> nn.Parameter:
    """Gates near ½ once through the sigmoid, (D,)."""
    return nn.Parameter(torch.randn(dim) * (2 / dim) ** 0.5)


PUBLISHED: dict[str, Settings] = {
    "computers": {"num_global_layers": 1, "dropout": 0.7, "input_dropout": 0.2, "local_epochs": 200},
    "photo": {"num_local_layers": 7, "dropout": 0.7, "input_dropout": 0.2, "local_epochs": 200},
    "cs": {"dropout": 0.3, "weight_decay": 5e-4},
    "physics": {"hidden_dim": 32, "num_global_layers": 4, "weight_decay": 5e-4},
}
"""What the authors chose for each data set."""

QUICK: Settings = {
    "hidden_dim": 8,
    "num_heads": 4,
    "num_local_layers": 2,
    "num_global_layers": 1,
    "local_epochs": 10,
    "lr": 0.01,
}
"""Learns within 30 epochs on a small graph."""


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting where there is one first."""
    published = PUBLISHED.get(dataset, {})
    return [
        published | {"row_normalized": True},
        published,
        published | {"num_local_layers": 3, "num_global_layers": 1, "dropout": 0.5},
        published | {"num_local_layers": 2, "num_global_layers": 1, "dropout": 0.7, "input_dropout": 0.5},
    ]
