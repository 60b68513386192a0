"""Synthetic graphs of any size: power-law degrees, planted communities, features and labels that follow them.

Shapes: N nodes, M undirected edges, F features, C classes, B communities
"""

import numpy as np
import scipy.sparse as sp

from nagphormer.data.graph import Graph, from_parts
from nagphormer.errors import UserError, check_whole

POWER = 2.5
"""Exponent of the degree distribution."""
INSIDE = 0.8
"""Share of an ordinary node's edges that stay in its community."""
LABEL_NOISE = 0.1
"""Share of nodes whose label is drawn at random."""


def synthetic_graph(
    num_nodes: int,
    num_edges: int,
    num_features: int,
    num_classes: int,
    seed: int = 0,
    shuffle: bool = True,
) -> Graph:
    """A random graph with planted communities, in memory of about 30 bytes an edge.

    Every node gets a degree from a power law and a community; most of its edges stay there, those of hubs go
    anywhere. A community belongs to one class; features are a class vector, a community vector and noise.

    Args:
        num_nodes: N.
        num_edges: undirected edges wanted; the graph has within 1 % of them.
        num_features: F, dense float32.
        num_classes: C.
        seed: same seed, same graph.
        shuffle: hide the communities from the order of ids; without it neighbors have near ids.

    >>> synthetic_graph(1000, 5000, 8, 4).num_nodes
    1000
    """
    numbers = {"num_nodes": num_nodes, "num_edges": num_edges, "num_features": num_features, "num_classes": num_classes}
    for what, number in numbers.items():
        check_whole(what, number)
    if num_nodes < 2 or num_classes < 1 or num_edges < 1 or num_features < 0:
        raise UserError("a synthetic graph needs at least 2 nodes, 1 edge and 1 class")
    if num_edges > num_nodes * (num_nodes - 1) // 4:
        raise UserError(
            f"{num_edges:,} edges are too many for {num_nodes:,} nodes: at most half of all pairs can be joined"
        )
    rng = np.random.default_rng(seed)
    # a community is ten times wider than the mean degree, so that its members are not all joined
    size = max(50, 20 * num_edges // num_nodes)
    num_communities = min(max(num_classes, num_nodes // size), num_nodes)
    community = np.sort(rng.integers(0, num_communities, num_nodes)).astype(np.int32)  # (N,)
    upper = _sample_edges(community, num_communities, num_edges, rng)

    order = rng.permutation(num_nodes).astype(np.int32) if shuffle else np.arange(num_nodes, dtype=np.int32)
    if shuffle:
        ends = (order[np.repeat(np.arange(num_nodes), np.diff(upper.indptr))], order[upper.indices])
        upper = sp.csr_array(sp.coo_array((upper.data, ends), shape=upper.shape))
        del ends
    matrix = upper + upper.T.tocsr()
    matrix.sort_indices()
    del upper

    placed = np.empty(num_nodes, np.int32)
    placed[order] = community  # community of the node that ended up at each id
    class_of = rng.permutation(np.arange(num_communities) % num_classes)
    labels = class_of[placed]
    noisy = rng.random(num_nodes) < LABEL_NOISE
    labels[noisy] = rng.integers(0, num_classes, int(noisy.sum()))
    features = _draw_features(class_of, placed, num_features, num_classes, rng)
    return from_parts(matrix, features=features, labels=labels, name="synthetic")


def _sample_edges(
    community: np.ndarray, num_communities: int, num_edges: int, rng: np.random.Generator
) -> sp.csr_array:
    """Upper triangle of the adjacency, boolean; nodes are ordered by community."""
    num_nodes = len(community)
    mean_degree = 2 * num_edges / num_nodes
    weight = rng.random(num_nodes) ** (-1 / (POWER - 1))
    weight /= weight.mean()
    np.minimum(weight, num_nodes / (10 * mean_degree), out=weight)  # a hub knows at most a tenth of all nodes
    weight /= weight.sum()
    local = np.minimum(weight, 3 / num_nodes)  # hubs are hubs of the whole graph, not of their community
    bounds = np.searchsorted(community, np.arange(num_communities + 1))
    global_sum = np.concatenate(([0.0], np.cumsum(weight)))
    local_sum = np.concatenate(([0.0], np.cumsum(local)))
    stays = INSIDE * local / weight

    upper = sp.csr_array((num_nodes, num_nodes), dtype=bool)
    for _ in range(1000):  # a few, unless half of all pairs are asked for
        missing = num_edges - upper.nnz
        if missing <= 0.002 * num_edges:
            break
        source = np.repeat(
            np.arange(num_nodes, dtype=np.int32), rng.poisson(weight * missing)
        )  # the first end of every new edge
        target = np.empty_like(source)
        for start in range(0, len(source), 1 << 20):
            part = source[start : start + (1 << 20)]
            inside = rng.random(len(part)) < stays[part]
            low, high = bounds[community[part]], bounds[community[part] + 1]
            low = np.where(inside, local_sum[low], 0.0)
            high = np.where(inside, local_sum[high], 1.0)
            draw = low + (high - low) * rng.random(len(part))
            found = np.empty(len(part), np.int64)
            found[inside] = np.searchsorted(local_sum, draw[inside], side="right") - 1
            found[~inside] = np.searchsorted(global_sum, draw[~inside], side="right") - 1
            target[start : start + len(part)] = np.minimum(found, num_nodes - 1)
        keep = source != target
        source, target = source[keep], target[keep]
        ends = (np.minimum(source, target), np.maximum(source, target))
        fresh = sp.csr_array(sp.coo_array((np.ones(len(source), bool), ends), shape=upper.shape))
        del source, target, ends, keep
        fresh.sum_duplicates()
        upper = fresh if upper.nnz == 0 else upper + fresh
    if upper.nnz > 1.005 * num_edges:  # of few edges chance draws too many
        chosen = sp.coo_array(upper)
        keep = rng.permutation(chosen.nnz)[:num_edges]
        upper = sp.csr_array(sp.coo_array((chosen.data[keep], (chosen.row[keep], chosen.col[keep])), upper.shape))
    return upper


def _draw_features(
    class_of: np.ndarray, placed: np.ndarray, num_features: int, num_classes: int, rng: np.random.Generator
) -> np.ndarray | None:
    """Class vector + community vector + noise, (N, F); written in pieces so that only the result is held."""
    if num_features == 0:
        return None
    class_vector = rng.standard_normal((num_classes, num_features), np.float32)
    community_vector = rng.standard_normal((len(class_of), num_features), np.float32)
    community_vector += class_vector[class_of]
    features = np.empty((len(placed), num_features), np.float32)
    for start in range(0, len(placed), 1 << 16):
        piece = features[start : start + (1 << 16)]
        rng.standard_normal(out=piece, dtype=np.float32)
        piece *= 2
        piece += community_vector[placed[start : start + len(piece)]]
    return features
