"""What other graph libraries hold, as the arrays a Graph is made of; no such library is imported.

Shapes: N nodes, F features, C classes, S splits
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.checks import SPLITS
from nagphormer.errors import UserError
from nagphormer.progress import note

_POSITIONS = {"train_idx": "train", "val_idx": "val", "valid_idx": "val", "test_idx": "test"}
"""Names under which positions are found, and their split."""


def as_array(tensor: Any) -> np.ndarray:
    """A tensor on any device, or anything NumPy takes, as a NumPy array; shares memory where it can."""
    for step in ("detach", "cpu"):
        if hasattr(tensor, step):
            tensor = getattr(tensor, step)()
    if str(getattr(tensor, "dtype", None)) == "torch.bfloat16":  # NumPy has no such type
        tensor = tensor.float()
    return np.asarray(tensor)


def as_matrix(tensor: Any) -> Any:
    """A dense or sparse tensor (torch COO or CSR, torch-sparse, SciPy) as NumPy array or SciPy matrix."""
    if sp.issparse(tensor):
        return tensor
    if hasattr(tensor, "to_scipy"):
        return sp.csr_array(tensor.to_scipy(layout="csr"))
    layout = str(getattr(tensor, "layout", None))
    if layout == "torch.sparse_coo":
        tensor = tensor.coalesce()
        rows, columns = as_array(tensor.indices())
        return sp.csr_array((as_array(tensor.values()), (rows, columns)), shape=tuple(tensor.shape))
    if layout == "torch.sparse_csr":
        values, indices = as_array(tensor.values()), as_array(tensor.col_indices())
        return sp.csr_array((values, indices, as_array(tensor.crow_indices())), shape=tuple(tensor.shape))
    return as_array(tensor)


def as_labels(tensor: Any) -> np.ndarray:
    """Labels (N,), (N, 1) or, for multi-label tasks, (N, C); NaN becomes -1, unknown."""
    labels = as_array(tensor)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # (N, 1) -> (N,)
    if labels.dtype.kind == "f":
        unknown = np.isnan(labels)
        if labels.ndim == 2 and unknown.any():
            node = int(np.argwhere(unknown)[0, 0])
            raise UserError(
                f"node {node:,} misses some of its {labels.shape[1]} labels "
                f"({int(unknown.sum()):,} are NaN in all): multi-label graphs need 0 or 1 for every class"
            )
        labels = np.where(unknown, -1, labels)
    return labels


def as_splits(find: Callable[[str], Any], split: int = 0) -> dict[str, np.ndarray]:
    """Splits from masks (N,), or (N, S) of which one column is taken; else from positions.

    Args:
        find: gives what is called `train_mask`, `val_mask`, `test_mask`, `train_idx` …, or None.
        split: which column; a mask of one dimension counts for every split.
    """
    found = {name: find(f"{name}_mask") for name in SPLITS}
    masks = {name: as_array(mask) for name, mask in found.items() if mask is not None}
    widths = [mask.shape[1] for mask in masks.values() if mask.ndim == 2]
    check_split(split, min(widths, default=1))
    if widths:
        note(f"the masks hold {min(widths):,} splits: number {split} is taken, another by split=")
    if masks:
        return {name: (mask[:, split] if mask.ndim == 2 else mask).astype(bool) for name, mask in masks.items()}
    return {name: as_array(find(key)) for key, name in _POSITIONS.items() if find(key) is not None}


def check_split(split: int, num_splits: int) -> None:
    """Refuse the number of a split that is not there."""
    if not isinstance(split, int | np.integer) or not 0 <= split < num_splits:
        there = f"are {num_splits:,} splits, 0 to {num_splits - 1:,}" if num_splits > 1 else "is one split, number 0"
        raise UserError(f"split={split!r} cannot be taken: there {there}")
