"""One sparse product for every device: scaled sums over neighbors.

Shapes: N nodes, W columns (a multiple of LANES)
"""

from typing import Any, NamedTuple

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.errors import UserError

LANES = 16
"""Columns come in multiples of this; pad with zeros."""


class Csr(NamedTuple):
    """A sparse matrix as compressed rows; need not be square."""

    indptr: np.ndarray
    """Row starts, int64."""
    indices: np.ndarray
    """Columns of the entries, int32 or int64."""
    weights: np.ndarray | None
    """Values of the entries, float32, or None for ones."""


class NeighborSum:
    """The map y ↦ factor · (A y + loop · y), with sums in float32; A is a graph's adjacency or any sparse matrix.

    With S = D̃^-½ it gives both matrices of the paper without stored values: since Â = S (A+I) S, the product
    Â x is S · (A+I) (S x). Accepts NumPy arrays (or CPU tensors) on the CPU and CUDA tensors on a GPU.
    """

    def __init__(self, graph: Graph | Csr, factor: np.ndarray, loop: bool, device: str = "cpu"):
        self.device = device
        self._loop = loop
        factor = np.ascontiguousarray(factor, np.float32)
        if device == "cpu":
            from nagphormer.tokens.cpu import cut_rows, num_threads

            self._factor = factor
            self._csr = (graph.indptr, graph.indices, graph.weights)
            self._bounds = cut_rows(graph.indptr, 64 * num_threads())
        else:
            from nagphormer.tokens.gpu import GpuGraph

            self._gpu = GpuGraph(graph, factor, loop, device)

    def __call__(self, y: Any, out: Any) -> None:
        """Write the sums of `y`, float16 or float32 with W columns, to `out`, (N, W) of the same type."""
        if self.device != "cpu":
            self._gpu.sum_neighbors(y, out)
            return
        from nagphormer.tokens.cpu import sum_neighbors

        y, out = np.asarray(y), np.asarray(out)
        sum_neighbors(y, out, *self._csr, self._factor, self._loop, self._bounds)

    def recur(self, y: Any, before: Any, out: Any, stretch: float, shift: float) -> None:
        """Write stretch · (sums of y) + shift · y − before to `out`: a step of a polynomial's recurrence."""
        if self.device != "cpu":
            self._gpu.recur(y, before, out, stretch, shift)
            return
        from nagphormer.tokens.cpu import combine

        self(y, out)
        combine(np.asarray(out), np.asarray(y), np.asarray(before), np.float32(stretch), np.float32(shift))


def resolve_device(device: str | None) -> str:
    """The device to work on: the one named, else a GPU where there is one.

    A GPU that is named by its number becomes torch's current one: streams and events belong to that.
    """
    if device == "cpu":
        return device
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.split(":")[0] != "cuda":
        raise UserError(f"unknown device {device!r}: use cpu, cuda or cuda:0")
    if not torch.cuda.is_available():
        raise UserError(f"device {device!r} was asked for, but torch sees no GPU: use device='cpu'")
    if ":" in device:
        number, count = device.split(":")[1], torch.cuda.device_count()
        if not number.isdigit() or int(number) >= count:
            raise UserError(f"there is no device {device!r}: torch sees {count}, so use cuda:0 to cuda:{count - 1}")
        torch.cuda.set_device(device)
    return device
