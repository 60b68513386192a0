"""Tuned GCN and GraphSAGE (Luo, Shi and Wu, "Classic GNNs are Strong Baselines", NeurIPS 2024).

A layer is dropout(relu(norm(convolution(x) + linear(x)))), where norm and the linear residual are options; a
linear map reads the classes from the last layer. The convolutions are written as sparse products, which take a
fraction of the memory, and on a CPU of the time, that torch_geometric's messages along every edge do; so are the maps
of features that are mostly zero, which take most of what is left.

Shapes: N nodes, F features, D hidden units, C classes
"""

from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from experiments.baselines.method import FullBatch, Inputs, Settings, Task, linear, normalized, product, to_torch

Norm = Literal["layer", "batch", "none"]


class GCNLayer(nn.Module):
    """Â x W + b."""

    def __init__(self, input_dim: int, output_dim: int):
        super().__init__()
        self.linear = nn.Linear(input_dim, output_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(output_dim))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Inputs, matrix: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
        """(N, F) and Â (N, N) -> (N, D)."""
        return product(matrix, linear(self.linear, x), transposed) + self.bias


class SAGELayer(nn.Module):
    """The mean of the neighbors and the node itself, each with its own map: D^-1 A x W + x V + b."""

    def __init__(self, input_dim: int, output_dim: int):
        super().__init__()
        self.neighbors = nn.Linear(input_dim, output_dim, bias=False)
        self.own = nn.Linear(input_dim, output_dim)

    def forward(self, x: Inputs, matrix: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
        """(N, F) and D^-1 A (N, N) -> (N, D); maps before it averages, since D is less than F."""
        return product(matrix, linear(self.neighbors, x), transposed) + linear(self.own, x)


class TunedGNN(FullBatch):
    """What the two have in common."""

    layer_type: type[GCNLayer] | type[SAGELayer]

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 256,
        num_layers: int = 2,
        dropout: float = 0.5,
        norm: Norm = "layer",
        residual: bool = True,
        lr: float = 1e-3,
        weight_decay: float = 5e-4,
        row_normalized: bool = False,
    ):
        super().__init__(task)
        self.inputs = task.factors(row_normalized)
        matrix = self.aggregation(task)
        self.matrices = [to_torch(each, task.device) for each in (matrix, matrix.T.tocsr())]
        norms = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "none": nn.Identity}
        widths = [task.num_features] + [hidden_dim] * (num_layers - 1)
        self.convolutions = nn.ModuleList(self.layer_type(width, hidden_dim) for width in widths)
        self.residuals = nn.ModuleList(nn.Linear(width, hidden_dim) for width in widths if residual)
        self.norms = nn.ModuleList(norms[norm](hidden_dim) for _ in widths)
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(hidden_dim, task.num_classes)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    @staticmethod
    def aggregation(task: Task) -> sp.csr_array:
        """The matrix that sums over neighbors, (N, N)."""
        raise NotImplementedError

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        x: Inputs = self.inputs
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            hidden = convolution(x, *self.matrices)  # (N, F) -> (N, D)
            if self.residuals:
                hidden = hidden + linear(self.residuals[number], x)
            x = self.dropout(norm(hidden).relu())
        return linear(self.classify, x)  # (N, D) -> (N, C)


class TunedGCN(TunedGNN):
    """GCN with the options."""

    layer_type = GCNLayer

    @staticmethod
    def aggregation(task: Task) -> sp.csr_array:
        """Â."""
        return normalized(task.adjacency)


class TunedSAGE(TunedGNN):
    """GraphSAGE with all neighbors, their mean, and the options."""

    layer_type = SAGELayer

    @staticmethod
    def aggregation(task: Task) -> sp.csr_array:
        """D^-1 A; an isolated node's mean is zero."""
        degrees = np.maximum(task.adjacency.sum(axis=1), 1)
        return (sp.diags_array(1 / degrees) @ task.adjacency).tocsr()


QUICK: Settings = {"hidden_dim": 64, "lr": 0.01}

START: Settings = {"hidden_dim": 256, "num_layers": 2, "dropout": 0.5, "weight_decay": 5e-4}
"""Where nothing is published for splits of this size."""


def _published(hidden: int, layers: int, dropout: float, weight_decay: float, **rest: object) -> Settings:
    network = {"hidden_dim": hidden, "num_layers": layers, "dropout": dropout}
    return {**network, "weight_decay": weight_decay, "row_normalized": True, **rest}


GCN_PUBLISHED: dict[str, Settings] = {
    "computers": _published(512, 3, 0.5, 5e-5, residual=False),
    "photo": _published(256, 6, 0.5, 5e-5),
    "cs": _published(512, 2, 0.3, 5e-4),
    "physics": _published(64, 2, 0.3, 5e-4),
}
SAGE_PUBLISHED: dict[str, Settings] = {
    "computers": _published(64, 4, 0.3, 5e-5, residual=False),
    "photo": _published(64, 6, 0.2, 5e-5),
    "cs": _published(512, 2, 0.5, 5e-4),
    "physics": _published(64, 2, 0.7, 5e-4, norm="batch"),
}
FEW_LABELS: Settings = {"norm": "none", "residual": False}
GCN_FEW: dict[str, Settings] = {
    "cora": _published(512, 3, 0.7, 5e-4, **FEW_LABELS),
    "citeseer": _published(512, 2, 0.5, 1e-2, **FEW_LABELS),
    "pubmed": _published(256, 2, 0.7, 5e-4, lr=5e-3, **FEW_LABELS),
}
"""Published for 20 training nodes a class."""
SAGE_FEW: dict[str, Settings] = {
    "cora": _published(256, 3, 0.7, 5e-4, **FEW_LABELS),
    "citeseer": _published(512, 3, 0.2, 1e-2, **FEW_LABELS),
    "pubmed": _published(512, 4, 0.7, 5e-4, lr=5e-3, **FEW_LABELS),
}
"""Published for 20 training nodes a class."""


def settings_gcn(dataset: str) -> list[Settings]:
    """What is tried for GCN on a data set, the published setting first."""
    return _candidates(GCN_PUBLISHED.get(dataset), GCN_FEW.get(dataset))


def settings_sage(dataset: str) -> list[Settings]:
    """What is tried for GraphSAGE on a data set, the published setting first."""
    return _candidates(SAGE_PUBLISHED.get(dataset), SAGE_FEW.get(dataset))


def _candidates(published: Settings | None, few_labels: Settings | None) -> list[Settings]:
    """Four settings: those known, and variations of where one starts."""
    known = [setting for setting in (published, START, few_labels) if setting]
    varied = [
        {**START, "dropout": 0.7, "weight_decay": 5e-3},
        {**START, "num_layers": 3, "weight_decay": 5e-5},
        {**START, "hidden_dim": 512, "dropout": 0.7},
    ]
    return [*known, *varied][:4]
