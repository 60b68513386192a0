"""Splits of a node table: a column of words, or a column of times of which the early ones train."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from nagphormer.data.checks import SPLIT_WORDS
from nagphormer.data.table_files import Table
from nagphormer.data.table_sql import first_row, is_number, is_text, is_time, reading, sql_name, sql_text
from nagphormer.errors import UserError


@dataclass(frozen=True)
class Moment:
    """A column by which nodes are early or late, and where late begins."""

    column: str
    """The column's name."""
    sql: str
    """SQL for a node's number or time."""
    bound: str
    """SQL for the first number or time that is late."""


def find_moment(db: Any, table: Table, column: str, bound: Any) -> Moment:
    """What `train_before` means; refuses a column of neither numbers nor times, and a bound that is none."""
    kind = table.require(column)
    if is_number(kind):
        try:
            number = float(str(bound))
        except ValueError:
            number = float("nan")
        if not math.isfinite(number):
            raise UserError(f"column {column!r} of {table.path} holds numbers: train before one of them, not {bound!r}")
        return Moment(column, f"CAST({sql_name(column)} AS DOUBLE)", f"{number:.17g}")
    if not (is_time(kind) or is_text(kind)):
        raise UserError(f"column {column!r} of {table.path} holds {kind}: train before a number or a date")
    text = str(bound)
    text = f"{text}-01-01" if re.fullmatch(r"[0-9]{4}", text) else text
    if first_row(db, f"SELECT TRY_CAST({sql_text(text)} AS TIMESTAMP)")[0] is None:
        raise UserError(f"cannot read {bound!r} as a date to train before: write it as 2018-12-31")
    return Moment(column, f"CAST({sql_name(column)} AS TIMESTAMP)", f"TIMESTAMP {sql_text(text)}")


def split_by_time(db: Any, table: Table, moment: Moment, labeled: bool) -> None:
    """Write splits into `nodes`, by its column `moment`: early ones train; of the rest the earlier half validates.

    Nodes of one time are in the order of the table. Where there are labels, nodes without one are in no split.
    """
    known = "moment IS NOT NULL" + (" AND label IS NOT NULL AND CAST(label AS VARCHAR) <> '-1'" if labeled else "")
    early = f"moment < {moment.bound}"
    with reading(table.path):
        counts = f"count(*) FILTER ({early}), count(*) FILTER (NOT {early}), min(moment), max(moment)"
        first, rest, *ends = first_row(db, f"SELECT {counts} FROM nodes WHERE {known}")
        if not first or rest < 2:
            raise UserError(
                f"{first:,} nodes with a label come before {moment.bound} by column {moment.column!r} of {table.path}, "
                f"and {rest:,} later: it runs from {ends[0]} to {ends[1]}; choose another date"
            )
        order = f"SELECT rowid AS node, row_number() OVER (ORDER BY moment, rowid) AS place FROM nodes WHERE {known}"
        split = f"CASE WHEN place <= {first} THEN 'train' WHEN place <= {first + rest // 2} THEN 'val' ELSE 'test' END"
        db.execute(f"UPDATE nodes SET split = {split} FROM ({order}) AS ordered WHERE nodes.rowid = ordered.node")


def check_words(db: Any, table: Table, column: str | None) -> None:
    """Refuse words that name no split."""
    words = ", ".join(sql_text(word) for words in SPLIT_WORDS.values() for word in words)
    wrong = f"FROM nodes WHERE lower(split) NOT IN ({words}) ORDER BY rowid LIMIT 1"
    found = first_row(db, f"SELECT split, id {wrong}")
    if found:
        raise UserError(
            f"column {column!r} of {table.path} holds {found[0]!r} at node {found[1]!r}: "
            f"a split is train, val or test, or empty; if the column means something else, rename it or name another"
        )
