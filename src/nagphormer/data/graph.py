"""The graph every other module works on: undirected CSR, features, labels, splits and the user's own ids.

Shapes: N nodes, E undirected edges (2E stored entries), F features, C classes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.checks import (
    Features,
    as_csr,
    check_edge_ids,
    check_feature_names,
    check_features,
    check_ids,
    check_labels,
    check_splits,
    check_weights,
    undirected,
)
from nagphormer.data.classes import label_names, read_labels
from nagphormer.data.doors import no_graph
from nagphormer.data.export import nodes_table, to_networkx, to_pyg
from nagphormer.data.frames import Frame, as_frame
from nagphormer.data.learned import Learned
from nagphormer.data.nodes import positions
from nagphormer.data.subgraph import subgraph
from nagphormer.data.tensors import as_features, as_matrix
from nagphormer.data.values import FeatureKind, fingerprint, fingerprints_by_container, kind_of
from nagphormer.errors import UserError


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without self-loops, ready for propagation.

    Build one with `load_graph`, `read_tables`, `from_scipy`, `from_pyg` …; the constructor itself expects
    an adjacency that is already symmetric, sorted and free of duplicates. A graph is never changed in place.
    """

    indptr: np.ndarray
    """Row starts of the CSR adjacency, (N+1,) int64."""
    indices: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    """Neighbors of every node in ascending order, (2E,) int32 (int64 from 2³¹ nodes on); none by default."""
    weights: np.ndarray | None = None
    """Positive edge weights, (2E,) float32, or None when every edge counts alike."""
    features: Features = None
    """Dense (N, F) array, SciPy CSR, memory map, or None."""
    labels: np.ndarray | None = None
    """Class of every node, (N,) int64 with -1 for unknown; or (N, C) of 0 and 1 for multi-label tasks."""
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Node positions of `train`, `val` and `test`, each int64."""
    ids: Any = None
    """The user's node ids as a PyArrow array, or None for 0 … N-1; read them through `node_ids`."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes in the order of the labels."""
    name: str | None = None
    """The data set's name, where it has one."""
    folder: Path | None = None
    """The graph folder it was opened from, which other processes can open, too."""
    feature_names: tuple[str, ...] | None = None
    """Names of the features in the order of their columns, where the source had any."""
    drawn: bool = False
    """Whether the splits were drawn from a seed here, rather than given by a file or the user."""
    learned: Learned | None = None
    """What importing it from tables learned, for later tables to be read alike; None for other sources."""

    def __post_init__(self) -> None:
        if not isinstance(self.indptr, np.ndarray) or self.indptr.ndim != 1:
            raise no_graph(self.indptr)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, half the stored entries."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """Number of features, F; 0 without features."""
        return 0 if self.features is None else self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """Number of classes, C; 0 without labels."""
        if self.class_names is not None:
            return len(self.class_names)
        if self.labels is None or len(self.labels) == 0:
            return 0
        return self.labels.shape[1] if self.labels.ndim == 2 else int(self.labels.max()) + 1

    @cached_property
    def node_ids(self) -> np.ndarray:
        """The user's node ids in node order: int64, or str objects."""
        if self.ids is None:
            return np.arange(self.num_nodes)
        return self.ids.to_numpy(zero_copy_only=False)

    @property
    def degrees(self) -> np.ndarray:
        """Number of neighbors of every node, (N,) int64."""
        return np.diff(self.indptr)

    @cached_property
    def feature_kind(self) -> FeatureKind | None:
        """How many entries of the features are not zero, and how many columns are measurements; reads them once."""
        return None if self.features is None else kind_of(self.features)

    @cached_property
    def sparse(self) -> bool:
        """Whether the features are mostly zeros, whatever container they lie in."""
        return self.feature_kind is not None and self.feature_kind.sparse

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what tokens depend on: structure, weights and values of features (not labels or splits)."""
        return fingerprint(self._structure, self.features, self.feature_kind)

    def is_known_as(self, found: str) -> bool:
        """Whether this is the graph with a fingerprint; 0.1.0 took it of the arrays, so that is tried, too."""
        return found == self.fingerprint or found in fingerprints_by_container(self._structure, self.features)

    @property
    def _structure(self) -> dict[str, np.ndarray]:
        arrays = {"indptr": self.indptr, "indices": self.indices, "weights": self.weights}
        return {name: array for name, array in arrays.items() if array is not None}

    def adjacency(self) -> sp.csr_array:
        """The adjacency as SciPy CSR, float32; shares memory where it can."""
        values = np.ones(len(self.indices), np.float32) if self.weights is None else self.weights
        return sp.csr_array((values, self.indices, self.indptr), shape=(self.num_nodes, self.num_nodes))

    def with_splits(self, **splits: Any) -> Graph:
        """A graph with these splits instead: `train=`, `val=`, `test=`, as positions or boolean masks.

        They are held in ascending order, whatever order they are given in.
        """
        return self.altered(splits=check_splits(splits, self.num_nodes), drawn=False)

    def with_name(self, name: str) -> Graph:
        """The same graph under another name."""
        return self.altered(name=name)

    def subgraph(self, nodes: Any = None, *, node_ids: Any = None) -> Graph:
        """The graph of some nodes, in that order, and of the edges between them.

        Features, labels, class names and ids come along; where there are no ids the positions in this graph become
        ids. Of each split those nodes stay that are kept, if any.

        Args:
            nodes: positions, a slice or a mask.
            node_ids: the user's own ids instead of positions.
        """
        return subgraph(self, positions(self, nodes, node_ids))

    def label_names(self, nodes: Any = None, *, node_ids: Any = None) -> np.ndarray:
        """Labels by name, as `NodeClassifier.predict` gives classes; unknown ones are the empty string.

        Where the classes have no names they are numbers, -1 for unknown.

        Args:
            nodes: positions, a slice or a mask; all by default.
            node_ids: the user's own ids instead of positions.

        Returns:
            (n,) names or numbers; (n, C) of 0 and 1 for multi-label tasks.
        """
        return label_names(self, positions(self, nodes, node_ids))

    def nodes_frame(self, kind: Frame = "pandas") -> Any:
        """A table of the nodes with columns `id`, `label` and `split`, the last two where the graph has them.

        Unknown labels are missing, and so is the split of a node in none; several labels of a node are a list.
        Features are not in it: `graph.features` has them row by row in the same order.

        Args:
            kind: `pandas`, `polars`, or `arrow` for a PyArrow table.
        """
        return as_frame(nodes_table(self), kind)

    def to_pyg(self) -> Any:
        """A PyG `Data` with `edge_index` both ways, `edge_weight`, `x`, `y` and masks, as far as the graph has them.

        Labels are -1 where unknown, and floats of 0 and 1 for several a node; sparse features are a sparse COO tensor.
        `from_pyg` reads it back, without the ids and the names of classes, for which PyG has no place.
        """
        return to_pyg(self)

    def to_networkx(self) -> Any:
        """A `networkx.Graph`: ids are its nodes, with attributes `label` and `split`; edges have `weight`, if any.

        `from_networkx(…, label="label", split="split")` reads it back; features do not come along.
        """
        return to_networkx(self)

    def altered(self, **changes: Any) -> Graph:
        """A copy with parts changed that the fingerprint does not depend on."""
        copy = replace(self, **changes)
        for known in ("feature_kind", "fingerprint"):
            if known in self.__dict__:
                copy.__dict__[known] = self.__dict__[known]
        return copy

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a graph folder; `load_graph(path)` opens it memory-mapped."""
        from nagphormer.data.folder import save_graph

        save_graph(self, path)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return (
            f"Graph({name}num_nodes={self.num_nodes:,}, num_edges={self.num_edges:,}, "
            f"num_features={self.num_features:,}, num_classes={self.num_classes}, "
            f"splits={ {split: len(idx) for split, idx in self.splits.items()} })"
        )


