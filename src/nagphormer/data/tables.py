"""Read a graph from an edge table and a node table, joined and merged by DuckDB.

Inside DuckDB they become `nodes`, `raw` (edges as given), `entries` (edges between positions) and `pairs`
(every undirected edge once).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.data.learned import Learned
from nagphormer.data.table_arrays import Contents, Found, collect_graph, count_rows
from nagphormer.data.table_features import Fill, Vectors, left_out, plan_features, refuse_vector
from nagphormer.data.table_files import FilePath, Table, database, open_table
from nagphormer.data.table_report import Report
from nagphormer.data.table_request import Request
from nagphormer.data.table_splits import Moment, check_words, find_moment, split_by_time
from nagphormer.data.table_sql import first_row, reading, sql_name
from nagphormer.errors import UserError
from nagphormer.files import check_vacant
from nagphormer.progress import stage


def read_tables(
    edges: Any,
    nodes: Any = None,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    id: str = "id",
    label: str | None = "label",
    split: str | None = "split",
    features: str | Sequence[str] | None = None,
    *,
    encode: str | Sequence[str] = (),
    fill: Fill | None = None,
    exclude: str | Sequence[str] = (),
    train_before: tuple[str, Any] | None = None,
    like: Graph | FilePath | None = None,
    out: FilePath | None = None,
    memory: str | int | None = None,
) -> Graph:
    r"""Read an edge table and, where there is one, a node table.

    Each is a frame of pandas, polars or Arrow, or a file, a pattern, or a folder of Parquet files: CSV (also
    compressed), Parquet, JSON lines or Arrow. A CSV begins with its column names; a list of edges may do without.
    Edges are made undirected, self-loops and edges of weight zero dropped; weights of a repeated (u, v) are
    summed, of (u, v) and (v, u) the larger counts. With a node table, nodes keep its order; without one, they
    are the ids seen, sorted. Ids come back unchanged: int64 where all are integers, else text (`007` is).

    Args:
        edges: the edge table. The columns of a list without a header are called source, target and weight.
        nodes: the node table; must hold every id that the edge table names. The index of a frame is no column.
        source: edge column with the id of one end.
        target: edge column with the id of the other end.
        weight: edge column with weights; None counts every edge alike.
        id: node column with ids, each once.
        label: node column with classes, text or integers, or with lists of them where a node may have several;
            empty or -1 means unknown. None for no labels.
        split: node column with `train`, `val` or `test`; empty means none. None for no splits.
        features: node columns with numbers, true and false, or lists of numbers; None takes every column
            left, an empty list none.
        encode: node columns of text (or numbers) that become a feature of 0 and 1 for each category.
        fill: what missing numbers become: the `mean` of the column, or `0`; another feature says which they were.
            None refuses them.
        exclude: node columns to leave out.
        train_before: a node column of numbers or dates, and the first that does not train: `("year", 2018)`. Of the
            later ones the earlier half validates and the later half tests; nodes without a label are in no split.
        like: a graph, or its folder, that was imported before: its features in their order, its categories, what it
            filled and its order of classes hold for these tables.
        out: write a graph folder here and return the graph memory-mapped: bounded memory at any size.
        memory: what DuckDB may hold before it spills to disk, such as `4GB`; by default four times the
            tables, at least 1 GB. It spills beside `out`, else into the system's temporary folder.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "edges.csv"
    >>> _ = path.write_text("source,target\nann,bob\nbob,cem\n")
    >>> read_tables(path).node_ids.tolist()
    ['ann', 'bob', 'cem']
    """
    graph, report = import_tables(Request(**locals()))
    for line in report.surprises():
        warnings.warn(line, stacklevel=2)
    return graph


def import_tables(request: Request) -> tuple[Graph, Report]:
    """What `read_tables` does, and what it took."""
    request.check()
    edges, nodes, out = request.edges, request.nodes, request.out
    if out is not None:
        check_vacant(Path(out).absolute())
    wanted = request.wanted()
    with database([edges] if nodes is None else [edges, nodes], out, request.memory) as db:
        ends = (request.source, request.target)
        from_edges = _EdgeColumns(open_table(db, edges, "edges", ends), *ends, request.weight)
        end_kinds = own_kinds = from_edges.check()
        from_nodes = None
        if nodes is not None:
            table = open_table(db, nodes, "nodes")
            if table.empty:
                raise UserError(f"the graph is empty: {table.path} has no rows")
            own_kinds = {table.id_kind(request.id)}
            from_nodes = _find_node_columns(db, table, request)
        elif wanted.like is not None and wanted.like.columns:
            raise UserError("the graph to be like has features: give a node table with nodes=")
        key = "BIGINT" if end_kinds | own_kinds == {"integer"} else "VARCHAR"  # mixed ids meet as text
        if from_nodes is None:
            _load_edges(db, from_edges, key)
            _number_ends(db, "text" not in own_kinds)
        else:
            _load_nodes(db, from_nodes, key, may_fill=wanted.like is None)
            _load_edges(db, from_edges, key)
        with stage("joining edges"):
            _join_ends(db, from_edges, from_nodes)
            with reading(from_edges.table.path):
                counts = _merge_pairs(db, request.weight is not None)
        with stage("collecting the graph"):
            contents = _contents(db, "text" not in own_kinds, request.weight is not None, from_nodes, wanted.like)
            graph, found = collect_graph(db, contents, out)
    unused = {"edges": left_out(from_edges.table, (*ends, request.weight)), "nodes": list(contents.left_out)}
    report = _report(counts, graph, found, contents.vectors, unused)
    return (graph if out is None else open_graph(out)), report


@dataclass(frozen=True)
class _EdgeColumns:
    """What to take from the edge table."""

    table: Table
    source: str
    target: str
    weight: str | None

    def check(self) -> set[str]:
        """Refuse columns that are missing or of the wrong type; gives the kinds of the ids."""
        named = [name for name in (self.source, self.target, self.weight) if name is not None]
        if len(set(named)) < len(named):
            raise UserError(f"source, target and weight are {', '.join(named)}: name a column of its own for each")
        if self.weight is not None:
            self.table.number(self.weight)
        return {self.table.id_kind(self.source), self.table.id_kind(self.target)}


@dataclass(frozen=True)
class _NodeColumns:
    """What to take from the node table."""

    table: Table
    id: str
    label: str | None
    split: str | None
    vectors: Vectors | None
    moment: Moment | None

    @property
    def used(self) -> list[str | None]:
        """Columns that mean something, and are no features for that."""
        return [self.id, self.label, self.split, self.moment.column if self.moment else None]

    @property
    def several(self) -> bool:
        """Whether labels are lists."""
        return self.label is not None and self.table.types[self.label].endswith("]")


def _load_edges(db: Any, columns: _EdgeColumns, key: str) -> None:
    """Make `raw` (source, target, weight) in file order; refuses missing ends and bad weights."""
    table, weight = columns.table, columns.weight
    scan = table.scan(numbers=[weight] if weight else [])
    taken = f"{table.id(columns.source, key)} AS source, {table.id(columns.target, key)} AS target"
    taken += f", {table.number(weight)} AS weight" if weight else ""
    with stage("reading edges"), reading(table.path):
        db.execute(f"CREATE TABLE raw AS SELECT {taken} FROM {scan}")
    found = _first_where(db, "raw", "source IS NULL OR target IS NULL", "source, target")
    if found:
        count, row, source, target = found
        lacking = "source" if source is None else "target"
        other = f"target {target!r}" if source is None else f"source {source!r}"
        raise UserError(
            f"edge {row + 1:,} of {table.path}, with {other}, has no {lacking}; {count:,} such edges in all: "
            f"fill in both ends or remove them"
        )
    largest = float(np.finfo(np.float32).max)
    bad = f"weight IS NULL OR NOT weight BETWEEN 0 AND {largest!r}"  # to DuckDB, NaN is above every number
    found = _first_where(db, "raw", bad, "source, target, weight") if weight else None
    if found:
        count, row, source, target, value = found
        raise UserError(
            f"edge {row + 1:,} of {table.path}, from {source!r} to {target!r}, has "
            f"{'no weight' if value is None else f'weight {value}'}; {count:,} such edges in all: "
            f"weights must be finite and not negative"
        )


def _first_where(db: Any, table: str, condition: str, columns: str) -> tuple[Any, ...] | None:
    """How many rows meet a condition, then the first such row's position and columns; None if no row does."""
    count = first_row(db, f"SELECT count(*) FROM {table} WHERE {condition}")[0]
    if not count:
        return None
    first = f"SELECT rowid, {columns} FROM {table} WHERE {condition} ORDER BY rowid LIMIT 1"
    return (count, *first_row(db, first))


