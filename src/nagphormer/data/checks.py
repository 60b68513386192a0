"""What a graph is made of, checked part by part: refused with the value and the mend, before anything is built on it.

Shapes: N nodes, E undirected edges (2E stored entries), F features, C classes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from nagphormer.errors import UserError

Features: TypeAlias = "np.ndarray | sp.csr_array | None"

SPLITS = ("train", "val", "test")
SPLIT_WORDS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
"""What they are called in a column or attribute."""
MOST_CLASSES = 1 << 16
"""Label numbers from here on, and above the number of nodes, are no numbers of classes."""


def check_edge_ids(source: np.ndarray, target: np.ndarray, num_nodes: int) -> None:
    """Refuse edge ends outside 0 … num_nodes-1."""
    for end, ids in (("source", source), ("target", target)):
        if len(ids) and ids.dtype.kind not in "iu":
            raise UserError(f"ends of edges must be whole numbers, the positions of nodes, not {ids.dtype}")
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


def as_csr(matrix: Any, what: str) -> sp.csr_array:
    """A sparse matrix as CSR; refuses indices out of range, at which SciPy's own code would crash."""
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        if matrix.dtype.kind in "iu":
            matrix = matrix.astype(np.float32)  # sums of repeated entries must not wrap around
        return sp.csr_array(matrix)
    except ValueError as error:
        raise UserError(f"{what} is not a valid sparse matrix ({error}): are all ids below its size?") from error


def undirected(matrix: sp.csr_array) -> sp.csr_array:
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
        checked: Any = as_csr(features, "the feature matrix")
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


def check_feature_names(names: Iterable[str], features: Features) -> tuple[str, ...]:
    """Names of features as text; refuses another number of them, and one that comes twice."""
    checked, width = tuple(map(str, names)), 0 if features is None else features.shape[1]
    if len(checked) != width:
        raise UserError(f"there are {len(checked):,} feature_names but {width:,} features: give one for each column")
    twice = next((name for name, number in Counter(checked).items() if number > 1), None)
    if twice is not None:
        raise UserError(f"two features are called {twice!r}: give each a name of its own, or leave feature_names out")
    return checked


def check_labels(labels: Any, num_nodes: int, names: tuple[str, ...] | None) -> np.ndarray | None:
    """Labels as int64; refuses wrong lengths, fractions, and more classes than there are names."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    if labels.ndim == 0 or len(labels) != num_nodes:
        raise UserError(f"labels has {len(labels):,} entries but the graph has {num_nodes:,} nodes")
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (labels == np.floor(labels))).all():
        raise UserError("labels must be whole numbers, -1 for unknown; found a fraction or NaN")
    if labels.dtype.kind not in "biuf" or labels.ndim not in (1, 2):
        raise UserError(f"labels must be (N,) integers or (N, C) of 0 and 1, not {labels.dtype} {labels.shape}")
    if labels.ndim == 2 and not np.isin(labels, (0, 1)).all():
        raise UserError("labels with two dimensions are multi-label and must hold 0 and 1 only")
    if labels.ndim == 1 and labels.min() < -1:
        raise UserError(f"label {labels.min()} is negative: labels are 0 … C-1, or -1 for unknown")
    if labels.ndim == 1 and names is None and int(labels.max()) >= max(num_nodes, MOST_CLASSES):
        raise UserError(
            f"label {labels.max()} is too large a number: labels are 0 … C-1; where they are codes, give them as text"
        )
    needed = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
    if names is not None and (needed > len(names) or (labels.ndim == 2 and needed < len(names))):
        raise UserError(f"labels need {needed} classes but class_names has {len(names)}")
    return labels.astype(np.int64)


def check_splits(splits: Mapping[str, Any], num_nodes: int) -> dict[str, np.ndarray]:
    """Splits as sorted position arrays; refuses unknown names, positions out of range and overlaps."""
    checked: dict[str, np.ndarray] = {}
    if not isinstance(splits, Mapping):
        raise UserError(
            f"splits must be a dict such as {{'train': positions, 'val': positions, 'test': positions}}, not "
            f"{type(splits).__name__}"
        )
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
            mask = len(nodes) == num_nodes and np.isin(nodes, (0, 1)).all()
            raise UserError(
                f"split {split} holds a node twice" + (": is it a mask? Give it as booleans" if mask else "")
            )
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
        ids = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"node_ids must be all integers below 2**63 or all strings: {error}") from error
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    if pa.types.is_string_view(ids.type):
        ids = ids.cast(pa.string())
    if not (pa.types.is_integer(ids.type) or pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        raise UserError(f"node_ids must be integers or strings, not {ids.type}: write them as text")
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