def check_graph(graph: Any) -> None:
    """Refuse anything but a Graph, and name the function that makes one of it."""
    if not isinstance(graph, Graph):
        raise no_graph(graph)


def arrays_of(graph: Graph) -> dict[str, np.ndarray]:
    """The graph's arrays by the name they have on disk."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "weights": graph.weights}
    if isinstance(graph.features, sp.csr_array):
        for part in ("indptr", "indices", "data"):
            arrays[f"features_{part}"] = getattr(graph.features, part)
    else:
        arrays["features"] = graph.features
    arrays["labels"] = graph.labels
    arrays |= {f"split_{split}": idx for split, idx in graph.splits.items()}
    return {name: array for name, array in arrays.items() if array is not None}


def from_scipy(
    adjacency: Any,
    features: Any = None,
    labels: Any = None,
    splits: Mapping[str, Any] | None = None,
    *,
    node_ids: Any = None,
    class_names: Iterable[str] | None = None,
    feature_names: Iterable[str] | None = None,
    name: str | None = None,
) -> Graph:
    """Build a graph from a SciPy sparse adjacency (or anything `scipy.sparse.coo_array` takes).

    Edges are made undirected and self-loops dropped. Where every stored entry is 1 the matrix is a list of edges, and
    one that is there twice counts once; else entries are weights, and repeated ones are summed.

    Args:
        adjacency: (N, N) sparse matrix; an entry (u, v) joins u and v.
        features: (N, F) dense or sparse, or a data frame, whose columns name the features.
        labels: (N,) integers with -1 for unknown, (N,) strings, or (N, C) of 0 and 1.
        splits: `train`, `val`, `test` as positions or boolean masks.
        node_ids: (N,) the user's ids, integers or strings.
        class_names: names of the classes in label order.
        feature_names: names of the features in column order; by which they are matched when the graph is predicted on.
        name: name of the data set.

    >>> import scipy.sparse as sp
    >>> from_scipy(sp.coo_array(([1, 1], ([0, 1], [1, 2])), shape=(3, 3))).num_edges
    2
    """
    matrix = as_matrix(adjacency, "the adjacency")
    if not sp.issparse(matrix):
        if matrix.dtype.kind not in "biufc":
            raise UserError(f"the adjacency must be a matrix of numbers, not {type(adjacency).__name__}")
        matrix = sp.coo_array(np.atleast_2d(matrix))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " × ".join(map(str, matrix.shape))
        raise UserError(f"the adjacency must be square, but it is {shape}")
    if matrix.format in ("csr", "csc", "coo", "bsr") and (matrix.data == 1).all():
        matrix = matrix.astype(bool)  # before repeated entries are summed
    return from_parts(
        undirected(as_csr(matrix, "the adjacency")),
        features=features,
        labels=labels,
        splits=splits,
        node_ids=node_ids,
        class_names=class_names,
        feature_names=feature_names,
        name=name,
    )


def from_edges(
    source: np.ndarray, target: np.ndarray, num_nodes: int, weights: np.ndarray | None = None, **parts: Any
) -> Graph:
    """Build a graph from arrays of edge ends (positions); `parts` are those of `from_scipy`."""
    if len(source) != len(target) or (weights is not None and len(weights) != len(source)):
        lengths = [len(array) for array in (source, target, weights) if array is not None]
        raise UserError(f"edge arrays differ in length: {lengths}")
    check_edge_ids(source, target, num_nodes)
    values = np.ones(len(source), bool) if weights is None else check_weights(weights)
    index = np.int32 if num_nodes < 2**31 else np.int64
    ends = (np.asarray(source, index), np.asarray(target, index))
    matrix = sp.csr_array(sp.coo_array((values, ends), shape=(num_nodes, num_nodes)))
    return from_parts(undirected(matrix), **parts)


def from_parts(
    matrix: sp.csr_array,
    features: Any = None,
    labels: Any = None,
    splits: Mapping[str, Any] | None = None,
    node_ids: Any = None,
    class_names: Iterable[str] | None = None,
    feature_names: Iterable[str] | None = None,
    name: str | None = None,
) -> Graph:
    """Check the parts against each other and put a Graph together; `matrix` must be symmetric already."""
    num_nodes = matrix.shape[0]
    if num_nodes == 0:
        raise UserError("the graph is empty: it has no nodes")
    names = None
    if labels is not None:
        names, labels = read_labels(labels, class_names)
    elif class_names is not None:
        names = tuple(map(str, class_names))
    if features is not None:
        features, columns = as_features(features)
        feature_names = columns if feature_names is None else feature_names
    checked = check_features(features, num_nodes)
    unweighted = matrix.data.dtype == bool or bool((matrix.data == 1).all())
    return Graph(
        indptr=np.asarray(matrix.indptr, np.int64),
        indices=np.asarray(matrix.indices, np.int32 if num_nodes < 2**31 else np.int64),
        weights=None if unweighted else np.asarray(matrix.data, np.float32),
        features=checked,
        labels=check_labels(labels, num_nodes, names),
        splits=check_splits({} if splits is None else splits, num_nodes),
        ids=check_ids(node_ids, num_nodes),
        class_names=names,
        feature_names=None if feature_names is None else check_feature_names(feature_names, checked),
        name=name,
    )
