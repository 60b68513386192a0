"""Connected components, in memory of one number a node.

SciPy's routine copies the adjacency as float64, 12 bytes an edge; a memory-mapped graph must not be copied.
"""

import numba
import numpy as np

from nagphormer.data.graph import Graph


def connected_components(graph: Graph) -> np.ndarray:
    """Component number of every node, (N,) int32 or int64, numbered by each component's lowest node.

    >>> from nagphormer import synthetic_graph
    >>> len(connected_components(synthetic_graph(100, 300, 0, 2)))
    100
    """
    parent = np.arange(graph.num_nodes, dtype=graph.indices.dtype)
    _unite(parent, graph.indptr, graph.indices)
    return _number(parent)


@numba.njit(cache=True, nogil=True)
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]  # halve the path
        node = parent[node]
    return node


@numba.njit(cache=True, nogil=True)
def _unite(parent, indptr, indices):
    for node in range(len(parent)):
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if other >= node:
                break  # neighbors ascend, and the other half of the matrix says the same
            low, high = _root(parent, node), _root(parent, other)
            if low != high:
                if low > high:
                    low, high = high, low
                parent[high] = low


@numba.njit(cache=True, nogil=True)
def _number(parent):
    numbers = np.empty_like(parent)
    count = 0
    for node in range(len(parent)):
        root = _root(parent, node)
        if root == node:  # roots are the lowest nodes of their components, so they come first
            numbers[node] = count
            count += 1
        else:
            numbers[node] = numbers[root]
    return numbers
