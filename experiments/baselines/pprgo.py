"""PPRGo (Bojchevski et al., KDD 2020): the class scores of a node's top k nodes by PageRank, summed with its weights.

Shapes: N nodes, S nodes pushed, B nodes in a batch, k nodes kept of each, U distinct nodes among them, F features,
C classes
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from experiments.baselines.method import Method, Settings, Task, to_torch

INFERENCE_BATCH = 10_000
"""Nodes that go through the network at a time when all do: it may be far wider than the features."""
QUICK: Settings = {"batch_size": 2048, "lr": 0.03}
"""Few, large batches."""

Push = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From source nodes (S,) to the nodes kept of each, (S, k) int64, and their weights, (S, k) float32."""


def push_pagerank(
    adjacency: sp.csr_array, sources: np.ndarray, alpha: float, epsilon: float, topk: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each source's approximate personalized PageRank (Algorithm 1; Andersen et al., 2006).

    Each entry is short of the exact one by at most ε·deg(v), and never above it. Where fewer than k nodes are reached,
    the source fills the row, with score 0.

    Returns:
        Nodes, (S, k) int64, in no order, and their scores, (S, k) float32.
    """
    return push_each(_push_some, adjacency, sources, topk, alpha, epsilon)


def push_each(
    push: Callable[..., None], adjacency: sp.csr_array, sources: np.ndarray, topk: int, *settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Push from parts of the sources, in as many threads as numba may have; nodes and scores, (S, k) each.

    A parallel loop in numba would do the same, but takes three times as long to compile.
    """
    topk = min(topk, adjacency.shape[0])
    sources = np.asarray(sources, dtype=np.int64)
    nodes, scores = np.repeat(sources[:, None], topk, axis=1), np.zeros((len(sources), topk), dtype=np.float32)
    num_threads = numba.get_num_threads()
    bounds = np.linspace(0, len(sources), 8 * num_threads + 1).astype(np.int64)
    with ThreadPoolExecutor(num_threads) as threads:
        parts = [slice(*pair) for pair in pairwise(bounds)]
        graph = adjacency.indptr, adjacency.indices
        work = [threads.submit(push, sources[part], *graph, *settings, nodes[part], scores[part]) for part in parts]
    for part in work:
        part.result()  # raises what the thread raised
    return nodes, scores


@numba.njit(cache=True, nogil=True)
def _push_some(sources, indptr, indices, alpha, epsilon, nodes, scores):
    num_nodes = len(indptr) - 1
    reserve, residual = np.zeros(num_nodes), np.zeros(num_nodes)
    queue, touched = np.empty(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    for row, source in enumerate(sources):
        count = _push(source, indptr, indices, alpha, epsilon, reserve, residual, queue, touched)
        keep_top(reserve, touched[:count], nodes[row], scores[row])
        for node in touched[:count]:
            reserve[node] = 0.0
            residual[node] = 0.0


@numba.njit(cache=True, nogil=True)
def _push(source, indptr, indices, alpha, epsilon, reserve, residual, queue, touched):
    """Fill `reserve`; give the number of nodes touched.

    A node is in the queue (a ring) exactly while its residual is at least α·ε·deg, so it is there at most once.
    """
    residual[source], touched[0], queue[0] = alpha, source, source
    num_touched, head, waiting = 1, 0, 1
    while waiting > 0:
        node = queue[head]
        head, waiting = (head + 1) % len(queue), waiting - 1
        mass, residual[node] = residual[node], 0.0
        reserve[node] += mass
        degree = indptr[node + 1] - indptr[node]
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            before = residual[other]
            after = before + (1 - alpha) * mass / degree
            residual[other] = after
            if before == 0.0 and reserve[other] == 0.0:
                touched[num_touched] = other
                num_touched += 1
            bound = alpha * epsilon * (indptr[other + 1] - indptr[other])
            if before < bound <= after:
                queue[(head + waiting) % len(queue)] = other
                waiting += 1
    return num_touched


@numba.njit(cache=True, nogil=True)
def keep_top(values, candidates, nodes, scores):
    """Write the candidates with the largest values above 0, and these, over the entries of `nodes` and `scores`.

    The scores are a heap with the smallest first, at the start all zero.
    """
    for node in candidates:
        value = np.float32(values[node])
        if value <= scores[0]:
            continue
        place, child = 0, 1
        while child < len(scores):
            if child + 1 < len(scores) and scores[child + 1] < scores[child]:
                child += 1
            if scores[child] >= value:
                break
            scores[place], nodes[place] = scores[child], nodes[child]
            place, child = child, 2 * child + 1
        scores[place], nodes[place] = value, node


class Pushed:
    """What was pushed so far, on the device."""

    def __init__(self, push: Push, num_nodes: int, device: str):
        self.push = push
        self.position = torch.full((num_nodes,), -1, device=device)  # of a node's row below
        self.nodes = torch.empty(0, 0, dtype=torch.int64, device=device)  # (S, k)
        self.weights = torch.empty(0, 0, device=device)  # (S, k)

    def add(self, sources: torch.Tensor) -> None:
        """Push from those sources that were not pushed yet."""
        new = sources[self.position[sources] < 0].unique()
        if len(new) == 0:
            return
        nodes, weights = (torch.from_numpy(part).to(new.device) for part in self.push(new.cpu().numpy()))
        self.position[new] = torch.arange(len(self.nodes), len(self.nodes) + len(new), device=new.device)
        self.nodes = torch.cat([self.nodes.reshape(-1, nodes.shape[1]), nodes])
        self.weights = torch.cat([self.weights.reshape(-1, nodes.shape[1]), weights])

    def rows(self, sources: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Nodes and weights of sources that were pushed, (B, k) each."""
        position = self.position[sources]
        return self.nodes[position], self.weights[position]


class PPRGo(Method):
    """Scores from a small network on each node alone, summed over the top k by personalized PageRank.

    Args:
        alpha: chance that the walk returns to its source.
        epsilon: bound of the push.
        num_steps: power iterations at inference.
    """

    def __init__(
        self,
        task: Task,
        alpha: float = 0.25,
        epsilon: float = 1e-4,
        topk: int = 32,
        hidden_dim: int = 32,
        num_layers: int = 2,
        dropout: float = 0.1,
        lr: float = 5e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 512,
        num_steps: int = 2,
    ):
        super().__init__(task)
        self.alpha, self.epsilon, self.topk = alpha, epsilon, topk
        self.batch_size, self.num_steps = batch_size, num_steps
        self.pushed = Pushed(self._push, task.num_nodes, task.device)
        self.pushed.add(torch.cat([task.splits["train"], task.splits["val"]]))
        widths = [task.num_features] + [hidden_dim] * (num_layers - 1) + [task.num_classes]
        self.layers = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def _push(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nodes, scores = push_pagerank(self.task.adjacency, sources, self.alpha, self.epsilon, self.topk)
        roots = np.sqrt(np.maximum(np.diff(self.task.adjacency.indptr), 1)).astype(np.float32)
        return nodes, scores * roots[sources, None] / roots[nodes]

    def local(self, features: torch.Tensor) -> torch.Tensor:
        """Class scores from a node's own features, (U, F) -> (U, C)."""
        hidden = features
        for number, layer in enumerate(self.layers):
            hidden = layer(self.dropout(torch.relu(hidden) if number else hidden))
        return hidden

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of nodes that were pushed, (B,) -> (B, C)."""
        kept, weights = self.pushed.rows(nodes)  # (B, k) each
        distinct, position = kept.unique(return_inverse=True)  # (U,), (B, k)
        # differs from the paper: nodes kept for several of the batch go through the network, and its dropout, once
        local = self.local(self.task.features[distinct])  # (U, C)
        return (weights[..., None] * F.embedding(position, local)).sum(dim=1)  # (B, k, C) -> (B, C)

    def train_epoch(self) -> None:
        """One step for each batch of training nodes."""
        train = self.task.splits["train"]
        for batch in train[torch.randperm(len(train), device=train.device)].split(self.batch_size):
            self.optimizer.zero_grad()
            F.cross_entropy(self(batch), self.task.labels[batch]).backward()
            self.optimizer.step()

    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, from the top k of each."""
        self.pushed.add(nodes)
        return self(nodes)

    def infer(self) -> torch.Tensor:
        """Class scores of all nodes, by power iteration on their own scores."""
        adjacency = to_torch(self.task.adjacency, self.task.device)
        degrees = torch.from_numpy(np.diff(self.task.adjacency.indptr)).to(self.task.device)
        scale = degrees.clamp(min=1).float().rsqrt()[:, None]  # D^-½ as a column: D^-½ A D^-½ itself is not needed
        local = scores = torch.cat([self.local(rows) for rows in self.task.features.split(INFERENCE_BATCH)])  # (N, C)
        for _ in range(self.num_steps):
            scores = (1 - self.alpha) * scale * (adjacency @ (scale * scores)) + self.alpha * local
        return scores


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set, the published setting first."""
    return [
        {"alpha": 0.5} if dataset == "reddit" else {},
        {"hidden_dim": 64, "dropout": 0.5},
        {"hidden_dim": 64, "dropout": 0.5, "alpha": 0.1, "topk": 64},
        {"hidden_dim": 64, "dropout": 0.5, "alpha": 0.5},
    ]
