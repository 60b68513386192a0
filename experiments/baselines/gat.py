"""GAT (Veličković et al., ICLR 2018): a node averages its neighbors by learned attention.

Shapes: N nodes, F features, H heads, D width of a head, C classes
"""

import torch
from torch import nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import add_self_loops

from experiments.baselines.method import FullBatch, Settings, Task


class GAT(FullBatch):
    """The original two-layer model."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 8,
        heads: int = 8,
        output_heads: int = 1,
        dropout: float = 0.6,
        lr: float = 0.005,
        weight_decay: float = 5e-4,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.dropout = dropout
        self.inputs = task.inputs(row_normalized)
        # loops are added once here: the layer would do it in every pass
        self.edges, _ = add_self_loops(task.edge_index, num_nodes=task.num_nodes)  # (2, 2E + N)
        options = {"dropout": dropout, "add_self_loops": False}
        self.first = GATConv(task.num_features, hidden_dim, heads, **options)
        self.second = GATConv(hidden_dim * heads, task.num_classes, output_heads, concat=False, **options)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        hidden = nn.functional.dropout(self.inputs, self.dropout, self.training)  # (N, F)
        hidden = nn.functional.elu(self.first(hidden, self.edges))  # (N, F) -> (N, H·D)
        hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        return self.second(hidden, self.edges)  # (N, H·D) -> (N, C)


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first; the others suit more training nodes."""
    first = {"output_heads": 8, "lr": 0.01, "weight_decay": 1e-3} if dataset == "pubmed" else {}
    return [
        {**first, "row_normalized": True},
        {"weight_decay": 5e-5},
        {"dropout": 0.3, "weight_decay": 5e-5},
        {"hidden_dim": 32, "dropout": 0.5, "weight_decay": 5e-5},
    ]
