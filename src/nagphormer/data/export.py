"""A graph as other libraries hold one: PyG, NetworkX, and a table of its nodes.

Shapes: N nodes, E undirected edges, F features, C classes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.classes import label_names
from nagphormer.errors import MissingExtra

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph


def to_pyg(graph: Graph) -> Any:
    """A `torch_geometric.data.Data` that shares no memory with the graph."""
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise MissingExtra("torch-geometric", "pyg", "a PyG graph") from error
    import torch

    data = Data(edge_index=torch.from_numpy(np.stack(_entries(graph))))  # (2, 2E)
    if graph.features is None:
        data.num_nodes = graph.num_nodes
    elif isinstance(graph.features, sp.csr_array):
        held = graph.features.tocoo()
        places, values = torch.from_numpy(np.stack(held.coords)), torch.from_numpy(np.array(held.data))
        data.x = torch.sparse_coo_tensor(places, values, held.shape, is_coalesced=True, check_invariants=False)
    else:
        data.x = torch.from_numpy(np.array(graph.features))  # (N, F)
    if graph.labels is not None:
        labels = torch.from_numpy(np.array(graph.labels))
        data.y = labels if labels.ndim == 1 else labels.float()  # what the loss of several labels a node takes
    if graph.weights is not None:
        data.edge_weight = torch.from_numpy(np.array(graph.weights))
    for split, idx in graph.splits.items():
        data[f"{split}_mask"] = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(
            0, torch.from_numpy(np.array(idx)), True
        )
    return data


def to_networkx(graph: Graph) -> Any:
    """A `networkx.Graph` with the user's ids as nodes."""
    try:
        import networkx
    except ImportError as error:
        raise MissingExtra("networkx", "networkx", "a NetworkX graph") from error
    table = nodes_table(graph).to_pydict()
    names = table.pop("id")
    found = networkx.Graph()
    for number, name in enumerate(names):
        values = {column: values[number] for column, values in table.items()}
        found.add_node(name, **{column: value for column, value in values.items() if value is not None})
    source, target = _entries(graph)
    once = source < target
    ends = [[names[end] for end in side[once].tolist()] for side in (source, target)]
    if graph.weights is None:
        found.add_edges_from(zip(*ends, strict=True))
    else:
        found.add_weighted_edges_from(zip(*ends, graph.weights[once].tolist(), strict=True))
    return found


def nodes_table(graph: Graph) -> Any:
    """An Arrow table of the nodes: `id`, and where there are any `label` and `split`; null for unknown and none."""
    import pyarrow as pa

    columns = {"id": pa.array(np.arange(graph.num_nodes)) if graph.ids is None else graph.ids}
    if graph.labels is not None:
        columns["label"] = _labels(graph)
    if graph.splits:
        split_of = np.full(graph.num_nodes, None, object)
        for split, idx in graph.splits.items():
            split_of[idx] = split
        columns["split"] = pa.array(split_of, pa.string())
    return pa.table(columns)


def _entries(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of every stored entry, (2E,) each: an edge stands there both ways."""
    return np.repeat(np.arange(graph.num_nodes), graph.degrees), np.asarray(graph.indices, np.int64)


def _labels(graph: Graph) -> Any:
    """The class of every node, by name where the classes have names; a list of them for several labels a node."""
    import pyarrow as pa

    assert graph.labels is not None
    if graph.labels.ndim == 1:
        return pa.array(label_names(graph, np.arange(graph.num_nodes)), mask=np.asarray(graph.labels) < 0)
    names = np.arange(graph.num_classes) if graph.class_names is None else np.array(graph.class_names)
    counts = graph.labels.sum(axis=1)
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()), pa.array(names[np.nonzero(graph.labels)[1]])
    )
