"""The graph every other module works on: undirected CSR, features, labels, splits and the user's own ids.

Shapes: N nodes, E undirected edges (2E stored entries), F features, C classes
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from nagphormer.data.classes import label_names, name_classes
from nagphormer.data.doors import no_graph
from nagphormer.data.export import nodes_table, to_networkx, to_pyg
from nagphormer.data.frames import Frame, as_frame
from nagphormer.data.learned import Learned
from nagphormer.data.nodes import positions
from nagphormer.data.subgraph import subgraph
from nagphormer.data.values import FeatureKind, fingerprint, fingerprints_by_container, kind_of
from nagphormer.errors import UserError

Features: TypeAlias = "np.ndarray | sp.csr_array | None"

SPLITS = ("train", "val", "test")


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
        """A graph with these splits instead: `train=`, `val=`, `test=`, as positions or boolean masks."""
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
    matrix = adjacency if sp.issparse(adjacency) else sp.coo_array(np.atleast_2d(_plain_array(adjacency)))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " × ".join(map(str, matrix.shape))
        raise UserError(f"the adjacency must be square, but it is {shape}")
    if matrix.format in ("csr", "csc", "coo", "bsr") and (matrix.data == 1).all():
        matrix = matrix.astype(bool)  # before repeated entries are summed
    return from_parts(
        _undirected(_checked_csr(matrix, "the adjacency")),
        features=features,
        labels=labels,
        splits=splits,
        node_ids=node_ids,
        class_names=class_names,
        feature_names=feature_names,
        name=name,
    )


def _plain_array(adjacency: Any) -> np.ndarray:
    """What is no SciPy matrix as an array; refuses what NumPy does not take, such as a sparse tensor."""
    try:
        return np.asarray(adjacency)
    except TypeError as error:
        raise UserError(f"the adjacency cannot be read as a matrix ({error}): give a SciPy sparse matrix") from error


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
    return from_parts(_undirected(matrix), **parts)


def check_edge_ids(source: np.ndarray, target: np.ndarray, num_nodes: int) -> None:
    """Refuse edge ends outside 0 … num_nodes-1."""
    for end, ids in (("source", source), ("target", target)):
        if len(ids) and (ids.min() < 0 or ids.max() >= num_nodes):
            position = int(np.argmax((ids < 0) | (ids >= num_nodes)))
            raise UserError(
                f"edge {position:,} has {end} {ids[position]}, but the graph has {num_nodes:,} nodes "
                f"(0 to {num_nodes - 1:,}): is the number of nodes right?"
            )


def check_weights(weights: np.ndarray) -> np.ndarray:
    """Edge weights as float32; refuses negative, missing and infinite ones."""
    weights = np.asarray(weights, np.float32)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        position = int(np.argmax(bad))
        raise UserError(f"edge {position:,} has weight {weights[position]}: weights must be finite and not negative")
    return weights


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
    names = None if class_names is None else tuple(map(str, class_names))
    if labels is not None and np.asarray(labels).dtype.kind in "OUS":
        names, labels = name_classes(np.asarray(labels))
    elif labels is not None and np.asarray(labels).dtype == bool and np.ndim(labels) == 1:
        names = names or ("False", "True")  # as a table's truth values are called
    if hasattr(features, "columns") and hasattr(features, "to_numpy"):  # a data frame, of whatever library
        features, feature_names = features.to_numpy(), feature_names or features.columns
    features = check_features(features, num_nodes)
    unweighted = matrix.data.dtype == bool or bool((matrix.data == 1).all())
    return Graph(
        indptr=np.asarray(matrix.indptr, np.int64),
        indices=np.asarray(matrix.indices, np.int32 if num_nodes < 2**31 else np.int64),
        weights=None if unweighted else np.asarray(matrix.data, np.float32),
        features=features,
        labels=_check_labels(labels, num_nodes, names),
        splits=check_splits(splits or {}, num_nodes),
        ids=check_ids(node_ids, num_nodes),
        class_names=names,
        feature_names=None if feature_names is None else _check_feature_names(feature_names, features),
        name=name,
    )


def _checked_csr(matrix: Any, what: str) -> sp.csr_array:
    """A sparse matrix as CSR; refuses indices out of range, at which SciPy's own code would crash."""
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        if matrix.dtype.kind in "iu":
            matrix = matrix.astype(np.float32)  # sums of repeated entries must not wrap around
        return sp.csr_array(matrix)
    except ValueError as error:
        raise UserError(f"{what} is not a valid sparse matrix ({error}): are all ids below its size?") from error


