"""A part of a graph: some of its nodes, and the edges between them.

Shapes: N nodes, n nodes kept
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from nagphormer.errors import UserError

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph


def subgraph(graph: Graph, kept: np.ndarray) -> Graph:
    """The graph of some nodes, in the order given, with their features, labels, splits and ids.

    Args:
        graph: the whole.
        kept: positions of nodes, (n,), each once.
    """
    if len(kept) == 0:
        raise UserError("the subgraph would be empty: name at least one node")
    place = np.full(graph.num_nodes, -1, np.int64)  # (N,), where each node lies in the part
    place[kept] = np.arange(len(kept))
    if np.count_nonzero(place >= 0) != len(kept):
        raise UserError("nodes holds a node twice: a subgraph has each once")
    splits = {split: place[idx] for split, idx in graph.splits.items()}
    matrix = _between(graph, kept, place)
    unweighted = graph.weights is None or bool((matrix.data == 1).all())
    return replace(
        graph,
        indptr=np.asarray(matrix.indptr, np.int64),
        indices=np.asarray(matrix.indices, np.int32 if len(kept) < 2**31 else np.int64),
        weights=None if unweighted else matrix.data,
        features=None if graph.features is None else graph.features[kept],
        labels=None if graph.labels is None else np.asarray(graph.labels)[kept],
        splits={split: np.sort(idx[idx >= 0]) for split, idx in splits.items()},
        ids=_ids(graph, kept),
        folder=None,
    )


def _between(graph: Graph, kept: np.ndarray, place: np.ndarray) -> sp.csr_array:
    """The adjacency of the nodes kept, (n, n); of a memory-mapped graph only their rows are read."""
    degrees = graph.degrees[kept]
    ends = np.cumsum(degrees)
    entries = np.repeat(graph.indptr[kept] - (ends - degrees), degrees) + np.arange(degrees.sum())
    rows, columns = np.repeat(np.arange(len(kept)), degrees), place[graph.indices[entries]]
    inside = columns >= 0
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[inside], minlength=len(kept)))])
    values = np.ones(inside.sum(), bool) if graph.weights is None else graph.weights[entries[inside]]
    matrix = sp.csr_array((values, columns[inside], indptr), shape=(len(kept), len(kept)))
    matrix.sort_indices()
    return matrix


def _ids(graph: Graph, kept: np.ndarray) -> Any:
    """The nodes' own ids; where there are none, their positions in the whole."""
    import pyarrow as pa

    return pa.array(kept) if graph.ids is None else graph.ids.take(pa.array(kept))
