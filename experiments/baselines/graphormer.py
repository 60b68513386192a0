"""Graphormer (Ying et al., "Do Transformers Really Perform Bad for Graph Representation?", NeurIPS 2021).

All nodes attend all nodes, with a bias by their distance; degrees are embedded; one virtual node sees everything.

Shapes: N nodes, n = N + 1 with the virtual node, B of them at a time, F features, D model width, H heads, d = D / H,
S kinds of pairs (distances up to the maximum, unreachable, virtual), C classes
"""

import math
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from experiments.baselines.method import FullBatch, Settings, Task
from experiments.baselines.transformer import attend, embedding, empty_rows

BLOCK = 1 << 25
"""Pairs that are looked up at a time."""
QUICK: Settings = {
    "hidden_dim": 32,
    "num_layers": 1,
    "num_heads": 1,
    "max_distance": 4,
    "dropout": 0.0,
    "lr": 5e-3,
    "warmup": 0,
}


class Graphormer(FullBatch):
    """The slim model of the paper, on one graph as one sequence."""

    def __init__(
        self,
        task: Task,
        hidden_dim: int = 80,
        num_layers: int = 12,
        num_heads: int = 8,
        max_distance: int = 20,
        max_degree: int = 511,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        lr: float = 2e-4,
        weight_decay: float = 0.01,
        warmup: int = 30,
    ):
        super().__init__(task)
        pairs = pair_kinds(shortest_paths(task.adjacency, max_distance), max_distance)
        self.pairs = torch.from_numpy(pairs).to(task.device)  # (n, n) uint8
        degrees = np.minimum(np.diff(task.adjacency.indptr), max_degree)
        self.degrees = torch.from_numpy(degrees.astype(np.int64)).to(task.device)  # (N,)
        self.embed = embedding(task.num_features, hidden_dim, input_dropout)
        self.embed_degree = nn.Embedding(max_degree + 1, hidden_dim)
        self.virtual = nn.Embedding(1, hidden_dim)
        # b: one value for each kind of pair and head, shared by all layers; edge features, which would add c_ij to
        # it, do not exist in these graphs
        self.bias = nn.Embedding(max_distance + 3, num_heads)  # (S, H)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(hidden_dim, num_heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_dim)
        self.classify = nn.Linear(hidden_dim, task.num_classes)
        self._initialize(num_layers)
        self.to(task.device)
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=lr, weight_decay=weight_decay)
        # differs from the paper: no decay after the warm-up, since early stopping leaves the number of steps open
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / (warmup + 1))
        )

    def _initialize(self, num_layers: int) -> None:
        """Small normal weights, smaller in deep models."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02 / math.sqrt(num_layers))
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.BatchNorm1d):  # features as large as the embedding of degrees
                nn.init.constant_(module.weight, 0.02)

    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""
        nodes = self.embed(self.task.features) + self.embed_degree(self.degrees)  # (N, D)
        hidden = self.dropout(torch.cat([nodes, self.virtual.weight]))  # (n, D)
        bias = pair_bias(self.bias.weight, self.pairs)  # (H, n, n)
        for layer in self.layers:
            hidden = layer(hidden, bias)
        return self.classify(self.norm(hidden[:-1]))

    def train_epoch(self) -> None:
        """One step, and one of the warm-up."""
        super().train_epoch()
        self.schedule.step()


class Layer(nn.Module):
    """Biased attention and feed-forward network, LayerNorm before each."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(dim)
        self.project = nn.Linear(dim, 3 * dim)
        self.after_attention = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(dropout))
        self.attention_dropout = dropout
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """(n, D), (H, n, n) -> (n, D)."""
        projected = self.project(self.attention_norm(hidden)).view(len(hidden), 3, self.num_heads, -1)
        query, key, value = projected.permute(1, 2, 0, 3)  # (H, n, d) each
        attended = attend(query, key, value, bias, self.attention_dropout if self.training else 0.0)  # (H, n, d)
        hidden = hidden + self.after_attention(attended.transpose(0, 1).flatten(1))
        return hidden + self.feed_forward(hidden)