def _undirected(matrix: sp.csr_array) -> sp.csr_array:
    """Symmetric, sorted, without self-loops; repeated entries summed, of (u,v) and (v,u) the larger kept."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # it may share the caller's arrays
        matrix.sum_duplicates()
    if matrix.data.dtype != bool:
        if matrix.data.dtype.kind not in "iuf":
            raise UserError(f"edge weights must be real numbers, not {matrix.data.dtype}")
        values = check_weights(matrix.data)
        matrix = sp.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    rows = np.repeat(np.arange(matrix.shape[0], dtype=matrix.indices.dtype), np.diff(matrix.indptr))
    loops = rows == matrix.indices
    if loops.any():
        matrix = matrix.copy()
        matrix.data[loops] = 0
    del rows, loops
    matrix = matrix.maximum(matrix.T.tocsr()) if matrix.data.dtype != bool else matrix + matrix.T.tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def check_features(features: Any, num_nodes: int) -> Features:
    """Features as float32 or float16 (or SciPy CSR); refuses wrong lengths, NaN and infinity."""
    if features is None:
        return None
    if sp.issparse(features):
        checked: Any = _checked_csr(features, "the feature matrix")
        if checked.data.dtype != np.float32:
            checked = checked.astype(np.float32)
        if not checked.has_canonical_format:
            checked = checked.copy()  # it may share the caller's arrays
            checked.sum_duplicates()
        values = checked.data
    else:
        checked = np.asanyarray(features)
        if checked.ndim != 2:
            raise UserError(f"features must have two dimensions (nodes, features), not shape {checked.shape}")
        if checked.dtype.kind not in "biuf":
            raise UserError(f"features must be numbers, not {checked.dtype}")
        if checked.dtype not in (np.float32, np.float16):
            checked = checked.astype(np.float32)
        values = checked
    if checked.shape[0] != num_nodes:
        raise UserError(
            f"features has {checked.shape[0]:,} rows but the graph has {num_nodes:,} nodes: "
            f"is an isolated node left out?"
        )
    if checked.shape[1] == 0:
        return None
    rows_at_once = max(1, (1 << 24) // max(1, values[:1].size))
    for start in range(0, len(values), rows_at_once):  # in pieces: features may be a memory map
        finite = np.isfinite(values[start : start + rows_at_once])
        if not finite.all():
            entry = np.argwhere(~finite)[0]
            if sp.issparse(checked):
                row = int(np.searchsorted(checked.indptr, start + entry[0], side="right")) - 1
                column, value = int(checked.indices[start + entry[0]]), values[start + entry[0]]
            else:
                row, column = start + int(entry[0]), int(entry[1])
                value = checked[row, column]
            raise UserError(
                f"feature {column} of node {row:,} is {value}: features must be finite; "
                f"fill missing values before building the graph"
            )
    return checked


def _check_feature_names(names: Iterable[str], features: Features) -> tuple[str, ...]:
    """Names of features as text; refuses another number of them, and one that comes twice."""
    checked, width = tuple(map(str, names)), 0 if features is None else features.shape[1]
    if len(checked) != width:
        raise UserError(f"there are {len(checked):,} feature_names but {width:,} features: give one for each column")
    twice = next((name for name, number in Counter(checked).items() if number > 1), None)
    if twice is not None:
        raise UserError(f"two features are called {twice!r}: give each a name of its own, or leave feature_names out")
    return checked


def _check_labels(labels: Any, num_nodes: int, names: tuple[str, ...] | None) -> np.ndarray | None:
    if labels is None:
        return None
    labels = np.asarray(labels)
    if len(labels) != num_nodes:
        raise UserError(f"labels has {len(labels):,} entries but the graph has {num_nodes:,} nodes")
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (labels == np.floor(labels))).all():
        raise UserError("labels must be whole numbers, -1 for unknown; found a fraction or NaN")
    if labels.dtype.kind not in "biuf" or labels.ndim not in (1, 2):
        raise UserError(f"labels must be (N,) integers or (N, C) of 0 and 1, not {labels.dtype} {labels.shape}")
    if labels.ndim == 2 and not np.isin(labels, (0, 1)).all():
        raise UserError("labels with two dimensions are multi-label and must hold 0 and 1 only")
    if labels.ndim == 1 and labels.min() < -1:
        raise UserError(f"label {labels.min()} is negative: labels are 0 … C-1, or -1 for unknown")
    needed = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
    if names is not None and (needed > len(names) or (labels.ndim == 2 and needed < len(names))):
        raise UserError(f"labels need {needed} classes but class_names has {len(names)}")
    return labels.astype(np.int64)


def check_splits(splits: Mapping[str, Any], num_nodes: int) -> dict[str, np.ndarray]:
    """Splits as sorted position arrays; refuses unknown names, positions out of range and overlaps."""
    checked: dict[str, np.ndarray] = {}
    for split, nodes in splits.items():
        if split not in SPLITS:
            raise UserError(f"unknown split {split!r}: splits are called train, val and test")
        nodes = np.asarray(nodes)
        if nodes.dtype == bool:
            if nodes.shape != (num_nodes,):
                raise UserError(f"the {split} mask has shape {nodes.shape}, not ({num_nodes},)")
            nodes = np.flatnonzero(nodes)
        if nodes.ndim != 1 or (len(nodes) and nodes.dtype.kind not in "iu"):
            raise UserError(f"split {split} must be node positions or a boolean mask")
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= num_nodes):
            bad = nodes[(nodes < 0) | (nodes >= num_nodes)][0]
            raise UserError(f"split {split} holds node {bad}, but the graph has {num_nodes:,} nodes")
        checked[split] = np.unique(nodes.astype(np.int64))
        if len(checked[split]) != len(nodes):
            raise UserError(f"split {split} holds a node twice")
    names = list(checked)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            shared = np.intersect1d(checked[first], checked[second])
            if len(shared):
                raise UserError(f"node {shared[0]} is in both {first} and {second} ({len(shared):,} nodes are)")
    return checked


def check_ids(ids: Any, num_nodes: int) -> Any:
    """Node ids as a PyArrow array; refuses wrong lengths, missing and duplicate ids."""
    if ids is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        ids = ids if isinstance(ids, pa.Array) else pa.array(ids)
    except pa.ArrowException as error:
        raise UserError(f"node_ids must be all integers or all strings: {error}") from error
    if len(ids) != num_nodes:
        raise UserError(f"node_ids has {len(ids):,} entries but the graph has {num_nodes:,} nodes")
    if ids.null_count:
        raise UserError(f"node_ids has {ids.null_count:,} missing ids: every node needs one")
    distinct = pc.count_distinct(ids).as_py()
    if distinct != num_nodes:
        counts = pc.value_counts(ids)
        twice = counts.filter(pc.greater(counts.field("counts"), 1))
        raise UserError(
            f"node id {twice[0]['values'].as_py()!r} appears {twice[0]['counts'].as_py()} times "
            f"({num_nodes - distinct:,} duplicates in all): node ids must be unique"
        )
    return ids
