"""What an import is asked for: tables, and what their columns mean."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.data.learned import Learned
from nagphormer.data.table_features import Fill, Wanted
from nagphormer.data.table_files import FilePath
from nagphormer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Request:
    """Tables, and what their columns mean; the arguments of `read_tables`, which says more of each."""

    edges: Any
    """The edge table."""
    nodes: Any = None
    """The node table."""
    source: str = "source"
    """Edge column with one end."""
    target: str = "target"
    """Edge column with the other end."""
    weight: str | None = None
    """Edge column with weights."""
    id: str = "id"
    """Node column with ids."""
    label: str | None = "label"
    """Node column with classes."""
    split: str | None = "split"
    """Node column with splits."""
    features: str | Sequence[str] | None = None
    """Node columns that are features."""
    encode: str | Sequence[str] = ()
    """Node columns to encode."""
    fill: Fill | None = None
    """What missing numbers become."""
    exclude: str | Sequence[str] = ()
    """Node columns to leave out."""
    train_before: tuple[str, Any] | None = None
    """Node column of times, and the first that does not train."""
    like: Graph | FilePath | None = None
    """A graph imported before."""
    out: FilePath | None = None
    """The graph folder to write."""
    memory: str | int | None = None
    """What DuckDB may hold."""

    def __post_init__(self) -> None:
        """Names of columns as text, which is how a frame's names are known, whatever they are."""
        for name in ("source", "target", "weight", "id", "label", "split"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else str(given))
        for name in ("features", "encode", "exclude"):
            object.__setattr__(self, name, _names(getattr(self, name)))

    def check(self) -> None:
        """Refuse what cannot be had together."""
        given = self.train_before
        if given is not None and not (isinstance(given, tuple | list) and len(given) == 2):
            raise UserError(
                f"train_before is {given!r}: give a column and the first of its numbers or dates that does not train, "
                f"such as ('year', 2018)"
            )
        if not isinstance(self.out, str | os.PathLike | None):
            raise UserError(f"out is {self.out!r}: give the folder to write, or leave it out")
        if isinstance(self.fill, int | float) and self.fill == 0:
            object.__setattr__(self, "fill", "0")
        if self.fill not in (None, "mean", "0"):
            raise UserError(f"fill is {self.fill!r}: missing numbers become the column's 'mean' or '0'")
        of_nodes = (self.features, self.encode, self.fill, self.exclude, self.train_before)
        if self.nodes is None and (
            any(of_nodes) or self.label not in ("label", None) or self.split not in ("split", None)
        ):
            raise UserError("features, label and split are columns of a node table: give one with nodes=")
        decided = (self.features is not None, bool(self.encode), self.fill is not None, bool(self.exclude))
        if self.like is not None and any(decided):
            raise UserError("a graph to be like decides on features: leave out features, encode, fill and exclude")
        if self.train_before is not None and self.split not in ("split", None):
            raise UserError(f"splits come from column {self.split!r} or from train_before, not from both")

    def wanted(self) -> Wanted:
        """What is asked for about features."""
        return Wanted(self.features, self.encode or (), self.fill, self.exclude or (), self.learned())

    def learned(self) -> Learned | None:
        """What the graph to be like learned from its tables."""
        if self.like is None:
            return None
        if not isinstance(self.like, Graph | str | os.PathLike):
            raise UserError(f"like is a {type(self.like).__name__}: give a graph that read_tables made, or its folder")
        graph = self.like if isinstance(self.like, Graph) else open_graph(self.like)
        if graph.learned is None:
            source = graph.folder or "it"
            raise UserError(f"the graph to be like was not read from tables by this version: import {source} again")
        return graph.learned


def _names(given: Any) -> tuple[str, ...] | None:
    """Names of columns, given as one or as several."""
    if given is None:
        return None
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return tuple(map(str, given if several else [given]))
