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

from nagphormer.data.table_foreign import BEGINNING, read_beginning, refuse_content, refuse_foreign, unpacked_name
from nagphormer.data.table_sql import NO_NAME, refuse_twins, sql_name, sql_text
from nagphormer.errors import UserError

_COMMENTS = ("#", "%")
_LIST_ENDINGS = (".edgelist", ".edges", ".el")
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?"
_ATTRIBUTES = re.compile(r"\s*[^\s,;|]+\s+[^\s,;|]+\s+\{.*\}\s*")
_FIELDS = ("source", "target", "weight")
_WEIGHT = r"'weight': *(?:np\.[a-z0-9_]+\()?([^,} )]+)"  # NumPy writes its numbers as np.float64(2.5)
_UNQUOTED = (  # to look for a quote first is faster
    "CASE WHEN contains(line, '\"') AND regexp_matches(line, '^\\s*(\\S+\\s+)?\"') THEN error("
    "'an id in quotes: part the columns of such a list by a comma or a tab, not by white space; line: ' || line) "
    "ELSE true END"
)


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
    skip: int = 0
    """Blank lines, and lines of comment, before the first that counts."""
    attributes: bool = False
    """Whether a line ends in attributes, {'weight': 2}, as NetworkX writes them."""
    doubtful: bool = False
    """Whether the line that names the columns may be an edge."""

    def scan(self, types: Mapping[str, str]) -> str:
        """SQL that reads the files, with these types of columns."""
        return self._by_line(types) if self.delimiter is None else self._by_delimiter(self.delimiter, types)

    def _by_delimiter(self, delimiter: str, types: Mapping[str, str]) -> str:
        columns = ", ".join(f"{sql_text(name)}: '{kind}'" for name, kind in types.items())
        dialect = f"delim = '{delimiter}', quote = '\"', escape = '\"', header = {self.header}, skip = {self.skip}"
        rows = (
            f"read_csv({sql_files(self.files)}, {dialect}, columns = {{{columns}}}, auto_detect = false, "
            "hive_partitioning = false)"
        )
        if len(types) > 1:
            return rows
        return f"(FROM {rows} WHERE {sql_name(self.names[0])} IS NOT NULL)"  # a blank line would be a row of one column

    def _by_line(self, types: Mapping[str, str]) -> str:
        """Lines split at white space, comments left out; reads what is aligned with many spaces, too."""
        lines = (
            f"read_csv({sql_files(self.files)}, delim = '\x01', quote = '', escape = '', header = false, "
            f"skip = {self.skip + 1 if self.header else 0}, "
            "columns = {'line': 'VARCHAR'}, auto_detect = false, hive_partitioning = false)"
        )
        kept = " AND ".join(
            ["trim(line) <> ''", *(f"NOT starts_with(line, '{mark}')" for mark in _COMMENTS), _UNQUOTED]
        )
        # a regular expression for every line, trim with a set of characters, and conditions on what has been
        # replaced would each take longer than all the rest
        spaced = f"SELECT line, trim(replace(line, '\t', ' ')) AS spaced FROM {lines} WHERE {kept}"
        single = "CASE WHEN contains(spaced, '  ') THEN regexp_replace(spaced, ' +', ' ', 'g') ELSE spaced END"
        rows = f"SELECT line, string_split({single}, ' ') AS parts FROM ({spaced})"
        fields = {name: f"parts[{number}]" for number, name in enumerate(self.names, 1)}
        if self.attributes:
            fields["weight"] = f"nullif(regexp_extract(line, {sql_text(_WEIGHT)}, 1), '')"
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
        refuse_foreign(file)
        text = read_beginning(file)
        refuse_content(file, text)
        lines = re.split(r"\r\n|\r|\n", text)
        if len(lines) == 1 and len(text.encode()) > BEGINNING - 8:  # a mark at its start, a letter cut at its end
            raise UserError(f"the first line of {file} is longer than {BEGINNING:,} bytes")
        layout = _layout_of(file, lines, ends)
        layouts.setdefault(replace(layout, files=()), file)
    if len(layouts) > 1:
        first, second, *_ = layouts.values()
        raise UserError(f"the first lines of {first} and {second} differ: a table needs the same columns throughout")
    layout, file = next(iter(layouts.items()))
    refuse_twins(layout.names, f"the first line of {file}")
    return replace(layout, files=tuple(files))


