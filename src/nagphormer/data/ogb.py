"""Graphs from the raw files of the Open Graph Benchmark's node property prediction; needs no `ogb` package.

The layout is that of the archives OGB offers: `raw/edge.csv.gz`, `node-feat.csv.gz`, `node-label.csv.gz`,
`num-node-list.csv.gz`, `num-edge-list.csv.gz`, or, for the largest, `raw/data.npz` and `node-label.npz`; and
`split/<scheme>/train.csv.gz`, `valid.csv.gz`, `test.csv.gz`. Edge features and OGB's pickled `split_dict.pt`
are not read.

Shapes: N nodes, E edge entries, F features, C tasks
"""

import gzip
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.graph import Graph, from_edges
from nagphormer.errors import UserError

BLOCK_BYTES = 1 << 24
"""How much text is parsed at once."""

_PARTS = {"train": "train", "val": "valid", "test": "test"}  # our names, OGB's names


def read_ogb(folder: str | os.PathLike[str], scheme: str | None = None) -> Graph:
    """Read one graph of the Open Graph Benchmark from its unpacked archive.

    Args:
        folder: the folder that holds `raw/` and `split/`, such as `arxiv` or `ogbn_arxiv`.
        scheme: the folder under `split/` to take, such as `time`; needed only where there are several.
    """
    folder = Path(folder)
    raw = folder / "raw"
    if not raw.is_dir():
        raise UserError(f"{folder} is not an OGB folder: it has no folder raw; unpack the archive of OGB first")
    if (raw / "triplet-type-list.csv.gz").exists() or (raw / "edge_index_dict.npz").exists():
        raise UserError(f"{folder} has nodes of several types, which this model does not know")
    splits = _read_splits(folder, scheme)
    edges, num_nodes, features, labels = _read_binary(raw) if (raw / "data.npz").exists() else _read_text(raw)
    return from_edges(
        edges[0],
        edges[1],
        num_nodes,
        features=features,
        labels=labels,
        splits=splits,
        name=folder.resolve().name,
    )


def _read_text(raw: Path) -> tuple[Any, int, np.ndarray | None, np.ndarray | None]:
    num_nodes = _single(_read_csv(raw / "num-node-list.csv.gz", np.int64), raw)
    num_edges = _single(_read_csv(raw / "num-edge-list.csv.gz", np.int64), raw)
    index = np.int32 if num_nodes < 2**31 else np.int64  # half the memory, and what the graph will hold
    edges = _read_csv(raw / "edge.csv.gz", index, num_edges)
    if edges.shape[0] != 2:
        raise UserError(f"{raw / 'edge.csv.gz'} has {edges.shape[0]} columns instead of 2, source and target")
    features, labels = raw / "node-feat.csv.gz", raw / "node-label.csv.gz"
    return (
        edges,
        num_nodes,
        _read_csv(features, np.float32, num_nodes, by_row=True) if features.exists() else None,
        _read_csv(labels, np.float64, num_nodes, by_row=True) if labels.exists() else None,
    )


def _read_csv(path: Path, dtype: Any, num_rows: int | None = None, by_row: bool = False) -> np.ndarray:
    """Columns of a headless, gzipped CSV as (columns, rows), or (rows, columns) when `by_row`.

    Read in pieces into an array of the known size, so that nothing is held twice.
    """
    import pyarrow as pa
    from pyarrow import csv

    if not path.is_file():
        raise UserError(f"{path} is missing: unpack the archive of OGB again")
    try:
        with gzip.open(path, "rt") as file:
            width = file.readline().count(",") + 1
        names = [str(column) for column in range(width)]
        reader = csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
            parse_options=csv.ParseOptions(ignore_empty_lines=width > 1),  # an empty label is unknown
            convert_options=csv.ConvertOptions(column_types={name: pa.from_numpy_dtype(dtype) for name in names}),
        )
        pieces = (_columns(batch, path) for batch in reader)
        if num_rows is None:
            return np.concatenate([np.stack(piece) for piece in pieces], axis=1)
        values = np.empty((num_rows, width) if by_row else (width, num_rows), dtype)
        columns_first = values.T if by_row else values
        start = 0
        for piece in pieces:
            stop = start + len(piece[0])
            if stop <= num_rows:
                for column, part in enumerate(piece):
                    columns_first[column, start:stop] = part
            start = stop
    except UserError:
        raise
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} is damaged ({error}): unpack the archive of OGB again") from error
    if start != num_rows:
        raise UserError(f"{path} has {start:,} rows instead of {num_rows:,}: unpack the archive of OGB again")
    return values


def _columns(batch: Any, path: Path) -> list[np.ndarray]:
    """The columns of a piece; an empty field is NaN among real numbers, and an error among whole ones."""
    for column in batch.columns:
        if column.null_count and str(column.type).startswith("int"):
            raise UserError(f"{path} has a row with a missing number: unpack the archive of OGB again")
    return [column.to_numpy(zero_copy_only=False) for column in batch.columns]


def _read_binary(raw: Path) -> tuple[Any, int, np.ndarray | None, np.ndarray | None]:
    path = raw / "data.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            num_nodes = _single(file["num_nodes_list"], raw)
            edges = file["edge_index"]  # (2, E)
            features = file.get("node_feat")
        path, labels = raw / "node-label.npz", None
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                labels = file["node_label"]
    except UserError:
        raise
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged ({error}): unpack the archive of OGB again") from error
    return edges, num_nodes, features, labels


def _single(counts: np.ndarray, raw: Path) -> int:
    counts = np.ravel(counts)
    if len(counts) != 1:
        raise UserError(f"{raw.parent} holds {len(counts):,} graphs: only data sets of one graph can be read")
    return int(counts[0])


def _read_splits(folder: Path, scheme: str | None) -> dict[str, np.ndarray]:
    root = folder / "split"
    schemes = sorted(entry.name for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    if scheme is None and len(schemes) > 1:
        raise UserError(f"{root} holds the splits {', '.join(schemes)}: name one with scheme=")
    if scheme is not None and scheme not in schemes:
        raise UserError(f"{root} has no split {scheme!r}: it has {', '.join(schemes) or 'none'}")
    if not schemes:
        return {}
    chosen = root / (scheme or schemes[0])
    return {ours: _read_csv(chosen / f"{theirs}.csv.gz", np.int64)[0] for ours, theirs in _PARTS.items()}
