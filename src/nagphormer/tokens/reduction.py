"""Wide features reduced to their first singular vectors, in memory that does not grow with the number of nodes.

Subspace iteration on X̃ᵀX̃, piece of rows by piece of rows, where X̃ are the features as they are scaled (Halko,
Martinsson and Tropp, "Finding structure with randomness", SIAM Review 2011).

Shapes: N nodes, F features, d columns that are kept, p columns that are searched; R rows of a piece
"""

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from nagphormer.progress import stage
from nagphormer.tokens.engine import LANES, Csr, engine, round_up

SPARE = 16
"""Columns that are searched beside those that are kept."""
ROUNDS = 4
"""Products with X̃ᵀX̃; vectors that matter have long settled by then."""
PIECE_VALUES = 1 << 24
"""Numbers of a piece that are held at a time."""


class Scaled(Protocol):
    """Features as they are scaled: X̃ = (rows − mean) / deviation."""

    num_nodes: int

    def rows(self, start: int, stop: int) -> Any:
        """Features of some nodes, scaled by row, (R, F), sparse ones as SciPy CSR."""
        ...

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every column, (F,)."""
        ...


def singular_vectors(columns: Scaled, num_features: int, dim: int) -> np.ndarray:
    """The first right singular vectors of scaled features, (F, d) float32, with signs that do not depend on chance."""
    width = min(dim + SPARE, num_features)
    basis = np.random.default_rng(0).standard_normal((num_features, width)).astype(np.float32)
    with stage(f"reducing {num_features:,} features to {dim:,} columns", total=ROUNDS) as advance:
        for step in range(ROUNDS):
            image = _gram(columns, basis)
            if step < ROUNDS - 1:
                basis = np.linalg.qr(image)[0].astype(np.float32)
            advance(1)
    inner = basis.T @ image
    _, turned = np.linalg.eigh((inner + inner.T) / 2)  # ascending
    vectors = basis @ turned[:, ::-1][:, :dim]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(dim)] < 0, -1, 1)
    return np.ascontiguousarray(vectors * signs, np.float32)


def folded(columns: Scaled, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight (F, d) and what is to be subtracted, (d,): with them rows that no column was scaled in will do."""
    mean, std = columns.moments()
    scaled = weight / std[:, None]
    return np.ascontiguousarray(scaled, np.float32), (mean @ scaled).astype(np.float32)


def _gram(columns: Scaled, basis: np.ndarray) -> np.ndarray:
    """X̃ᵀX̃ · basis, (F, p)."""
    weight, offset = folded(columns, basis)
    image, total = np.zeros(basis.shape), np.zeros(basis.shape[1])
    held = basis.shape[1] if sp.issparse(columns.rows(0, 1)) else len(basis)  # dense rows are wider than their scores
    rows = max(1, PIECE_VALUES // held)
    for start in range(0, columns.num_nodes, rows):
        piece = columns.rows(start, min(start + rows, columns.num_nodes))
        scores = product(piece, weight) - offset  # X̃ · basis, (R, p)
        image += product(sp.csr_array(piece.T) if sp.issparse(piece) else piece.T, scores)
        total += scores.sum(axis=0, dtype=np.float64)
    mean, std = columns.moments()
    return ((image - np.outer(mean, total)) / std[:, None]).astype(np.float32)


def product(rows: Any, weight: np.ndarray) -> np.ndarray:
    """rows · weight, (R, F) × (F, p) -> (R, p) float32; of sparse rows by our own kernel."""
    if not sp.issparse(rows):
        return rows @ weight
    width = weight.shape[1]
    padded = np.zeros((weight.shape[0], round_up(width, LANES)), np.float32)
    padded[:, :width] = weight
    out = np.empty((rows.shape[0], padded.shape[1]), np.float32)
    parts = Csr(rows.indptr.astype(np.int64), rows.indices, np.asarray(rows.data, np.float32))
    engine("cpu").NeighborSum(parts, np.ones(rows.shape[0]), loop=False)(padded, out)
    return out[:, :width]
