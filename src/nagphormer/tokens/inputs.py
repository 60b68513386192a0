"""The columns that are propagated: features, scaled as asked, joined with the structural encoding (paper Eq. 10).

Shapes: N nodes, F features, s encoding columns; R rows of a piece
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.graph import Graph
from nagphormer.settings import Scaling

PIECE_VALUES = 1 << 22
"""Numbers read at a time."""


class Columns:
    """X‖U as float32, read piece by piece, never held as a whole.

    A graph without features has one column instead, log(1 + degree). What scaling needs to know is measured unless
    `statistics` say it.
    """

    def __init__(
        self,
        graph: Graph,
        encoding: np.ndarray | None,
        feature_scaling: Scaling = "none",
        statistics: dict[str, list[float]] | None = None,
    ):
        self._features: Any = graph.features
        if graph.features is None:
            self._features = np.log1p(graph.degrees).astype(np.float32)[:, None]  # (N, 1)
        self.encoding = encoding
        self.num_features: int = self._features.shape[1]
        self.width = self.num_features + (0 if encoding is None else encoding.shape[1])
        self.num_nodes = graph.num_nodes
        self._mean: np.ndarray | None = None
        self._std: np.ndarray | None = None
        self.feature_scaling = feature_scaling
        self._by_row = feature_scaling == "row"
        if statistics:
            self._mean, self._std = np.array(statistics["mean"]), np.array(statistics["std"])
        elif feature_scaling == "standardize":
            self._mean, self._std = self._moments()

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
        rows = max(16, PIECE_VALUES // self.width)
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
            total = abs(features).sum(axis=1)
            features = sp.csr_array(features.multiply(1 / np.where(total > 0, total, 1.0)[:, None]), dtype=np.float32)
        if self._mean is None or self._std is None:
            return features, np.zeros(self.num_features), np.ones(self.num_features)
        return features, self._mean, self._std

    def _scaled(self, start: int, stop: int, first: int, last: int) -> np.ndarray:
        if self._by_row:
            whole = self._raw(start, stop, 0, self.num_features)
            total = np.abs(whole).sum(axis=1, keepdims=True, dtype=np.float64)
            return (whole[:, first:last] / np.where(total > 0, total, 1.0)).astype(np.float32)
        raw = self._raw(start, stop, first, last)
        if self._mean is None or self._std is None:
            return raw
        return ((raw - self._mean[first:last]) / self._std[first:last]).astype(np.float32)

    def _raw(self, start: int, stop: int, first: int, last: int) -> np.ndarray:
        rows = self._features[start:stop]
        if sp.issparse(rows):
            narrow = rows if last - first == self.num_features else rows[:, first:last]
            return narrow.toarray()
        return np.asarray(rows[:, first:last], np.float32)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every feature over all nodes; a constant feature counts as deviation 1."""
        total = np.zeros(self.num_features)
        for start, stop in self.pieces():
            total += self._raw(start, stop, 0, self.num_features).sum(axis=0, dtype=np.float64)
        mean = total / self.num_nodes
        square = np.zeros(self.num_features)
        for start, stop in self.pieces():
            square += ((self._raw(start, stop, 0, self.num_features) - mean) ** 2).sum(axis=0)
        std = np.sqrt(square / self.num_nodes)
        return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


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
