"""What every method of the comparison is given, and what it has to do.

Shapes: N nodes, E undirected edges, B nodes in a batch, F features, C classes
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from nagphormer import Graph

MOSTLY_ZERO = 0.1
"""Share of features that are not zero up to which a CPU multiplies them faster as a sparse matrix: timed on Cora and CS
(1 %) by factors of 15 to 25, on Photo (35 %) it is slower."""

Settings = dict[str, Any]
"""Arguments of a method's constructor, beside the task."""


@dataclass(frozen=True, eq=False)
class Sparse:
    """Features most of which are zero, in CSR both ways round."""

    matrix: torch.Tensor
    """(N, F)."""
    transposed: torch.Tensor
    """(F, N)."""
    order: torch.Tensor
    """Where among the numbers of the matrix those of the transposed are."""

    def holding(self, values: torch.Tensor) -> "Sparse":
        """Other numbers in the same places."""
        return Sparse(_csr_like(self.matrix, values), _csr_like(self.transposed, values[self.order]), self.order)


Inputs = torch.Tensor | Sparse
"""Features as a linear map reads them."""


@dataclass(frozen=True, eq=False)
class Task:
    """A graph with labels and splits, as tensors on one device, and the seed of whatever is drawn."""

    graph: Graph
    device: str = "cpu"
    seed: int = 0

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.graph.num_nodes

    @property
    def num_features(self) -> int:
        """F."""
        return self.graph.num_features

    @property
    def num_classes(self) -> int:
        """C."""
        return self.graph.num_classes

    @cached_property
    def features(self) -> torch.Tensor:
        """Raw features, (N, F) float32, dense."""
        features = self.graph.features
        dense = features.toarray() if isinstance(features, sp.csr_array) else np.asarray(features)
        return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32)).to(self.device)

    @cached_property
    def row_normalized(self) -> torch.Tensor:
        """Features of every node divided by the sum of their sizes, (N, F): many settings were published for these."""
        return nn.functional.normalize(self.features, p=1)

    def load(self) -> None:
        """Bring features, labels and splits to the device now, so that no method does so when it trains."""
        for name in ("features", "labels", "splits"):
            getattr(self, name)

    def inputs(self, row_normalized: bool) -> torch.Tensor:
        """Features, raw or by rows, (N, F)."""
        return self.row_normalized if row_normalized else self.features

    def factors(self, row_normalized: bool = False) -> Inputs:
        """Features for methods that only multiply them: on a CPU in CSR where most of them are zero."""
        if self.device.startswith("cuda") or not self._is_mostly_zero:
            return self.inputs(row_normalized)
        matrix = sp.csr_array(self.graph.features, dtype=np.float32)  # (N, F)
        if row_normalized:
            sums = np.maximum(abs(matrix).sum(axis=1), 1e-12)  # as torch normalizes
            matrix = sp.diags_array(1 / sums).astype(np.float32) @ matrix
        return sparse(matrix)

    @property
    def _is_mostly_zero(self) -> bool:
        features = self.graph.features
        return isinstance(features, sp.csr_array) and features.nnz <= MOSTLY_ZERO * self.num_nodes * self.num_features

    @cached_property
    def labels(self) -> torch.Tensor:
        """Class of every node, (N,) int64, -1 where unknown."""
        return torch.from_numpy(np.asarray(self.graph.labels, dtype=np.int64)).to(self.device)

    @cached_property
    def splits(self) -> dict[str, torch.Tensor]:
        """Positions of `train`, `val` and `test`, each int64."""
        return {name: torch.from_numpy(np.array(nodes)).to(self.device) for name, nodes in self.graph.splits.items()}

    @cached_property
    def adjacency(self) -> sp.csr_array:
        """A, (N, N) float32: symmetric, of ones, without self-loops."""
        ones = np.ones(len(self.graph.indices), dtype=np.float32)
        return sp.csr_array((ones, self.graph.indices, self.graph.indptr), shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """Both directions of every edge, without self-loops, (2, 2E) int64."""
        sources = np.repeat(np.arange(self.num_nodes), np.diff(self.graph.indptr))
        edges = np.stack([sources, np.asarray(self.graph.indices)]).astype(np.int64)
        return torch.from_numpy(edges).to(self.device)

    @cached_property
    def propagation(self) -> torch.Tensor:
        """Â = D̃^-½ (A + I) D̃^-½, (N, N) sparse CSR."""
        return to_torch(normalized(self.adjacency), self.device)


class Method(nn.Module, ABC):
    """One method on one task; building it is its preparation.

    Torch's random state is seeded with the task's seed before; anything else is drawn from `task.seed`.
    """

    optimizer: torch.optim.Optimizer
    patience_from: int = 0
    """The epoch after which patience begins to run out."""

    def __init__(self, task: Task):
        super().__init__()
        self.task = task

    @abstractmethod
    def train_epoch(self) -> None:
        """Go once over the training nodes (in training mode)."""

    @abstractmethod
    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes for validation, (B,) -> (B, C); in evaluation mode, without gradients."""

    def validated(self, loss: float) -> None:
        """Take note of an epoch's validation loss, for a method whose learning rate follows it."""

    def infer(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C), as the method infers them in the end; as `logits` is called."""
        return self.logits(torch.arange(self.task.num_nodes, device=self.task.device))


class FullBatch(Method):
    """A method that takes one step an epoch, on the whole graph."""

    @abstractmethod
    def forward(self) -> torch.Tensor:
        """Class scores of all nodes, (N, C)."""

    def train_epoch(self) -> None:
        """One step on the mean cross-entropy of the training nodes."""
        train = self.task.splits["train"]
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self()[train], self.task.labels[train])
        loss.backward()
        self.optimizer.step()

    def logits(self, nodes: torch.Tensor) -> torch.Tensor:
        """Class scores of some nodes, from a pass over the whole graph."""
        return self()[nodes]


class _Product(torch.autograd.Function):
    """A sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, matrix: torch.Tensor, transposed: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        ctx.transposed = transposed
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, None, torch.Tensor]:
        return None, None, ctx.transposed @ grads[0]


