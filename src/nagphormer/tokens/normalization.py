"""Degrees and the scales that stand for the normalized adjacency.

Shapes: N nodes
"""

import numpy as np

from nagphormer.data.graph import Graph


def weighted_degrees(graph: Graph) -> np.ndarray:
    """Sum of every node's edge weights, (N,) float64; the number of neighbors without weights."""
    if graph.weights is None:
        return graph.degrees.astype(np.float64)
    sums = np.zeros(graph.num_nodes)
    filled = np.flatnonzero(graph.degrees)
    if len(filled):  # each row on its own: a running sum over all rows would swallow light ones
        sums[filled] = np.add.reduceat(graph.weights, graph.indptr[filled], dtype=np.float64)
    return sums


def loop_degrees(graph: Graph) -> np.ndarray:
    """Diagonal of D̃, the degrees of A + I, (N,) float64."""
    return weighted_degrees(graph) + 1.0
