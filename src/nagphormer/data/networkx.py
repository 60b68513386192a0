"""Graphs from NetworkX, by the methods they have: NetworkX itself is not imported.

Shapes: N nodes, E edges, F features
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from nagphormer.data.checks import SPLITS
from nagphormer.data.graph import Graph, from_edges
from nagphormer.errors import UserError


def from_networkx(
    graph: Any,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = "weight",
    split: str | None = None,
) -> Graph:
    """Build a graph from a NetworkX graph: directed, undirected, or with parallel edges.

    Node names become node ids: integers stay integers, strings strings, anything else is written out.

    Args:
        graph: the NetworkX graph.
        features: a node attribute that holds a vector, or several that hold a number each.
        label: the node attribute with the class, integer or text; nodes without it are unlabeled.
        weight: the edge attribute with the weight; edges without it weigh 1, and where no edge has it all
            count alike. None to ignore weights.
        split: the node attribute that says `train`, `val` or `test`; nodes without it join no split.

    >>> import networkx as nx
    >>> from_networkx(nx.karate_club_graph(), label="club").class_names
    ('Mr. Hi', 'Officer')
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "number_of_edges")):
        raise UserError(f"{type(graph).__name__} is not a NetworkX graph: it has no nodes and edges")
    position = {node: i for i, node in enumerate(graph.nodes())}
    source, target = _ends(graph, position)
    return from_edges(
        source,
        target,
        len(position),
        None if weight is None else _weights(graph, weight),
        features=None if features is None else _features(graph, features),
        labels=None if label is None else _labels(graph, label),
        splits=None if split is None else _splits(graph, split),
        node_ids=_ids(list(position)),
    )


def _ends(graph: Any, position: dict[Any, int]) -> np.ndarray:
    flat = chain.from_iterable((position[edge[0]], position[edge[1]]) for edge in graph.edges())
    return np.fromiter(flat, np.int64, 2 * graph.number_of_edges()).reshape(-1, 2).T  # (2, E)


def _weights(graph: Any, attribute: str) -> np.ndarray | None:
    values = [edge[-1] for edge in graph.edges(data=attribute)]
    if all(value is None for value in values):
        return None
    try:
        return np.array([1 if value is None else value for value in values], np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"the edge attribute {attribute!r} is not a number everywhere ({error})") from error


def _features(graph: Any, attributes: str | Sequence[str]) -> np.ndarray:
    columns = [attributes] if isinstance(attributes, str) else list(attributes)
    rows = []
    for node, values in graph.nodes(data=True):
        missing = [column for column in columns if values.get(column) is None]
        if missing:
            raise UserError(f"node {node!r} has no attribute {missing[0]!r}: every node needs its features")
        rows.append(np.concatenate([np.ravel(values[column]) for column in columns]))
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise UserError(f"features differ in length from node to node: {min(widths)} to {max(widths)} numbers")
    try:
        return np.array(rows, np.float32)  # (N, F)
    except ValueError as error:
        raise UserError(f"features must be numbers ({error})") from error


def _labels(graph: Any, attribute: str) -> np.ndarray:
    values = [value for _, value in graph.nodes(data=attribute)]
    known = [value for value in values if value is not None]
    if not known:
        raise UserError(f"no node has the attribute {attribute!r} that should be its label")
    if all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in known):
        return np.array([-1 if value is None else int(value) for value in values])
    if all(isinstance(value, (bool, np.bool)) for value in values):
        return np.array(values)
    return np.array([None if value is None else str(value) for value in values], object)


def _splits(graph: Any, attribute: str) -> dict[str, list[int]]:
    splits: dict[str, list[int]] = {}
    for i, (node, value) in enumerate(graph.nodes(data=attribute)):
        if value is not None and value not in SPLITS:
            raise UserError(f"node {node!r} has {attribute} {value!r}: it must be train, val or test")
        if value is not None:
            splits.setdefault(value, []).append(i)
    return splits


def _ids(names: list[Any]) -> np.ndarray | list[str]:
    if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names):
        largest = max((abs(int(name)) for name in names), default=0)
        if largest < 2**63:
            return np.array(names, np.int64)
    return [str(name) for name in names]
