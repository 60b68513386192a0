"""Sparse × dense on the CPU: sums over neighbors with numba and a few lines of LLVM.

Shapes: N nodes, E stored edges, W columns of a slice (a multiple of LANES)

A row's columns stay in vector registers while its neighbors are added one after the other, so every column is
summed in the order of the CSR row: the result does not depend on threads, slicing or the machine's vector
width, bit for bit. float16 travels as uint16, since numba knows no half precision on the CPU.
"""

import math
import os
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nagphormer.data.graph import Graph
from nagphormer.tokens import engine
from nagphormer.tokens.engine import LANES, Csr
from nagphormer.tokens.inputs import Columns

TILE = 8 if llvm.get_host_cpu_features().get("avx512f") else 4
"""Vectors summed in one pass over a row's neighbors: as many as the registers hold."""
CACHE_LINE = 64
"""Bytes; a neighbor's row is fetched into the cache line by line, some edges before it is added."""

_vector = ir.VectorType(ir.FloatType(), LANES)
_half_vector = ir.VectorType(ir.HalfType(), LANES)


def num_threads() -> int:
    """How many threads numba has. Asked first, it starts them, and torch would be given as many: it keeps its own."""
    torch = sys.modules.get("torch")
    torchs = torch.get_num_threads() if torch else 0
    count = numba.get_num_threads()
    if torch:
        torch.set_num_threads(torchs)
    return count


def _load(builder: Any, address: Any, is_half: bool) -> Any:
    """A vector of float32 from `address`, where float16 or float32 lies."""
    if not is_half:
        return builder.load(builder.bitcast(address, _vector.as_pointer()), align=4)
    half = builder.load(builder.bitcast(address, _half_vector.as_pointer()), align=2)
    return builder.fpext(half, _vector)


def _store(builder: Any, value: Any, address: Any, is_half: bool) -> None:
    """Write a vector of float32 to `address` as float16 or float32."""
    if is_half:
        half = builder.fptrunc(value, _half_vector)
        builder.store(half, builder.bitcast(address, _half_vector.as_pointer()), align=2)
    else:
        builder.store(value, builder.bitcast(address, _vector.as_pointer()), align=4)


