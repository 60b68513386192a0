"""How wide a slice of columns fits into memory and cache.

Shapes: N nodes, K hops, W columns
"""

from dataclasses import dataclass

from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import format_size
from nagphormer.tokens.engine import LANES, round_up

PIECE_BYTES = 4 * 2**20
"""Bytes of tokens packed and written at a time: few enough to stay in the cache until they are hashed."""
GPU_PIECE_BYTES = 64 * 2**20
"""The same on a GPU, where few large pieces are faster."""
NARROWEST = 4 * LANES
"""Columns below which sums over neighbors waste most of every cache line."""


@dataclass(frozen=True)
class SlicePlan:
    """How the columns of a block are propagated."""

    width: int
    """Columns carried through all hops together, a multiple of LANES."""
    tile: int
    """Columns of one product, a multiple of LANES; `width` is a multiple of it."""
    on_disk: bool
    """Whether the hops of a slice lie in a scratch file, since they do not fit in memory."""


def adjacency_bytes(graph: Graph) -> int:
    """Bytes of a graph's structure."""
    return graph.indptr.nbytes + graph.indices.nbytes + (0 if graph.weights is None else graph.weights.nbytes)


def column_bytes(num_nodes: int, hops: int, itemsize: int) -> int:
    """Bytes that one column needs while it goes through all hops."""
    return num_nodes * itemsize * max(hops, 2)


def node_bytes(num_nodes: int, encoding_dim: int) -> int:
    """Bytes held for every node all the while: degrees, their roots, row bounds, and the encoding."""
    return num_nodes * (50 + 4 * encoding_dim)


def plan_slices(
    num_nodes: int, block_width: int, hops: int, itemsize: int, usable: int, may_spill: bool, cache: int
) -> SlicePlan:
    """Choose the widest slice that fits `usable` bytes, and the tile that fits `cache` bytes.

    Neither changes the result: columns never mix.
    """
    whole = round_up(block_width, LANES)
    per_column = column_bytes(num_nodes, hops, itemsize)
    fits = max(usable, 0) // per_column // LANES * LANES
    on_disk = may_spill and fits < min(whole, NARROWEST)
    if not on_disk and fits == 0:
        raise UserError(
            f"{num_nodes:,} nodes and {hops} hops need at least {format_size(per_column * LANES)} of memory, but only "
            f"{format_size(max(usable, 0))} may be used: raise the limit, lower hops, or write to disk from the CPU"
        )
    width = whole if on_disk else min(whole, fits)
    num_slices = -(-whole // width)
    width = round_up(-(-whole // num_slices), LANES)
    in_cache = cache // 2 // (num_nodes * itemsize) // LANES * LANES
    if in_cache * itemsize < 64:  # less than a cache line a row: going row by row is faster
        return SlicePlan(width, width, on_disk)
    num_tiles = -(-width // in_cache)
    tile = round_up(-(-width // num_tiles), LANES)
    if not on_disk:  # whole tiles may be wider than the slice they cover
        num_tiles = min(num_tiles, fits // tile)
    return SlicePlan(tile * num_tiles, tile, on_disk)
