"""GRAND+ (Feng et al., WWW 2022): random propagation over each node's top k, and consistency between two draws of it.

Shapes: N nodes, S nodes pushed, B nodes in a batch, k nodes kept of each, L steps of propagation, R augmentations,
F features, C classes
"""

from itertools import pairwise

import numba
import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional as F

from experiments.baselines.method import Method, Settings, Task, to_torch
from experiments.baselines.pprgo import INFERENCE_BATCH, Pushed, keep_top, push_each

QUICK: Settings = {"batch_size": 1024, "order": 4, "topk": 8, "weight_decay": 1e-4, "lr": 0.03, "warmup": 100}
"""Few and large batches, of few neighbors."""


def coefficients(mode: str, order: int, alpha: float = 0.2) -> np.ndarray:
    """Weights of the powers 0 to L of the propagation, (L+1,), that add up to 1.

    Args:
        mode: `ppr` for α(1−α)^i, `avg` for equal ones, `single` for the last alone.
        order: L.
        alpha: of `ppr`.
    """
    steps = np.arange(order + 1)
    choices = {"ppr": (1 - alpha) ** steps, "avg": np.ones(order + 1), "single": (steps == order).astype(np.float64)}
    if mode not in choices:
        raise ValueError(f"mode is {mode!r}, not one of {', '.join(choices)}")
    return choices[mode] / choices[mode].sum()