def _splat(builder: Any, scalar: Any) -> Any:
    """A vector whose lanes all hold `scalar`."""
    lane = builder.insert_element(ir.Constant(_vector, ir.Undefined), scalar, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(lane, lane, mask)


@intrinsic(prefer_literal=True)
def _sum_row(typing_context, out, y, indices, weights, begin, end, row, column, loop, factor, num_vectors):
    """Write `factor · (loop · y[row] + Σ_e weights[e] · y[indices[e]])` for one tile of columns of `out[row]`.

    `num_vectors` is a literal, so that LLVM keeps the whole tile in registers; `loop` is 0 or 1;
    `weights` is an array, or None for ones.
    """
    if not isinstance(num_vectors, types.IntegerLiteral):
        return None
    count = num_vectors.literal_value
    is_half = y.dtype == types.uint16
    itemsize = 2 if is_half else 4
    lines = range(0, count * LANES * itemsize, CACHE_LINE)
    distance = max(16, min(32, 64 // len(lines)))  # edges ahead
    plain = [types.int64, types.int64, types.int64, types.int64, types.float32, types.float32]
    signature = types.void(out, y, indices, weights, *plain, num_vectors)

    def codegen(context, builder, signature, arguments):
        out_ty, y_ty, indices_ty, weights_ty = signature.args[:4]
        i64, byte_ptr = ir.IntType(64), ir.IntType(8).as_pointer()
        out_array = context.make_array(out_ty)(context, builder, arguments[0])
        y_array = context.make_array(y_ty)(context, builder, arguments[1])
        index_array = context.make_array(indices_ty)(context, builder, arguments[2])
        begin, end, row, column, loop, factor = arguments[4:10]
        row_bytes = cgutils.unpack_tuple(builder, y_array.strides, 2)[0]
        offset = builder.mul(column, i64(itemsize))
        source = builder.gep(builder.bitcast(y_array.data, byte_ptr), [offset])
        last_edge = builder.sub(cgutils.unpack_tuple(builder, index_array.shape, 1)[0], i64(1))
        prefetch_type = ir.FunctionType(ir.VoidType(), [byte_ptr] + [ir.IntType(32)] * 3)
        prefetch = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch.p0i8")
        sums = [cgutils.alloca_once(builder, _vector) for _ in range(count)]

        for total in sums:
            builder.store(ir.Constant(_vector, [0.0] * LANES), total)
        with builder.if_then(builder.fcmp_ordered("!=", loop, ir.FloatType()(0.0))):  # y may have fewer rows than out
            own = builder.gep(source, [builder.mul(row, row_bytes)])
            for k, total in enumerate(sums):
                builder.store(_load(builder, builder.gep(own, [i64(k * LANES * itemsize)]), is_half), total)

        def neighbor(edge):
            index = builder.load(builder.gep(index_array.data, [edge]))
            return builder.gep(source, [builder.mul(builder.sext(index, i64), row_bytes)])

        with cgutils.for_range_slice(builder, begin, end, i64(1)) as (edge, _):
            ahead = builder.add(edge, i64(distance))
            ahead = builder.select(builder.icmp_signed("<", ahead, last_edge), ahead, last_edge)
            future = neighbor(ahead)
            for line in lines:
                address = builder.gep(future, [i64(line)])
                builder.call(prefetch, [address, ir.IntType(32)(0), ir.IntType(32)(3), ir.IntType(32)(1)])
            base = neighbor(edge)
            if not isinstance(weights_ty, types.NoneType):
                weight_array = context.make_array(weights_ty)(context, builder, arguments[3])
                weight = _splat(builder, builder.load(builder.gep(weight_array.data, [edge])))
            for k, total in enumerate(sums):
                vector = _load(builder, builder.gep(base, [i64(k * LANES * itemsize)]), is_half)
                if not isinstance(weights_ty, types.NoneType):
                    vector = builder.fmul(vector, weight)  # not fused with the sum: the same bits everywhere
                builder.store(builder.fadd(builder.load(total), vector), total)

        target = builder.gep(builder.bitcast(out_array.data, byte_ptr), [builder.mul(row, row_bytes)])
        target = builder.gep(target, [offset])
        scale = _splat(builder, factor)
        for k, total in enumerate(sums):
            value = builder.fmul(builder.load(total), scale)
            _store(builder, value, builder.gep(target, [i64(k * LANES * itemsize)]), is_half)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(parallel=True, nogil=True, cache=True)
def _sum_neighbors(out, y, indptr, indices, weights, factor, loop, bounds):
    num_vectors = y.shape[1] // LANES
    for part in numba.prange(len(bounds) - 1):
        for row in range(bounds[part], bounds[part + 1]):
            begin, end, scale = indptr[row], indptr[row + 1], factor[row]
            vector = 0
            while vector < num_vectors:
                count = min(TILE, num_vectors - vector)
                column = vector * LANES
                # numba needs the literal count of each case written out
                if count == 1:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 1)
                elif count == 2:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 2)
                elif count == 3:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 3)
                elif count == 4:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 4)
                elif count == 5:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 5)
                elif count == 6:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 6)
                elif count == 7:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 7)
                else:
                    _sum_row(out, y, indices, weights, begin, end, row, column, loop, scale, 8)
                vector += count


def sum_neighbors(
    y: np.ndarray,
    out: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    factor: np.ndarray,
    loop: bool,
    bounds: np.ndarray,
) -> None:
    """`out[i] = factor[i] · (loop · y[i] + Σ_j w_ij · y[j])` over the neighbors j of i, for W columns.

    Args:
        y: float16 or float32, C-contiguous, W a multiple of LANES; one row for every neighbor there may be.
        out: (N, W) of the same type, another array.
        indptr: (N+1,) int64.
        indices: (E,) int32 or int64.
        weights: (E,) float32, or None for ones.
        factor: (N,) float32.
        loop: whether every node is its own neighbor.
        bounds: row numbers that cut the rows into parts of about equal work, see `cut_rows`.
    """
    _sum_neighbors(_bits(out), _bits(y), indptr, indices, weights, factor, np.float32(loop), bounds)


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that starts on a cache line, so that a row touches as few lines as it can; NumPy's start 16 bytes in."""
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(num_bytes + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + num_bytes].view(dtype).reshape(shape)


