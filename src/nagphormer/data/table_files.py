"""Tables that are read, files or frames, as DuckDB tables: found, described, and scanned without changing a value."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nagphormer.data.table_foreign import read_beginning, unpacked_name
from nagphormer.data.table_frames import (
    frame_bytes,
    index_names,
    open_dataset,
    read_frame,
    recorded_index,
    register,
)
from nagphormer.data.table_sql import (
    INTEGERS,
    LONG_INTEGERS,
    NO_NAME,
    NOTHING,
    first_row,
    is_number,
    is_text,
    is_time,
    reading,
    refuse_twins,
    sql_name,
    sql_text,
    trimmed,
)
from nagphormer.data.table_text import Layout, find_layout, sql_files
from nagphormer.errors import MissingExtra, UserError, nearest
from nagphormer.files import format_size, parse_size, writable

FilePath = str | os.PathLike[str]

_LEAST_MEMORY = 10**9
_GUESS_ROWS = 10_000
_KINDS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".feather": "Arrow",
    ".arrow": "Arrow",
}
"""What a file is, by its ending; any other is text."""
_MIXED = "lists or objects beside other values"
_NEEDED = ("source", "target", "id")  # columns that must be there, by what they are called if nothing is said


@dataclass(frozen=True)
class Table:
    """Files or a frame with the same columns throughout."""

    path: str
    """As the user gave it; a frame by what it is for."""
    types: dict[str, str]
    """DuckDB's type of every column; of text, what its first rows look like."""
    layout: Layout | None = None
    """How text files are laid out; None for tables that have types."""
    source: str = ""
    """SQL that reads a table that has types."""
    index: tuple[str, ...] = ()
    """Names in the index of a pandas frame, which are no columns, or columns that were such an index."""
    empty: bool = False
    """Whether a table that has types has no rows, so that its types mean nothing."""

    def scan(self, numbers: Collection[str] = ()) -> str:
        """SQL that reads the table; columns of text files come as text, those in `numbers` as numbers."""
        if self.layout is None:
            return self.source
        types = dict.fromkeys(self.types, "VARCHAR")
        types |= {name: "BOOLEAN" if self.types[name] == "BOOLEAN" else "DOUBLE" for name in numbers}
        return self.layout.scan(types)

    def require(self, name: str) -> str:
        """DuckDB's type of a column that must exist."""
        if name not in self.types:
            names = list(self.types)
            listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "none"
            hint = nearest(name, names)
            if name in self.index:
                hint = " It is the frame's index: give frame.reset_index()."
            elif self.layout is not None and not self.layout.header:
                hint = " The file has no header, so that its columns are called this."
            elif self.layout is not None and all(re.fullmatch(r"[-+0-9. ]+", each) for each in names):
                hint = f" Its first line seems to be a row: put the columns' names above it, such as {name},label."
            elif name in _NEEDED:
                hint += f" If another column is the {name}, name it with --{name} or {name}=."
            if self.layout is not None and self.layout.doubtful:
                hint += " If its first line is an edge, end the file's name in .edgelist."
            raise UserError(f"{self.path} has no column {name!r}: it has {listed}.{hint}")
        return self.types[name]

    def optional(self, name: str | None, default: str, lists: bool = False) -> str | None:
        """The name of a column of single values; None for a column of the default name that is not there.

        Args:
            name: the column.
            default: what it is called if nothing is said of it.
            lists: whether it may hold lists, too.
        """
        if name is None or (name == default and name not in self.types):
            return None
        kind = self.require(name)
        if lists and kind.endswith("]"):
            kind = kind[: kind.rindex("[")]
        if not (is_number(kind) or is_text(kind) or is_time(kind) or kind == NOTHING):
            may = ", or a list of them" if lists else ""
            raise UserError(
                f"column {name!r} of {self.path} holds {self.types[name]}: it must hold one value a node{may}"
            )
        return name

    def text(self, name: str) -> str:
        """SQL for a column as text; in text files white space around a value is no part of it."""
        column = f"CAST({sql_name(name)} AS VARCHAR)"
        return column if self.layout is None else trimmed(column)

    def number(self, name: str) -> str:
        """SQL for a column of numbers, as DOUBLE."""
        kind = self.require(name)
        known = self.layout is None and not self.empty  # a line of text that is no number is named on reading
        if known and not (is_number(kind) or kind == NOTHING):
            raise UserError(f"column {name!r} of {self.path} holds {kind}: it must hold numbers")
        return f"CAST({sql_name(name)} AS DOUBLE)"

    def id(self, name: str, key: str) -> str:
        """SQL for a column of ids as `key`, BIGINT or VARCHAR; an empty text is NULL."""
        if key == "BIGINT" or (self.layout is not None and self.layout.delimiter is None):
            column = sql_name(name)  # between white space is no empty text, and to compare would split every line twice
            return f"CAST({column} AS {key})"
        return f"nullif({self.text(name)}, '')"

    def id_kind(self, name: str) -> str:
        """What the ids in a column are: `integer`, `text`, or `either` where only the values tell."""
        kind = self.require(name)
        if self.layout is not None or kind in LONG_INTEGERS:
            return "either"
        if kind in INTEGERS or kind == NOTHING or self.empty:
            return "integer"
        if is_text(kind):
            return "text"
        raise UserError(f"column {name!r} of {self.path} holds {kind}: ids are integers or text; convert the column")


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


