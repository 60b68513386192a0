"""Which columns of a node table are features and what becomes of them: numbers, filled ones, lists, categories.

Shapes: N nodes, F features
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NoReturn

import numpy as np

from nagphormer.data.classes import in_one_spelling, in_order
from nagphormer.data.learned import Learned, LearnedColumn
from nagphormer.data.table_files import Table
from nagphormer.data.table_sql import (
    FRACTIONS,
    NO_NAME,
    NOTHING,
    first_row,
    is_list,
    is_number,
    is_text,
    is_time,
    reading,
    sql_name,
)
from nagphormer.errors import Refusal, UserError

Fill = Literal["mean", "0"]

MOST_CATEGORIES = 4096
"""Categories of a column that can be encoded."""
WHOLE = r"^(-?[0-9]+)\.0*$"
"""A whole number that is written as a fraction."""

_FEW_CATEGORIES = 1000  # of a column that is worth encoding, when a refusal says what to do
_INDEX = re.compile(rf"{re.escape(NO_NAME)}|Unnamed: 0(\.[0-9]+)*|__index_level_[0-9]+__")
"""What pandas calls an index without a name that it writes, and such a column when it reads it again."""
_NO_TIME = (
    "a date or time is no number that nodes can be compared by: "
    "give what matters of it, such as the year or an age in days, in a column of numbers"
)


@dataclass(frozen=True)
class Wanted:
    """What was asked for about features."""

    features: Sequence[str] | None = None
    """Columns, or None for all that are left."""
    encode: Sequence[str] = ()
    """Columns to encode."""
    fill: Fill | None = None
    """What missing numbers become."""
    exclude: Sequence[str] = ()
    """Columns to leave out."""
    like: Learned | None = None
    """What an earlier import learned, which decides in place of all that."""


@dataclass(frozen=True)
class Piece:
    """Neighboring features that are read as one."""

    columns: tuple[LearnedColumn, ...]
    """Columns of numbers, or one column of lists or categories."""
    sql: str
    """A node's FLOAT[], or the text of its category."""

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(len(column.features) for column in self.columns)

    @property
    def categories(self) -> tuple[str, ...] | None:
        """The categories, None for numbers."""
        return self.columns[0].categories if self.columns[0].kind == "category" else None