def _load_nodes(db: Any, columns: _NodeColumns, key: str, may_fill: bool) -> None:
    """Make `nodes` (id, label, split, moment, finite) in file order; refuses bad ids, splits and features."""
    table, vectors, moment = columns.table, columns.vectors, columns.moment
    split = "NULL" if columns.split is None else table.text(columns.split)
    taken = [
        f"{table.id(columns.id, key)} AS id",
        f"{_label_sql(columns)} AS label",
        f"nullif(trim({split}), '') AS split",
        f"{vectors.finite if vectors else 'true'} AS finite",
        *([f"{moment.sql} AS moment"] if moment else []),
    ]
    with stage("reading nodes"), reading(table.path):
        db.execute(f"CREATE TABLE nodes AS SELECT {', '.join(taken)} FROM {vectors.scan if vectors else table.scan()}")
    _check_ids(db, columns)
    check_words(db, table, columns.split)
    if columns.label is not None:
        (_check_lists if columns.several else _refuse_lists)(db, columns)
    if moment:
        split_by_time(db, table, moment, columns.label is not None)
    found = _first_where(db, "nodes", "NOT finite", "id")
    if found and vectors:
        refuse_vector(db, vectors, found, may_fill)


def _label_sql(columns: _NodeColumns) -> str:
    if columns.label is None:
        return "NULL::VARCHAR"
    text = f"nullif({columns.table.text(columns.label)}, '')"
    if not columns.several:
        return text
    lists = sql_name(columns.label) if columns.table.layout is None else text  # a CSV's lists are text
    whole = f"CAST({lists} AS VARCHAR[])"
    return f"CASE WHEN len({whole}) > 0 THEN {whole} END"


