"""`nagphormer import`: tables, or a data set in a format of its own, into a graph folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from nagphormer.commands.terminal import result, say, say_next
from nagphormer.data.readers import READERS
from nagphormer.errors import Refusal, UserError
from nagphormer.files import check_writable

if TYPE_CHECKING:
    from nagphormer.data.graph import Graph
    from nagphormer.data.table_report import Report


Columns = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableFlags:
    """Where a graph's tables lie and what their columns mean."""

    out: Path
    """Graph folder to write."""
    edges: Path | None = None
    """Edges, in CSV, a list without a header, Parquet, JSON lines or Arrow: a file, a folder, or 'edges/*.parquet'."""
    nodes: Path | None = None
    """Node table in one of these formats but the list, with ids, features, labels and splits."""
    source: str = "source"
    """Column of the edge list with the one end."""
    target: str = "target"
    """Column of the edge list with the other end."""
    weight: str | None = None
    """Column of the edge list with weights; without it every edge counts alike."""
    id: str = "id"
    """Column of the node table with the ids that the edge list uses."""
    label: str = "label"
    """Column of the node table with the class, or lists of several; empty for unknown."""
    split: str = "split"
    """Column of the node table with train, val or test."""
    features: Columns = ()
    """Columns with features, numbers or lists of them: --features age,income; by default all that are left."""
    encode: Columns = ()
    """Columns of text that become a feature of 0 and 1 for each category: --encode city,trade."""
    fill: Literal["mean", "0"] | None = None
    """What missing numbers become; another feature says which they were."""
    exclude: Columns = ()
    """Columns to leave out."""
    train_before: str | None = None
    """COLUMN=DATE or COLUMN=NUMBER: earlier nodes train; of the later ones half validates, half tests, by time."""
    like: Path | None = None
    """Graph imported before, whose features, categories, filled values and order of classes hold here, too."""


FORMATS = {reader.flag: reader for reader in READERS if reader.flag}
"""Other formats, by the flag that names the file or folder."""


def _format_flags() -> Any:
    """A flag for every format."""
    flags = [(flag, Annotated[Path | None, Parameter(help=each.help)], None) for flag, each in FORMATS.items()]
    home = {"__module__": __name__}  # without one of its own, Cyclopts takes the class for a built-in
    return make_dataclass("FormatFlags", flags, frozen=True, kw_only=True, namespace=home)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportFlags(_format_flags(), TableFlags):  # type: ignore[misc]
    """What to read, and where to write it."""

    allow_pickle: bool = False
    """Read pickle files, which can run any code: only for files you trust."""
    memory: str | None = None
    """Memory limit for joining and sorting, such as 2GB; beyond it DuckDB works on disk."""


def run(flags: ImportFlags) -> None:
    """Read the one source that is named, write the graph folder, and say what is in it."""
    names = ["edges", *FORMATS]
    given = [name for name in names if getattr(flags, name) is not None]
    if len(given) != 1:
        *others, last = map(_flag, names)
        found = " and ".join(map(_flag, given)) or "none"
        raise UserError(f"give exactly one of {', '.join(others)} and {last}, not {found}")
    graph, report = _read_tables(flags) if given == ["edges"] else (_read_format(given[0], flags), None)
    for line in report.lines() if report else []:
        say(line)
    result(
        {
            "path": str(flags.out),
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
        }
        | ({"taken": report.facts()} if report else {}),
        f"wrote {flags.out}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features, "
        f"{graph.num_classes} classes",
    )
    if flags.nodes is not None and graph.labels is None:
        say(f"note: {flags.nodes} has no column {flags.label!r}, so no node has a class")
    say_next("info", flags.out, "--hops", 3)


def _read_tables(flags: ImportFlags) -> tuple[Graph, Report]:
    from nagphormer.data.table_request import Request
    from nagphormer.data.tables import import_tables

    given = {each.name: getattr(flags, each.name) for each in fields(TableFlags)}
    given |= {name: _split(given[name]) for name in ("features", "encode", "exclude")}
    given["features"] = given["features"] or None
    if flags.train_before is not None:
        column, sign, bound = flags.train_before.rpartition("=")
        if not (column and sign and bound):
            raise UserError(f"--train-before is {flags.train_before!r}: give COLUMN=DATE, such as year=2018")
        given["train_before"] = (column, bound)
    try:
        return import_tables(Request(**given, memory=flags.memory))
    except Refusal as error:
        if not error.instead:
            raise
        raise UserError(f"{error}; this would be read: {_command(flags, error.instead)}") from error


def _split(columns: tuple[str, ...]) -> list[str]:
    return [name for each in columns for name in each.split(",") if name]


def _command(flags: ImportFlags, instead: dict[str, list[str]]) -> str:
    """The command line that would work."""
    words = ["nagphormer", "import"]
    for each in fields(flags):
        value = getattr(flags, each.name)
        added = instead.get(each.name, [])
        if each.name in ("features", "encode", "exclude"):
            value = ",".join([*_split(value), *added])
        elif added:
            (value,) = added
        if value and value != each.default:
            listed = list(value) if isinstance(value, tuple) else [] if value is True else [value]
            words += [_flag(each.name), *map(str, listed)]
    return shlex.join(words)


def _read_format(name: str, flags: ImportFlags) -> Graph:
    check_writable(flags.out)
    graph: Graph = FORMATS[name].read(getattr(flags, name), flags.allow_pickle)
    graph.save(flags.out)
    return graph


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
