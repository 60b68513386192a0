"""SGFormer (Wu et al., NeurIPS 2023): one layer of linear attention over all nodes, beside a GCN.

Shapes: N nodes, F features, D model width, C classes
"""

from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models import SGFormer as Layers

from experiments.baselines.method import FullBatch, Settings, Task, linear, product


class SGFormer(FullBatch):
    """Both branches are PyG's; the attention is by the paper's formula unless told otherwise.

    Each branch's first map is taken out of it, for features that are mostly zero, and sums over neighbors are sparse
    products, for a CPU.

    Args:
        num_graph_layers: Layers of the GCN.
        graph_weight: Share of the GCN in the sum of the branches; the attention has the rest.
        global_dropout: Dropout of the attention branch; `dropout` is the GCN's.
        global_weight_decay: Weight decay of the attention branch; `weight_decay` is that of all else.
        by_rows: Whether to attend as PyG does, with queries and keys of length one. The paper divides by the
            norm of the whole matrix, so that on a large graph a node keeps little but its own value.
    """

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 64,
        num_graph_layers: int = 4,
        graph_weight: float = 0.8,
        dropout: float = 0.5,
        global_dropout: float = 0.3,
        lr: float = 0.005,
        weight_decay: float = 5e-4,
        global_weight_decay: float = 0.01,
        by_rows: bool = False,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.factors(row_normalized)
        self.layers = Layers(
            task.num_features,
            hidden_dim,
            task.num_classes,
            trans_num_layers=1,
            trans_dropout=global_dropout,
            gnn_num_layers=num_graph_layers,
            gnn_dropout=dropout,
            graph_weight=graph_weight,
        )
        if not by_rows:
            self.layers.trans_conv.attns[0] = SimpleAttention(hidden_dim)
        convolutions = self.layers.graph_conv.convs
        self.layers.graph_conv.convs = nn.ModuleList(Convolution(each, task.propagation) for each in convolutions)
        self.to(task.device)
        self.one_graph = torch.zeros(task.num_nodes, dtype=torch.int64, device=task.device)
        attending = list(self.layers.trans_conv.parameters())
        convolving = [*self.layers.graph_conv.parameters(), *self.layers.fc.parameters()]
        groups = [
            {"params": attending, "weight_decay": global_weight_decay},
            {"params": convolving, "weight_decay": weight_decay},
        ]
        self.optimizer = torch.optim.Adam(groups, lr=lr)
        self.graph_weight = graph_weight
        self.read_attending = first_map(self.layers.trans_conv)
        self.read_convolving = first_map(self.layers.graph_conv)

    def forward(self) -> torch.Tensor:
        """Logarithms of the class probabilities of all nodes, (N, C)."""
        attended = self.layers.trans_conv(linear(self.read_attending, self.inputs), self.one_graph)  # (N, F) -> (N, D)
        convolved = self.layers.graph_conv(linear(self.read_convolving, self.inputs), None)  # (N, F) -> (N, D)
        mixed = self.graph_weight * convolved + (1 - self.graph_weight) * attended
        return self.layers.fc(mixed).log_softmax(dim=1)  # (N, D) -> (N, C)


def first_map(branch: Any) -> nn.Linear:
    """The linear map of features of a branch, which from now on is given what it gives."""
    taken = branch.fcs[0]
    branch.fcs[0] = nn.Identity()
    return taken


class Convolution(nn.Module):
    """PyG's GCN layer, Â X W + b, as a sparse product: on a CPU several times as fast as its messages along edges."""

    def __init__(self, layer: GCNConv, propagation: torch.Tensor):
        super().__init__()
        self.lin, self.bias = layer.lin, layer.bias
        self.propagation = propagation

    def forward(self, hidden: torch.Tensor, edges: None) -> torch.Tensor:
        """(N, D) -> (N, D); PyG's branch passes edges, of which there is no need."""
        return product(self.propagation, self.lin(hidden)) + self.bias


class SimpleAttention(nn.Module):
    """D⁻¹ (V + Q̃ K̃ᵀ V / N) with Q̃ = Q/‖Q‖, K̃ = K/‖K‖ (Frobenius) and D = diag(1 + Q̃ K̃ᵀ 1 / N), in linear time."""

    def __init__(self, dim: int):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(1, N, D) -> (1, N, D); the mask of PyG's attention is all true, as there is one graph."""
        num_nodes = hidden.shape[1]
        queries, keys, values = self.query(hidden), self.key(hidden), self.value(hidden)
        queries, keys = queries / queries.norm(), keys / keys.norm()
        mixed = values + queries @ (keys.transpose(1, 2) @ values) / num_nodes  # (1, N, D)
        total = 1 + queries @ keys.sum(dim=1)[:, :, None] / num_nodes  # (1, N, 1)
        return mixed / total


PUBLISHED: dict[str, Settings] = {
    "cora": {"lr": 0.01, "global_dropout": 0.2, "global_weight_decay": 0.001},
    "citeseer": {"graph_weight": 0.7, "weight_decay": 0.01},
}
"""Where the authors chose other values than for Pubmed."""


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting (Pubmed's where there is none) first."""
    published = PUBLISHED.get(dataset, {})
    weaker = published | {"weight_decay": 5e-5, "global_weight_decay": 5e-5}
    return [
        published | {"row_normalized": True},
        weaker,
        weaker | {"hidden_dim": 256, "num_graph_layers": 2, "graph_weight": 0.5},
        weaker | {"hidden_dim": 256, "num_graph_layers": 2, "graph_weight": 0.5, "by_rows": True},
    ]