def _check_lists(db: Any, columns: _NodeColumns) -> None:
    found = _first_where(db, "nodes", "list_unique(label) < list_aggregate(label, 'count')", "id, label")
    if found:
        raise UserError(
            f"the list {columns.label!r} of node {found[2]!r}, {found[3]}, names a label twice ({found[0]:,} such "
            f"lists in all): it must hold the names of a node's labels, not a 0 or 1 for each"
        )


def _refuse_lists(db: Any, columns: _NodeColumns) -> None:
    """Refuse lists among the single labels of a text file, where they are but text."""
    found = columns.table.layout is not None and _first_where(db, "nodes", "label LIKE '[%]'", "id, label")
    if found:
        raise UserError(
            f"the label {columns.label!r} of node {found[2]!r} is {found[3]}, a list, and others are single labels "
            f"({found[0]:,} lists in all): give every node a list, also of one label, [a], or none"
        )


def _check_ids(db: Any, columns: _NodeColumns) -> None:
    path = columns.table.path
    found = _first_where(db, "nodes", "id IS NULL", "id")
    if found:
        raise UserError(
            f"row {found[1] + 1:,} of {path} has no {columns.id!r}; {found[0]:,} such rows in all: "
            f"every node needs an id"
        )
    twice = first_row(
        db,
        "SELECT id, number, sum(number - 1) OVER () FROM (SELECT id, count(*) AS number, min(rowid) AS first "
        "FROM nodes GROUP BY id HAVING count(*) > 1) ORDER BY first LIMIT 1",
    )
    if twice:
        raise UserError(
            f"node id {twice[0]!r} appears {twice[1]:,} times in {path} ({twice[2]:,} duplicates in all): "
            f"node ids must be unique"
        )


def _number_ends(db: Any, may_be_integers: bool) -> None:
    """Make `nodes` of every id in `raw`, sorted."""
    with stage("numbering nodes"):
        ends = "SELECT source AS id FROM raw UNION ALL SELECT target FROM raw"
        db.execute(f"CREATE TABLE seen AS SELECT DISTINCT id FROM ({ends})")
        order = "CAST(id AS BIGINT)" if may_be_integers and _all_integers(db, "seen") else "id"
        none = "NULL::VARCHAR AS label, NULL::VARCHAR AS split"
        db.execute(f"CREATE TABLE nodes AS SELECT id, {none} FROM seen ORDER BY {order}")
        db.execute("DROP TABLE seen")


def _all_integers(db: Any, table: str) -> bool:
    """Whether every id is an int64, and written as one: 7, but not 007."""
    same = "CAST(TRY_CAST(id AS BIGINT) AS VARCHAR) IS NOT DISTINCT FROM CAST(id AS VARCHAR)"
    return bool(first_row(db, f"SELECT bool_and({same}) FROM {table}")[0])


