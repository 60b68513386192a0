"""What an import took from its tables, in words and as numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from nagphormer.data.learned import LearnedColumn


@dataclass(frozen=True)
class Report:
    """What became of rows and columns."""

    edge_rows: int
    """Rows of the edge table."""
    edges: int
    """Undirected edges of the graph."""
    merged: int
    """Rows that repeat an edge, in either direction."""
    self_loops: int
    """Rows that join a node to itself, which are dropped."""
    without_weight: int
    """Edges of weight zero, which are dropped."""
    features: tuple[LearnedColumn, ...] = ()
    """Columns that are features."""
    missing: dict[str, int] = field(default_factory=dict)
    """Missing numbers that were filled, by column."""
    unseen: dict[str, int] = field(default_factory=dict)
    """Values of no known category, by column; they are zeros."""
    labeled: int | None = None
    """Nodes with a label; None where there is no column of labels."""
    nodes: int = 0
    """Nodes of the graph."""
    classes: int = 0
    """Number of classes."""
    new_columns: tuple[str, ...] = ()
    """Columns that the table of the graph to be like had not; they are left out, too."""
    new_classes: tuple[str, ...] = ()
    """Classes that the graph to be like had not."""
    splits: dict[str, int] = field(default_factory=dict)
    """Nodes of every split."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Columns of which nothing was taken, by table."""

    def facts(self) -> dict[str, Any]:
        """All of it for machines; a column's categories are counted."""
        columns = [asdict(column) | {"categories": len(column.categories)} for column in self.features]
        return asdict(self) | {"features": columns}

    def lines(self) -> list[str]:
        """All of it for people."""
        dropped = f", {self.without_weight:,} of weight zero dropped" if self.without_weight else ""
        lines = [
            f"edges: {self.edge_rows:,} rows give {self.edges:,}: {self.merged:,} merged, "
            f"{self.self_loops:,} self-loops dropped{dropped}"
        ]
        if self.features:
            lines.append(f"features: {self._features()}")
        if self.labeled is not None:
            unknown = self.nodes - self.labeled
            lines.append(f"labels: {self.classes:,} classes, {self.labeled:,} nodes; {unknown:,} have none")
        if self.splits:
            lines.append("splits: " + ", ".join(f"{split} {count:,}" for split, count in self.splits.items()))
        left = [f"{_listed(names)} ({table})" for table, names in self.left_out.items() if names]
        if left:
            lines.append(f"left out: {'; '.join(left)}")
        return lines + self.surprises()

    def surprises(self) -> list[str]:
        """What later tables hold that those to be like did not."""
        lines = []
        if self.unseen:
            counts = ", ".join(f"{name} {count:,}" for name, count in self.unseen.items())
            lines.append(f"values of categories not seen before, which are zeros: {counts}")
        if self.new_columns:
            lines.append(f"columns not seen before, which are left out: {_listed(self.new_columns)}")
        if self.new_classes:
            lines.append(f"classes not seen before: {_listed(self.new_classes)}")
        return lines

    def _features(self) -> str:
        kinds: dict[str, list[LearnedColumn]] = {"number": [], "list": [], "category": []}
        for column in self.features:
            kinds[column.kind].append(column)
        total = sum(len(column.features) for column in self.features)
        plain = len(kinds["number"])
        parts = [f"{plain:,} column{'s' * (plain != 1)} of numbers"] if plain else []
        parts += [f"{column.name} (a list of {column.width:,})" for column in kinds["list"]]
        parts += [f"{column.name} ({len(column.categories):,} categories)" for column in kinds["category"]]
        filled = {column.name: column.fill for column in kinds["number"] if column.name in self.missing}
        parts += [f"{self.missing[name]:,} missing of {name} filled with {value:g}" for name, value in filled.items()]
        return f"{total:,} from {_listed(parts)}"


def _listed(words: Any) -> str:
    words = list(words)
    return ", ".join(words[:20]) + (f" and {len(words) - 20:,} more" if len(words) > 20 else "")
