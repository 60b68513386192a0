"""What a graph looks like: counts, degrees, components, homophily and labels."""

from typing import Any

import numba
import numpy as np

from nagphormer.data.components import connected_components
from nagphormer.data.graph import Graph

FEWEST_EDGES = 30
"""Edges between training nodes that tell whether neighbors are alike."""


def summarize(graph: Graph) -> dict[str, Any]:
    """Describe a graph in plain numbers, ready for JSON.

    >>> from nagphormer import synthetic_graph
    >>> summarize(synthetic_graph(100, 300, 8, 2))["nodes"]
    100
    """
    degrees = graph.degrees
    sizes = np.bincount(connected_components(graph))
    kind = graph.feature_kind
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "weighted": graph.weights is not None,
        "features": graph.num_features,
        "feature_density": None if kind is None else round(kind.density, 6),
        "degree_mean": round(float(degrees.mean()), 2),
        "degree_median": float(np.median(degrees)),
        "degree_max": int(degrees.max()),
        "isolated_nodes": int((degrees == 0).sum()),
        "components": len(sizes),
        "largest_component": int(sizes.max()),
        "homophily": _homophily(graph),
        "classes": graph.num_classes,
        "label_counts": _label_counts(graph),
        "unlabeled_nodes": 0 if graph.labels is None or graph.labels.ndim == 2 else int((graph.labels < 0).sum()),
        "splits": {split: len(nodes) for split, nodes in graph.splits.items()},
        "fingerprint": graph.fingerprint,
    }


def _label_counts(graph: Graph) -> dict[str, int]:
    """Nodes of every class, by name where it has one."""
    if graph.labels is None:
        return {}
    if graph.labels.ndim == 2:
        counts = graph.labels.sum(axis=0)
    else:
        counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    names = graph.class_names or tuple(map(str, range(len(counts))))
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _homophily(graph: Graph) -> float | None:
    """Share of edges that join equal labels, among edges with both ends labeled; None for multi-label tasks."""
    if graph.labels is None or graph.labels.ndim == 2:
        return None
    equal, labeled = _count_equal(graph.indptr, graph.indices, graph.labels)
    return round(equal / labeled, 4) if labeled else None


def training_homophily(graph: Graph) -> float | None:
    """Share of the edges between training nodes that join equal labels; None for multi-label tasks, or of few edges."""
    if graph.labels is None or graph.labels.ndim == 2:
        return None
    known = np.full(graph.num_nodes, -1, np.int64)
    train = graph.splits["train"]
    known[train] = graph.labels[train]
    equal, counted = _count_equal(graph.indptr, graph.indices, known)
    return equal / counted if counted >= 2 * FEWEST_EDGES else None


@numba.njit(cache=True, nogil=True)
def _count_equal(indptr, indices, labels):
    equal, labeled = 0, 0
    for node in range(len(indptr) - 1):
        if labels[node] < 0:
            continue
        for edge in range(indptr[node], indptr[node + 1]):
            other = labels[indices[edge]]
            labeled += other >= 0
            equal += other == labels[node]
    return equal, labeled
