"""Take a graph's arrays out of DuckDB, into memory or straight into a graph folder.

Two tables hold the graph by then: `nodes` (id, label, split; rowid is the position) and `pairs`
(low, high, weight), every undirected edge once.

Shapes: N nodes, E undirected edges (2E stored entries), F features, C classes
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.classes import number_classes
from nagphormer.data.folder import IDS, write_ids, write_manifest
from nagphormer.data.graph import Graph
from nagphormer.data.learned import Learned
from nagphormer.data.table_features import WHOLE, Vectors
from nagphormer.data.table_files import FilePath
from nagphormer.data.table_splits import SPLIT_WORDS
from nagphormer.data.table_sql import FRACTIONS, first_row, reading, sql_text
from nagphormer.files import new_folder

_BATCH_VALUES = 1 << 20

Allocate = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Contents:
    """What the tables `nodes` and `pairs` hold."""

    integers: bool
    """Whether ids are int64 rather than text."""
    weighted: bool
    """Whether `pairs` has weights other than 1."""
    label_type: str | None = None
    """DuckDB's type of the label column, None without labels."""
    vectors: Vectors | None = None
    """Where the features are, None without features."""
    like: Learned | None = None
    """What an earlier import learned, whose classes come first."""
    left_out: tuple[str, ...] = ()
    """Columns of the node table of which nothing is taken."""
    others: tuple[str, ...] = ()
    """Columns of the node table that are no features."""

    @property
    def several(self) -> bool:
        """Whether a node may have several labels."""
        return self.label_type is not None and self.label_type.endswith("]")


@dataclass(frozen=True)
class Found:
    """What is known once every value has been seen."""

    new_columns: tuple[str, ...]
    """Columns left out that an earlier import had not."""
    new_classes: tuple[str, ...]
    """Classes that an earlier import did not know."""
    unseen: dict[str, int]
    """Values of no known category, by column."""


def collect_graph(db: Any, contents: Contents, out: FilePath | None) -> tuple[Graph, Found]:
    """Put the graph together, in memory or in the new graph folder `out`."""
    num_nodes, num_entries = count_rows(db, "nodes"), 2 * count_rows(db, "pairs")
    vectors, like = contents.vectors, contents.like
    width = vectors.width if vectors else 0
    ids = _collect_ids(db, contents.integers)
    num_bytes = num_nodes * (24 + 4 * width) + num_entries * 8 + (0 if ids is None else ids.nbytes)
    with nullcontext() if out is None else new_folder(out, num_bytes) as folder:
        allocate = _allocator(folder)
        indptr, indices, weights = _collect_entries(db, allocate, num_nodes, num_entries, contents.weighted)
        labels, classes = _collect_labels(db, allocate, num_nodes, contents)
        features, unseen = _collect_features(db, allocate, num_nodes, vectors)
        plain = classes is None or classes == tuple(map(str, range(len(classes))))
        graph = Graph(
            indptr=indptr,
            indices=indices,
            weights=weights,
            features=features,
            labels=labels,
            splits=_collect_splits(db, allocate),
            ids=ids,
            class_names=None if plain else classes,
            feature_names=vectors.names if vectors else None,
            learned=Learned(vectors.columns if vectors else (), classes, contents.several, contents.others),
        )
        if folder is not None:
            if ids is not None:
                write_ids(folder / IDS, ids)
            write_manifest(folder, graph)
    if like is None:
        return graph, Found((), (), unseen)
    new_columns = tuple(name for name in contents.left_out if name not in like.others)
    return graph, Found(new_columns, tuple(name for name in classes or () if name not in (like.classes or ())), unseen)


def count_rows(db: Any, table: str) -> int:
    """Number of rows of a DuckDB table."""
    return first_row(db, f"SELECT count(*) FROM {table}")[0]


def _allocator(folder: Path | None) -> Allocate:
    """A function that makes an array from its name, dtype and shape: in memory, or as a file of `folder`."""
    if folder is None:
        return lambda name, dtype, *shape: np.zeros(shape, dtype)

    def make(name: str, dtype: Any, *shape: int) -> np.ndarray:
        path = folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        with open(path, "r+b") as file:  # take the space now: a full disk would kill a mapped file later
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return array

    return make


