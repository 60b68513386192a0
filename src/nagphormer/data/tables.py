"""Read a graph from an edge table and a node table, joined and merged by DuckDB.

Inside DuckDB they become `nodes`, `raw` (edges as given), `entries` (edges between positions) and `pairs`
(every undirected edge once).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.data.table_arrays import SPLIT_WORDS, Contents, Vectors, collect_graph, count_rows
from nagphormer.data.table_files import FilePath, Table, database, open_table
from nagphormer.data.table_sql import first_row, is_list, is_number, reading, sql_name, sql_text
from nagphormer.data.table_text import NO_NAME
from nagphormer.errors import UserError
from nagphormer.files import check_vacant
from nagphormer.progress import stage

_PANDAS_INDEX = (NO_NAME, "__index_level_0__")  # what to_csv and to_parquet write of an index: no feature


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
        label: node column with classes, text or integers; empty or -1 means unknown. None for no labels.
        split: node column with `train`, `val` or `test`; empty means none. None for no splits.
        features: node columns with numbers, or one column with lists of numbers; None takes every column
            left, an empty list none.
        out: write a graph folder here and return the graph memory-mapped: bounded memory at any size.
        memory: what DuckDB may hold before it spills to disk, such as `4GB`; by default four times the
            tables, at least 1 GB. It spills beside `out`, else into the system's temporary folder.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "edges.csv"
    >>> _ = path.write_text("source,target\nann,bob\nbob,cem\n")
    >>> read_tables(path).node_ids.tolist()
    ['ann', 'bob', 'cem']
    """
    if out is not None:
        check_vacant(Path(out).absolute())
    if nodes is None and (features or label not in ("label", None) or split not in ("split", None)):
        raise UserError("features, label and split are columns of a node table: give one with nodes=")
    with database([edges] if nodes is None else [edges, nodes], out, memory) as db:
        from_edges = _EdgeColumns(open_table(db, edges, "edges", (source, target)), source, target, weight)
        end_kinds = own_kinds = from_edges.check()
        from_nodes = None
        if nodes is not None:
            table = open_table(db, nodes, "nodes")
            own_kinds = {table.id_kind(id)}
            label, split = table.optional(label, "label"), table.optional(split, "split")
            vectors = _plan_vectors(db, table, features, used=(id, label, split))
            from_nodes = _NodeColumns(table, id, label, split, vectors)
        key = "BIGINT" if end_kinds | own_kinds == {"integer"} else "VARCHAR"  # mixed ids meet as text
        if from_nodes is None:
            _load_edges(db, from_edges, key)
            _number_ends(db, "text" not in own_kinds)
        else:
            _load_nodes(db, from_nodes, key)
            _load_edges(db, from_edges, key)
        with stage("joining edges"):
            _join_ends(db, from_edges, from_nodes)
            with reading(from_edges.table.path):
                weighted = _merge_pairs(db, weight is not None)
        with stage("collecting the graph"):
            integers = "text" not in own_kinds and _all_integers(db, "nodes")
            graph = collect_graph(db, _contents(integers, weighted, from_nodes), out)
    return graph if out is None else open_graph(out)


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


def _plan_vectors(
    db: Any, table: Table, features: str | Sequence[str] | None, used: tuple[str | None, ...]
) -> Vectors | None:
    """Find the feature columns; `used` are those that mean something else."""
    if features is None:
        columns = [name for name in table.types if name not in (*used, *_PANDAS_INDEX)]
    else:
        columns = [features] if isinstance(features, str) else list(features)
    if not columns:
        return None
    for name in columns:
        if name in used:
            raise UserError(f"column {name!r} is the id, label or split: it cannot be a feature as well")
    kinds = {name: table.require(name) for name in columns}
    if len(columns) == 1 and is_list(kinds[columns[0]]):
        scan, lists = table.scan(), sql_name(columns[0])
        with reading(table.path):
            vector = f"TRY_CAST({lists} AS FLOAT[])"  # a CSV's lists are text
            first = first_row(db, f"SELECT len({vector}) FROM {scan} WHERE {lists} IS NOT NULL LIMIT 1")
        width = first[0] if first else 0
        return Vectors(table.path, scan, columns, vector, width)
    others = [f"{name} ({kind})" for name, kind in kinds.items() if not is_number(kind)]
    if others and features is None:
        raise UserError(
            f"columns of {table.path} do not hold numbers: {', '.join(others[:10])}; "
            f"name the columns that are features, with --features or features=[…]"
        )
    vector = f"TRY_CAST([{', '.join(map(table.number, columns))}] AS FLOAT[])"
    return Vectors(table.path, table.scan(numbers=columns), columns, vector, len(columns), tuple(columns))


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