def pair_bias(bias: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """bias[pairs], (S, H), (n, n) -> (H, n, n)."""
    return _PairBias.apply(bias, pairs)


class _PairBias(torch.autograd.Function):
    """The lookup, some rows at a time.

    The gradient is a product with one-hot rows: an embedding's own would add millions of values into S places.
    """

    @staticmethod
    def forward(ctx: Any, bias: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(pairs)
        ctx.num_kinds = len(bias)
        found = empty_rows(bias.shape[1], *pairs.shape, device=pairs.device, dtype=bias.dtype)
        by_head = bias.T.to(found.dtype, memory_format=torch.contiguous_format)  # (H, S)
        for rows in _blocks(pairs):
            found[:, rows] = by_head.index_select(1, pairs[rows].flatten().int()).view(-1, *pairs[rows].shape)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (pairs,) = ctx.saved_tensors
        kinds = torch.arange(ctx.num_kinds, dtype=pairs.dtype, device=pairs.device)
        total: Any = 0
        for rows in _blocks(pairs):
            one_hot = grads[0].new_empty(ctx.num_kinds, pairs[rows].numel())
            torch.eq(pairs[rows].flatten(), kinds[:, None], out=one_hot)  # (S, B n), without a copy as booleans
            part = one_hot @ grads[0][:, rows].flatten(1).T  # (S, H), rounded on a GPU; the blocks are not when summed
            total = total + (part.float() if part.is_cuda else part)
        return total, None


def _blocks(pairs: torch.Tensor) -> Iterator[slice]:
    """Slices of rows with about BLOCK pairs each."""
    size = max(1, BLOCK // len(pairs))
    for start in range(0, len(pairs), size):
        yield slice(start, start + size)


def shortest_paths(adjacency: sp.csr_array, maximum: int) -> np.ndarray:
    """Edges between every two nodes, at most `maximum`, and maximum + 1 where there is no path: (N, N) uint8."""
    if maximum > 252:
        raise ValueError(f"distances are kept in a byte: at most 252, not {maximum}")
    distances = np.full(adjacency.shape, maximum + 1, dtype=np.uint8)
    _search(adjacency.indptr, adjacency.indices, maximum, distances)
    return distances


@numba.njit(parallel=True, nogil=True, cache=True)
def _search(indptr, indices, maximum, distances):
    """Breadth-first search from every node; `distances` holds maximum + 1 at first."""
    num_nodes = len(indptr) - 1
    for source in numba.prange(num_nodes):
        row = distances[source]
        row[source] = 0
        queue = np.empty(num_nodes, dtype=np.int32)
        queue[0] = source
        begin, end, depth = 0, 1, 0
        while begin < end:  # one level at a time
            depth = min(depth + 1, maximum)
            level_end = end
            for position in range(begin, level_end):
                node = queue[position]
                for neighbor in indices[indptr[node] : indptr[node + 1]]:
                    if row[neighbor] > maximum:
                        row[neighbor] = depth
                        queue[end] = neighbor
                        end += 1
            begin = level_end


def pair_kinds(distances: np.ndarray, maximum: int) -> np.ndarray:
    """Distances with the virtual node as last row and column, whose pairs are kind maximum + 2: (n, n) uint8."""
    return np.pad(distances, (0, 1), constant_values=maximum + 2)


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set: the published model, also faster, and shallow ones, of which one drops inputs."""
    shallow = {"num_layers": 2, "num_heads": 4, "lr": 5e-3, "dropout": 0.5}
    return [
        {},
        {"lr": 1e-3, "dropout": 0.3},
        {**shallow, "hidden_dim": 64},
        {**shallow, "hidden_dim": 128, "input_dropout": 0.5},
    ]
