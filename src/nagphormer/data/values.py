"""What the numbers of a graph are, whatever container they lie in: its fingerprint, and what kind of features it has.

A dense array, a sparse matrix and a memory map of the same numbers are the same graph and make the same model.

Shapes: N nodes, F features; R rows of a piece
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

PIECE_VALUES = 1 << 22
"""Numbers looked at together."""
DENSE = 0.5
"""From this share of entries other than zero on features are dense: a sparse matrix of them would take more bytes."""
MEASURED = 0.05
"""From this share of columns of measurements on features are measurements, whatever stands beside them."""
NARROW = 64
"""Up to so many columns features are those of a table, even if they are mostly zeros: words need more."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class FeatureKind:
    """What decides how features are scaled and propagated."""

    nonzero: int
    """Entries other than zero."""
    measured: int
    """Columns of measurements: most of their entries are not zero, and not all of those are ones."""
    num_nodes: int
    """N."""
    width: int
    """F."""

    @property
    def density(self) -> float:
        """Share of entries other than zero."""
        return self.nonzero / (self.num_nodes * self.width)

    @property
    def sparse(self) -> bool:
        """Whether a sparse matrix takes fewer bytes."""
        return self.density < DENSE

    @property
    def measurements(self) -> bool:
        """Whether columns have scales of their own, so that they are to be brought to one."""
        return not self.sparse or self.width <= NARROW or self.measured >= MEASURED * self.width


def kind_of(features: Any) -> FeatureKind:
    """Look at features once: dense (N, F) or SciPy CSR, perhaps memory-mapped."""
    num_nodes, width = features.shape
    filled, other = np.zeros(width, np.int64), np.zeros(width, bool)
    if sp.issparse(features):
        for start in range(0, len(features.data), PIECE_VALUES):
            values, columns = (part[start : start + PIECE_VALUES] for part in (features.data, features.indices))
            filled += np.bincount(columns[values != 0], minlength=width)
            other[columns[(values != 0) & (values != 1)]] = True
    else:
        for piece in _pieces(features):
            filled += np.count_nonzero(piece, axis=0)
            other |= ((piece != 0) & (piece != 1)).any(axis=0)
    measured = int((other & (2 * filled > num_nodes)).sum())
    return FeatureKind(int(filled.sum()), measured, num_nodes, width)


def fingerprint(structure: Arrays, features: Any, kind: FeatureKind | None) -> str:
    """SHA-256 of what tokens depend on: structure, weights and the values of features (not labels or splits).

    It is what 0.1.0 took of a graph whose features lie in the container that fits them: float32, or CSR with int32.

    Args:
        structure: `indptr`, `indices` and, where there are any, `weights`.
        features: as in a graph.
        kind: of the features, None where there are none.
    """
    if kind is None:
        return _digest(structure)
    return _sparse_digest(structure, features) if kind.sparse else _dense_digest(structure, features)


def fingerprints_by_container(structure: Arrays, features: Any) -> Iterator[str]:
    """What 0.1.0 took of a graph: it went by the container. As the features lie here, dense, and sparse."""
    if features is None:
        return
    if sp.issparse(features):
        parts = {f"features_{part}": getattr(features, part) for part in ("indptr", "indices", "data")}
        yield _digest(structure | parts, features.shape)
    else:
        yield _digest(structure | {"features": features})
    yield _dense_digest(structure, features)
    yield _sparse_digest(structure, features)


def _digest(arrays: Arrays, features_shape: tuple[int, int] | None = None) -> str:
    """Of arrays as they lie; a sparse matrix among them has a shape of its own, since empty columns leave no entry."""
    digest = hashlib.sha256()
    if features_shape is not None:
        digest.update(f"features {features_shape}".encode())
    _add(digest, arrays)
    return digest.hexdigest()


def _dense_digest(structure: Arrays, features: Any) -> str:
    """As if the features were an array of float32."""
    digest = hashlib.sha256()
    _add(digest, structure)
    digest.update(_head("features", np.float32, features.shape))
    for piece in _pieces(features):
        digest.update((piece + np.float32(0)).data)  # -0 is 0
    return digest.hexdigest()


def _sparse_digest(structure: Arrays, features: Any) -> str:
    """As if the features were CSR without zeros; read three times, so that nothing is held."""
    indptr = np.concatenate([[0], *(counts for counts, _, _ in _entries(features))]).cumsum()
    index = np.int32 if max(indptr[-1], *features.shape) < 2**31 else np.int64
    digest = hashlib.sha256()
    digest.update(f"features {features.shape}".encode())
    _add(digest, structure | {"features_indptr": indptr.astype(index)})
    digest.update(_head("features_indices", index, indptr[-1:]))
    for _, columns, _ in _entries(features):
        digest.update(np.ascontiguousarray(columns, index).data)
    digest.update(_head("features_data", np.float32, indptr[-1:]))
    for _, _, values in _entries(features):
        digest.update(np.ascontiguousarray(values, np.float32).data)
    return digest.hexdigest()


def _add(digest: Any, arrays: Arrays) -> None:
    for name, array in arrays.items():
        digest.update(_head(name, array.dtype, array.shape))
        digest.update(np.ascontiguousarray(array).data)


def _head(name: str, dtype: Any, shape: Any) -> bytes:
    return f"{name} {np.dtype(dtype)} {tuple(map(int, shape))}".encode()


def _pieces(features: Any) -> Iterator[np.ndarray]:
    """Rows of features as float32, (R, F), few enough at a time to be held."""
    for start, stop in _ranges(features):
        piece = features[start:stop]
        yield piece.toarray() if sp.issparse(piece) else np.ascontiguousarray(piece, np.float32)


def _entries(features: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Piece by piece: how many entries each row has that are not zero, (R,), their columns, and their values."""
    if not sp.issparse(features):
        for piece in _pieces(features):
            yield np.count_nonzero(piece, axis=1), np.nonzero(piece)[1], piece[piece != 0]
        return
    for start, stop in _ranges(features):
        lengths, entries = np.diff(features.indptr[start : stop + 1]), slice(*features.indptr[[start, stop]])
        columns, values = features.indices[entries], features.data[entries]
        kept = values != 0
        rows = np.repeat(np.arange(stop - start), lengths)
        yield np.bincount(rows[kept], minlength=stop - start), columns[kept], values[kept]


def _ranges(features: Any) -> Iterator[tuple[int, int]]:
    num_nodes, width = features.shape
    rows = max(1, PIECE_VALUES // width)
    for start in range(0, num_nodes, rows):
        yield start, min(start + rows, num_nodes)
