"""Attention along edges on a CPU, where it is summed without a row for every edge.

torch_geometric gathers the sources' values for every edge and scatters them to the targets. On Photo, with 512 columns,
that takes 40 times as long.

Shapes: N nodes, M directed edges with a self-loop a node, H heads, K width of a head
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
import torch

LOWEST = np.finfo(np.float32).min

compiled = numba.njit(parallel=True, fastmath=True, cache=True, nogil=True)


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Every node's neighbors and itself, of a symmetric adjacency."""

    starts: np.ndarray
    """Where a node's edges begin, (N+1,)."""
    sources: np.ndarray
    """The other end of every edge, (M,)."""
    back: np.ndarray
    """The edge in the other direction, (M,)."""


def neighbors(adjacency: sp.csr_array) -> Neighbors:
    """Of a symmetric adjacency without self-loops, to which they are added."""
    looped = (adjacency + sp.eye_array(adjacency.shape[0], format="csr")).tocsr()
    looped.sort_indices()
    places = sp.csr_array((np.arange(looped.nnz), looped.indices, looped.indptr), shape=looped.shape)
    return Neighbors(looped.indptr, looped.indices, places.T.tocsr().data)


def attend(
    along: Neighbors, source: torch.Tensor, target: torch.Tensor, values: torch.Tensor, slope: float = 0.2
) -> torch.Tensor:
    """Σ_j softmax_j(leaky_relu(source_j + target_i)) values_j over i's neighbors j (Veličković et al., equation 3).

    Args:
        along: the edges.
        source: (N, H).
        target: (N, H).
        values: (N, H, K).
        slope: of negative scores.

    Returns:
        (N, H, K).
    """
    return _Attention.apply(along, source, target, values, slope)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, along: Neighbors, source: torch.Tensor, target: torch.Tensor, values: torch.Tensor, slope: float
    ) -> torch.Tensor:
        weights = torch.empty(len(along.sources), source.shape[1])  # (M, H)
        mixed = torch.empty_like(values, memory_format=torch.contiguous_format)
        arrays = [part.detach().contiguous().numpy() for part in (source, target, values)]
        _weigh(along.starts, along.sources, arrays[0], arrays[1], np.float32(slope), weights.numpy())
        _sum(along.starts, along.sources, np.arange(len(along.sources)), weights.numpy(), arrays[2], mixed.numpy())
        ctx.save_for_backward(source, target, values, weights)
        ctx.along, ctx.slope = along, slope
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor, torch.Tensor, None]:
        source, target, values, weights = (part.detach().contiguous().numpy() for part in ctx.saved_tensors)
        grad = grads[0].contiguous().numpy()
        along = ctx.along
        scores = np.empty_like(weights)  # the gradient of the scores, (M, H)
        to_source, to_target, to_values = np.empty_like(source), np.empty_like(target), np.empty_like(values)
        slope = np.float32(ctx.slope)
        _back(along.starts, along.sources, source, target, values, weights, grad, slope, scores, to_target)
        _sum(along.starts, along.sources, along.back, weights, grad, to_values)
        _sum_scores(along.starts, along.back, scores, to_source)
        return None, torch.from_numpy(to_source), torch.from_numpy(to_target), torch.from_numpy(to_values), None


@compiled
def _weigh(
    starts: np.ndarray, sources: np.ndarray, source: np.ndarray, target: np.ndarray, slope: float, weights: np.ndarray
) -> None:
    """The softmax of every edge's score over the edges of its target, (M, H)."""
    for node in numba.prange(len(starts) - 1):
        for head in range(source.shape[1]):
            highest = np.float32(LOWEST)
            for edge in range(starts[node], starts[node + 1]):
                score = source[sources[edge], head] + target[node, head]
                score = score if score > 0 else slope * score
                weights[edge, head] = score
                highest = max(highest, score)
            total = np.float32(0)
            for edge in range(starts[node], starts[node + 1]):
                weights[edge, head] = np.exp(weights[edge, head] - highest)
                total += weights[edge, head]
            for edge in range(starts[node], starts[node + 1]):
                weights[edge, head] /= total


@compiled
def _sum(
    starts: np.ndarray, others: np.ndarray, places: np.ndarray, weights: np.ndarray, values: np.ndarray, out: np.ndarray
) -> None:
    """Every node's weighted sum of the values at the other ends of its edges; weights are found at `places`."""
    for node in numba.prange(len(starts) - 1):
        out[node] = 0
        for edge in range(starts[node], starts[node + 1]):
            for head in range(values.shape[1]):
                weight = weights[places[edge], head]
                for column in range(values.shape[2]):
                    out[node, head, column] += weight * values[others[edge], head, column]


@compiled
def _back(
    starts: np.ndarray,
    sources: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    grad: np.ndarray,
    slope: float,
    scores: np.ndarray,
    to_target: np.ndarray,
) -> None:
    """Gradients of every edge's score before leaky_relu, (M, H), and of the targets' parts of them, (N, H)."""
    for node in numba.prange(len(starts) - 1):
        for head in range(values.shape[1]):
            mean = np.float32(0)
            for edge in range(starts[node], starts[node + 1]):
                product = np.float32(0)
                for column in range(values.shape[2]):
                    product += grad[node, head, column] * values[sources[edge], head, column]
                scores[edge, head] = product
                mean += weights[edge, head] * product
            to_target[node, head] = 0
            for edge in range(starts[node], starts[node + 1]):
                steepness = np.float32(1) if source[sources[edge], head] + target[node, head] > 0 else slope
                scores[edge, head] = steepness * weights[edge, head] * (scores[edge, head] - mean)
                to_target[node, head] += scores[edge, head]


@compiled
def _sum_scores(starts: np.ndarray, back: np.ndarray, scores: np.ndarray, out: np.ndarray) -> None:
    """Every node's sum over the edges that it is the source of, (N, H)."""
    for node in numba.prange(len(starts) - 1):
        out[node] = 0
        for edge in range(starts[node], starts[node + 1]):
            for head in range(scores.shape[1]):
                out[node, head] += scores[back[edge], head]