def cut_rows(indptr: np.ndarray, num_parts: int) -> np.ndarray:
    """Row numbers that cut a CSR matrix into parts with about equal numbers of edges and rows."""
    work = indptr + 4 * np.arange(len(indptr))
    marks = np.linspace(0, work[-1], num_parts + 1)
    bounds = np.searchsorted(work, marks)
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return bounds.astype(np.int64)


@intrinsic
def _decode(typing_context, stored):
    """A stored number as float32: float16 is given as uint16."""

    def codegen(context, builder, signature, arguments):
        if stored == types.float32:
            return arguments[0]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(stored), codegen


@intrinsic
def _encode(typing_context, value, array):
    """A float32 as an element of `array`: uint16 means float16, int16 means bfloat16. Ties go to even."""

    def codegen(context, builder, signature, arguments):
        if array.dtype == types.float32:
            return arguments[0]
        if array.dtype == types.uint16:
            return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))
        return _round_to_bfloat(builder, arguments[0], ir.IntType(32), ir.IntType(16))

    return array.dtype(types.float32, array), codegen


def _round_to_bfloat(builder: Any, value: Any, wide: Any, narrow: Any) -> Any:
    """The upper half of a finite float32's bits, ties to even; `wide` and `narrow` are integers or vectors of them."""
    bits = builder.bitcast(value, wide)
    odd = builder.and_(builder.lshr(bits, _constant(wide, 16)), _constant(wide, 1))
    rounded = builder.add(bits, builder.add(odd, _constant(wide, 0x7FFF)))
    return builder.trunc(builder.lshr(rounded, _constant(wide, 16)), narrow)


