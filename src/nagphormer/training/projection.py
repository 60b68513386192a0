"""Project first: embed the features, then propagate, inside the training step (exact, since (Â^k X) E = Â^k (X E)).

For wide sparse features on a small graph this needs neither the stored tokens nor products with their full width.
Standardizing survives as a rank-one correction, row scaling as a factor of each row.

Shapes: N nodes, B nodes in a batch, K hops, F features, s encoding columns, D model width, W = D padded to LANES
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from nagphormer.data.graph import Graph
from nagphormer.device import kind
from nagphormer.model.embedding import Embedding, HopMaps
from nagphormer.tokens.engine import LANES, Csr, engine, round_up
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.training.batches import Batch, TokenSource, on_device


class ProjectedTokens:
    """Embedded tokens straight from the graph: the features' projection, propagated."""

    projects_first = True
    components: np.ndarray | None = None

    def __init__(self, graph: Graph, hops: int, columns: Columns, encoding: np.ndarray | None, device: str):
        self.num_nodes, self.hops, self.device = graph.num_nodes, hops, device
        self.width = columns.width
        self.statistics, self.encoding = columns.statistics(), encoding
        degrees = loop_degrees(graph)  # (N,)
        self._root = torch.from_numpy(np.sqrt(degrees).astype(np.float32)).to(device)
        self._average = engine(device).NeighborSum(graph, 1.0 / degrees, loop=True, device=device)  # D̃^-1 (A+I)
        self._features = columns.num_features
        features, mean, std = columns.affine_parts()
        self._rows = _product(features, device)
        self._transposed = _product(sp.csr_array(features.T), device)
        self._scale = torch.from_numpy((1 / std).astype(np.float32)).to(device)  # (F,)
        self._shift = torch.from_numpy((mean / std).astype(np.float32)).to(device)  # (F,)
        self._encoding = None if encoding is None else torch.from_numpy(np.array(encoding)).to(device)  # (N, s)
        self._rooms: dict[tuple[str | int, ...], torch.Tensor] = {}

    def batches(self, nodes: Sequence[torch.Tensor]) -> Iterator[Batch]:
        """Positions alone, on the device."""
        return on_device(nodes, self.device)

    def in_training(self, epoch: int) -> TokenSource:
        """Itself."""
        return self

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, (B, K+1, D).

        Without gradients one propagation serves all batches.
        """
        if torch.is_grad_enabled():
            return lambda batch: _cast(_Embed.apply(embedding.drawn_weight(), batch.nodes, self) + embedding.bias)
        hops = self._propagate(embedding.drawn_weight())
        return lambda batch: _cast(self._gather(hops, batch.nodes, embedding.out_features) + embedding.bias)

    def _propagate(self, weight: torch.Tensor) -> torch.Tensor:
        """D̃^-½ times the projection of every node after 0 … K hops, (K+1, N, W); in float32 also under autocast."""
        with torch.autocast(kind(self.device), enabled=False):
            return self._propagate_exactly(weight)

    def _propagate_exactly(self, weight: torch.Tensor) -> torch.Tensor:
        dim = weight.shape[0]
        hops = self._room("hops", self.hops + 1, self.num_nodes, round_up(dim, LANES))
        feature_weight, encoding_weight = weight.split([self._features, self.width - self._features], dim=1)
        scaled = self._room("weight", self._features, hops.shape[2])  # (F, W)
        scaled[:, :dim] = feature_weight.T * self._scale[:, None]
        self._rows(scaled, hops[0])
        projected = hops[0, :, :dim]
        projected -= self._shift @ feature_weight.T
        if self._encoding is not None:
            projected += self._encoding @ encoding_weight.T
        projected /= self._root[:, None]
        for hop in range(self.hops):
            self._average(hops[hop], hops[hop + 1])
        return hops

    def _gather(self, hops: torch.Tensor, nodes: torch.Tensor, dim: int) -> torch.Tensor:
        """(K+1, N, W) -> (B, K+1, D)."""
        return (hops[:, nodes, :dim] * self._root[nodes, None]).transpose(0, 1)

    def _pull_back(self, gradient: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Gradient of the weight, (D, F+s), from that of a batch's embedded tokens, (B, K+1, D).

        With h = D̃^-1 · ∂/∂y the adjoint of y ↦ D̃^-1 (A+I) y is the same map on h.
        """
        dim = gradient.shape[2]
        here, there = self._room("back", 2, self.num_nodes, round_up(dim, LANES))
        here.zero_()
        share = (gradient / self._root[nodes, None, None]).transpose(0, 1)  # (K+1, B, D)
        for hop in range(self.hops, 0, -1):
            here[:, :dim].index_add_(0, nodes, share[hop])
            self._average(here, there)
            here, there = there, here
        here[:, :dim].index_add_(0, nodes, share[0])
        here *= self._root[:, None]  # ∂/∂(X E), (N, W)
        room = self._room("weight", self._features, here.shape[1])  # (F, W)
        self._transposed(here, room)
        projected = here[:, :dim]
        feature_gradient = room[:, :dim] * self._scale[:, None] - self._shift[:, None] * projected.sum(0)
        parts = [feature_gradient.T]
        if self._encoding is not None:
            parts.append(projected.T @ self._encoding)
        return torch.cat(parts, dim=1)

    def _room(self, name: str, *shape: int) -> torch.Tensor:
        """Memory that is used again in the next step; fresh pages cost more than the sums."""
        if (name, *shape) not in self._rooms:  # those of other widths stay: a captured step may write to them
            self._rooms[name, *shape] = torch.zeros(shape, device=self.device)
        return self._rooms[name, *shape]


class _Embed(torch.autograd.Function):
    """Weight (D, F+s) and node positions (B,) to embedded tokens (B, K+1, D)."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, nodes: torch.Tensor, source: ProjectedTokens) -> torch.Tensor:
        ctx.nodes, ctx.source = nodes, source
        return source._gather(source._propagate(weight), nodes, weight.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.source._pull_back(gradient, ctx.nodes), None, None


def _product(matrix: sp.csr_array, device: str) -> Any:
    """The map y ↦ matrix · y."""
    parts = Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
    return engine(device).NeighborSum(parts, np.ones(matrix.shape[0]), loop=False, device=device)


def _cast(hidden: torch.Tensor) -> torch.Tensor:
    """What a linear layer would give: the autocast type where it is on."""
    where = hidden.device.type
    return hidden.to(torch.get_autocast_dtype(where)) if torch.is_autocast_enabled(where) else hidden
