"""What users and other libraries hold, as the arrays a Graph is made of; no such library is imported.

Shapes: N nodes, E edge entries, F features, S splits
"""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.checks import SPLITS
from nagphormer.errors import UserError
from nagphormer.progress import note

_POSITIONS = {"train": ("train_idx",), "val": ("val_idx", "valid_idx"), "test": ("test_idx",)}
"""Names under which the positions of a split are found."""


def as_array(thing: Any, what: str = "the array") -> np.ndarray:
    """A tensor on any device, or anything NumPy takes, as a NumPy array; shares memory where it can.

    Args:
        thing: what was given.
        what: its name, for messages.
    """
    try:
        for step in ("detach", "cpu"):
            if hasattr(thing, step):
                thing = getattr(thing, step)()
        if str(getattr(thing, "dtype", None)).startswith(("torch.bfloat16", "torch.float8")):  # NumPy has no such types
            thing = thing.float()
        return np.asarray(thing)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} cannot be read as an array: {str(error).splitlines()[0]}") from error


def as_matrix(thing: Any, what: str = "the matrix") -> Any:
    """A dense or sparse tensor (of torch, torch-sparse, SciPy) as NumPy array or SciPy matrix."""
    if sp.issparse(thing):
        return thing
    layout = str(getattr(thing, "layout", None))
    try:
        if hasattr(thing, "to_scipy"):
            return sp.csr_array(thing.to_scipy(layout="csr"))
        if layout == "torch.sparse_csr":
            values, indices = as_array(thing.values()), as_array(thing.col_indices())
            return sp.csr_array((values, indices, as_array(thing.crow_indices())), shape=tuple(thing.shape))
        if layout.startswith("torch.sparse"):
            found = thing if layout == "torch.sparse_coo" else thing.to_sparse_coo()
            # not coalesced: an edge that is there twice is not yet a weight of two
            ends = tuple(as_array(found._indices()))
            return sp.coo_array((as_array(found._values()), ends), shape=tuple(found.shape))
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        shape = tuple(getattr(thing, "shape", ()) or ())
        raise UserError(
            f"{what}, sparse and of shape {shape}, cannot be read: one number for each entry is needed"
        ) from error
    return as_array(thing, what)


def as_features(thing: Any) -> tuple[Any, list[str] | None]:
    """Features as an array or sparse matrix, and the names of their columns where they are a data frame."""
    names = None
    if hasattr(thing, "column_names"):  # an Arrow table
        names, columns = list(thing.column_names), [as_array(column) for column in thing.columns]
        thing = np.stack(columns, axis=1) if columns else np.empty((thing.num_rows, 0))
    elif hasattr(thing, "columns") and hasattr(thing, "to_numpy"):  # a frame of pandas or polars
        names, thing = list(map(str, thing.columns)), thing.to_numpy()
    found = as_matrix(thing, "features")
    if not sp.issparse(found) and found.dtype.kind == "O" and found.ndim == 2:
        found = np.stack([_numbers(found[:, i], names[i] if names else str(i)) for i in range(found.shape[1])], axis=1)
    return found, names


def _numbers(column: np.ndarray, name: str) -> np.ndarray:
    """A column of objects that are numbers and truth values, as a frame of several types has it."""
    for value in column:
        if not (is_missing(value) or isinstance(value, Real | np.bool_)):
            raise UserError(
                f"features must be numbers, but column {name!r} holds {value!r}: encode it, or leave it out"
            )
    return np.array([np.nan if is_missing(value) else value for value in column], np.float32)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas' NA, which is neither equal to itself nor different."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def as_ends(edges: Any) -> np.ndarray:
    """Ends of edges as PyG has them, (2, E) whole numbers."""
    found = as_array(edges, "edge_index")
    if found.ndim != 2 or found.shape[0] != 2:
        turned = found.ndim == 2 and found.shape[1] == 2
        hint = ": turn it, edge_index.t()" if turned else ", a row of sources and one of targets"
        raise UserError(f"edge_index has shape {found.shape}, but it must be (2, E){hint}")
    return found


def as_mask(values: Any, name: str) -> np.ndarray:
    """Truth values, also written as 1 and 0."""
    found = as_array(values, name)
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        other = found[~np.isin(found, (0, 1))].flat[0]
        raise UserError(
            f"{name} must hold True and False, not {other}: for positions of nodes there is "
            f"{name.removesuffix('_mask')}_idx"
        )
    return found.astype(bool)


def as_splits(find: Callable[[str], Any], split: int = 0) -> dict[str, np.ndarray]:
    """Splits from masks (N,), or (N, S) of which one column is taken; else from positions.

    Args:
        find: gives what is called `train_mask`, `val_mask`, `test_mask`, `train_idx` …, or None.
        split: which column; a mask of one dimension counts for every split.
    """
    found = {name: find(f"{name}_mask") for name in SPLITS}
    masks = {name: as_mask(mask, f"{name}_mask") for name, mask in found.items() if mask is not None}
    widths = [mask.shape[1] for mask in masks.values() if mask.ndim == 2]
    check_split(split, min(widths, default=1))
    if widths:
        note(f"the masks hold {min(widths):,} splits: number {split} is taken, another by split=")
    given = {name: [key for key in keys if find(key) is not None] for name, keys in _POSITIONS.items()}
    if masks:
        unread = [key for name, keys in given.items() for key in keys if name not in masks]
        if unread:
            note(f"{' and '.join(unread)} are not read, since other splits are masks")
        return {name: mask[:, split] if mask.ndim == 2 else mask for name, mask in masks.items()}
    for name, keys in given.items():
        if len(keys) > 1:
            raise UserError(f"both {' and '.join(keys)} are there: which are the {name} nodes? Set one to None")
    return {name: as_array(find(key), key) for name, keys in given.items() for key in keys}


def check_split(split: int, num_splits: int) -> None:
    """Refuse the number of a split that is not there."""
    if not isinstance(split, int | np.integer) or not 0 <= split < num_splits:
        there = f"are {num_splits:,} splits, 0 to {num_splits - 1:,}" if num_splits > 1 else "is one split, number 0"
        raise UserError(f"split={split!r} cannot be taken: there {there}")
