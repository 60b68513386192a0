"""What an import learned from its tables, so that later tables give the same features and classes in the same order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class LearnedColumn:
    """A column of the node table, and what becomes of it."""

    name: str
    """The column's name."""
    kind: Literal["number", "list", "category"]
    """Whether it is a feature, holds a list of them, or becomes one of 0 and 1 for each category."""
    width: int = 1
    """The length of a list."""
    categories: tuple[str, ...] = ()
    """Every category, in the order of its feature; others are zeros in all."""
    fill: float | None = None
    """What a missing number becomes; None where it is refused."""
    indicator: bool = False
    """Whether a feature of its own says which numbers were missing."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features.

        >>> LearnedColumn("city", "category", categories=("Oslo", "Rome")).features
        ('city=Oslo', 'city=Rome')
        """
        if self.kind == "category":
            return tuple(f"{self.name}={category}" for category in self.categories)
        if self.kind == "list":
            return tuple(f"{self.name}[{entry}]" for entry in range(self.width))
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)


@dataclass(frozen=True)
class Learned:
    """What was learned from the columns that are features, and from the labels."""

    columns: tuple[LearnedColumn, ...] = ()
    """Columns that are features, in their order."""
    classes: tuple[str, ...] | None = None
    """Names of the classes in their order; None without labels."""
    several: bool = False
    """Whether a node may have several labels."""
    others: tuple[str, ...] = ()
    """All other columns of the node table, so that one that comes later is known to be new."""

    @classmethod
    def read(cls, entries: dict[str, Any]) -> Learned:
        """As it stands in a manifest."""
        classes = None if entries["classes"] is None else tuple(entries["classes"])
        columns = [LearnedColumn(**each | {"categories": tuple(each["categories"])}) for each in entries["columns"]]
        others = tuple(entries["others"])
        return replace(cls(**entries), columns=tuple(columns), classes=classes, others=others)
