"""CSV and Parquet files as DuckDB tables: found, described, and scanned without changing a value."""

from __future__ import annotations

import csv
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nagphormer.errors import MissingExtra, UserError, nearest
from nagphormer.files import format_size, parse_size, writable

FilePath = str | os.PathLike[str]

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
LONG_INTEGERS = ("UBIGINT", "HUGEINT", "UHUGEINT")  # may exceed int64
FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")

NO_NAME = "(no name)"  # a CSV column without a name

_LEAST_MEMORY = 10**9
_GUESS_ROWS = 10_000


@dataclass(frozen=True)
class Table:
    """CSV or Parquet files with the same columns."""

    path: str
    """As the user gave it."""
    files: list[str]
    """Every file, in order."""
    delimiter: str | None
    """What parts the columns of a CSV; None for Parquet."""
    types: dict[str, str]
    """DuckDB's type of every column; for a CSV, DOUBLE, BOOLEAN, FLOAT[] or VARCHAR as its first rows look."""

    def scan(self, numbers: Collection[str] = ()) -> str:
        """SQL that reads the table; a CSV's columns come as text, those in `numbers` as numbers."""
        if self.delimiter is None:
            return _parquet_scan(self.files)
        types = dict.fromkeys(self.types, "VARCHAR")
        types |= {name: "BOOLEAN" if self.types[name] == "BOOLEAN" else "DOUBLE" for name in numbers}
        return _csv_scan(self.files, self.delimiter, types)

    def require(self, name: str) -> str:
        """DuckDB's type of a column that must exist."""
        if name not in self.types:
            names = list(self.types)
            listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            raise UserError(f"{self.path} has no column {name!r}: it has {listed}.{nearest(name, names)}")
        return self.types[name]

    def optional(self, name: str | None, default: str) -> str | None:
        """The name of a column of single values; None for a column of the default name that is not there."""
        if name is None or (name == default and name not in self.types):
            return None
        if self.require(name).endswith("]") or self.types[name].startswith(("STRUCT", "MAP", "UNION")):
            raise UserError(f"column {name!r} of {self.path} holds {self.types[name]}: it must hold one value a node")
        return name

    def number(self, name: str) -> str:
        """SQL for a column of numbers, as DOUBLE."""
        kind = self.require(name)
        if self.delimiter is None and not is_number(kind):  # a CSV's line that is no number is named on reading
            raise UserError(f"column {name!r} of {self.path} holds {kind}: it must hold numbers")
        return f"CAST({sql_name(name)} AS DOUBLE)"

    def id_kind(self, name: str) -> str:
        """What the ids in a column are: `integer`, `text`, or `either` where only the values tell."""
        kind = self.require(name)
        if self.delimiter is not None or kind in LONG_INTEGERS:
            return "either"
        if kind in INTEGERS:
            return "integer"
        if kind in ("VARCHAR", "UUID") or kind.startswith("ENUM"):
            return "text"
        raise UserError(f"column {name!r} of {self.path} holds {kind}: ids are integers or text; convert the column")


def is_number(kind: str) -> bool:
    """Whether a DuckDB type is a number (or true and false)."""
    if kind.startswith(FRACTIONS):
        return not kind.endswith("]")
    return kind in (*INTEGERS, *LONG_INTEGERS, "BOOLEAN")


def is_list(kind: str) -> bool:
    """Whether a DuckDB type is a list of numbers, of free or fixed length."""
    return kind.endswith("]") and is_number(kind[: kind.rindex("[")])


def sql_text(text: str) -> str:
    """A string as SQL."""
    return "'" + text.replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """A column's name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def first_row(db: Any, query: str) -> Any:
    """The first row of a query, None where there is none; later queries find the connection free again."""
    rows = db.execute(query).fetchall()
    return rows[0] if rows else None


def find_files(path: FilePath) -> list[str]:
    """The files that a path stands for: itself, those a pattern matches, or the Parquet files of a folder."""
    text = os.fspath(path)
    if os.path.isfile(text):
        return [text]
    is_folder = os.path.isdir(text)
    pattern = os.path.join(glob.escape(text), "**", "*.parquet") if is_folder else text
    files = sorted(file for file in glob.glob(pattern, recursive=True) if os.path.isfile(file))
    if is_folder and not files:
        raise UserError(f"{text} holds no .parquet file: give a file, or a pattern such as {text}/*.csv")
    if not files:
        parent, name = os.path.split(text)
        beside = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
        raise UserError(f"no file {text}: check the path.{nearest(name, beside)}")
    return files


def open_table(db: Any, path: FilePath) -> Table:
    """Find a table's files and learn its columns."""
    files = find_files(path)
    num_parquet = sum(file.lower().endswith((".parquet", ".pq")) for file in files)
    if 0 < num_parquet < len(files):
        raise UserError(f"{path} matches Parquet files and others: give a pattern for one kind")
    if num_parquet:
        with reading(path):
            columns = db.execute(f"DESCRIBE SELECT * FROM {_parquet_scan(files)}").fetchall()
        return Table(os.fspath(path), files, None, {name: kind for name, kind, *_ in columns})
    delimiter, names = _read_header(files)
    as_text = Table(os.fspath(path), files, delimiter, dict.fromkeys(names, "VARCHAR"))
    guesses = ", ".join(_guess_sql(sql_name(name)) for name in names)
    with reading(path):
        kinds = first_row(db, f"SELECT {guesses} FROM (FROM {as_text.scan()} LIMIT {_GUESS_ROWS})")
    return replace(as_text, types=dict(zip(names, kinds, strict=True)))


