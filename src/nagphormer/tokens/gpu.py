"""Sparse × dense on a GPU: the same sums over neighbors, in Triton, or torch's CSR product without Triton.

Shapes: N nodes, E stored edges, W columns of a slice, T tiles, K hops, R rows of a piece
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nagphormer.data.graph import Graph
from nagphormer.tokens import engine
from nagphormer.tokens.engine import Csr
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.store import stored_as

try:
    import triton
    import triton.language as tl
except ImportError:  # builds of torch without Triton
    triton = None

LONG = 1024
"""Edges of one program: a longer row is summed in parts, so that one hub does not keep the whole card waiting."""

if triton is not None:

    @triton.jit
    def _sum_edges(
        y,
        indices,
        weights,
        begin,
        end,
        column,
        width,
        WEIGHTED: tl.constexpr,
        EDGES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """Σ_j w_ij · y[j] over the edges begin … end; EDGES rows are on their way at a time."""
        inside = column < width
        total = tl.zeros((EDGES, COLUMNS), tl.float32)
        for first in range(begin, end, EDGES):
            edge = first + tl.arange(0, EDGES)
            neighbor = tl.load(indices + edge, mask=edge < end, other=0).to(tl.int64)
            mask = (edge < end)[:, None] & inside[None, :]
            values = tl.load(y + neighbor[:, None] * width + column[None, :], mask=mask, other=0).to(tl.float32)
            if WEIGHTED:
                values *= tl.load(weights + edge, mask=edge < end, other=0)[:, None]
            total += values
        return tl.sum(total, axis=0)

    @triton.jit
    def _finish(
        total, row, column, y, out, before, factor, width, stretch, shift, LOOP: tl.constexpr, RECUR: tl.constexpr
    ):
        """Write factor · (LOOP · y + total), or stretch times that plus shift · y - before."""
        place = row * width + column
        inside = column < width
        if LOOP:
            total += tl.load(y + place, mask=inside, other=0).to(tl.float32)
        total *= tl.load(factor + row)
        if RECUR:
            own = tl.load(y + place, mask=inside, other=0).to(tl.float32)
            total = stretch * total + shift * own - tl.load(before + place, mask=inside, other=0).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def _sum_rows(
        y,
        out,
        before,
        indptr,
        indices,
        weights,
        factor,
        width,
        stretch,
        shift,
        LONG: tl.constexpr,
        LOOP: tl.constexpr,
        RECUR: tl.constexpr,
        WEIGHTED: tl.constexpr,
        EDGES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """One program a row, except for long rows."""
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
        if end - begin > LONG:
            return
        total = _sum_edges(y, indices, weights, begin, end, column, width, WEIGHTED, EDGES, COLUMNS)
        _finish(total, row, column, y, out, before, factor, width, stretch, shift, LOOP, RECUR)

    @triton.jit
    def _sum_parts(
        y,
        parts,
        begins,
        ends,
        indices,
        weights,
        width,
        WEIGHTED: tl.constexpr,
        EDGES: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """One program a part of a long row."""
        part = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        begin, end = tl.load(begins + part), tl.load(ends + part)
        total = _sum_edges(y, indices, weights, begin, end, column, width, WEIGHTED, EDGES, COLUMNS)
        tl.store(parts + part * width + column, total, mask=column < width)

    @triton.jit
    def _join_parts(
        parts,
        first_part,
        rows,
        y,
        out,
        before,
        factor,
        width,
        stretch,
        shift,
        LOOP: tl.constexpr,
        RECUR: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """One program a long row: its parts in their order, so that every run gives the same sum."""
        number = tl.program_id(0)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((COLUMNS,), tl.float32)
        for part in range(tl.load(first_part + number), tl.load(first_part + number + 1)):
            total += tl.load(parts + part * width + column, mask=column < width, other=0)
        row = tl.load(rows + number)
        _finish(total, row, column, y, out, before, factor, width, stretch, shift, LOOP, RECUR)

    @triton.jit
    def _take(
        store,
        nodes,
        scales,
        out,
        num_rows,
        width,
        stride,
        filled,
        TOKENS: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        """out[b, t] = store[nodes[b], t] · scales, one program for ROWS rows (b, t) and COLUMNS columns."""
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        node = tl.load(nodes + row // TOKENS, mask=row < num_rows, other=0)
        place = (node * TOKENS + row % TOKENS) * width
        inside = (row < num_rows)[:, None] & (column < width)[None, :]
        values = tl.load(store + place[:, None] + column[None, :], mask=inside, other=0).to(tl.float32)
        values *= tl.load(scales + column, mask=column < width, other=0)[None, :]
        within = (row < num_rows)[:, None] & (column < filled)[None, :]
        target = out + row.to(tl.int64)[:, None] * stride + column[None, :]
        tl.store(target, values.to(out.dtype.element_ty), mask=within)


class NeighborSum:
    """The map y ↦ factor · (A y + loop · y) on a GPU; takes CUDA tensors."""

    def __init__(self, graph: Graph | Csr, factor: np.ndarray, loop: bool, device: str):
        self.indptr = _to_device(graph.indptr, device)
        self.indices = _to_device(graph.indices, device)
        self.weights = None if graph.weights is None else _to_device(graph.weights, device)
        self.factor = _to_device(np.ascontiguousarray(factor, np.float32), device)
        self.loop, self.device = loop, device
        self._cut_long_rows(graph.indptr, device)

    def _cut_long_rows(self, indptr: np.ndarray, device: str) -> None:
        """Where the parts of long rows begin and end."""
        lengths = np.diff(indptr)
        rows = np.flatnonzero(lengths > LONG)
        num_parts = -(-lengths[rows] // LONG)
        first_part = np.concatenate([[0], np.cumsum(num_parts)])
        within = np.arange(first_part[-1]) - np.repeat(first_part[:-1], num_parts)
        begins = np.repeat(indptr[rows], num_parts) + within * LONG
        ends = np.minimum(begins + LONG, np.repeat(indptr[rows + 1], num_parts))
        self._rows, self._first_part, self._begins, self._ends = (
            _to_device(array.astype(np.int64), device) for array in (rows, first_part, begins, ends)
        )

    def __call__(self, y: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sums of `y` to `out`, (N, W) float16 or float32, contiguous."""
        self._run(y, out, None, 1.0, 0.0)

    def recur(self, y: torch.Tensor, before: torch.Tensor, out: torch.Tensor, stretch: float, shift: float) -> None:
        """Write stretch · (sums of y) + shift · y − before to `out`: a step of a polynomial's recurrence."""
        self._run(y, out, before, stretch, shift)

    def _run(
        self, y: torch.Tensor, out: torch.Tensor, before: torch.Tensor | None, stretch: float, shift: float
    ) -> None:
        if triton is None:
            total = self._sparse_product(y)
            out.copy_(total if before is None else stretch * total + shift * y - before)
            return
        num_nodes, width = out.shape
        columns = min(128, triton.next_power_of_2(width))
        spans = triton.cdiv(width, columns)
        edges: Any = {"WEIGHTED": self.weights is not None, "EDGES": 8, "COLUMNS": columns}
        finish: Any = {"LOOP": self.loop, "RECUR": before is not None}
        ends = (y, out, out if before is None else before)
        scales = (self.factor, width, stretch, shift)
        with torch.cuda.device_of(y):
            _sum_rows[(num_nodes, spans)](
                *ends, self.indptr, self.indices, self.weights, *scales, LONG, **finish, **edges, num_warps=1
            )
            if len(self._rows):
                parts = torch.empty(len(self._begins), width, device=y.device)
                _sum_parts[(len(parts), spans)](
                    y, parts, self._begins, self._ends, self.indices, self.weights, width, **edges, num_warps=1
                )
                _join_parts[(len(self._rows), spans)](
                    parts, self._first_part, self._rows, *ends, *scales, **finish, COLUMNS=columns, num_warps=1
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


class HopSlice(engine.HopSlice):
    """One slice of columns on its way through all hops, held on the GPU."""

    def __init__(
        self, sums: NeighborSum, shape: tuple[int, int, int, int], dtype: np.dtype, scratch: Path | None = None
    ):
        num_tiles, hops, num_nodes, width = shape
        kind = torch.float16 if dtype == np.float16 else torch.float32
        rooms = torch.zeros(num_tiles, max(hops, 2), num_nodes, width, dtype=kind, device=sums.device)
        super().__init__(sums, rooms, hops)

    def enter(self, x: np.ndarray, start: int, row_scale: np.ndarray, column_scale: np.ndarray) -> None:
        """Take rows `start …` of the input, (R, T·W or less), scaled."""
        device, width = self._sums.device, self._rooms.shape[3]
        rows = slice(start, start + len(x))
        values = _to_device(x, device) * _to_device(row_scale[rows], device)[:, None]
        values *= _to_device(column_scale, device)
        for tile in range(len(self._rooms)):
            part = values[:, tile * width : (tile + 1) * width]
            self._rooms[tile, 1, rows, : part.shape[1]] = part.to(self._rooms.dtype)

    def pack(
        self,
        tokens: Any,
        x: np.ndarray,
        start: int,
        row_scale: np.ndarray,
        input_scale: np.ndarray,
        column_scale: np.ndarray,
    ) -> None:
        """Write rows `start …` as tokens, (R, K+1, F), hop 0 from x."""
        device, rows = self._sums.device, slice(start, start + len(x))
        resident = isinstance(tokens, torch.Tensor)
        kind = tokens.dtype if resident else stored_as(tokens).torch
        hops = self._hops[:, :, rows].permute(2, 1, 0, 3).flatten(2)[:, :, : x.shape[1]].float()  # (R, K, F)
        hops *= _to_device(row_scale[rows], device)[:, None, None]
        hops *= _to_device(column_scale, device)
        first = _to_device(x, device) * _to_device(input_scale, device)
        packed = torch.cat([first[:, None], hops], dim=1).to(kind)  # (R, K+1, F)
        if resident:
            tokens.copy_(packed)
        else:
            tokens[...] = packed.view(stored_as(tokens).torch_bits).cpu().numpy()


def _to_device(array: np.ndarray, device: str) -> torch.Tensor:
    """A copy of a NumPy array (or memory map) on the device."""
    return torch.from_numpy(array if array.flags.writeable else np.array(array)).to(device, copy=True)


def column_maxima(columns: Columns, row_scale: np.ndarray, device: str) -> tuple[np.ndarray, np.ndarray]:
    """The largest magnitude in every column of x and of row_scale · x, like `cpu.column_maxima`."""
    largest_x, largest_y = torch.zeros(2, columns.width, device=device)
    scale = _to_device(row_scale, device)
    for start, stop in columns.pieces():
        piece = _to_device(columns.read(start, stop, 0, columns.width), device).abs()
        largest_x = torch.maximum(largest_x, piece.amax(dim=0))
        largest_y = torch.maximum(largest_y, (piece * scale[start:stop, None]).amax(dim=0))
    return largest_x.cpu().numpy(), largest_y.cpu().numpy()


def take(store: torch.Tensor, nodes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, first: int = 0) -> None:
    """Write tokens of some nodes, scaled, to columns `first …` of `out`; the rest of its columns become zero.

    Args:
        store: (N, T, f), a block of columns.
        nodes: (B,).
        scales: (F,), of all columns.
        out: (B, T, F or more).
        first: where the block's columns stand among all.
    """
    _, tokens, width = store.shape
    num_rows, stride = len(nodes) * tokens, out.shape[2]
    filled = stride - first
    columns = min(1024, triton.next_power_of_2(filled))
    rows = 2048 // columns
    with torch.cuda.device_of(store):
        _take[(triton.cdiv(num_rows, rows), triton.cdiv(filled, columns))](
            store,
            nodes,
            scales[first:],
            out[:, :, first:],
            num_rows,
            width,
            stride,
            filled,
            TOKENS=tokens,
            ROWS=rows,
            COLUMNS=columns,
        )
