"""Sparse × dense on a GPU: the same sums over neighbors, in Triton, or torch's CSR product without Triton.

Shapes: N nodes, E stored edges, W columns of a slice, T tiles, K hops, R rows of a piece
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nagphormer.data.graph import Graph
from nagphormer.tokens.propagate import Csr, NeighborSum

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch without Triton
    triton = None

if triton is not None:

    @triton.jit
    def _sum_rows(  # type: ignore[no-untyped-def]
        y,
        out,
        indptr,
        indices,
        weights,
        factor,
        width,
        LOOP: tl.constexpr,
        WEIGHTED: tl.constexpr,
        EDGES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """One program a row: out[i] = factor[i] · (LOOP · y[i] + Σ_j w_ij · y[j])."""
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = column < width
        begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
        total = tl.zeros((COLUMNS,), tl.float32)
        for first in range(begin, end, EDGES):
            edge = first + tl.arange(0, EDGES)
            neighbor = tl.load(indices + edge, mask=edge < end, other=0).to(tl.int64)
            mask = (edge < end)[:, None] & inside[None, :]
            values = tl.load(y + neighbor[:, None] * width + column[None, :], mask=mask, other=0).to(tl.float32)
            if WEIGHTED:
                values *= tl.load(weights + edge, mask=edge < end, other=0)[:, None]
            total += tl.sum(values, axis=0)
        if LOOP:
            total += tl.load(y + row * width + column, mask=inside, other=0).to(tl.float32)
        total *= tl.load(factor + row)
        tl.store(out + row * width + column, total.to(out.dtype.element_ty), mask=inside)


class GpuGraph:
    """A graph's adjacency on a GPU."""

    def __init__(self, graph: Graph | Csr, factor: np.ndarray, loop: bool, device: str):
        self.indptr = _to_device(graph.indptr, device)
        self.indices = _to_device(graph.indices, device)
        self.weights = None if graph.weights is None else _to_device(graph.weights, device)
        self.factor = _to_device(factor, device)
        self.loop = loop

    def sum_neighbors(self, y: torch.Tensor, out: torch.Tensor) -> None:
        """Write factor · (A y + loop · y) to `out`, (N, W) float16 or float32, contiguous."""
        if triton is None:
            out.copy_(self._sparse_product(y))
            return
        num_nodes, width = out.shape
        columns = min(128, triton.next_power_of_2(width))
        with torch.cuda.device(y.device):
            _sum_rows[(num_nodes, triton.cdiv(width, columns))](
                y,
                out,
                self.indptr,
                self.indices,
                self.weights,
                self.factor,
                width,
                LOOP=self.loop,
                WEIGHTED=self.weights is not None,
                EDGES=8,
                COLUMNS=columns,
                num_warps=1,
            )

    def _sparse_product(self, y: torch.Tensor) -> torch.Tensor:
        values = torch.ones(len(self.indices), device=y.device) if self.weights is None else self.weights
        indices, size = self.indices.to(torch.int64), (len(self.factor), len(y))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that torch's CSR tensors are new, and not checked
            matrix = torch.sparse_csr_tensor(self.indptr, indices, values, size=size, check_invariants=False)
        total = matrix @ y.float()  # in float32: sums may exceed float16 before the factor brings them back
        if self.loop:
            total += y
        return (total * self.factor[:, None]).to(y.dtype)


class GpuHopSlice:
    """One slice of columns on its way through all hops, held on the GPU; see `cpu.HopSlice`."""

    def __init__(self, sums: NeighborSum, shape: tuple[int, int, int, int], dtype: np.dtype):
        num_tiles, hops, num_nodes, width = shape
        kind = torch.float16 if dtype == np.float16 else torch.float32
        self._sums = sums
        self._rooms = torch.zeros(num_tiles, max(hops, 2), num_nodes, width, dtype=kind, device=sums.device)
        self._hops = self._rooms[:, :hops]

    def enter(self, x: np.ndarray, start: int, row_scale: np.ndarray, column_scale: np.ndarray) -> None:
        """Take rows `start …` of the input, (R, T·W or less), scaled."""
        device, width = self._sums.device, self._rooms.shape[3]
        rows = slice(start, start + len(x))
        values = _to_device(x, device) * _to_device(row_scale[rows], device)[:, None]
        values *= _to_device(column_scale, device)
        for tile in range(len(self._rooms)):
            part = values[:, tile * width : (tile + 1) * width]
            self._rooms[tile, 1, rows, : part.shape[1]] = part.to(self._rooms.dtype)

    def run(self, advance: Callable[[int], None]) -> None:
        """Compute all hops."""
        for tile in range(len(self._rooms)):
            source = self._rooms[tile, 1]
            for hop in range(self._hops.shape[1]):
                self._sums(source, self._hops[tile, hop])
                source = self._hops[tile, hop]
                advance(1)

    def pack(
        self,
        tokens: np.ndarray,
        x: np.ndarray,
        start: int,
        row_scale: np.ndarray,
        input_scale: np.ndarray,
        column_scale: np.ndarray,
    ) -> None:
        """Write rows `start …` as tokens, (R, K+1, F), hop 0 from x."""
        device, rows = self._sums.device, slice(start, start + len(x))
        kind: Any = {np.uint16: torch.float16, np.int16: torch.bfloat16, np.float32: torch.float32}
        kind = kind[tokens.dtype.type]
        hops = self._hops[:, :, rows].permute(2, 1, 0, 3).flatten(2)[:, :, : x.shape[1]].float()  # (R, K, F)
        hops *= _to_device(row_scale[rows], device)[:, None, None]
        hops *= _to_device(column_scale, device)
        first = _to_device(x, device) * _to_device(input_scale, device)
        packed = torch.cat([first[:, None], hops], dim=1).to(kind)  # (R, K+1, F)
        bits = {torch.float16: torch.uint16, torch.bfloat16: torch.int16, torch.float32: torch.float32}[kind]
        tokens[...] = packed.view(bits).cpu().numpy()


def _to_device(array: np.ndarray, device: str) -> torch.Tensor:
    """A copy of a NumPy array (or memory map) on the device."""
    return torch.from_numpy(np.array(array)).to(device)