def _batches(db: Any, query: str, width: int = 1) -> Any:
    """The rows of a query as Arrow record batches, the smaller the more values a row has."""
    return db.sql(query).to_arrow_reader(max(1, _BATCH_VALUES // width))


def _collect_entries(
    db: Any, allocate: Allocate, num_nodes: int, num_entries: int, weighted: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Both directions of every pair, as CSR."""
    indptr = allocate("indptr", np.int64, num_nodes + 1)
    indices = allocate("indices", np.int32 if num_nodes < 2**31 else np.int64, num_entries)
    weights = allocate("weights", np.float32, num_entries) if weighted else None
    weight = ", weight" if weighted else ""
    both = f"SELECT low AS u, high AS v{weight} FROM pairs UNION ALL SELECT high, low{weight} FROM pairs"
    start = 0
    for batch in _batches(db, f"SELECT * FROM ({both}) ORDER BY u, v"):
        rows, stop = batch["u"].to_numpy(), start + len(batch)
        indptr[rows[0] + 1 : rows[-1] + 2] += np.bincount(rows - rows[0])  # rows ascend
        indices[start:stop] = batch["v"].to_numpy()
        if weights is not None:
            weights[start:stop] = batch["weight"].to_numpy()
        start = stop
    np.cumsum(indptr, out=indptr)
    return indptr, indices, weights


def _collect_features(
    db: Any, allocate: Allocate, num_nodes: int, vectors: Vectors | None
) -> tuple[np.ndarray | None, dict[str, int]]:
    """The features, and how many values of each column are of no known category."""
    if vectors is None:
        return None, {}
    features, start = allocate("features", np.float32, num_nodes, vectors.width), 0
    unseen: dict[str, int] = {}
    pieces = vectors.pieces
    taken = ", ".join(f"{piece.sql} AS piece{number}" for number, piece in enumerate(pieces))
    with reading(vectors.table.path):
        for batch in _batches(db, f"SELECT {taken} FROM {vectors.scan}", vectors.width):
            column, rows = 0, features[start : start + len(batch)]
            for number, piece in enumerate(pieces):
                part, values = rows[:, column : column + piece.width], batch[f"piece{number}"]
                if piece.categories is None:
                    part[:] = values.flatten().to_numpy().reshape(part.shape)  # (rows · width,)
                else:
                    lost = _encode(values, piece.categories, part)
                    name = piece.columns[0].name
                    unseen[name] = unseen.get(name, 0) + lost
                column += piece.width
            start += len(batch)
    return features, {name: count for name, count in unseen.items() if count}


def _encode(values: Any, categories: tuple[str, ...], part: np.ndarray) -> int:
    """Write a 1 into the column of every row's category; gives how many values are of no known one.

    What is spelled as a category is that one, else what it is in one spelling, whatever its column holds besides.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if set(categories) <= {"False", "True"}:
        values = pc.utf8_capitalize(values)
    known = pa.array(categories, values.type)
    codes = pc.index_in(values, value_set=known)
    if codes.null_count > values.null_count:
        whole = pc.replace_substring_regex(values, WHOLE, r"\1")
        codes = pc.coalesce(codes, pc.index_in(whole, value_set=known))
    rows = np.flatnonzero(codes.is_valid())
    part[rows, codes.drop_null().to_numpy()] = 1
    return len(values) - values.null_count - len(rows)


def _collect_labels(
    db: Any, allocate: Allocate, num_nodes: int, contents: Contents
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels, (N,) or (N, C), and the names of all classes."""
    if contents.label_type is None:
        return None, None
    import pyarrow as pa

    each = "unnest(label)" if contents.several else "label"
    given = f"(SELECT rowid AS node, {each} AS label FROM nodes)"
    texts = db.execute(f"SELECT DISTINCT label FROM {given} WHERE label IS NOT NULL AND label <> ''").fetchall()
    known = (contents.like.classes or ()) if contents.like is not None else ()
    found, names = number_classes([text for (text,) in texts], contents.label_type.startswith(FRACTIONS), known)
    columns = {
        "label": pa.array(found.keys(), pa.string()),
        "class": pa.array(found.values(), pa.int64()),
    }
    db.register("classes", pa.table(columns))
    labels = allocate("labels", np.int64, num_nodes, *([len(names)] if contents.several else []))
    labels[:] = 0 if contents.several else -1
    for batch in _batches(db, f"SELECT node, class FROM {given} JOIN classes USING (label) WHERE class >= 0"):
        nodes, classes = batch["node"].to_numpy(), batch["class"].to_numpy()
        if contents.several:
            labels[nodes, classes] = 1
        else:
            labels[nodes] = classes
    return labels, names


def _collect_splits(db: Any, allocate: Allocate) -> dict[str, np.ndarray]:
    splits = {}
    for split, words in SPLIT_WORDS.items():
        listed = ", ".join(map(sql_text, words))
        query = f"SELECT rowid AS node FROM nodes WHERE lower(split) IN ({listed}) ORDER BY rowid"
        idx = db.sql(query).fetchnumpy()["node"]
        if len(idx):
            splits[split] = allocate(f"split_{split}", np.int64, len(idx))
            splits[split][:] = idx
    return splits


def _collect_ids(db: Any, integers: bool) -> Any:
    """Node ids as one Arrow array, int64 or text; None where they are 0 … N-1."""
    import pyarrow as pa

    if integers and first_row(db, "SELECT bool_and(CAST(id AS BIGINT) = rowid) FROM nodes")[0]:
        return None
    kind = "BIGINT" if integers else "VARCHAR"
    chunks = db.sql(f"SELECT CAST(id AS {kind}) AS id FROM nodes").to_arrow_table()["id"]
    if not integers and chunks.nbytes >= 2**31:  # one chunk of more text needs 64-bit offsets
        chunks = chunks.cast(pa.large_string())
    return chunks.combine_chunks()
