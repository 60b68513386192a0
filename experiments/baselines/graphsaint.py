"""GraphSAINT (Zeng et al., ICLR 2020): a complete GCN on subgraphs, weighted so that sampling does not bias it.

Shapes: N nodes, M directed edges (two for each undirected one), n nodes of a subgraph, m of its directed edges,
F features, D width, C classes
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from experiments.baselines.method import Method, Settings, Task, to_torch

QUICK: Settings = {"num_roots": 500, "coverage": 10}
"""Fewer subgraphs to count before the first epoch."""


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The edges among some nodes."""

    nodes: np.ndarray
    """Ascending, (n,)."""
    edges: sp.csr_array
    """For every edge its position in the whole adjacency, (n, n) int32 with m entries, one of which may be 0."""


class WalkSampler:
    """Subgraphs induced by the nodes that random walks from some roots visit (Algorithm 2)."""

    def __init__(self, adjacency: sp.csr_array, roots: np.ndarray, num_roots: int, walk_length: int, seed: int):
        positions = np.arange(adjacency.nnz, dtype=np.int32)
        self.edges = sp.csr_array((positions, adjacency.indices, adjacency.indptr), shape=adjacency.shape)
        self.degrees = np.diff(adjacency.indptr)
        self.roots = roots
        self.num_roots = num_roots
        self.walk_length = walk_length
        self.rng = np.random.default_rng(seed)

    def draw(self) -> Subgraph:
        """Walk from roots drawn uniformly, with replacement."""
        here = self.rng.choice(self.roots, size=self.num_roots)
        visited = np.zeros(len(self.degrees), dtype=bool)
        visited[here] = True
        for _ in range(self.walk_length):
            here = here[self.degrees[here] > 0]  # a walk from an isolated node ends there
            chosen = (self.rng.random(len(here)) * self.degrees[here]).astype(np.int64)
            here = self.edges.indices[self.edges.indptr[here] + chosen]
            visited[here] = True
        nodes = np.flatnonzero(visited)
        return Subgraph(nodes, self.edges[nodes][:, nodes])

    def cover(self, times: float) -> list[Subgraph]:
        """As many subgraphs as have each possible root `times` times on average."""
        is_root = np.zeros(len(self.degrees), dtype=bool)
        is_root[self.roots] = True
        subgraphs: list[Subgraph] = []
        num_covered = 0
        while num_covered < times * len(self.roots):
            subgraphs.append(self.draw())
            num_covered += is_root[subgraphs[-1].nodes].sum()
        return subgraphs


