"""The paper's formulas in plain NumPy and SciPy, in float64, and small graphs to try them on."""

import numpy as np
import scipy.sparse as sp

from nagphormer import Graph, from_scipy


def path_graph(num_nodes: int, **parts) -> Graph:
    return from_scipy(sp.diags_array(np.ones(num_nodes - 1), offsets=1, shape=(num_nodes, num_nodes)), **parts)


def ring_graph(num_nodes: int, **parts) -> Graph:
    nodes = np.arange(num_nodes)
    ends = (nodes, (nodes + 1) % num_nodes)
    return from_scipy(sp.coo_array((np.ones(num_nodes), ends), shape=(num_nodes, num_nodes)), **parts)


def star_graph(num_leaves: int, **parts) -> Graph:
    leaves = np.arange(1, num_leaves + 1)
    ends = (np.zeros_like(leaves), leaves)
    return from_scipy(sp.coo_array((np.ones(num_leaves), ends), shape=(num_leaves + 1, num_leaves + 1)), **parts)


def complete_graph(num_nodes: int) -> Graph:
    return from_scipy(np.ones((num_nodes, num_nodes)))


def union(*graphs: Graph) -> Graph:
    """The graphs side by side, without edges between them."""
    return from_scipy(sp.block_diag([graph.adjacency() for graph in graphs]))


def isolated(num_nodes: int) -> Graph:
    return from_scipy(sp.csr_array((num_nodes, num_nodes)))


def random_adjacency(num_nodes: int, seed: int, mean_degree: float = 4.0, weighted: bool = False) -> sp.csr_array:
    """A random directed adjacency; some of its nodes are isolated."""
    rng = np.random.default_rng(seed)
    count = int(num_nodes * mean_degree / 2)
    ends = rng.integers(0, num_nodes, (2, count)) // 2 * 2 if seed % 2 else rng.integers(0, num_nodes, (2, count))
    weights = rng.uniform(0.1, 5, count) if weighted else np.ones(count, bool)
    return sp.csr_array(sp.coo_array((weights, tuple(ends)), shape=(num_nodes, num_nodes)))


def random_graph(num_nodes: int = 60, num_features: int = 7, seed: int = 0, weighted: bool = False) -> Graph:
    features = np.random.default_rng(seed).standard_normal((num_nodes, num_features), np.float32)
    return from_scipy(random_adjacency(num_nodes, seed, weighted=weighted), features)


def degrees(graph: Graph) -> np.ndarray:
    return graph.adjacency().toarray().sum(axis=1, dtype=np.float64)


def hop_tokens(graph: Graph, hops: int, x: np.ndarray | None = None) -> np.ndarray:
    """X, ÂX, … Â^K X with Â = D̃^-½ (A+I) D̃^-½ and SciPy, (N, K+1, F) float64."""
    looped = sp.csr_array(graph.adjacency().astype(np.float64) + sp.eye_array(graph.num_nodes))
    root = sp.diags_array(1 / np.sqrt(looped.sum(axis=1)))
    matrix = root @ looped @ root
    if x is None:
        x = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    powers = [np.asarray(x, np.float64)]
    for _ in range(hops):
        powers.append(matrix @ powers[-1])
    return np.stack(powers, axis=1)


def laplacian(graph: Graph) -> np.ndarray:
    """I − D^-½ A D^-½ as a dense matrix; rows of isolated nodes are zero."""
    degree = degrees(graph)
    root = np.divide(1, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    return np.diag((degree > 0) * 1.0) - root[:, None] * graph.adjacency().toarray() * root


def eigenpairs(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """All non-trivial eigenvalues in ascending order and their vectors, by `numpy.linalg.eigh`."""
    touched = degrees(graph) > 0
    values, small = np.linalg.eigh(laplacian(graph)[np.ix_(touched, touched)])
    num_trivial = int((values < 1e-9).sum())
    vectors = np.zeros((graph.num_nodes, len(values)))
    vectors[touched] = small
    return values[num_trivial:], vectors[:, num_trivial:]
