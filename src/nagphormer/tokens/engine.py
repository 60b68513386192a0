"""What both engines, `cpu` and `gpu`, have in common: sparse sums over neighbors, and slices that go through all hops.

`engine(device)` is the module to use; nobody else asks what a device is. Both have

* `NeighborSum(graph, factor, loop, device)`: the map y ↦ factor · (A y + loop · y), sums in float32, where A is a
  graph's adjacency or any sparse matrix. With S = D̃^-½ it gives both matrices of the paper without stored values:
  since Â = S (A+I) S, the product Â x is S · (A+I) (S x).
* `HopSlice(sums, shape, dtype, scratch)`: a slice of columns on its way through all hops.
* `column_maxima(columns, row_scale, device)`: what float16 needs to know before.

Shapes: N nodes, W columns (a multiple of LANES), T tiles, K hops
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

LANES = 16
"""Columns come in multiples of this; pad with zeros."""


def engine(device: str) -> Any:
    """The module that computes on a device: `cpu` or `gpu`."""
    return import_module(f"nagphormer.tokens.{'cpu' if device == 'cpu' else 'gpu'}")


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `number`."""
    return -(-number // multiple) * multiple


class Csr(NamedTuple):
    """A sparse matrix as compressed rows; need not be square."""

    indptr: np.ndarray
    """Row starts, int64."""
    indices: np.ndarray
    """Columns of the entries, int32 or int64."""
    weights: np.ndarray | None
    """Values of the entries, float32, or None for ones."""


class HopSlice:
    """One slice of columns on its way through all hops.

    The hops lie as (T, K, N, W), T tiles of W columns; the input shares hop 2's place, which is written only
    after hop 1 has been computed from it.
    """

    def __init__(self, sums: Any, rooms: Any, hops: int):
        self._sums = sums
        self._rooms = rooms  # (T, K or 2, N, W)
        self._hops = rooms[:, :hops]  # (T, K, N, W)

    def run(self, advance: Callable[[int], None]) -> None:
        """Compute all hops."""
        for tile in range(len(self._rooms)):
            source = self._rooms[tile, 1] if self._rooms.shape[1] else None
            for hop in range(self._hops.shape[1]):
                self._sums(source, self._hops[tile, hop])
                source = self._hops[tile, hop]
                advance(1)
