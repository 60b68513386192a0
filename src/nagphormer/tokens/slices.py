"""How wide a slice of columns fits into memory and cache.

Shapes: N nodes, K hops, W columns
"""

import os
from dataclasses import dataclass
from pathlib import Path

from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import format_size, parse_size
from nagphormer.tokens.engine import LANES

RESERVE = 150 * 10**6
"""Bytes left for compiled code, pieces of rows on their way to disk, and the interpreter's own needs."""
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


def available_memory() -> int:
    """Bytes of memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def anonymous_memory() -> int:
    """Bytes of memory this process holds that are not backed by a file."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 200 * 10**6


def usable_memory(memory: str | int | None) -> int:
    """Bytes we may still allocate: what the budget leaves, else three quarters of what is available."""
    if memory is None:
        return available_memory() * 3 // 4 - RESERVE
    held = anonymous_memory() + RESERVE
    if parse_size(memory) <= held:
        raise UserError(f"memory={memory} is too little: {format_size(held)} are kept for the process itself")
    return parse_size(memory) - held


_gpu_limit: int | None = None


def limit_gpu_memory(memory: str | int | None, device: str | None = None) -> None:
    """Let this process take no more of a GPU's memory than this, such as `8GB`; None sets no limit."""
    global _gpu_limit
    if memory is None:
        return
    import torch

    from nagphormer.tokens.engine import resolve_device

    if resolve_device(device) == "cpu":
        raise UserError(f"gpu_memory={memory} was asked for, but there is no GPU to use: leave it out")
    _gpu_limit = parse_size(memory)
    total = torch.cuda.mem_get_info(device)[1]
    torch.cuda.set_per_process_memory_fraction(min(1.0, _gpu_limit / total), device)


def gpu_memory(device: str) -> int:
    """Bytes of GPU memory we may still take: most of what is free, or of what the limit leaves; to be asked rarely."""
    import torch

    torch.cuda.empty_cache()  # what is still reserved then is used, or belongs to a captured step
    free = torch.cuda.mem_get_info(device)[0]
    if _gpu_limit is not None:
        free = min(free, _gpu_limit - torch.cuda.memory_reserved(device))
    return max(0, int(free * 0.85))


def adjacency_bytes(graph: Graph) -> int:
    """Bytes of a graph's structure."""
    return graph.indptr.nbytes + graph.indices.nbytes + (0 if graph.weights is None else graph.weights.nbytes)


def cache_bytes() -> int:
    """Size of the last-level cache, as far as the system says."""
    caches = Path("/sys/devices/system/cpu/cpu0/cache")
    try:
        sizes = [parse_size((index / "size").read_text().strip() + "iB") for index in caches.glob("index*")]
    except (OSError, UserError):
        sizes = []
    return max(sizes, default=16 * 2**20)


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


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `number`."""
    return -(-number // multiple) * multiple
