"""How text files of a table are laid out: CSV with a header, or a list of edges without one.

Nothing is left to DuckDB's sniffer: it takes an id #a for a comment, skips first rows unlike the others, and makes
7 of 007 and, below the rows it looks at, 0 or 1 of 0.5.
"""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nagphormer.data.table_sql import refuse_twins, sql_name, sql_text
from nagphormer.errors import UserError

NO_NAME = "(no name)"  # a CSV column without a name

_COMMENTS = ("#", "%")
_LIST_ENDINGS = (".edgelist", ".edges", ".el")
_WHOLE = re.compile(r"-?[0-9]+")
_FIELDS = ("source", "target", "weight")


@dataclass(frozen=True)
class Layout:
    """Text files that are laid out alike."""

    files: tuple[str, ...]
    """Every file, in order."""
    names: tuple[str, ...]
    """Names of the columns."""
    delimiter: str | None
    """What parts the columns; None for any white space."""
    header: bool = True
    """Whether a line names the columns."""
    comments: int = 0
    """Lines of comment before the first that counts."""
    attributes: bool = False
    """Whether a line ends in attributes, {'weight': 2}, as NetworkX writes them."""
    doubtful: bool = False
    """Whether the line that names the columns has no names asked for, so that it may be an edge."""

    def scan(self, types: Mapping[str, str]) -> str:
        """SQL that reads the files, with these types of columns."""
        return self._by_line(types) if self.delimiter is None else self._by_delimiter(self.delimiter, types)

    def _by_delimiter(self, delimiter: str, types: Mapping[str, str]) -> str:
        columns = ", ".join(f"{sql_text(name)}: '{kind}'" for name, kind in types.items())
        dialect = f"delim = '{delimiter}', quote = '\"', escape = '\"', header = {self.header}, skip = {self.comments}"
        return (
            f"read_csv({sql_files(self.files)}, {dialect}, columns = {{{columns}}}, auto_detect = false, "
            "hive_partitioning = false)"
        )

    def _by_line(self, types: Mapping[str, str]) -> str:
        """Lines split at white space, comments left out; reads what is aligned with many spaces, too."""
        lines = (
            f"read_csv({sql_files(self.files)}, delim = '\x01', quote = '', escape = '', header = false, "
            "columns = {'line': 'VARCHAR'}, auto_detect = false, hive_partitioning = false)"
        )
        kept = " AND ".join(["trim(line) <> ''", *(f"NOT starts_with(line, '{mark}')" for mark in _COMMENTS)])
        # a regular expression for every line, trim with a set of characters, and conditions on what has been
        # replaced would each take longer than all the rest
        spaced = f"SELECT line, trim(replace(line, '\t', ' ')) AS spaced FROM {lines} WHERE {kept}"
        single = "CASE WHEN contains(spaced, '  ') THEN regexp_replace(spaced, ' +', ' ', 'g') ELSE spaced END"
        rows = f"SELECT line, string_split({single}, ' ') AS parts FROM ({spaced})"
        fields = {name: f"parts[{number}]" for number, name in enumerate(self.names, 1)}
        if self.attributes:
            fields["weight"] = "nullif(regexp_extract(line, '''weight'': *([^,} ]+)', 1), '')"
        taken = ", ".join(f"CAST({fields[name]} AS {kind}) AS {sql_name(name)}" for name, kind in types.items())
        return f"(SELECT {taken} FROM ({rows}))"


def sql_files(files: tuple[str, ...]) -> str:
    """Files as SQL, none of them a pattern."""
    return f"[{', '.join(sql_text(glob.escape(file)) for file in files)}]"


def find_layout(files: list[str], ends: tuple[str, str] | None) -> Layout:
    """The layout of text files, which must be the same in all.

    Args:
        files: the files.
        ends: for a table of edges, which may do without a header, the names of its columns of ids.
    """
    layouts: dict[Layout, str] = {}
    for file in files:
        layout = _layout_of(file, _first_lines(file), ends)
        layouts.setdefault(replace(layout, files=()), file)
    if len(layouts) > 1:
        first, second, *_ = layouts.values()
        raise UserError(f"the first lines of {first} and {second} differ: a table needs the same columns throughout")
    layout, file = next(iter(layouts.items()))
    refuse_twins(layout.names, f"the first line of {file}")
    return replace(layout, files=tuple(files))


def _first_lines(file: str) -> list[str]:
    import pyarrow as pa

    try:
        with pa.input_stream(file) as stream:  # unpacks .gz and its like
            text = stream.read(1 << 20).decode("utf-8-sig", "replace")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error}") from error
    if not text:
        raise UserError(f"{file} is empty: its first line must name the columns")
    if text.startswith("%%MatrixMarket"):
        raise UserError(f"{file} is a matrix: read it with from_scipy(scipy.io.mmread({file!r}))")
    return text.splitlines()


def _layout_of(file: str, lines: list[str], ends: tuple[str, str] | None) -> Layout:
    header = _with_header(lines[0])
    if ends is None or set(ends) <= set(header.names):
        return header
    comments = next((n for n, line in enumerate(lines) if not line.startswith(_COMMENTS)), len(lines))
    rows = [line for line in lines[comments:] if line.strip() and not line.startswith(_COMMENTS)][:2]
    if comments == len(lines) or not rows:
        if comments:
            raise UserError(f"{file} holds comments only: it must hold edges")
        return header
    header = replace(_with_header(rows[0]), comments=comments)
    if set(ends) <= set(header.names):
        return header
    listed = _as_list(rows[0], comments)
    fields = _fields(rows[0], listed.delimiter)
    below = _fields(rows[-1], listed.delimiter)
    numbers = all(map(_WHOLE.fullmatch, fields[:2]))
    named = not numbers and all(map(_WHOLE.fullmatch, below[:2]))  # numbers below words: these are names
    ending = re.sub(r"\.(gz|zst|bz2)$", "", file.lower()).endswith(_LIST_ENDINGS)
    if len(fields) > 1 and not named and (numbers or comments or ending or listed.attributes):
        return listed
    return replace(header, doubtful=True)


def _with_header(line: str) -> Layout:
    delimiter = max(",\t;|", key=re.sub(r'"[^"]*"', "", line).count)
    return Layout((), tuple(name or NO_NAME for name in _fields(line, delimiter)), delimiter)


def _as_list(line: str, comments: int) -> Layout:
    """The layout of a list of edges, by its first edge."""
    outside = re.sub(r'"[^"]*"|\{.*\}', "", line)
    delimiter = next((mark for mark in ",;|" if mark in outside), None)
    fields = _fields(line, delimiter)
    attributes = delimiter is None and len(fields) > 2 and fields[2].startswith("{")
    if attributes:
        fields = fields[: 3 if "'weight':" in line else 2]
    names = [*_FIELDS[:2]]
    for number, field in enumerate(fields[2:], 3):
        is_weight = number == 3 and (attributes or re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", field))
        names.append("weight" if is_weight else f"column {number}")
    return Layout((), tuple(names), delimiter, False, 0 if delimiter is None else comments, attributes)


def _fields(line: str, delimiter: str | None) -> list[str]:
    return line.split() if delimiter is None else next(csv.reader([line], delimiter=delimiter))
