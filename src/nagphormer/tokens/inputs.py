"""The columns that are propagated: features, scaled as asked, joined with the structural encoding (paper Eq. 10).

Shapes: N nodes, F features, d columns they are reduced to, s encoding columns; R rows of a piece
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.graph import Graph
from nagphormer.settings import Scaling, TokenSettings
from nagphormer.tokens.reduction import folded, product, singular_vectors

PIECE_VALUES = 1 << 22
"""Numbers read at a time."""


class Columns:
    """X‖U as float32, read piece by piece, never held as a whole.

    A graph without features has one column instead, log(1 + degree). What scaling and reducing need to know is measured
    unless `statistics` and `components` say it.
    """

    def __init__(
        self,
        graph: Graph,
        encoding: np.ndarray | None,
        feature_scaling: Scaling = "none",
        statistics: dict[str, list[float]] | None = None,
        reduce_dim: int = 0,
        components: np.ndarray | None = None,
    ):
        self._features: Any = graph.features
        if graph.features is None:
            self._features = np.log1p(graph.degrees).astype(np.float32)[:, None]  # (N, 1)
        self.encoding = encoding
        self._wide: int = self._features.shape[1]
        self.num_nodes = graph.num_nodes
        self._mean: np.ndarray | None = None
        self._std: np.ndarray | None = None
        self.feature_scaling = feature_scaling
        self._by_row = feature_scaling in ("row", "length")
        if statistics:
            self._mean, self._std = np.array(statistics["mean"]), np.array(statistics["std"])
        elif feature_scaling == "standardize":
            self._mean, self._std = self._measured()
        reduced = TokenSettings(reduce_dim=reduce_dim).reduces(self._wide)
        self._mostly_zeros = reduced and graph.sparse  # whatever container they lie in, so that vectors are the same
        self.components = components
        """What features are reduced by, (F, d) float32, or None."""
        if reduced and components is None:
            self.components = singular_vectors(self, self._wide, reduce_dim)
        if self.components is not None:
            self._folded, self._offset = folded(self, self.components)
        self.num_features: int = self._wide if self.components is None else self.components.shape[1]
        """Columns of features, F or d."""
        self.width = self.num_features + (0 if encoding is None else encoding.shape[1])

    def read(self, start: int, stop: int, first: int, last: int) -> np.ndarray:
        """Rows start … stop and columns first … last, (R, last-first) float32."""
        parts = []
        if first < self.num_features:
            parts.append(self._scaled(start, stop, first, min(last, self.num_features)))
        if last > self.num_features:
            assert self.encoding is not None
            columns = slice(max(first - self.num_features, 0), last - self.num_features)
            parts.append(self.encoding[start:stop, columns])
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def pieces(self) -> list[tuple[int, int]]:
        """Row ranges that cover all nodes, few enough rows at a time to be held."""
        rows = max(16, PIECE_VALUES // (self.width if hasattr(self, "width") else self._wide))
        return [(start, min(start + rows, self.num_nodes)) for start in range(0, self.num_nodes, rows)]

    def statistics(self) -> dict[str, list[float]]:
        """What scaling measured, for the manifest."""
        if self._mean is None or self._std is None:
            return {}
        return {"mean": self._mean.tolist(), "std": self._std.tolist()}

    def affine_parts(self) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
        """Sparse features as (X, mean, deviation): what is read is (X - mean) / deviation."""
        held = self._features if sp.issparse(self._features) else np.asarray(self._features, np.float32)
        features = sp.csr_array(held)  # of float16 SciPy knows nothing
        if self._by_row:
            features = sp.csr_array(features.multiply(self._row_factors(features)[:, None]), dtype=np.float32)
        return features, *self.moments()

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation that columns are scaled by, (F,) each; 0 and 1 where they are not."""
        if self._mean is None or self._std is None:
            return np.zeros(self._wide), np.ones(self._wide)
        return self._mean, self._std

    def rows(self, start: int, stop: int) -> Any:
        """Features of some nodes that are to be reduced, by row scaled where that is asked for, (R, F).

        They are SciPy's CSR where features are mostly zeros.
        """
        rows = self._features[start:stop]
        if not sp.issparse(rows):
            rows = np.asarray(rows, np.float32)
        if self._mostly_zeros:
            rows = sp.csr_array(rows, dtype=np.float32)
        elif sp.issparse(rows):
            rows = rows.toarray()
        if not self._by_row:
            return rows
        factors = self._row_factors(rows).astype(np.float32)[:, None]
        return sp.csr_array(rows.multiply(factors)) if self._mostly_zeros else rows * factors

    def _row_factors(self, rows: Any) -> np.ndarray:
        """What rows are multiplied by, (R,) float64: `row` makes them sum to one, `length` gives them length √F."""
        if self.feature_scaling == "row":
            total = abs(rows).sum(axis=1, dtype=np.float64)
            return 1 / np.where(total > 0, total, 1.0)
        squares = rows.astype(np.float64) ** 2  # entry by entry, of sparse rows too; float32 holds none of 1e20
        mean = squares.sum(axis=1) / self._wide
        return 1 / np.sqrt(np.where(mean > 0, mean, 1.0))

    def _scaled(self, start: int, stop: int, first: int, last: int) -> np.ndarray:
        if self.components is not None:
            part = slice(first, last)
            return self._product(start, stop, self._folded[:, part]) - self._offset[part]
        if self.feature_scaling == "row":
            whole = self._raw(start, stop, 0, self.num_features)
            total = np.abs(whole).sum(axis=1, keepdims=True, dtype=np.float64)
            return (whole[:, first:last] / np.where(total > 0, total, 1.0)).astype(np.float32)
        if self.feature_scaling == "length":
            whole = self._raw(start, stop, 0, self.num_features)
            return (whole[:, first:last] * self._row_factors(whole)[:, None]).astype(np.float32)
        raw = self._raw(start, stop, first, last)
        if self._mean is None or self._std is None:
            return raw
        return ((raw - self._mean[first:last]) / self._std[first:last]).astype(np.float32)

    def _product(self, start: int, stop: int, weight: np.ndarray) -> np.ndarray:
        """Features of some nodes times a weight, (R, d); of dense ones a few rows at a time.

        They, too, as a sparse matrix: how NumPy's products are rounded depends on how rows and columns are cut.
        """
        rows = max(stop - start, 1) if self._mostly_zeros else max(16, PIECE_VALUES // self._wide)
        starts = range(start, stop, rows)
        parts = [product(_as_sparse(self.rows(each, min(each + rows, stop))), weight) for each in starts]
        return np.concatenate(parts) if parts else np.zeros((0, weight.shape[1]), np.float32)

    def _raw(self, start: int, stop: int, first: int, last: int) -> np.ndarray:
        rows = self._features[start:stop]
        if sp.issparse(rows):
            narrow = rows if last - first == self._wide else rows[:, first:last]
            return narrow.toarray()
        return np.asarray(rows[:, first:last], np.float32)

    def _measured(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every feature over all nodes; a constant feature counts as deviation 1."""
        total = np.zeros(self._wide)
        for start, stop in self.pieces():
            total += self._raw(start, stop, 0, self._wide).sum(axis=0, dtype=np.float64)
        mean = total / self.num_nodes
        square = np.zeros(self._wide)
        for start, stop in self.pieces():
            square += ((self._raw(start, stop, 0, self._wide) - mean) ** 2).sum(axis=0)
        std = np.sqrt(square / self.num_nodes)
        return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


def _as_sparse(rows: Any) -> sp.csr_array:
    """Rows as a sparse matrix, (R, F); of dense ones all entries, zeros too, since looking for them takes longer."""
    if sp.issparse(rows):
        return rows
    count, width = rows.shape
    columns = np.tile(np.arange(width, dtype=np.int32), count)
    return sp.csr_array((rows.ravel(), columns, width * np.arange(count + 1)), shape=rows.shape)


def column_exponents(largest_x: np.ndarray, largest_y: np.ndarray, max_growth: float) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two that bring every column into float16's range, for stored tokens and for the running sums.

    The running sums y = D̃^-½ x are averages of one another, so they never exceed their first maximum; a token
    x_i = √d̃_i · y_i exceeds it by √d̃_max at most. Both bounds are known before any work.

    Args:
        largest_x: the largest magnitude in every column of the input, (F+s,).
        largest_y: the same after every row was scaled by D̃^-½.
        max_growth: √ of the largest d̃.

    Returns:
        Two (F+s,) arrays e of integers; x · 2^-e and y · 2^-e reach at most 2¹⁵.
    """
    bound = np.maximum(largest_x, largest_y * np.float64(max_growth))
    return _exponent(bound), _exponent(largest_y)


def _exponent(largest: np.ndarray) -> np.ndarray:
    """The e for which largest · 2^-e lies in (2¹⁴, 2¹⁵]; 0 for a column of zeros."""
    exponent = np.frexp(largest)[1].astype(np.int64) - 15
    return np.where(largest > 0, np.clip(exponent, -126, 126), 0)  # 2^e and 2^-e must be float32 themselves
