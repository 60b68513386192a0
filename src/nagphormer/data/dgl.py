"""Graphs from DGL, by the methods they have: DGL itself is not imported.

Shapes: N nodes, E edge entries, F features
"""

from typing import Any

from nagphormer.data.graph import Graph, from_edges
from nagphormer.data.tensors import as_array, as_splits
from nagphormer.errors import UserError


def from_dgl(graph: Any, split: int = 0) -> Graph:
    """Build a graph from a `dgl.DGLGraph`, or from a DGL data set that holds one.

    Read are `ndata`'s `feat`, `label`, `train_mask`, `val_mask` and `test_mask`, and `edata`'s `weight` or
    `w`, where they exist.

    Args:
        graph: a homogeneous DGL graph, or a data set (or list) of exactly one.
        split: which column of masks of shape (N, S), one per split.
    """
    if not hasattr(graph, "ndata") and hasattr(graph, "__getitem__"):
        if len(graph) != 1:
            raise UserError(f"the data set holds {len(graph):,} graphs: pass one of them, as in from_dgl(dataset[0])")
        graph = graph[0]
    missing = [name for name in ("edges", "num_nodes", "ndata", "edata") if not hasattr(graph, name)]
    if missing:
        raise UserError(f"{type(graph).__name__} is not a DGL graph: it has no {' and no '.join(missing)}")
    if not getattr(graph, "is_homogeneous", True):
        raise UserError(
            "the DGL graph has nodes or edges of several types, which this model does not know: "
            "pass dgl.to_homogeneous(graph), with ndata=['feat'] to keep features"
        )
    nodes, edges = dict(graph.ndata), dict(graph.edata)
    source, target = graph.edges()
    weights = edges.get("weight", edges.get("w"))
    return from_edges(
        as_array(source),
        as_array(target),
        int(graph.num_nodes()),
        None if weights is None else as_array(weights).reshape(-1),
        features=nodes.get("feat"),
        labels=nodes.get("label"),
        splits=as_splits(nodes.get, split),
    )