def _layout_of(file: str, lines: list[str], ends: tuple[str, str] | None) -> Layout:
    counted = [number for number, line in enumerate(lines) if line.strip()]
    if not counted:
        raise UserError(f"{file} is empty: its first line must name the columns")
    header = _with_header(file, lines, counted[0])
    if ends is None or set(ends) <= set(header.names):
        return header
    if re.match(r"%\s*bip\b", lines[counted[0]]):
        raise UserError(
            f"{file} joins nodes of two kinds, whose numbers mean different ones: give each an id of its own"
        )
    edges = [number for number in counted if not lines[number].startswith(_COMMENTS)]
    if not edges:
        raise UserError(f"{file} holds comments only: it must hold edges")
    header = _with_header(file, lines, edges[0])
    words = tuple(lines[edges[0]].split())
    if len(header.names) == 1 < len(words):
        header = replace(header, names=words, delimiter=None)
    if set(ends) <= set(header.names):
        return header
    listed = _as_list(file, lines, edges[0])
    fields = _fields(file, lines[edges[0]], listed.delimiter)
    below = _fields(file, lines[edges[:2][-1]], listed.delimiter)
    numbers = all(map(_WHOLE.fullmatch, fields[:2]))
    named = not numbers and all(map(_WHOLE.fullmatch, below[:2]))  # numbers below words: these are names
    ending = unpacked_name(file).endswith(_LIST_ENDINGS)
    commented = edges[0] != counted[0]
    if len(fields) > 1 and not named and (numbers or commented or ending or listed.attributes):
        return listed
    return replace(header, doubtful=len(fields) > 1 and not named)


def _with_header(file: str, lines: list[str], first: int) -> Layout:
    delimiter = max(",\t;|", key=re.sub(r'"[^"]*"', "", lines[first]).count)
    names = _fields(file, lines[first], delimiter)
    return Layout((), tuple(name or NO_NAME for name in names), delimiter, skip=first)


def _as_list(file: str, lines: list[str], first: int) -> Layout:
    """The layout of a list of edges, by its first edge."""
    line = lines[first]
    attributes = _ATTRIBUTES.fullmatch(line) is not None
    delimiter = None if attributes else _delimiter_of(line)
    fields = _fields(file, line, delimiter)
    if attributes:
        fields = fields[: 3 if any("'weight':" in each for each in lines) else 2]
    named = not all(map(_WHOLE.fullmatch, fields[:2])) and '"' not in line
    if delimiter is None and not attributes and named and len(fields) > 2 and not re.fullmatch(_NUMBER, fields[2]):
        raise UserError(
            f"the third word of the first edge of {file} is {fields[2]!r}, and no number: where names hold blanks, "
            f"part the columns by tabs or commas"
        )
    if len(fields) > 1 and fields[1].startswith("{"):
        raise UserError(
            f"{file} seems to be a list of neighbors: read it with NetworkX, and give from_networkx the graph"
        )
    names = [*_FIELDS[:2]]
    for number, field in enumerate(fields[2:], 3):
        is_weight = number == 3 and (attributes or re.fullmatch(_NUMBER, field))
        names.append("weight" if is_weight else f"column {number}")
    return Layout((), tuple(names), delimiter, False, 0 if delimiter is None else first, attributes)


def _delimiter_of(edge: str) -> str | None:
    """What parts the columns of a list: white space between whole numbers, else a tab, else another mark."""
    outside = re.sub(r'"[^"]*"', "", edge)
    words = outside.split()
    if len(words) > 1 and all(map(_WHOLE.fullmatch, words[:2])):
        return None
    if "\t" in outside and all(map(str.strip, edge.split("\t"))):
        return "\t"
    return next((mark for mark in ",;|" if mark in outside), None)


def _fields(file: str, line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as error:
        raise UserError(f"cannot part the first line of {file} into columns: {error}") from error
