"""SAN (Kreuzer et al., "Rethinking Graph Transformers with Spectral Attention", NeurIPS 2021).

A small Transformer over a node's eigenpairs learns its position; the main one attends edges and non-edges, each
with projections of its own.

Shapes: N nodes, E undirected edges, F features, D model width, P width of the encoding, H heads, d = D / H,
m eigenpairs, C classes
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.utils import softmax

from experiments.baselines.gt import Decaying, Layer, Projections, edge_scores, readout, sum_neighbors
from experiments.baselines.method import Settings, Task
from experiments.baselines.spectral import eigenpairs, flip_signs
from experiments.baselines.transformer import attend, embedding, empty_rows

NOISE = 1e-5
"""Rows of eigenvectors shorter than this are rounding: a small component that the first vectors do not touch."""
QUICK: Settings = {"num_layers": 1, "num_heads": 2, "lr": 5e-3}


class Pairs(NamedTuple):
    """Which nodes are neighbors and which are not."""

    edge_index: torch.Tensor
    """Both directions of every edge, (2, 2E)."""
    bias: torch.Tensor
    """Added to the scores of non-edges, (N, N): 0, but −∞ for neighbors and for a node with itself."""
    has_non_edge: torch.Tensor
    """1.0 for nodes that have a non-edge, 0.0 for those that neighbor all others, (N, 1, 1)."""


class SAN(Decaying):
    """Features beside learned positions, L layers of attention to all nodes, an MLP as readout."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 48,
        num_layers: int = 16,
        num_heads: int = 8,
        gamma: float = 0.1,
        num_eigenpairs: int = 10,
        encoding_dim: int = 16,
        encoding_heads: int = 4,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        lr: float = 5e-4,
        weight_decay: float = 0.0,
    ):
        super().__init__(task)
        vectors, self.eigenvalues = eigenpairs(task, num_eigenpairs)
        # as the published code has it, a node's entries are scaled to unit length
        self.eigenvectors = functional.normalize(vectors, dim=1, eps=NOISE)  # (N, m)
        self.pairs = split_pairs(task.edge_index, task.num_nodes)
        self.embed = embedding(task.num_features, hidden_dim - encoding_dim, input_dropout)
        self.encode = SpectralEncoding(encoding_dim, encoding_heads)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(PairAttention(hidden_dim, num_heads, gamma), hidden_dim, dropout) for _ in range(num_layers)
        )
        self.readout = readout(hidden_dim, task.num_classes)
        self.to(task.device)
        self.decay(lr, weight_decay)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        vectors = flip_signs(self.eigenvectors) if self.training else self.eigenvectors
        positions = self.encode(vectors, self.eigenvalues)  # (N, P)
        hidden = self.dropout(torch.cat([self.embed(self.task.features), positions], dim=1))  # (N, D)
        for layer in self.layers:
            hidden = layer(hidden, self.pairs)
        return self.readout(hidden)


class SpectralEncoding(nn.Module):
    """A Transformer over the eigenpairs (φ_i, λ_i) of each node, summed."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.embed = nn.Linear(2, dim)
        # differs from the published code: a feed-forward width of 4 P, not torch's 2048 for tokens of width 16
        self.transformer = nn.TransformerEncoderLayer(dim, num_heads, 4 * dim, batch_first=True)

    def forward(self, vectors: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """(N, m), (m,) -> (N, P)."""
        tokens = torch.stack([vectors, values.expand_as(vectors)], dim=2)  # (N, m, 2)
        return self.transformer(self.embed(tokens)).sum(dim=1)


class PairAttention(nn.Module):
    """Attention to neighbors, weighted 1 / (1 + γ), and to all others, weighted γ / (1 + γ)."""

    def __init__(self, dim: int, num_heads: int, gamma: float):
        super().__init__()
        self.gamma = gamma
        self.project = Projections(dim, num_heads, 3 if gamma == 0 else 5)
        # The graphs have no edge features, so E e_ij is one vector for all edges and another for all non-edges.
        self.kinds = nn.ModuleList(Kind(dim, num_heads) for _ in range(1 if gamma == 0 else 2))

    def forward(self, hidden: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        """(N, D) -> (N, D)."""
        value, query, key, *others = self.project(hidden)
        attended = attend_edges(self.kinds[0](query), key, value, pairs)
        if others:
            query, key = others
            attended = attended + self.gamma * attend_non_edges(self.kinds[1](query), key, value, pairs)
        return attended.flatten(1) / (1 + self.gamma)


class Kind(nn.Module):
    """E e: the embedding of one kind of pair, which scales the products of queries and keys."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(dim))
        self.project = nn.Linear(dim, dim, bias=False)
        self.num_heads = num_heads

    def forward(self, query: torch.Tensor) -> torch.Tensor:
        """(N, H, d) -> (N, H, d); scaling the queries scales the products."""
        return query * self.project(self.embedding).view(self.num_heads, -1)


# The published code normalizes edges and non-edges together, which drowns a node's few edges in N non-edges; the
# paper's equation takes a softmax over each, and so do these two. Neither clamps scores, as softmax does not overflow.
def attend_edges(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """Σ_j softmax_j(q_i·k_j / √d) v_j over the neighbors j of i, (N, H, d) each; zero without neighbors."""
    scores = edge_scores(query, key, pairs.edge_index)  # (2E, H)
    return sum_neighbors(softmax(scores, pairs.edge_index[0], num_nodes=len(query)), value, pairs.edge_index)


def attend_non_edges(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """Σ_j softmax_j(q_i·k_j / √d) v_j over all others j that are no neighbors of i; zero where there are none."""
    attended = attend(query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), pairs.bias)  # (H, N, d)
    return attended.transpose(0, 1) * pairs.has_non_edge


def split_pairs(edge_index: torch.Tensor, num_nodes: int) -> Pairs:
    """Edges and non-edges of a graph of `num_nodes` nodes."""
    bias = empty_rows(num_nodes, num_nodes, device=edge_index.device).zero_()
    bias[edge_index[0], edge_index[1]] = -math.inf
    has_non_edge = torch.bincount(edge_index[0], minlength=num_nodes) < num_nodes - 1
    # a row of −∞ alone would give NaN: such a node attends itself, times 0
    bias.diagonal().copy_(torch.where(has_non_edge, -math.inf, 0.0))
    return Pairs(edge_index, bias, has_non_edge.float()[:, None, None])


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set: the published model, and shallow ones, of which one drops inputs."""
    shallow = {"num_layers": 3, "hidden_dim": 128, "lr": 1e-3, "dropout": 0.5, "weight_decay": 5e-4}
    fast = {**shallow, "num_layers": 2, "lr": 5e-3}
    return [{}, shallow, fast, {**fast, "input_dropout": 0.5}]
