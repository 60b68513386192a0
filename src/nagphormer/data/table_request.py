"""What an import is asked for: tables, and what their columns mean."""

from __future__ import annotations

from collections.abc import Sequence
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

    def check(self) -> None:
        """Refuse what cannot be had together."""
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
        columns = [[each] if isinstance(each, str) else each for each in (self.features, self.encode, self.exclude)]
        return Wanted(columns[0], columns[1] or (), self.fill, columns[2] or (), self.learned())

    def learned(self) -> Learned | None:
        """What the graph to be like learned from its tables."""
        if self.like is None:
            return None
        graph = self.like if isinstance(self.like, Graph) else open_graph(self.like)
        if graph.learned is None:
            source = graph.folder or "it"
            raise UserError(f"the graph to be like was not read from tables by this version: import {source} again")
        return graph.learned