def product(matrix: torch.Tensor, dense: torch.Tensor, transposed: torch.Tensor | None = None) -> torch.Tensor:
    """A sparse CSR matrix times a dense one; torch itself would transpose the matrix anew in every backward pass.

    Args:
        matrix: (N, N).
        dense: (N, D).
        transposed: of the matrix, where it is not symmetric.
    """
    return _Product.apply(matrix, matrix if transposed is None else transposed, dense)


def linear(layer: nn.Module, inputs: Inputs) -> torch.Tensor:
    """A layer's map of dense or sparse features, (N, F) -> (N, D)."""
    if isinstance(inputs, torch.Tensor):
        return layer(inputs)
    assert isinstance(layer, nn.Linear)
    mapped = multiplied(inputs, layer.weight.T)
    return mapped if layer.bias is None else mapped + layer.bias


def multiplied(inputs: Inputs, weight: torch.Tensor) -> torch.Tensor:
    """Dense or sparse features times a weight, (N, F) and (F, D) -> (N, D)."""
    if isinstance(inputs, torch.Tensor):
        return inputs @ weight
    return product(inputs.matrix, weight, inputs.transposed)


def dropped(inputs: Inputs, dropout: nn.Module) -> Inputs:
    """Features after dropout; of sparse ones only those that are not zero have to be drawn."""
    return dropout(inputs) if isinstance(inputs, torch.Tensor) else inputs.holding(dropout(inputs.matrix.values()))


def normalized(adjacency: sp.csr_array) -> sp.csr_array:
    """D̃^-½ (A + I) D̃^-½."""
    looped = (adjacency + sp.eye_array(adjacency.shape[0], dtype=np.float32, format="csr")).tocsr()
    scale = sp.diags_array(1 / np.sqrt(looped.sum(axis=1)))
    return (scale @ looped @ scale).tocsr()


def sparse(matrix: sp.csr_array) -> Sparse:
    """A SciPy matrix in CSR both ways round, on the CPU."""
    places = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    turned = places.T.tocsr()
    order = turned.data.copy()
    turned = sp.csr_array((matrix.data[order], turned.indices, turned.indptr), shape=turned.shape)
    return Sparse(to_torch(matrix, "cpu"), to_torch(turned, "cpu"), torch.from_numpy(order))


def to_torch(matrix: sp.csr_array, device: str) -> torch.Tensor:
    """A SciPy matrix as a sparse CSR tensor, float32."""
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return _csr(starts, columns, torch.from_numpy(matrix.data.astype(np.float32)), matrix.shape).to(device)


def _csr_like(matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return _csr(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)


def _csr(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls the format beta
        return torch.sparse_csr_tensor(starts, columns, values, shape)