@dataclass(frozen=True)
class Vectors:
    """The features of the node table, piece by piece."""

    table: Table
    """The node table."""
    columns: tuple[LearnedColumn, ...]
    """The columns that are features, in their order."""
    missing: dict[str, int]
    """Missing numbers of the columns where they are filled."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, (F,)."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def width(self) -> int:
        """Number of features, F."""
        return len(self.names)

    @property
    def scan(self) -> str:
        """SQL that reads the node table in its order."""
        return self.table.scan(numbers=[column.name for column in self.columns if column.kind == "number"])

    @property
    def pieces(self) -> list[Piece]:
        """What is read as one; numbers that stand together make one list."""
        found = []
        for (kind, _), run in groupby(enumerate(self.columns), _run_of):
            columns = tuple(column for _, column in run)
            entries = [_entries(self.table, column) for column in columns]
            found.append(
                Piece(columns, f"TRY_CAST([{', '.join(entries)}] AS FLOAT[])" if kind == "number" else entries[0])
            )
        return found

    @property
    def finite(self) -> str:
        """SQL for whether all numbers of a node are there and finite."""
        conditions = ["true"]
        for piece in self.pieces:
            if piece.categories is None:  # `len` counts NULL entries, the aggregate `count` passes over them
                lengths = f"len({piece.sql}), list_aggregate({piece.sql}, 'count')"
                whole = f"({lengths}) = ({piece.width}, {piece.width})"
                conditions.append(f"coalesce({whole} AND isfinite(list_sum({piece.sql})), false)")
        return " AND ".join(conditions)


def _run_of(numbered: tuple[int, LearnedColumn]) -> tuple[str, int]:
    number, column = numbered
    return (column.kind, -1 if column.kind == "number" else number)


def _entries(table: Table, column: LearnedColumn) -> str:
    """SQL for what is read of a column: entries of a list of numbers, a list, or the text of a category."""
    if column.kind == "list":
        return f"TRY_CAST({sql_name(column.name)} AS FLOAT[])"
    if column.kind == "category":
        return _category_text(table, column.name)
    number = table.number(column.name)
    if column.fill is None:
        return number
    missing = f"({number} IS NULL OR isnan({number}))"
    filled = f"CASE WHEN {missing} THEN {column.fill!r} ELSE {number} END"
    return f"{filled}, CAST({missing} AS DOUBLE)" if column.indicator else filled


def _category_text(table: Table, name: str) -> str:
    """SQL for what stands in a column of categories; a number that is none is as missing as an empty text."""
    text = table.text(name)
    if not table.types[name].startswith(FRACTIONS):
        return f"nullif({text}, '')"
    return f"CASE WHEN lower({text}) NOT IN ('', 'nan', '-nan') THEN {text} END"


def _category(table: Table, name: str) -> str:
    """SQL for the category that is learned of it: 3.0 beside gaps is the one that is 3 where there are none."""
    text = _category_text(table, name)
    return f"regexp_replace({text}, '{WHOLE}', '\\1')" if table.types[name].startswith(FRACTIONS) else text


def plan_features(db: Any, table: Table, wanted: Wanted, used: Sequence[str | None]) -> Vectors | None:
    """Find the columns that are features, and learn what is needed of them; None where there are none.

    Args:
        db: the DuckDB connection.
        table: the node table.
        wanted: what was asked for.
        used: columns that mean something else: the id, the label, the split.
    """
    if wanted.like is not None:
        columns = _as_before(table, wanted.like)
        missing = _count_missing(db, table, [column.name for column in columns if column.fill is not None])
    else:
        kinds = _find_columns(db, table, wanted, used)
        columns, missing = _fit(db, table, kinds, wanted.fill)
    if not columns:
        return None
    vectors = Vectors(table, columns, {name: count for name, count in missing.items() if count})
    twice = next((name for name, number in Counter(vectors.names).items() if number > 1), None)
    if twice is not None:
        raise UserError(f"two features of {table.path} would be called {twice!r}: rename a column")
    return vectors


def left_out(table: Table, used: Iterable[str | None], vectors: Vectors | None = None) -> list[str]:
    """Columns of which nothing is taken."""
    taken = {*used, *(column.name for column in (vectors.columns if vectors else ()))}
    return [name for name in table.types if name not in taken and not _INDEX.fullmatch(name)]


def _find_columns(db: Any, table: Table, wanted: Wanted, used: Sequence[str | None]) -> dict[str, str]:
    """The columns that are features, and the kind of each."""
    for name in (*wanted.exclude, *wanted.encode):
        table.require(name)
    chosen = wanted.features
    if chosen is None:
        chosen = left_out(table, (*used, *table.index, *wanted.exclude))
    chosen = [*chosen, *(name for name in wanted.encode if name not in chosen)]
    for name in chosen:
        if name in used:
            raise UserError(f"column {name!r} is the id, label or split: it cannot be a feature as well")
        if name in wanted.exclude:
            raise UserError(f"column {name!r} is to be left out and to be a feature: choose one")
    kinds = {}
    unfit = {}
    for name in chosen:
        kind = table.require(name)
        if name in wanted.encode:
            if is_time(kind) or not (is_text(kind) or is_number(kind)):
                reason = _NO_TIME if is_time(kind) else "text and numbers can be encoded"
                raise Refusal(f"column {name!r} of {table.path} holds {kind}: {reason}", {"exclude": [name]})
            kinds[name] = "category"
        elif is_list(kind):
            kinds[name] = "list"
        elif is_number(kind) or (table.layout is not None and wanted.features is not None and is_text(kind)):
            kinds[name] = "number"  # a line of text that is no number is named on reading
        else:
            unfit[name] = kind
    if unfit:
        _refuse_columns(db, table, unfit, [name for name in kinds if kinds[name] == "number"], wanted)
    return kinds


def _refuse_columns(db: Any, table: Table, unfit: dict[str, str], numbers: list[str], wanted: Wanted) -> NoReturn:
    """Say which columns cannot be features, and what could be asked for instead."""
    path = table.path
    instead: dict[str, list[str]] = {"encode": [], "exclude": []}
    for name, kind in unfit.items():
        few = is_text(kind) and 0 < _count_categories(db, table, name) <= _FEW_CATEGORIES
        instead["encode" if few else "exclude"].append(name)
    if wanted.fill is None and any(_count_missing(db, table, numbers).values()):
        instead["fill"] = ["mean"]
    if wanted.features is not None:
        name, kind = next(iter(unfit.items()))
        reason = f"it must hold numbers; {_NO_TIME}" if is_time(kind) else "it must hold numbers"
        reason += "; text can be encoded, with --encode or encode=[…]" if is_text(kind) else ""
        raise Refusal(f"column {name!r} of {path} holds {kind}: {reason}", {} if instead["exclude"] else instead)
    listed = ", ".join([f"{name} ({kind})" for name, kind in unfit.items()][:10])
    times = f"; {_NO_TIME}" if any(map(is_time, unfit.values())) else ""
    raise Refusal(
        f"columns of {path} do not hold numbers: {listed}; encode text with --encode or encode=[…], leave columns out "
        f"with --exclude or exclude=[…], or name those that are features, with --features or features=[…]{times}",
        instead,
    )


def _fit(
    db: Any, table: Table, kinds: dict[str, str], fill: Fill | None
) -> tuple[tuple[LearnedColumn, ...], dict[str, int]]:
    """Learn categories, lengths of lists, and what missing numbers become; gives how many are missing, too."""
    numbers = [name for name, kind in kinds.items() if kind == "number"]
    missing = _count_missing(db, table, numbers) if fill is not None else {}
    means = _means(db, table, numbers) if fill == "mean" else dict.fromkeys(numbers, 0.0)
    columns = []
    for name, kind in kinds.items():
        if kind == "category":
            columns.append(LearnedColumn(name, "category", categories=_find_categories(db, table, name)))
        elif kind == "list":
            columns.append(LearnedColumn(name, "list", width=_list_width(db, table, name)))
        elif fill is None:
            columns.append(LearnedColumn(name, "number"))
        else:
            columns.append(LearnedColumn(name, "number", fill=means[name], indicator=missing[name] > 0))
    return tuple(columns), missing


def _as_before(table: Table, like: Learned) -> tuple[LearnedColumn, ...]:
    """The columns that an earlier import took; refuses a table that lacks any, or holds something else in them."""
    lacking = [column.name for column in like.columns if column.name not in table.types]
    if lacking:
        raise UserError(
            f"{table.path} lacks columns that are features of the graph to be like: {', '.join(lacking[:20])}; "
            f"it has {', '.join(list(table.types)[:20])}"
        )
    for column in like.columns:
        kind = table.types[column.name]
        single = (
            is_number(kind) or is_text(kind) or kind == NOTHING or table.layout is not None
        )  # its types are guessed
        if not (is_list(kind) if column.kind == "list" else single):
            raise UserError(f"column {column.name!r} of {table.path} holds {kind}, but was a {column.kind} before")
    return like.columns


def _list_width(db: Any, table: Table, name: str) -> int:
    with reading(table.path):
        lists = f"TRY_CAST({sql_name(name)} AS FLOAT[])"  # a CSV's lists are text
        first = first_row(db, f"SELECT len({lists}) FROM {table.scan()} WHERE {sql_name(name)} IS NOT NULL LIMIT 1")
    return first[0] if first else 0


def _count_categories(db: Any, table: Table, name: str) -> int:
    with reading(table.path):
        return first_row(db, f"SELECT count(DISTINCT {_category(table, name)}) FROM {table.scan()}")[0]


def _find_categories(db: Any, table: Table, name: str) -> tuple[str, ...]:
    count = _count_categories(db, table, name)
    if count == 0 or count > MOST_CATEGORIES:
        raise Refusal(
            f"column {name!r} of {table.path} has {count:,} categories, and from 1 to {MOST_CATEGORIES:,} can be "
            f"encoded: merge the rare ones, or leave it out with --exclude or exclude=[…]",
            {"exclude": [name]},
        )
    with reading(table.path):
        rows = db.execute(f"SELECT DISTINCT {_category(table, name)} FROM {table.scan()}").fetchall()
    return tuple(in_order(in_one_spelling(text for (text,) in rows if text is not None).values()))


def _count_missing(db: Any, table: Table, numbers: list[str]) -> dict[str, int]:
    counts = [f"count(*) FILTER ({number} IS NULL OR isnan({number}))" for number in map(table.number, numbers)]
    return _one_each(db, table, numbers, counts)


def _means(db: Any, table: Table, numbers: list[str]) -> dict[str, float]:
    """The mean of the numbers that float32 can hold; 0 where there are none."""
    most = float(np.finfo(np.float32).max)  # a number above is refused with its node
    means = [f"coalesce(favg({n}) FILTER (abs({n}) <= {most!r}), 0)" for n in map(table.number, numbers)]
    return {name: float(np.float32(mean)) for name, mean in _one_each(db, table, numbers, means).items()}


def _one_each(db: Any, table: Table, numbers: list[str], sql: list[str]) -> dict[str, Any]:
    if not numbers:
        return {}
    with reading(table.path):
        values = first_row(db, f"SELECT {', '.join(sql)} FROM {table.scan(numbers=numbers)}")
    return dict(zip(numbers, values, strict=True))


def refuse_vector(db: Any, vectors: Vectors, found: tuple[Any, ...], may_fill: bool) -> NoReturn:
    """Say what is wrong with the features in a row of the node table.

    Args:
        db: the DuckDB connection.
        vectors: the features.
        found: how many rows are wrong, and the first one's position and id.
        may_fill: whether missing numbers could be filled.
    """
    count, row, node = found
    for piece in vectors.pieces:
        if piece.categories is not None:
            continue
        first = piece.columns[0]
        taken = [piece.sql] if first.kind == "list" else [vectors.table.number(column.name) for column in piece.columns]
        values = first_row(db, f"SELECT {', '.join(taken)} FROM {vectors.scan} LIMIT 1 OFFSET {row}")
        names = [f"feature {column.name!r}" for column in piece.columns]
        if first.kind == "list":
            values = [None] if values[0] is None else values[0]
            text = first_row(db, f"SELECT {vectors.table.text(first.name)} FROM {vectors.scan} LIMIT 1 OFFSET {row}")[0]
            if None in values and text and vectors.table.layout is not None:
                raise UserError(f"{names[0]} of node {node!r} is {text!r}: it must be a list of numbers, as [1, 2.5]")
            if values != [None] and (len(values) != piece.width or not values):
                raise UserError(
                    f"{names[0]} of node {node!r} has {len(values)} entries, but that of the first node has "
                    f"{piece.width}: lists must be equally long, and not empty"
                )
            names = [f"entry {entry} of {names[0]}" for entry in range(len(values))] if values != [None] else names
        with np.errstate(over="ignore"):
            finite = [value is not None and bool(np.isfinite(np.float32(value))) for value in values]
        filled = [column.fill is not None for column in piece.columns]
        missing = [value is None or value != value for value in values]
        if first.kind == "number":
            finite = [fine or (full and gone) for fine, full, gone in zip(finite, filled, missing, strict=True)]
        if all(finite):
            continue
        wrong = finite.index(False)
        mend = first.kind == "number" and missing[wrong] and may_fill
        advice = ", with --fill mean or fill='mean'," if mend else ""
        raise Refusal(
            f"{names[wrong]} of node {node!r} is {'missing' if values[wrong] is None else values[wrong]}; "
            f"{count:,} such nodes in all: features must be finite numbers; "
            f"fill in what is missing{advice} or leave that column out",
            {"fill": ["mean"]} if mend else {},
        )
    raise UserError(f"the features of node {node!r} in {vectors.table.path} are no numbers that float32 can hold")
