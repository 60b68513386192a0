"""Copies of a graph in which a random half of the edges is left out.

What a model reads of a node in training then changes from epoch to epoch, as it does where subgraphs are sampled, and
tokens are still made once. Whether an edge stays depends on its ends and the copy's number alone.

Shapes: N nodes, E undirected edges
"""

import numba
import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.settings import TokenSettings


def structure_of(graph: Graph, tokens: TokenSettings) -> Graph:
    """The graph whose edges such tokens follow: itself, or a copy with half of them, without features and labels."""
    if tokens.copy == 0:
        return graph
    kept = np.empty(len(graph.indices), np.bool_)
    counts = np.zeros(graph.num_nodes + 1, np.int64)
    _choose(graph.indptr, graph.indices, np.uint64(tokens.copy), kept, counts)
    weights = None if graph.weights is None else np.asarray(graph.weights)[kept]
    return Graph(indptr=np.cumsum(counts), indices=np.asarray(graph.indices)[kept], weights=weights)


@numba.njit(parallel=True, nogil=True, cache=True)
def _choose(indptr, indices, copy, kept, counts):
    for row in numba.prange(len(indptr) - 1):
        stay = 0
        for edge in range(indptr[row], indptr[row + 1]):
            other = indices[edge]
            low, high = np.uint64(min(row, other)), np.uint64(max(row, other))
            kept[edge] = _mixed(_mixed(_mixed(copy) ^ low) ^ high) & np.uint64(1)  # alike from both ends
            stay += kept[edge]
        counts[row + 1] = stay


@numba.njit(nogil=True, cache=True)
def _mixed(word):
    """A word with all of its bits mixed: SplitMix64's last steps."""
    word += np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
