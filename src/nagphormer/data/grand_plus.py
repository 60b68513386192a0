"""Graphs from the files of GRAND+ (github.com/THUDM/GRAND-plus), the source of the paper's large sets.

Two layouts: `<name>.adj.sp.pkl`, `<name>.features.pkl`, `<name>.labels.pkl` (aminer; pickles), and
`<name>_adj.npz`, `<name>_feat.npy`, `<name>_labels.npy` (reddit, Amazon2M). Labels are one-hot rows.

Shapes: N nodes, F features, C classes
"""

import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.graph import Graph, from_scipy
from nagphormer.errors import UserError

_PICKLES = (".adj.sp.pkl", ".features.pkl", ".labels.pkl")
_ARRAYS = ("_adj.npz", "_feat.npy", "_labels.npy")


def read_grand_plus(folder: str | os.PathLike[str], allow_pickle: bool = False) -> Graph:
    """Read a graph from a folder of GRAND+'s files; no split is set, and features stay as stored.

    Every entry of the adjacency is an edge of weight 1, as in GRAND+'s own propagation.

    Args:
        folder: the unpacked archive, such as `aminer`.
        allow_pickle: read pickles too, which the `aminer` archive consists of. A pickle can run any code
            while it is read: allow it only for files whose origin you trust.
    """
    folder = Path(folder)
    name, endings = _find(folder)
    if endings is _PICKLES and not allow_pickle:
        raise UserError(
            f"{folder} holds pickles ({name}{endings[0]}, …), and a pickle can run any code while it is "
            f"read: if you trust its origin, say allow_pickle=True (on the command line --allow-pickle)"
        )
    adjacency, features, labels = (_read(folder / f"{name}{ending}") for ending in endings)
    if not sp.issparse(adjacency):
        raise UserError(f"{folder / (name + endings[0])} holds no sparse matrix but {type(adjacency).__name__}")
    return from_scipy(_structure(adjacency), features=features, labels=_from_one_hot(labels), name=name.lower())


def _find(folder: Path) -> tuple[str, tuple[str, str, str]]:
    """The common start of the file names, and their endings."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: unpack the archive of GRAND+ first")
    for endings in (_PICKLES, _ARRAYS):
        names = sorted(path.name.removesuffix(endings[0]) for path in folder.glob(f"*{endings[0]}"))
        if len(names) > 1:
            raise UserError(f"{folder} holds several graphs ({', '.join(names)}): give each its own folder")
        if names:
            missing = [names[0] + ending for ending in endings if not (folder / (names[0] + ending)).is_file()]
            if missing:
                raise UserError(f"{folder} lacks {' and '.join(missing)}: unpack the archive of GRAND+ again")
            return names[0], endings
    raise UserError(f"{folder} holds no files of GRAND+: neither <name>{_PICKLES[0]} nor <name>{_ARRAYS[0]} is there")


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".pkl":
            with open(path, "rb") as file:
                return pickle.load(file, encoding="latin1")
        if path.suffix == ".npz":
            return sp.load_npz(path)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (
        *(ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error),
        *(pickle.UnpicklingError, AttributeError, ImportError, IndexError),
    ) as error:
        raise UserError(f"{path} is damaged ({error}): unpack the archive of GRAND+ again") from error


def _structure(adjacency: Any) -> sp.csr_array:
    matrix = sp.csr_array(adjacency)
    matrix = sp.csr_array((matrix.data != 0, matrix.indices, matrix.indptr), shape=matrix.shape)
    try:
        matrix.check_format(full_check=True)  # a column out of range would crash SciPy later
    except ValueError as error:
        raise UserError(f"the adjacency is damaged ({error}): unpack the archive of GRAND+ again") from error
    return matrix


def _from_one_hot(labels: Any) -> np.ndarray:
    """Classes of one-hot rows, (N, C) -> (N,), -1 for a row of zeros; several ones in a row stay (N, C)."""
    labels = np.asarray(labels.toarray() if hasattr(labels, "toarray") else labels)
    if labels.ndim == 2 and (np.count_nonzero(labels, axis=1) <= 1).all():
        return np.where(labels.any(axis=1), labels.argmax(axis=1), -1)
    return labels
