"""Words of DuckDB: names and texts as SQL, what its types hold, and its errors as those of a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from nagphormer.errors import UserError

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
LONG_INTEGERS = ("UBIGINT", "HUGEINT", "UHUGEINT")  # may exceed int64
FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")
NOTHING = '"NULL"'  # the type of a column in which every value is missing
NO_NAME = "(no name)"  # what a column without a name is called


def is_number(kind: str) -> bool:
    """Whether a DuckDB type is a number (or true and false)."""
    if kind.startswith(FRACTIONS):
        return not kind.endswith("]")
    return kind in (*INTEGERS, *LONG_INTEGERS, "BOOLEAN")


def is_list(kind: str) -> bool:
    """Whether a DuckDB type is a list of numbers, of free or fixed length."""
    return kind.endswith("]") and is_number(kind[: kind.rindex("[")])


def is_text(kind: str) -> bool:
    """Whether a DuckDB type is text."""
    return kind in ("VARCHAR", "UUID") or (kind.startswith("ENUM") and kind.endswith(")"))


def is_time(kind: str) -> bool:
    """Whether a DuckDB type is a date, a time or a span of it."""
    return kind.startswith(("DATE", "TIME", "INTERVAL")) and not kind.endswith("]")


def sql_text(text: str) -> str:
    """A string as SQL."""
    return "'" + text.replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """A column's name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def trimmed(text: str) -> str:
    """SQL for a text without the blanks and tabs around it; to look for tabs first is faster than a set of both."""
    return f"CASE WHEN contains({text}, '\t') THEN trim({text}, ' \t') ELSE trim({text}) END"


def first_row(db: Any, query: str) -> Any:
    """The first row of a query, None where there is none; later queries find the connection free again."""
    rows = db.execute(query).fetchall()
    return rows[0] if rows else None


def refuse_twins(names: Iterable[str], where: str) -> None:
    """Refuse columns of one name; DuckDB tells no upper from lower case."""
    names = list(names)
    counts = Counter(name.lower() for name in names)
    twice = next((name for name in names if counts[name.lower()] > 1), None)
    if twice is not None:
        raise UserError(f"{where} names column {twice!r} twice: rename one (in more than its case)")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what DuckDB says about a table into a message that names it."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        reason = re.split(r"\n(?:Possible|Column|LINE|  file)", str(error))[0]
        raise UserError(f"cannot read {path}: {' '.join(reason.split())}") from error
