"""Graphs from PyTorch Geometric.

Shapes: N nodes, E edge entries, F features, C classes
"""

from typing import Any

from nagphormer.data.graph import Graph, from_edges, from_scipy
from nagphormer.data.tensors import as_array, as_labels, as_matrix, as_splits
from nagphormer.errors import UserError


def from_pyg(data: Any) -> Graph:
    """Build a graph from a `torch_geometric.data.Data`, or from a data set that holds one.

    Read are `edge_index` (or `adj_t`), `edge_weight` (or an `edge_attr` of one dimension), `x`, `y` and the
    masks `train_mask`, `val_mask` and `test_mask`. Masks of shape (N, S), one column per split, give the
    first split. Labels may be (N,), (N, 1) with NaN for unknown, or (N, C) of 0 and 1 for multi-label tasks.

    Args:
        data: the Data object, or a data set (or list) of exactly one.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)).num_edges
    2
    """
    data, splits = _single_graph(data)
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise UserError(
            f"{type(data).__name__} has nodes of several types, which this model does not know: "
            f"pass data.to_homogeneous(), or build a Data from one node type and its edges"
        )
    parts: dict[str, Any] = {"splits": splits or as_splits(lambda name: getattr(data, name, None))}
    for part, attribute, convert in (("features", "x", as_matrix), ("labels", "y", as_labels)):
        value = getattr(data, attribute, None)
        parts[part] = None if value is None else convert(value)
    if getattr(data, "edge_index", None) is not None:
        source, target = as_array(data.edge_index)  # (2, E)
        return from_edges(source, target, _num_nodes(data), _weights(data), **parts)
    if getattr(data, "adj_t", None) is not None:
        return from_scipy(as_matrix(data.adj_t), **parts)
    raise UserError(f"{type(data).__name__} has neither edge_index nor adj_t: is it a PyG graph?")


def _single_graph(data: Any) -> tuple[Any, dict[str, Any]]:
    """The graph of a data set of one, and the split that OGB's data sets keep outside the graph."""
    if not hasattr(data, "__getitem__") or hasattr(data, "keys"):  # Data has keys, a data set has none
        return data, {}
    if len(data) != 1:
        raise UserError(f"the data set holds {len(data):,} graphs: pass one of them, as in from_pyg(dataset[0])")
    if not hasattr(data, "get_idx_split"):
        return data[0], {}
    idx = data.get_idx_split()
    return data[0], {
        "train": as_array(idx["train"]),
        "val": as_array(idx["valid"]),
        "test": as_array(idx["test"]),
    }


def _num_nodes(data: Any) -> int:
    if getattr(data, "num_nodes", None) is not None:
        return int(data.num_nodes)
    for attribute in ("x", "y"):
        if getattr(data, attribute, None) is not None:
            return int(getattr(data, attribute).shape[0])
    raise UserError("the number of nodes is unknown: set data.num_nodes")


def _weights(data: Any) -> Any:
    weights = getattr(data, "edge_weight", None)
    if weights is not None:
        return as_array(weights).reshape(-1)
    weights = getattr(data, "edge_attr", None)
    return as_array(weights) if weights is not None and len(weights.shape) == 1 else None