def open_table(db: Any, given: Any, role: str, ends: tuple[str, str] | None = None) -> Table:
    """Find a table and learn its columns.

    Args:
        db: the DuckDB connection, in which a frame is registered.
        given: files by their path or pattern, or a frame.
        role: `edges` or `nodes`.
        ends: the columns of ids in a table of edges, which may do without a header.
    """
    if not isinstance(given, str | os.PathLike):
        where = f"the frame of {role}"
        frame, others = read_frame(given, where)
        return _registered(db, where, role, frame, others, index_names(given))
    files, path = find_files(given), os.fspath(given)
    kinds = sorted({_kind_of(file) for file in files})
    if len(kinds) > 1:
        raise UserError(f"{path} matches {' and '.join(kinds)} files: give a pattern for one kind")
    if kinds == ["Arrow"]:
        return _registered(db, path, role, open_dataset(files), {})
    if kinds == ["Parquet"]:
        return _open_parquet(db, path, files)
    if kinds == ["JSON lines"]:
        return _open_json(db, path, tuple(files))
    layout = find_layout(files, ends)
    as_text = Table(path, dict.fromkeys(layout.names, "VARCHAR"), layout)
    guesses = ", ".join(_guess_sql(sql_name(name)) for name in layout.names)
    with reading(path):
        kinds = first_row(db, f"SELECT {guesses} FROM (FROM {as_text.scan()} LIMIT {_GUESS_ROWS})")
    return replace(as_text, types=dict(zip(layout.names, kinds, strict=True)))


def _kind_of(file: str) -> str:
    return next((kind for ending, kind in _KINDS.items() if unpacked_name(file).endswith(ending)), "text")