def _constant(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


@intrinsic
def _rescale(typing_context, out, target, y, source, column_scale, scale):
    """Write LANES columns at address `target` of `out`: those of `y` at `source` · scale · those at `column_scale`."""

    def codegen(context, builder, signature, arguments):
        byte_ptr = ir.IntType(8).as_pointer()
        target, source, column_scale = (builder.inttoptr(arguments[i], byte_ptr) for i in (1, 3, 4))
        value = builder.fmul(_load(builder, source, y.dtype == types.uint16), _splat(builder, arguments[5]))
        value = builder.fmul(value, _load(builder, column_scale, False))
        if out.dtype == types.int16:
            narrow = ir.VectorType(ir.IntType(16), LANES)
            bits = _round_to_bfloat(builder, value, ir.VectorType(ir.IntType(32), LANES), narrow)
            builder.store(bits, builder.bitcast(target, narrow.as_pointer()), align=2)
        else:
            _store(builder, value, target, out.dtype == types.uint16)
        return context.get_dummy_value()

    address = types.int64
    return types.void(out, address, y, address, address, types.float32), codegen


@numba.njit(parallel=True, nogil=True, cache=True)
def enter(y, x, start, row_scale, column_scale):
    """Write rows `start …` of `y`: y = x · row_scale · column_scale, rounded once.

    y: (T, N, W) in T tiles of W columns; x: (R, T·W or less); row_scale: (N,); column_scale: one per column of x.
    """
    width = y.shape[2]
    for row in numba.prange(x.shape[0]):
        scale = row_scale[start + row]
        for tile in range(y.shape[0]):
            first = tile * width
            for column in range(width):
                value = np.float32(0)
                if first + column < x.shape[1]:
                    value = x[row, first + column] * scale * column_scale[first + column]
                y[tile, start + row, column] = _encode(value, y)


@numba.njit(parallel=True, nogil=True, cache=True)
def pack(out, x, y, start, row_scale, input_scale, column_scale):
    """Write rows `start …` as node-major tokens: hop 0 from x, hop k from y[:, k-1].

    out: (R, K+1, F) with adjacent columns; x: (R, F); y: (T, K, N, W); row_scale: (N,); input_scale and column_scale:
    (F,) contiguous, for x and y.
    """
    width = y.shape[3]
    for row in numba.prange(out.shape[0]):
        scale = row_scale[start + row]
        for column in range(out.shape[2]):
            out[row, 0, column] = _encode(x[row, column] * input_scale[column], out)
        for hop in range(y.shape[1]):
            for tile in range(y.shape[0]):
                first = tile * width
                count = min(width, out.shape[2] - first)
                vectors = count // LANES * LANES
                target = out.ctypes.data + row * out.strides[0] + (hop + 1) * out.strides[1] + first * out.itemsize
                source = y.ctypes.data + tile * y.strides[0] + hop * y.strides[1] + (start + row) * y.strides[2]
                scales = column_scale.ctypes.data + 4 * first
                for column in range(0, vectors, LANES):
                    _rescale(
                        out, target + column * out.itemsize, y, source + column * y.itemsize, scales + 4 * column, scale
                    )
                for column in range(vectors, count):
                    value = _decode(y[tile, hop, start + row, column]) * scale * column_scale[first + column]
                    out[row, hop + 1, first + column] = _encode(value, out)


@numba.njit(parallel=True, nogil=True, cache=True)
def combine(after, now, before, stretch, shift):
    """after ← stretch · after + shift · now − before, in one pass over three (N, W) arrays."""
    for row in numba.prange(after.shape[0]):
        for column in range(after.shape[1]):
            value = stretch * after[row, column] + shift * now[row, column]
            after[row, column] = value - before[row, column]


class NeighborSum:
    """The map y ↦ factor · (A y + loop · y) on the processor; takes NumPy arrays or CPU tensors."""

    def __init__(self, graph: Graph | Csr, factor: np.ndarray, loop: bool, device: str = "cpu"):
        self._factor = np.ascontiguousarray(factor, np.float32)
        self._loop = loop
        self._csr = (graph.indptr, graph.indices, graph.weights)
        self._bounds = cut_rows(graph.indptr, 64 * num_threads())

    def __call__(self, y: Any, out: Any) -> None:
        """Write the sums of `y`, float16 or float32 with W columns, to `out`, (N, W) of the same type."""
        sum_neighbors(np.asarray(y), np.asarray(out), *self._csr, self._factor, self._loop, self._bounds)

    def recur(self, y: Any, before: Any, out: Any, stretch: float, shift: float) -> None:
        """Write stretch · (sums of y) + shift · y − before to `out`: a step of a polynomial's recurrence."""
        self(y, out)
        combine(np.asarray(out), np.asarray(y), np.asarray(before), np.float32(stretch), np.float32(shift))


class HopSlice(engine.HopSlice):
    """One slice of columns on its way through all hops, held in memory or in a scratch file."""

    def __init__(self, sums: NeighborSum, shape: tuple[int, int, int, int], dtype: np.dtype, scratch: Path | None):
        num_tiles, hops, num_nodes, width = shape
        rooms = (num_tiles, max(hops, 2) if hops else 0, num_nodes, width)
        super().__init__(sums, _rooms(rooms, dtype, scratch if hops else None), hops)

    def enter(self, x: np.ndarray, start: int, row_scale: np.ndarray, column_scale: np.ndarray) -> None:
        """Take rows `start …` of the input, (R, T·W or less), scaled."""
        enter(_bits(self._rooms[:, 1]), x, start, row_scale, column_scale)

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
        pack(tokens, x, _bits(self._hops), start, row_scale, input_scale, column_scale)


def _rooms(shape: tuple[int, ...], dtype: np.dtype, scratch: Path | None) -> np.ndarray:
    """Room for a slice's hops."""
    if scratch is None:
        return aligned_empty(shape, dtype)
    with open(scratch, "xb") as file:  # take the space now: a full disk would kill a mapped file later
        os.posix_fallocate(file.fileno(), 0, math.prod(shape) * dtype.itemsize)
    return np.memmap(scratch, dtype, "r+", shape=shape)


def _bits(array: np.ndarray) -> np.ndarray:
    """float16 as the uint16 that numba takes; anything else as it is."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


def column_maxima(columns: Columns, row_scale: np.ndarray, device: str = "cpu") -> tuple[np.ndarray, np.ndarray]:
    """The largest magnitude in every column of x, (N, F+s), and of row_scale · x; both (F+s,)."""
    largest_x = np.zeros(columns.width, np.float32)
    largest_y = np.zeros(columns.width, np.float32)
    for start, stop in columns.pieces():
        piece = np.abs(columns.read(start, stop, 0, columns.width))
        np.maximum(largest_x, piece.max(axis=0), out=largest_x)
        piece *= row_scale[start:stop, None]
        np.maximum(largest_y, piece.max(axis=0), out=largest_y)
    return largest_x, largest_y
