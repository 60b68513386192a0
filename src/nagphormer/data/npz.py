"""Graphs in one `.npz` file, in the layout of Shchur et al., "Pitfalls of Graph Neural Network Evaluation".

Keys: `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`: the adjacency in CSR; `attr_*` likewise, or a
dense `attr_matrix`: features; `labels`: one per node, -1 for unknown. Optional are `node_ids`, `class_names`
and splits: `train_mask`, `val_mask`, `test_mask` (public); `split60_train`, `split60_valid`, `split60_test`
(fixed); `train_masks`, `val_masks`, `test_masks`, one row per split. Nothing in the file is ever unpickled;
other keys are not read at all, so files with pickled names, as PyG downloads them, load too.

Shapes: N nodes, F features, S splits
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.checks import SPLITS
from nagphormer.data.graph import Graph, from_scipy
from nagphormer.data.tensors import as_mask
from nagphormer.errors import UserError

Split = str | int
"""A split of a file: `public`, `fixed`, or the row of `train_masks`, `val_masks` and `test_masks`."""

_SPLIT_KEYS = {
    "public": ("train_mask", "val_mask", "test_mask"),
    "fixed": ("split60_train", "split60_valid", "split60_test"),
}
_ROW_KEYS = ("train_masks", "val_masks", "test_masks")


def read_npz(path: str | os.PathLike[str], split: Split | None = None) -> Graph:
    """Read a graph from an `.npz` file.

    Args:
        path: the file.
        split: which of the file's splits to take: `public`, `fixed`, or a row number; None for none.
    """
    with _opened(path) as file:
        adjacency, features = _csr(file, "adj"), _features(file)
        parts: dict[str, Any] = {"labels": file.get("labels")}
        parts |= {key: file[key] for key in ("node_ids", "class_names") if key in file and _plain(file, key)}
    if adjacency is None:
        raise UserError(f"{path} holds no graph: it needs adj_data, adj_indices, adj_indptr and adj_shape (CSR)")
    splits = None if split is None else read_split(path, split)
    return from_scipy(adjacency, features=features, splits=splits, **parts)


def read_split(path: str | os.PathLike[str], split: Split) -> dict[str, np.ndarray]:
    """One split of an `.npz` file: masks or positions of `train`, `val` and `test`."""
    with _opened(path) as file:
        stored = _stored(file)
        if isinstance(split, bool) or split not in stored:
            raise UserError(f"{path} has no split {split!r}: {describe_splits(stored)}")
        if isinstance(split, int):
            return {name: as_mask(file[key][split], key) for name, key in zip(SPLITS, _ROW_KEYS, strict=True)}  # (S, N)
        keys = zip(SPLITS, _SPLIT_KEYS[split], strict=True)
        return {name: as_mask(file[key], key) if key.endswith("mask") else file[key] for name, key in keys}


def stored_splits(path: str | os.PathLike[str]) -> list[Split]:
    """The splits an `.npz` file holds, as `read_npz` takes them."""
    with _opened(path) as file:
        return _stored(file)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The open file; whatever the reading of it raises becomes a message about `path`."""
    if not Path(path).is_file():
        raise UserError(f"{path} is not a file: is the path right?")
    try:
        with open(path, "rb") as stream:
            if stream.read(2) != b"PK":  # before NumPy takes it for a pickle, and says so
                raise UserError(f"{path} is not an .npz file: a graph file is written by numpy.savez")
        with np.load(path, allow_pickle=False) as file:
            yield file
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path} cannot be read ({error}): it is damaged or holds pickles; fetch or write it again"
        ) from error


def _csr(file: Any, prefix: str) -> sp.csr_array | None:
    if f"{prefix}_data" not in file:
        return None
    data, indices, indptr, shape = (file[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    num_rows, num_columns = map(int, shape)
    matrix = sp.csr_array((data, indices, indptr), shape=(num_rows, num_columns))
    matrix.check_format(full_check=True)  # a column out of range would crash SciPy later
    return matrix


def _features(file: Any) -> Any:
    return file["attr_matrix"] if "attr_matrix" in file else _csr(file, "attr")


def _plain(file: Any, key: str) -> bool:
    """Whether an array can be read without unpickling; asks its header only."""
    with file.zip.open(f"{key}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return not header(stream)[2].hasobject


def _stored(file: Any) -> list[Split]:
    named: list[Split] = [split for split, keys in _SPLIT_KEYS.items() if all(key in file for key in keys)]
    has_rows = all(key in file for key in _ROW_KEYS)
    return named + (list(range(len(file[_ROW_KEYS[0]]))) if has_rows else [])


def describe_splits(stored: list[Split]) -> str:
    """What can be asked for instead, for an error message."""
    rows = [split for split in stored if isinstance(split, int)]
    words = [repr(split) for split in stored if isinstance(split, str)]
    if rows:
        words.append(f"{rows[0]} to {rows[-1]}")
    own = f"it has {' and '.join(words)}" if words else "it has none of its own"
    return f"{own}; split='random' works for every graph with labels"