def push_generalized(
    adjacency: sp.csr_array, sources: np.ndarray, weights: np.ndarray, r_max: float, topk: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each source's row of Σ_i w_i P^i, P = D̃^-1 (A + I), approximately (GFPush, Algorithm 1).

    The entry of v is short of the exact one by at most Σ_i w_i · i · r_max · (deg(v) + 1), and never above it. Where
    fewer than k nodes are reached, the source fills the row, with score 0.

    Returns:
        Nodes, (S, k) int64, in no order, and their scores, (S, k) float32.
    """
    return push_each(_push_some, adjacency, sources, topk, weights, r_max)


@numba.njit(cache=True, nogil=True)
def _push_some(sources, indptr, indices, weights, r_max, nodes, scores):
    num_nodes = len(indptr) - 1
    reserve, mass = np.zeros(num_nodes), np.zeros((2, num_nodes))
    reached, front = np.empty(num_nodes, dtype=np.int64), np.empty((2, num_nodes), dtype=np.int64)
    for row, source in enumerate(sources):
        count = _push(source, indptr, indices, weights, r_max, reserve, mass, reached, front)
        keep_top(reserve, reached[:count], nodes[row], scores[row])
        for node in reached[:count]:
            reserve[node] = 0.0


@numba.njit(cache=True, nogil=True)
def _push(source, indptr, indices, weights, r_max, reserve, mass, reached, front):
    """Fill `reserve`; give the number of nodes reached. `mass` is zero before and after."""
    mass[0, source], front[0, 0] = 1.0, source
    num_front, num_reached = 1, 0
    for step in range(len(weights)):
        now, then, ahead = mass[step % 2], mass[1 - step % 2], front[1 - step % 2]
        num_ahead = 0
        for node in front[step % 2, :num_front]:
            share = now[node]
            now[node] = 0.0
            if weights[step] > 0:
                if reserve[node] == 0.0:
                    reached[num_reached] = node
                    num_reached += 1
                reserve[node] += weights[step] * share
            degree = indptr[node + 1] - indptr[node] + 1  # with the self-loop
            if step + 1 == len(weights) or share < r_max * degree:
                continue
            share /= degree
            num_ahead = _receive(node, share, then, ahead, num_ahead)
            for edge in range(indptr[node], indptr[node + 1]):
                num_ahead = _receive(indices[edge], share, then, ahead, num_ahead)
        num_front = num_ahead
    return num_reached


@numba.njit(cache=True, nogil=True)
def _receive(node, share, mass, front, num_front):
    if mass[node] == 0.0:
        front[num_front] = node
        num_front += 1
    mass[node] += share
    return num_front


def random_propagation(
    features: torch.Tensor, nodes: torch.Tensor, weights: torch.Tensor, rate: float, training: bool
) -> torch.Tensor:
    """Mean features of the nodes left by DropNode, (N, F), (B, k), (B, k) -> (B, F); zero where none is left."""
    weights = F.dropout(weights, rate, training)  # (B, k)
    # differs from the paper: divided by the weights that are left, as its authors' code does
    weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-12)
    return F.embedding_bag(nodes, features, per_sample_weights=weights, mode="sum")


def sharpen(probabilities: torch.Tensor, temperature: float) -> torch.Tensor:
    """Probabilities to the power 1/T, made to add up to 1 again, (…, C) -> (…, C)."""
    return torch.softmax(torch.log(probabilities.clamp(min=1e-30)) / temperature, dim=-1)


def consistency(log_probabilities: torch.Tensor, temperature: float, confidence: float, distance: str) -> torch.Tensor:
    """Mean distance of each augmentation to their sharpened mean, over the nodes whose mean is confident.

    Args:
        log_probabilities: (R, B, C).
        temperature: below 1 to sharpen.
        confidence: that the largest class probability of the mean must exceed.
        distance: `l2` (squared), or `kl` from the sharpened mean.
    """
    mean = log_probabilities.exp().mean(dim=0)  # (B, C)
    target = sharpen(mean, temperature).detach()
    if distance == "l2":
        distances = (log_probabilities.exp() - target).square().sum(dim=-1)  # (R, B)
    elif distance == "kl":
        distances = F.kl_div(log_probabilities, target.expand_as(log_probabilities), reduction="none").sum(dim=-1)
    else:
        raise ValueError(f"distance is {distance!r}, neither l2 nor kl")
    confident = mean.max(dim=1).values > confidence  # (B,)
    return (distances.mean(dim=0) * confident).sum() / confident.sum().clamp(min=1)


class Network(nn.Module):
    """Dense layers, each after dropout and, where asked for, scaling of rows to length 1 and batch normalization."""

    def __init__(self, widths: list[int], input_dropout: float, dropout: float, node_norm: bool, batch_norm: bool):
        super().__init__()
        self.node_norm = node_norm
        self.linears = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(in_dim) if batch_norm else nn.Identity() for in_dim in widths[:-1])
        self.dropouts = nn.ModuleList(nn.Dropout(dropout if number else input_dropout) for number in range(len(widths)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Class scores, (B, F) -> (B, C)."""
        hidden = features
        for number, linear in enumerate(self.linears):
            hidden = torch.relu(hidden) if number else hidden
            hidden = F.normalize(hidden) if self.node_norm else hidden
            hidden = linear(self.dropouts[number](self.norms[number](hidden)))
        return hidden


class GrandPlus(Method):
    """A dense network on randomly propagated features; two draws should give it the same classes.

    Args:
        mode: of the coefficients, `ppr`, `avg` or `single`.
        order: steps of propagation, L.
        alpha: of `ppr`.
        r_max: bound of the push.
        drop_node: chance that a kept node is left out of a draw.
        num_draws: augmentations, R.
        consistency_weight: λ, reached after `warmup` steps.
        distance: of the consistency, `l2` or `kl`.
        num_unlabeled: nodes without labels that are pushed, at most.
        clip_norm: of the gradient; none if not positive.
    """

    def __init__(
        self,
        task: Task,
        mode: str = "ppr",
        order: int = 10,
        alpha: float = 0.2,
        r_max: float = 1e-7,
        topk: int = 32,
        hidden_dim: int = 64,
        num_layers: int = 2,
        input_dropout: float = 0.5,
        dropout: float = 0.7,
        node_norm: bool = False,
        batch_norm: bool = False,
        drop_node: float = 0.5,
        num_draws: int = 2,
        consistency_weight: float = 1.5,
        warmup: int = 1000,
        temperature: float = 0.1,
        distance: str = "l2",
        lr: float = 0.01,
        weight_decay: float = 1e-3,
        clip_norm: float = -1.0,
        batch_size: int = 50,
        unlabeled_batch_size: int = 100,
        num_unlabeled: int = 10_000,
    ):
        super().__init__(task)
        self.coefficients = coefficients(mode, order, alpha)
        self.r_max, self.topk = r_max, topk
        self.drop_node, self.num_draws = drop_node, num_draws
        self.consistency_weight, self.warmup = consistency_weight, warmup
        self.temperature, self.distance = temperature, distance
        self.clip_norm, self.batch_size, self.unlabeled_batch_size = clip_norm, batch_size, unlabeled_batch_size
        self.num_steps = 0

        train, val = task.splits["train"], task.splits["val"]
        known = torch.zeros(task.num_nodes, dtype=torch.bool, device=task.device)
        known[torch.cat([train, val])] = True
        others = torch.nonzero(~known).flatten()
        self.unlabeled = others[torch.randperm(len(others), device=others.device)[:num_unlabeled]]
        self.pushed = Pushed(self._push, task.num_nodes, task.device)
        self.pushed.add(torch.cat([train, val, self.unlabeled]))

        widths = [task.num_features] + [hidden_dim] * (num_layers - 1) + [task.num_classes]
        self.network = Network(widths, input_dropout, dropout, node_norm, batch_norm)
        self.to(task.device)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr, weight_decay=weight_decay)

    def _push(self, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return push_generalized(self.task.adjacency, sources, self.coefficients, self.r_max, self.topk)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of nodes that were pushed, from one draw, (B,) -> (B, C)."""
        kept, weights = self.pushed.rows(nodes)  # (B, k) each
        return self.network(random_propagation(self.task.features, kept, weights, self.drop_node, self.training))

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of training nodes, and consistency on as many unlabeled ones as a batch has of them."""
        picked = self.unlabeled[torch.randperm(len(self.unlabeled), device=batch.device)[: self.unlabeled_batch_size]]
        nodes = torch.cat([batch, picked])
        draws = torch.stack([self(nodes) for _ in range(self.num_draws)]).log_softmax(dim=-1)  # (R, B, C)
        labeled, unlabeled = draws.split([len(batch), len(picked)], dim=1)
        supervised = F.nll_loss(labeled.flatten(0, 1), self.task.labels[batch].repeat(self.num_draws))
        weight = self.consistency_weight * min(1.0, self.num_steps / self.warmup)
        confidence = 2 / self.task.num_classes
        return supervised + weight * consistency(unlabeled, self.temperature, confidence, self.distance)

    def train_epoch(self) -> None:
        """One step for each batch of training nodes."""
        train = self.task.splits["train"]
        for batch in train[torch.randperm(len(train), device=train.device)].split(self.batch_size):
            self.optimizer.zero_grad()
            self.loss(batch).backward()
            if self.clip_norm > 0:
                nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
            self.optimizer.step()
            self.num_steps += 1

    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, from the top k of each."""
        self.pushed.add(nodes)
        return self(nodes)

    def infer(self) -> torch.Tensor:
        """Class scores of all nodes, from the exact propagation, by power iteration."""
        adjacency = to_torch(self.task.adjacency, self.task.device)
        degrees = torch.from_numpy(np.diff(self.task.adjacency.indptr)).to(self.task.device)
        walked = self.task.features  # (N, F)
        first, *others = self.coefficients.tolist()
        total = first * walked
        for weight in others:
            walked = (adjacency @ walked).add_(walked).div_(degrees[:, None] + 1)  # P = D̃^-1 (A + I)
            total.add_(walked, alpha=weight)
        return torch.cat([self.network(rows) for rows in total.split(INFERENCE_BATCH)])


LARGE: dict[str, Settings] = {
    "aminer": {
        "order": 6,
        "alpha": 0.1,
        "r_max": 1e-5,
        "topk": 64,
        "num_layers": 1,
        "weight_decay": 0.01,
    },
    "reddit": {
        "order": 6,
        "alpha": 0.05,
        "r_max": 1e-5,
        "topk": 64,
        "hidden_dim": 512,
        "lr": 1e-4,
        "clip_norm": 0.1,
    },
    "amazon2m": {
        "order": 6,
        "alpha": 0.2,
        "r_max": 1e-6,
        "topk": 64,
        "hidden_dim": 1024,
        "lr": 1e-3,
        "consistency_weight": 0.8,
    },
}
"""Published for the paper's large graphs, with 20 labels a class."""


def published(dataset: str) -> Settings:
    """The published setting, for 20 labels a class, but for the sizes of batches; Cora's where there is none."""
    if dataset == "pubmed":
        network = {"num_layers": 1, "input_dropout": 0.2, "node_norm": True, "batch_norm": True}
        training = {"consistency_weight": 1.0, "warmup": 100, "weight_decay": 1e-2, "clip_norm": 0.1}
        return {"order": 6, "alpha": 0.5, "r_max": 1e-5, "topk": 16, **network, **training}
    if dataset == "citeseer":
        network = {"hidden_dim": 256, "input_dropout": 0.0, "dropout": 0.0}
        return {"order": 8, "alpha": 0.4, **network, "consistency_weight": 0.8, "lr": 1e-3}
    if dataset in LARGE:
        return LARGE[dataset]
    return {} if dataset == "cora" else {"r_max": 1e-5}  # denser graphs, where the published bound cuts off nothing


def settings(dataset: str) -> list[Settings]:
    """What is tried on a data set: the published setting first, then less regularization of wider networks."""
    # differs from the paper: it has batches of 50 labeled nodes (of 20 a class) and 100 unlabeled ones; the data sets
    # here have up to 20,000 labels
    sizes = {} if dataset in LARGE else {"batch_size": 512, "unlabeled_batch_size": 512}
    r_max = {"r_max": 1e-7 if dataset in ("cora", "citeseer") else 1e-5}
    wide = {**r_max, "hidden_dim": 256, "dropout": 0.5, "weight_decay": 1e-5, "lr": 1e-3, "warmup": 100}
    return [
        {**published(dataset), **sizes},
        {**wide, **sizes},
        {**wide, **sizes, "batch_norm": True, "node_norm": True},
        {**wide, **sizes, "mode": "avg", "order": 2},
    ]
