"""Graphs from PyTorch Geometric.

Shapes: N nodes, E edge entries, F features, C classes
"""

from typing import Any

import numpy as np

from nagphormer.data.checks import check_weights
from nagphormer.data.graph import Graph, from_edges, from_scipy
from nagphormer.data.tensors import as_array, as_ends, as_matrix, as_splits, check_split
from nagphormer.errors import UserError
from nagphormer.progress import note


def from_pyg(data: Any, split: int = 0) -> Graph:
    """Build a graph from a `torch_geometric.data.Data`, or from a data set that holds one.

    Read are `edge_index` (or `adj_t`), weights, `x`, `y` and splits. Weights are `edge_weight`, `weight` or an
    `edge_attr` with one number an edge; one with more is not used, and a line says so. Splits are the masks
    `train_mask`, `val_mask` and `test_mask`, or where there are none the positions `train_idx`, `val_idx` (or
    `valid_idx`) and `test_idx`. Labels may be (N,), (N, 1) with NaN for unknown, or (N, C) of 0 and 1 for multi-label
    tasks.

    Args:
        data: the Data object, or a data set (or list) of exactly one.
        split: which column of masks of shape (N, S), one per split.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)).num_edges
    2
    """
    data, splits = _single_graph(data)
    if splits:
        check_split(split, 1)
    return unlabeled(
        data,
        labels=getattr(data, "y", None),
        splits=splits or as_splits(lambda name: getattr(data, name, None), split),
    )


def unlabeled(data: Any, **parts: Any) -> Graph:
    """A graph of what tokens depend on, edges and features; `parts` are further ones of `from_scipy`."""
    if hasattr(data, "__getitem__") and not hasattr(
        data, "keys"
    ):  # a data set, whose edge_index is that of all its graphs
        raise UserError(f"{type(data).__name__} holds several graphs: give one of them, or pass transform= to it")
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise UserError(
            f"{type(data).__name__} has nodes of several types, which this model does not know: "
            f"pass data.to_homogeneous(), or build a Data from one node type and its edges"
        )
    parts["features"] = getattr(data, "x", None)
    if getattr(data, "edge_index", None) is not None:
        source, target = as_ends(data.edge_index)
        return from_edges(source, target, _num_nodes(data), _weights(data, len(source)), **parts)
    if getattr(data, "adj_t", None) is not None:
        return from_scipy(as_matrix(data.adj_t, "adj_t"), **parts)
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


def _weights(data: Any, num_edges: int) -> np.ndarray | None:
    """One number for every edge entry, (E,); `weight` is what PyG's own `from_networkx` calls it."""
    for attribute in ("edge_weight", "weight", "edge_attr"):
        value = getattr(data, attribute, None)
        if value is None or (attribute == "weight" and np.shape(value)[:1] != (num_edges,)):  # of nodes, or a graph
            continue
        weights = as_array(value, attribute)
        if weights.dtype.kind in "biuf" and weights.ndim and weights.size == len(weights):
            if attribute == "edge_attr":
                note("edge_attr, one number an edge, is taken as weights: where it says something else, set it to None")
            return _checked(weights.reshape(-1), attribute)
        if attribute == "edge_weight":
            raise UserError(f"edge_weight must hold a number for each edge, not {weights.dtype} of {weights.shape}")
        note(f"{attribute} of shape {weights.shape} is not used: a weight is one number an edge")
    return None


def _checked(weights: np.ndarray, attribute: str) -> np.ndarray:
    """The same, or the attribute that holds wrong ones."""
    try:
        return check_weights(weights)
    except UserError as error:
        raise UserError(f"{error}; these are data.{attribute}: where they are no weights, set it to None") from error