def _join_ends(db: Any, from_edges: _EdgeColumns, from_nodes: _NodeColumns | None) -> None:
    """Make `entries` (u, v, weight) of `raw`, positions in place of ids; refuses ids without a node."""
    edge_path, node_path = from_edges.table.path, from_nodes.table.path if from_nodes else None
    num_nodes = count_rows(db, "nodes")
    if num_nodes == 0:
        raise UserError(f"the graph is empty: {node_path or edge_path} has no rows")
    position = "INTEGER" if num_nodes < 2**31 else "BIGINT"
    weight = ", weight" if from_edges.weight else ""
    db.execute(
        f"CREATE TABLE entries AS SELECT s.rowid::{position} AS u, t.rowid::{position} AS v{weight} "
        "FROM raw LEFT JOIN nodes AS s ON raw.source = s.id LEFT JOIN nodes AS t ON raw.target = t.id"
    )
    found = _first_where(db, "entries", "u IS NULL OR v IS NULL", "u")
    if found:
        ends = "SELECT source AS id, rowid AS row FROM raw UNION ALL SELECT target, rowid FROM raw"
        unknown = f"SELECT id FROM ({ends}) WHERE id NOT IN (SELECT id FROM nodes) ORDER BY row LIMIT 1"
        example = first_row(db, unknown)[0]
        raise UserError(
            f"{found[0]:,} edges of {edge_path} lead to a node that {node_path} lacks, such as {example!r}: "
            f"add it there or remove these edges (ids are compared as they are written: 007 is not 7)"
        )
    db.execute("DROP TABLE raw")


def _merge_pairs(db: Any, weighted: bool) -> dict[str, int]:
    """Make `pairs` (low, high, weight), every undirected edge once; gives what became of the rows, as `Report` says."""
    pair = "least(u, v) AS low, greatest(u, v) AS high"
    merged = f"SELECT DISTINCT {pair} FROM entries WHERE u <> v"
    if weighted:  # fsum gives the same in whatever order the threads add
        weight = "CAST(greatest(fsum(weight) FILTER (u < v), fsum(weight) FILTER (u > v)) AS FLOAT)"
        merged = f"SELECT {pair}, {weight} AS weight FROM entries WHERE u <> v GROUP BY low, high"
    db.execute(f"CREATE TABLE pairs AS {merged}")
    rows, loops = first_row(db, "SELECT count(*), count(*) FILTER (u = v) FROM entries")
    db.execute("DROP TABLE entries")
    pairs = count_rows(db, "pairs")
    zero = first_row(db, "SELECT count(*) FROM pairs WHERE weight <= 0")[0] if weighted else 0
    if zero:
        db.execute("DELETE FROM pairs WHERE weight <= 0")
    return {
        "edge_rows": rows,
        "edges": pairs - zero,
        "merged": rows - loops - pairs,
        "self_loops": loops,
        "without_weight": zero,
    }


def _report(
    counts: dict[str, int], graph: Graph, found: Found, vectors: Vectors | None, unused: dict[str, list[str]]
) -> Report:
    labels = graph.labels
    known = None if labels is None else (labels.any(axis=1) if labels.ndim == 2 else labels >= 0)
    return Report(
        **counts,
        features=vectors.columns if vectors else (),
        missing=vectors.missing if vectors else {},
        unseen=found.unseen,
        new_columns=found.new_columns,
        labeled=None if known is None else int(known.sum()),
        nodes=graph.num_nodes,
        classes=graph.num_classes,
        new_classes=found.new_classes,
        splits={split: len(idx) for split, idx in graph.splits.items()},
        left_out=unused,
    )


def _contents(
    db: Any, may_be_integers: bool, may_be_weighted: bool, columns: _NodeColumns | None, like: Learned | None
) -> Contents:
    integers = may_be_integers and _all_integers(db, "nodes")
    weighted = may_be_weighted and bool(first_row(db, "SELECT bool_or(weight <> 1) FROM pairs")[0])
    if columns is None:
        return Contents(integers, weighted, like=like)
    label_type = None if columns.label is None else columns.table.types[columns.label]
    unused = tuple(left_out(columns.table, columns.used, columns.vectors))
    others = tuple(left_out(columns.table, (), columns.vectors))
    return Contents(integers, weighted, label_type, columns.vectors, like, unused, others)


def _find_node_columns(db: Any, table: Table, request: Request) -> _NodeColumns:
    """What to take from the node table; refuses columns that are missing or hold something else."""
    wanted = request.wanted()
    label = table.optional(request.label, "label", lists=True)
    split = table.optional(request.split, "split")
    moment = None
    if request.train_before is not None:
        column, bound = request.train_before
        moment = find_moment(db, table, str(column), bound)
    used = [request.id, label, split]
    if moment and moment.column not in (wanted.features or ()):  # asked for, a time may be a feature, too
        used.append(moment.column)
    vectors = plan_features(db, table, wanted, used)
    columns = _NodeColumns(table, request.id, label, None if moment else split, vectors, moment)
    like = wanted.like
    if like is not None and like.classes is not None and label is not None and like.several != columns.several:
        number = ("one label a node", "lists of labels")
        raise UserError(
            f"column {label!r} of {table.path} holds {number[columns.several]}, "
            f"but the graph to be like has {number[like.several]}"
        )
    return columns