def _guess_sql(column: str) -> str:
    """SQL for the type of a CSV's column: DOUBLE, BOOLEAN, FLOAT[] (such as "[1, 2.5]") or VARCHAR."""
    num_flags = f"count(*) FILTER (lower({column}) IN ('true', 'false'))"
    return (
        f"CASE WHEN count(*) = 0 THEN 'DOUBLE' WHEN count({column}) = 0 THEN 'VARCHAR' "
        f"WHEN count(TRY_CAST({column} AS DOUBLE)) = count({column}) THEN 'DOUBLE' "
        f"WHEN {num_flags} = count({column}) THEN 'BOOLEAN' "
        f"WHEN count(TRY_CAST({column} AS FLOAT[])) = count({column}) THEN 'FLOAT[]' ELSE 'VARCHAR' END"
    )


def _read_header(files: list[str]) -> tuple[str, list[str]]:
    """What parts the columns of CSV files, and their names; these must be the same in all files."""
    import pyarrow as pa

    headers: dict[str, str] = {}
    for file in files:
        try:
            with pa.input_stream(file) as stream:  # unpacks .gz and its like
                lines = stream.read(1 << 20).decode("utf-8-sig", "replace").splitlines()
        except OSError as error:
            raise UserError(f"cannot read {file}: {error}") from error
        if not lines:
            raise UserError(f"{file} is empty: its first line must name the columns")
        headers.setdefault(lines[0].strip("\r\n"), file)
    if len(headers) > 1:
        first, second, *_ = headers.values()
        raise UserError(f"the first lines of {first} and {second} differ: a table needs the same columns throughout")
    line, file = next(iter(headers.items()))
    delimiter = max(",\t;|", key=re.sub(r'"[^"]*"', "", line).count)
    names = [name or NO_NAME for name in next(csv.reader([line], delimiter=delimiter))]
    seen = {name.lower() for name in names}  # DuckDB tells no upper from lower case
    if len(seen) < len(names):
        twice = next(name for name in names if [other.lower() for other in names].count(name.lower()) > 1)
        raise UserError(f"the first line of {file} names column {twice!r} twice: rename one (in more than its case)")
    return delimiter, names


def _parquet_scan(files: list[str]) -> str:
    return f"read_parquet({_sql_files(files)}, hive_partitioning = false)"


def _csv_scan(files: list[str], delimiter: str, types: dict[str, str]) -> str:
    # nothing is left to DuckDB's sniffer: it takes an id #a for a comment, skips first rows unlike the others,
    # and makes 7 of 007 and, below the rows it looks at, 0 or 1 of 0.5
    dialect = f"delim = '{delimiter}', quote = '\"', escape = '\"', header = true"
    columns = ", ".join(f"{sql_text(name)}: '{kind}'" for name, kind in types.items())
    return (
        f"read_csv({_sql_files(files)}, {dialect}, columns = {{{columns}}}, auto_detect = false, "
        "hive_partitioning = false)"
    )


def _sql_files(files: list[str]) -> str:
    return f"[{', '.join(sql_text(glob.escape(file)) for file in files)}]"


@contextmanager
def reading(path: FilePath) -> Iterator[None]:
    """Turn what DuckDB says about a file into a message that names the file."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        reason = re.split(r"\n(?:Possible|Column|LINE|  file)", str(error))[0]
        raise UserError(f"cannot read {os.fspath(path)}: {' '.join(reason.split())}") from error


@contextmanager
def database(inputs: list[FilePath], out: FilePath | None, memory: str | int | None) -> Iterator[Any]:
    """A DuckDB connection that spills into a temporary folder, which is gone afterwards.

    Args:
        inputs: the tables to be read.
        out: where the result shall be; the temporary folder is made beside it.
        memory: what DuckDB may hold, such as `4GB`; None for four times the inputs, at least 1 GB.
    """
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("duckdb", "tables", "reading tables") from error
    limit = 0 if memory is None else parse_size(memory)
    needed = max(_LEAST_MEMORY, 4 * sum(os.path.getsize(file) for path in inputs for file in find_files(path)))
    beside = Path(tempfile.gettempdir())
    if out is not None:
        beside = next(folder for folder in Path(out).absolute().parents if folder.is_dir())
    with writable(beside):
        spill = tempfile.mkdtemp(prefix=".nagphormer-tables-", dir=beside)
    db = duckdb.connect(config={"temp_directory": spill})
    try:
        if not limit:  # DuckDB's own limit, most of the machine, would be used up without need
            most = parse_size(first_row(db, "SELECT current_setting('memory_limit')")[0])
            limit = min(needed, most // 2)
        db.execute(f"SET memory_limit = '{limit}B'")
        if threads := os.environ.get("OMP_NUM_THREADS"):
            db.execute(f"SET threads = {int(threads)}")
        yield db
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise UserError(
            f"reading the tables needs more than {format_size(limit)} of memory, or more disk at {beside}: "
            f"allow more with memory=, or free some disk"
        ) from error
    finally:
        db.close()
        shutil.rmtree(spill, ignore_errors=True)