def _described(db: Any, path: str, source: str) -> dict[str, str]:
    with reading(path):
        return {name: kind for name, kind, *_ in db.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def _registered(
    db: Any, path: str, role: str, frame: Any, others: dict[str, str], index: tuple[str, ...] = ()
) -> Table:
    """A table of Arrow columns, which DuckDB reads where they lie; `others` are the types of those it cannot."""
    given = frame.schema
    refuse_twins([name or NO_NAME for name in (*given.names, *others)], path)
    with reading(path):
        others = others | register(db, f"frame_{role}", frame)
    kept = [name for name in given.names if name not in others]
    table = _typed(db, path, f"frame_{role}", kept, index or recorded_index(given)) if kept else Table(path, {})
    types = table.types | {name or NO_NAME: kind for name, kind in others.items()}
    order = dict.fromkeys(name or NO_NAME for name in (*given.names, *others))
    return replace(table, types={name: types[name] for name in order}, index=index or table.index)


def _typed(db: Any, path: str, source: str, names: Sequence[str], index: tuple[str, ...]) -> Table:
    """A table that has types, by SQL that reads it and the names of its columns, some of which DuckDB would change."""
    names = [name or NO_NAME for name in names]
    refuse_twins(names, path)
    source = f"(SELECT * FROM {source} AS given({', '.join(map(sql_name, names))}))"
    types = _described(db, path, source)
    with reading(path):
        empty = first_row(db, f"SELECT 1 FROM {source} LIMIT 1") is None
    return Table(path, types, source=source, index=index, empty=empty)


def _open_parquet(db: Any, path: str, files: list[str]) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(files[0])
    except pa.ArrowException as error:
        raise UserError(f"cannot read {files[0]}: {error}") from error
    parts = [name for name in _folders_named(files) if name not in schema.names]
    source = f"read_parquet({sql_files(tuple(files))}, hive_partitioning = {str(bool(parts)).lower()})"
    _described(db, path, source)
    return _typed(db, path, source, [*schema.names, *parts], recorded_index(schema))


def _folders_named(files: list[str]) -> list[str]:
    """Columns that stand in the names of folders, `year=2001/`, where files of one table lie in different ones."""
    folders = [[part.partition("=")[::2] for part in Path(file).parts[:-1] if "=" in part] for file in files]
    if all(each == folders[0] for each in folders):  # those above all of them say nothing
        return []
    first, *others = ([name for name, _ in each] for each in folders)
    if any(other != first for other in others):
        raise UserError(
            f"{files[0]} and others do not lie in folders of the same columns, such as year=2001: they must"
        )
    return first


def _open_json(db: Any, path: str, files: tuple[str, ...]) -> Table:
    """JSON lines; what DuckDB would make a date of, or find mixed, is read as it is written."""
    texts = {file: read_beginning(file).lstrip() for file in files}
    wrong = [file for file, text in texts.items() if not text.startswith("{") and (text or not any(texts.values()))]
    if wrong:
        raise UserError(f"{wrong[0]} is no file of JSON lines: it must hold one object a line, and in it every column")
    lines = f"read_json({sql_files(files)}, format = 'newline_delimited', hive_partitioning = false"
    types = _described(db, path, f"{lines}, sample_size = -1, map_inference_threshold = -1)")
    _check_keys(db, path, files, list(types))
    mixed = [name for name, kind in types.items() if kind == "JSON"]
    types |= _kinds_of_mixed(db, path, lines, mixed)
    read_as = {name: "VARCHAR" if is_time(kind) or kind in ("UUID", _MIXED) else kind for name, kind in types.items()}
    columns = ", ".join(f"{sql_text(name)}: {sql_text(kind)}" for name, kind in read_as.items())
    return Table(path, types, source=f"{lines}, columns = {{{columns}}})")


def _check_keys(db: Any, path: str, files: tuple[str, ...], names: list[str]) -> None:
    """Refuse keys that DuckDB renames, since they differ in case alone, or because of which it sees no columns."""
    known = {name.lower() for name in names}
    if names != ["json"] and not any(re.sub(r"_[0-9]+$", "", name) in known - {name} for name in known):
        return  # to look at every key takes as long as to read the file
    with reading(path):
        query = f"SELECT DISTINCT unnest(json_keys(json)) FROM read_ndjson_objects({sql_files(files)})"
        keys = sorted(key for (key,) in db.execute(query).fetchall())
    refuse_twins(keys, path)
    if not keys or "" in keys or (names == ["json"] != keys):
        raise UserError(f"{path} must hold one JSON object a line, in which every value has a name")


def _kinds_of_mixed(db: Any, path: str, lines: str, names: list[str]) -> dict[str, str]:
    """Types of columns that are mixed in JSON lines: text, unless there are lists or objects among the values."""
    if not names:
        return {}
    columns = ", ".join(f"{sql_text(name)}: 'JSON'" for name in names)
    nested = ", ".join(f"bool_or(json_type({sql_name(name)}) IN ('ARRAY', 'OBJECT'))" for name in names)
    with reading(path):
        found = first_row(db, f"SELECT {nested} FROM {lines}, columns = {{{columns}}})")
    return {name: _MIXED if each else "VARCHAR" for name, each in zip(names, found, strict=True)}


def _guess_sql(column: str) -> str:
    """SQL for the type of a CSV's column: DOUBLE, BOOLEAN, TIMESTAMP, FLOAT[] ("[1, 2.5]"), VARCHAR[] or VARCHAR."""
    num_flags = f"count(*) FILTER (lower({column}) IN ('true', 'false'))"
    return (
        f"CASE WHEN count(*) = 0 THEN 'DOUBLE' WHEN count({column}) = 0 THEN 'VARCHAR' "
        f"WHEN count(TRY_CAST({column} AS DOUBLE)) = count({column}) THEN 'DOUBLE' "
        f"WHEN {num_flags} = count({column}) THEN 'BOOLEAN' "
        f"WHEN count(TRY_CAST({column} AS TIMESTAMP)) = count({column}) THEN 'TIMESTAMP' "
        f"WHEN count(TRY_CAST({column} AS FLOAT[])) = count({column}) THEN 'FLOAT[]' "
        f"WHEN count(TRY_CAST({column} AS VARCHAR[])) = count({column}) THEN 'VARCHAR[]' ELSE 'VARCHAR' END"
    )


@contextmanager
def database(inputs: list[Any], out: FilePath | None, memory: str | int | None) -> Iterator[Any]:
    """A DuckDB connection that spills into a temporary folder, which is gone afterwards.

    Args:
        inputs: the tables to be read, files or frames.
        out: where the result shall be; the temporary folder is made beside it.
        memory: what DuckDB may hold, such as `4GB`; None for four times the inputs, at least 1 GB.
    """
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("duckdb", "tables", "reading tables") from error
    limit = 0 if memory is None else parse_size(memory)
    needed = max(_LEAST_MEMORY, 4 * sum(map(_size, inputs)))
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


def _size(given: Any) -> int:
    if isinstance(given, str | os.PathLike):
        return sum(os.path.getsize(file) for file in find_files(given))
    return frame_bytes(given)