def _load_nodes(db: Any, columns: _NodeColumns, key: str) -> None:
    """Make `nodes` (id, label, split, finite) in file order; refuses bad ids, splits and features."""
    label = "NULL" if columns.label is None else f"{sql_name(columns.label)}::VARCHAR"
    split = "NULL" if columns.split is None else f"{sql_name(columns.split)}::VARCHAR"
    finite, vectors = "true", columns.vectors
    if vectors:  # `len` counts NULL entries, the aggregate `count` passes over them
        lengths = f"len({vectors.sql}), list_aggregate({vectors.sql}, 'count')"
        whole = f"({lengths}) = ({vectors.width}, {vectors.width})"
        finite = f"coalesce({whole} AND isfinite(list_sum({vectors.sql})), false)"
    taken = (
        f"{columns.table.id(columns.id, key)} AS id, nullif({label}, '') AS label, nullif(trim({split}), '') AS split"
    )
    scan = vectors.scan if vectors else columns.table.scan()
    with stage("reading nodes"), reading(columns.table.path):
        db.execute(f"CREATE TABLE nodes AS SELECT {taken}, {finite} AS finite FROM {scan}")
    _check_ids(db, columns)
    _check_splits(db, columns)
    found = _first_where(db, "nodes", "NOT finite", "id")
    if found and vectors:
        _refuse_vector(db, vectors, *found)


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


def _check_splits(db: Any, columns: _NodeColumns) -> None:
    words = ", ".join(sql_text(word) for words in SPLIT_WORDS.values() for word in words)
    found = _first_where(db, "nodes", f"lower(split) NOT IN ({words})", "split, id")
    if found:
        raise UserError(
            f"column {columns.split!r} of {columns.table.path} holds {found[2]!r} at node {found[3]!r}: "
            f"a split is train, val or test, or empty; if the column means something else, rename it or name another"
        )


def _refuse_vector(db: Any, vectors: Vectors, count: int, row: int, node: Any) -> None:
    """Say what is wrong with the features in a row of the node table."""
    taken = ", ".join(map(sql_name, vectors.columns))
    values = first_row(db, f"SELECT {taken} FROM {vectors.scan} LIMIT 1 OFFSET {row}")
    names = [f"feature {name!r}" for name in vectors.columns]
    if isinstance(values[0], str):  # a CSV's list
        values = first_row(db, f"SELECT {vectors.sql} FROM {vectors.scan} LIMIT 1 OFFSET {row}")
    if isinstance(values[0], list | tuple):
        values = values[0]
        if len(values) != vectors.width or not values:
            raise UserError(
                f"{names[0]} of node {node!r} has {len(values)} entries, but that of the first node has "
                f"{vectors.width}: lists must be equally long, and not empty"
            )
        names = [f"entry {entry} of {names[0]}" for entry in range(len(values))]
    with np.errstate(over="ignore"):
        finite = [value is not None and bool(np.isfinite(np.float32(value))) for value in values]
    wrong = finite.index(False)
    value = "missing" if values[wrong] is None else values[wrong]
    raise UserError(
        f"{names[wrong]} of node {node!r} is {value}; {count:,} such nodes in all: "
        f"features must be finite numbers; fill in what is missing or leave that column out"
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


def _merge_pairs(db: Any, weighted: bool) -> bool:
    """Make `pairs` (low, high, weight), every undirected edge once; gives whether any weight is not 1."""
    pair = "least(u, v) AS low, greatest(u, v) AS high"
    merged = f"SELECT DISTINCT {pair} FROM entries WHERE u <> v"
    if weighted:  # fsum gives the same in whatever order the threads add
        weight = "CAST(greatest(fsum(weight) FILTER (u < v), fsum(weight) FILTER (u > v)) AS FLOAT)"
        grouped = f"SELECT {pair}, {weight} AS weight FROM entries WHERE u <> v GROUP BY low, high"
        merged = f"SELECT * FROM ({grouped}) WHERE weight > 0"
    db.execute(f"CREATE TABLE pairs AS {merged}")
    db.execute("DROP TABLE entries")
    return weighted and bool(first_row(db, "SELECT bool_or(weight <> 1) FROM pairs")[0])


def _contents(integers: bool, weighted: bool, columns: _NodeColumns | None) -> Contents:
    if columns is None:
        return Contents(integers, weighted)
    label_type = None if columns.label is None else columns.table.types[columns.label]
    return Contents(integers, weighted, label_type, columns.vectors)