def count(subgraphs: Sequence[Subgraph], adjacency: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """In how many subgraphs each node and each directed edge is, (N,) and (M,); at least one each.

    What was in none may be in a later one, and must have a finite weight there.
    """
    node_counts, edge_counts = np.zeros(adjacency.shape[0]), np.zeros(adjacency.nnz)
    for subgraph in subgraphs:
        node_counts[subgraph.nodes] += 1
        edge_counts[subgraph.edges.data] += 1
    return np.maximum(node_counts, 1), np.maximum(edge_counts, 1)


def aggregator_weights(node_counts: np.ndarray, edge_counts: np.ndarray, adjacency: sp.csr_array) -> np.ndarray:
    """(D^-1 A)_vu / α_uv with α_uv = C_uv / C_v, for each edge to v (the row) from u (the column), (M,)."""
    degrees = np.diff(adjacency.indptr)
    rows = np.repeat(np.arange(len(degrees)), degrees)
    return node_counts[rows] / edge_counts / degrees[rows]


def loss_weights(node_counts: np.ndarray, num_subgraphs: int, train: np.ndarray) -> np.ndarray:
    """1 / λ_v, (N,): λ_v = T · C_v / S for each of T training nodes, from S subgraphs; 0 for the other nodes."""
    weights = np.zeros(len(node_counts))
    weights[train] = num_subgraphs / (len(train) * node_counts[train])
    return weights


class Layer(nn.Module):
    """Of order 0: a dense layer. Of order 1: that, and beside it one on the aggregated neighbors."""

    def __init__(self, in_dim: int, out_dim: int, order: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        linears = [nn.Linear(in_dim, out_dim, bias=False) for _ in range(order + 1)]
        for linear in linears:
            nn.init.xavier_uniform_(linear.weight)
        self.linears = nn.ModuleList(linears)
        self.biases = nn.ParameterList(torch.zeros(out_dim) for _ in range(order + 1))
        self.norms = nn.ModuleList(nn.LayerNorm(out_dim, eps=1e-9) for _ in range(order + 1))

    def forward(self, adjacency: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """(n, n), (n, in) -> (n, (order + 1) · out)."""
        hidden = self.dropout(hidden)
        parts = []
        for order, (linear, bias, norm) in enumerate(zip(self.linears, self.biases, self.norms, strict=True)):
            part = linear(hidden)  # (n, in) -> (n, out); Ã (X W) is (Ã X) W, and cheaper
            part = adjacency @ part if order else part
            parts.append(norm(torch.relu(part + bias)))
        return torch.cat(parts, dim=1)


class GraphSAINT(Method):
    """Layers of order 1-0-1-0 trained on random-walk subgraphs, and applied to the whole graph.

    Args:
        orders: of each layer.
        num_roots: walks of a subgraph.
        coverage: how often a training node is counted, on average, to estimate the normalizations.
        clip_norm: of the gradient.
    """

    # differs from the paper: it trains on the graph of training nodes alone; the features and edges of the other nodes
    # are known here, so that walks from training nodes may visit them, and they only have no loss

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 128,
        orders: Sequence[int] = (1, 0, 1, 0),
        dropout: float = 0.1,
        num_roots: int = 2000,
        walk_length: int = 4,
        coverage: float = 50,
        lr: float = 0.01,
        weight_decay: float = 0.0,
        clip_norm: float = 5.0,
    ):
        super().__init__(task)
        self.clip_norm = clip_norm
        train = task.splits["train"].cpu().numpy()
        self.sampler = WalkSampler(task.adjacency, train, num_roots, walk_length, task.seed)
        self.waiting = self.sampler.cover(coverage)  # counted below, then the first to be trained on
        self.num_batches = math.ceil(len(train) / (num_roots * walk_length))

        node_counts, edge_counts = count(self.waiting, task.adjacency)
        self.edge_weights = aggregator_weights(node_counts, edge_counts, task.adjacency)  # (M,)
        weights = loss_weights(node_counts, len(self.waiting), train)
        self.loss_weights = torch.from_numpy(weights.astype(np.float32)).to(task.device)  # (N,)
        everything = aggregator_weights(np.ones(task.num_nodes), np.ones(task.adjacency.nnz), task.adjacency)
        self.whole = self._matrix(task.adjacency, everything)  # D^-1 A

        widths = [task.num_features] + [hidden_dim * (order + 1) for order in orders]
        self.layers = nn.ModuleList(
            Layer(in_dim, hidden_dim, order, dropout) for in_dim, order in zip(widths[:-1], orders, strict=True)
        )
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(widths[-1], task.num_classes)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def _matrix(self, pattern: sp.csr_array, weights: np.ndarray) -> torch.Tensor:
        return to_torch(sp.csr_array((weights, pattern.indices, pattern.indptr), pattern.shape), self.task.device)

    def forward(self, adjacency: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Class scores of the nodes of a (sub)graph, (n, n), (n, F) -> (n, C)."""
        hidden = features
        for layer in self.layers:
            hidden = layer(adjacency, hidden)
        return self.classifier(self.dropout(F.normalize(hidden)))

    def loss(self, subgraph: Subgraph) -> torch.Tensor:
        """Σ_v L_v / λ_v over the subgraph: on average the mean loss of the training nodes."""
        nodes = torch.from_numpy(subgraph.nodes).to(self.task.device)
        adjacency = self._matrix(subgraph.edges, self.edge_weights[subgraph.edges.data])
        scores = self(adjacency, self.task.features[nodes])
        losses = F.cross_entropy(scores, self.task.labels[nodes], ignore_index=-1, reduction="none")  # (n,)
        return self.loss_weights[nodes] @ losses

    def train_epoch(self) -> None:
        """Steps on as many subgraphs as their walks need to make a step for every training node."""
        for _ in range(self.num_batches):
            subgraph = self.waiting.pop() if self.waiting else self.sampler.draw()
            self.optimizer.zero_grad()
            self.loss(subgraph).backward()
            nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
            self.optimizer.step()

    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, from a pass over the whole graph."""
        return self(self.whole, self.task.features)[nodes]


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set: the published setting for Reddit first."""
    return [
        {},
        {"dropout": 0.5},
        {"dropout": 0.5, "num_roots": 500},  # these graphs are small, and most of one is in a published subgraph
        {"dropout": 0.5, "hidden_dim": 256, "lr": 1e-3},
    ]
