"""Which nodes are asked for: positions, a slice, a mask or the user's own ids.

Shapes: N nodes, n nodes asked for
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from nagphormer.errors import UserError

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph


def positions(graph: Graph, nodes: Any, node_ids: Any = None) -> np.ndarray:
    """Node positions from positions, a slice, a mask, or the user's own ids; all without any."""
    if node_ids is not None:
        if nodes is not None:
            raise UserError("give nodes (positions) or node_ids (your own ids), not both")
        return _find(graph, node_ids)
    return chosen(nodes, graph.num_nodes)


def chosen(nodes: Any, num_nodes: int) -> np.ndarray:
    """Node positions from positions, a slice or a mask, (n,) int64; all without any."""
    if nodes is None:
        return np.arange(num_nodes)
    if isinstance(nodes, slice):
        return np.arange(num_nodes)[nodes]
    found = np.atleast_1d(np.asarray(nodes))
    if found.dtype == bool:
        if found.shape != (num_nodes,):
            raise UserError(f"the mask of nodes has shape {found.shape}, not ({num_nodes},)")
        return np.flatnonzero(found)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise UserError("nodes must be positions, a slice or a mask; your own ids go into node_ids=")
    outside = found[(found < 0) | (found >= num_nodes)]
    if len(outside):
        raise UserError(f"there is no node {outside[0]}: positions are 0 to {num_nodes - 1:,}")
    return found.astype(np.int64)


def _find(graph: Graph, node_ids: Any) -> np.ndarray:
    """Positions of the user's ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(np.arange(graph.num_nodes)) if graph.ids is None else graph.ids
    try:
        listed = [node_ids] if isinstance(node_ids, str | set) or not isinstance(node_ids, Iterable) else list(node_ids)
        wanted = pa.array(np.asarray(listed).tolist())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"node_ids must be ids as the graph has them, {ids.type}: {error}") from error
    try:
        place = pc.index_in(wanted.cast(ids.type), value_set=ids)
    except pa.ArrowException as error:
        raise UserError(f"node_ids are {wanted.type}, but the graph's ids are {ids.type}") from error
    if place.null_count:
        missing = wanted.filter(pc.is_null(place))
        raise UserError(
            f"the graph has no node with id {missing[0].as_py()!r} ({len(missing):,} of the ids are unknown)"
        )
    return place.to_numpy().astype(np.int64)
