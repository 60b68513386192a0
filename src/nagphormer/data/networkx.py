"""Graphs from NetworkX, by the methods they have: NetworkX itself is not imported.

Shapes: N nodes, E edges, F features
"""

from collections.abc import Sequence
from itertools import chain
from numbers import Real
from types import ModuleType
from typing import Any

import numpy as np

from nagphormer.data.checks import SPLIT_WORDS
from nagphormer.data.graph import Graph, from_edges
from nagphormer.data.tensors import as_array, is_missing
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
    if isinstance(graph, ModuleType) or not all(hasattr(graph, name) for name in ("nodes", "edges", "number_of_edges")):
        raise UserError(f"{type(graph).__name__} is not a NetworkX graph: it has no nodes and edges")
    if not isinstance(weight, str | None):
        raise UserError(f"weight={weight!r} names no edge attribute: give its name, or None")
    position = {node: i for i, node in enumerate(graph.nodes())}
    source, target = _ends(graph, position)
    return from_edges(
        source,
        target,
        len(position),
        None if weight is None else _weights(graph, weight),
        **({} if features is None else _features(graph, features)),
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
        if values and attribute != "weight":
            raise UserError(f"no edge has the attribute {attribute!r} that should be its weight: is its name right?")
        return None
    wrong = next((value for value in values if not (value is None or isinstance(value, Real | np.bool_))), None)
    if wrong is not None:
        raise UserError(f"the edge attribute {attribute!r} is not a number everywhere: it holds {wrong!r}")
    return np.array([1 if value is None else value for value in values], np.float64)


def _features(graph: Any, attributes: str | Sequence[str]) -> dict[str, Any]:
    """Features (N, F) and their names: of a vector's entries `attribute[0]`, `attribute[1]` …, as in a table."""
    columns = [attributes] if isinstance(attributes, str) else _listed(attributes)
    rows, names = [], None
    for node, values in graph.nodes(data=True):
        missing = [column for column in columns if values.get(column) is None]
        if missing:
            raise UserError(f"node {node!r} has no attribute {missing[0]!r}: every node needs its features")
        parts = [as_array(values[column], column) for column in columns]
        rows.append(np.concatenate(list(map(np.ravel, parts))))
        if rows[-1].dtype.kind not in "biuf":
            raise UserError(f"node {node!r} has features {rows[-1].tolist()!r}: features must be numbers")
        names = names or [name for column, part in zip(columns, parts, strict=True) for name in _names(column, part)]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise UserError(f"features differ in length from node to node: {min(widths)} to {max(widths)} numbers")
    return {"features": np.array(rows, np.float32), "feature_names": names}


def _names(attribute: str, values: np.ndarray) -> list[str]:
    return [f"{attribute}[{entry}]" for entry in range(values.size)] if values.ndim else [attribute]


def _listed(attributes: Any) -> list[str]:
    """Names of node attributes; refuses what is no list of them."""
    if isinstance(attributes, Sequence) and attributes and all(isinstance(name, str) for name in attributes):
        return list(attributes)
    raise UserError(
        f"features={attributes!r} names no node attributes: give that of one with a vector, or a list of names"
    )


def _labels(graph: Any, attribute: str) -> np.ndarray:
    values = np.empty(graph.number_of_nodes(), object)  # so that lists in it stay lists
    for number, (_, value) in enumerate(graph.nodes(data=attribute)):
        values[number] = value
    if all(value is None for value in values):
        raise UserError(f"no node has the attribute {attribute!r} that should be its label")
    return values


def _splits(graph: Any, attribute: str) -> dict[str, list[int]]:
    splits: dict[str, list[int]] = {}
    for i, (node, value) in enumerate(graph.nodes(data=attribute)):
        if is_missing(value) or value == "":
            continue
        name = next((name for name, words in SPLIT_WORDS.items() if value in words), None)
        if name is None:
            raise UserError(f"node {node!r} has {attribute} {value!r}: it must be train, val or test")
        splits.setdefault(name, []).append(i)
    return splits


def _ids(names: list[Any]) -> np.ndarray | list[str]:
    if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names):
        largest = max((abs(int(name)) for name in names), default=0)
        if largest < 2**63:
            return np.array(names, np.int64)
    return [str(name) for name in names]
