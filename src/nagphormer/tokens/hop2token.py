"""Hop2Token: turn every node's neighborhood into a short sequence of vectors (paper 3.1, Eq. 6, Algorithm 1).

X_0 = X‖U, X_k = Â X_{k-1}, Â = D̃^-½ (A+I) D̃^-½.

The sums run on y = D̃^-½ x, for which a hop is a plain average, y_k = D̃^-1 (A+I) y_{k-1}; tokens are √D̃ y_k.
Columns never mix, so a slice of them goes through all hops alone, and memory stays bounded.

Shapes: N nodes, K hops, F columns of X‖U; a slice holds T tiles of W columns
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer import __version__
from nagphormer.data.graph import Graph
from nagphormer.errors import Taken, UserError, nearest
from nagphormer.files import check_vacant, format_size, new_folder, write_json
from nagphormer.progress import note, stage
from nagphormer.tokens.cpu import HopSlice
from nagphormer.tokens.engine import LANES, NeighborSum, resolve_device
from nagphormer.tokens.inputs import Columns, check_scaling, column_exponents, column_maxima
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.tokens.slices import (
    GPU_PIECE_BYTES,
    NARROWEST,
    PIECE_BYTES,
    SlicePlan,
    adjacency_bytes,
    cache_bytes,
    column_bytes,
    gpu_memory,
    node_bytes,
    plan_slices,
    usable_memory,
)
from nagphormer.tokens.store import (
    DTYPES,
    FORMAT,
    MANIFEST,
    BlockWriter,
    GpuBlock,
    MemoryBlock,
    TokenStore,
    block_columns,
    check_same,
)


def hop_tokens(
    graph: Graph,
    hops: int,
    encoding_dim: int = 0,
    dtype: str = "float16",
    out: str | os.PathLike[str] | None = None,
    memory: str | int | None = None,
    device: str | None = None,
    feature_scaling: str = "none",
    cluster: str | None = None,
) -> TokenStore:
    """Compute the hop tokens of every node, once and offline.

    Args:
        graph: the graph, N nodes; without features its degrees serve as the only feature.
        hops: K; every node gets K+1 tokens.
        encoding_dim: s, Laplacian eigenvectors joined to the features; 0 for none.
        dtype: what tokens are stored as, `float16`, `bfloat16` or `float32`; sums are float32 in any case.
        out: folder for the store, which is then memory-mapped; a store of the same graph and settings is reused.
            None keeps the tokens in memory; on a GPU, in its own where they take less than half of it.
        memory: limit for the process's own memory, such as `4GB`; memory-mapped files do not count.
        device: `cpu`, `cuda`, or None for a GPU where there is one.
        feature_scaling: `none`, `standardize` (columns) or `row` (rows sum to one).
        cluster: address of a Ray cluster whose workers make the blocks, or `local` to start one here; the graph must
            have been opened from a folder, and folder and `out` lie where all workers see them. The bytes are the same.

    Returns:
        A store of shape (N, K+1, F+s).

    >>> from nagphormer import synthetic_graph
    >>> hop_tokens(synthetic_graph(100, 300, 8, 2), hops=3).shape
    (100, 4, 8)
    """
    hops, encoding_dim = index(hops), index(encoding_dim)  # NumPy's integers do not go into JSON
    _check_arguments(hops, encoding_dim, dtype, feature_scaling)
    wanted = {
        "graph": graph.fingerprint,
        "hops": hops,
        "encoding_dim": encoding_dim,
        "dtype": dtype,
        "feature_scaling": feature_scaling,
    }
    if out is not None and (Path(out) / MANIFEST).is_file():
        return _reuse(out, wanted)
    if out is not None:
        check_vacant(Path(out))
    if cluster is not None:
        _check_cluster(graph, out, device)
        device = "cpu"
    try:
        return _compute(graph, wanted, out, memory, resolve_device(device), cluster)
    except Taken:  # by another run that needs the same tokens
        assert out is not None
        return _reuse(out, wanted)


def _reuse(out: str | os.PathLike[str], wanted: dict[str, Any]) -> TokenStore:
    """Open a store if it is the one wanted."""
    store = TokenStore.open(out)
    check_same(store, wanted)
    return store


def _compute(
    graph: Graph,
    wanted: dict[str, Any],
    out: str | os.PathLike[str] | None,
    memory: str | int | None,
    device: str,
    cluster: str | None = None,
) -> TokenStore:
    """Make the tokens that `wanted` describes."""
    hops, encoding_dim, dtype = wanted["hops"], wanted["encoding_dim"], wanted["dtype"]
    device = device_for_hops(graph, hops, device)
    width = max(graph.num_features, 1) + encoding_dim
    num_bytes = graph.num_nodes * (hops + 1) * width * np.dtype(DTYPES[dtype]).itemsize
    search_device = "cpu"
    if encoding_dim:
        # brings torch: before memory is measured
        from nagphormer.tokens.laplacian import device_for_search, search_bytes, solve

        search_device = device_for_search(graph, encoding_dim, device)
    usable = usable_memory(memory) - node_bytes(graph.num_nodes, encoding_dim)
    if encoding_dim and search_device == "cpu":
        needed = search_bytes(graph.num_nodes, encoding_dim)
        _check_fits(f"the search for {encoding_dim} eigenvectors", needed, usable, "lower encoding_dim")
    stays = out is None and device != "cpu" and _can_stay(graph, hops, dtype, num_bytes, device)
    if out is None and not stays:
        _check_fits("holding the tokens", num_bytes, usable, "write to disk: hop_tokens(…, out=FOLDER)")
    blocks = block_columns(graph.num_nodes, width, dtype)
    usable -= 0 if out is not None or stays else num_bytes
    job = Job(graph, hops, dtype, device, blocks, usable, out is not None, num_bytes if stays else 0)
    scratch_bytes = job.scratch_bytes()
    with new_folder(out, num_bytes + scratch_bytes) if out is not None else nullcontext() as folder:
        found = solve(graph, encoding_dim, device=search_device) if encoding_dim else None
        columns = Columns(graph, found.vectors if found else None, wanted["feature_scaling"])
        manifest: dict[str, Any] = {
            "kind": "tokens",
            "format": FORMAT,
            "shape": [graph.num_nodes, hops + 1, width],
            **wanted,
            "normalization": "D̃^-½ (A+I) D̃^-½",
            "feature_statistics": columns.statistics(),
            "encoding": found.report() if found else {},
        }
        if device != "cpu" and job.plan.width < width:
            note(f"{width:,} columns go through the GPU {job.plan.width:,} at a time: memory holds no more")
        exponents = job.exponents(columns)
        manifest["column_exponents"] = exponents[0].tolist()
        if cluster is not None:
            assert folder is not None
            from nagphormer.tokens.cluster import write_blocks

            manifest["blocks"] = write_blocks(job, columns, exponents, folder, cluster, memory)
        else:
            job.begin(exponents)
            arrays, manifest["blocks"] = job.run(columns, folder)
        if folder is None:
            del manifest["blocks"]
            return TokenStore(arrays, manifest)
        manifest["versions"] = {"nagphormer": __version__}
        write_json(folder / MANIFEST, manifest)
    assert out is not None
    return TokenStore.open(out)


def device_for_hops(graph: Graph, hops: int, device: str) -> str:
    """The device itself, or the CPU where a GPU has no room for the graph and a few columns."""
    if device == "cpu":
        return device
    columns = LANES * column_bytes(graph.num_nodes, hops, np.dtype(np.float32).itemsize)
    needed, room = adjacency_bytes(graph) + columns + 8 * GPU_PIECE_BYTES, gpu_memory(device)
    if needed <= room:
        return device
    note(f"hops are made on the CPU: {format_size(needed)} do not fit the GPU's {format_size(room)}")
    return "cpu"


def _can_stay(graph: Graph, hops: int, dtype: str, num_bytes: int, device: str) -> bool:
    """Whether tokens may stay on a GPU: they take half of it at most, and leave room to make them."""
    room = gpu_memory(device)
    slice_bytes = NARROWEST * column_bytes(graph.num_nodes, hops, np.dtype(DTYPES[dtype]).itemsize)
    return max(2 * num_bytes, num_bytes + adjacency_bytes(graph) + slice_bytes + 8 * GPU_PIECE_BYTES) <= room


def _check_cluster(graph: Graph, out: str | os.PathLike[str] | None, device: str | None) -> None:
    if graph.folder is None:
        raise UserError("a cluster needs a graph folder that all workers can open: write one with graph.save(FOLDER)")
    if out is None:
        raise UserError("a cluster needs a folder for the tokens: give out=FOLDER where all workers see it")
    if device not in (None, "cpu"):
        raise UserError(f"a cluster works on processors, not on {device!r}: leave device out")


def _check_fits(work: str, num_bytes: int, usable: int, instead: str) -> None:
    if num_bytes > usable:
        raise UserError(
            f"{work} takes {format_size(num_bytes)}, but the memory limit leaves {format_size(max(usable, 0))} beside "
            f"the process itself: raise it by {format_size(num_bytes - usable)} or more, or {instead}"
        )


def _check_arguments(hops: int, encoding_dim: int, dtype: str, feature_scaling: str) -> None:
    if hops < 0:
        raise UserError(f"hops must be 0 or more, not {hops}")
    if encoding_dim < 0:
        raise UserError(f"encoding_dim must be 0 or more, not {encoding_dim}")
    if dtype not in DTYPES:
        hint = nearest(dtype, list(DTYPES))
        raise UserError(f"unknown dtype {dtype!r}: use float16, bfloat16 or float32.{hint}")
    check_scaling(feature_scaling)


Exponents = tuple[np.ndarray, np.ndarray]


@dataclass
class Job:
    """The propagation of one store: what is known before work starts."""

    graph: Graph
    hops: int
    dtype: str
    device: str
    blocks: list[tuple[int, int]]
    usable: int
    may_spill: bool
    held: int = 0
    """Bytes of the tokens if they stay on the GPU, else 0."""

    def __post_init__(self) -> None:
        # float16 sums carry three more bits than bfloat16 tokens and cost the same
        self.sum_dtype = np.dtype(np.float32 if self.dtype == "float32" else np.float16)
        widest = max(last - first for first, last in self.blocks)
        usable, may_spill, cache = self.usable, self.may_spill, cache_bytes()
        if self.device != "cpu":
            usable, may_spill, cache = gpu_memory(self.device) - adjacency_bytes(self.graph), False, 0
            usable -= self.held + 8 * GPU_PIECE_BYTES  # the latter for rows on their way from and to it
        self.plan: SlicePlan = plan_slices(
            self.graph.num_nodes, widest, self.hops, self.sum_dtype.itemsize, usable, may_spill, cache
        )

    def scratch_bytes(self) -> int:
        """Disk needed while working, besides the result."""
        per_column = column_bytes(self.graph.num_nodes, self.hops, self.sum_dtype.itemsize)
        return per_column * self.plan.width if self.plan.on_disk else 0

    def run(self, columns: Columns, folder: Path | None) -> tuple[list[Any], list[dict[str, Any]]]:
        """Compute every block; gives arrays in memory or manifest entries of files."""
        if folder is not None:
            scratch = folder / "scratch"
            return [], [self.write_block(number, columns, folder / name, scratch) for number, name in self.files()]
        arrays = []
        for first, last in self.blocks:
            shape = (self.graph.num_nodes, self.hops + 1, last - first)
            block = GpuBlock(shape, self.dtype, self.device) if self.held else MemoryBlock(shape, self.dtype)
            self._fill_block(columns, block, first, last, None)
            arrays.append(block.tokens)
        return arrays, []

    def files(self) -> list[tuple[int, str]]:
        """Number and file name of every block."""
        return [(number, f"block-{number:03d}.bin") for number in range(len(self.blocks))]

    def write_block(self, number: int, columns: Columns, path: Path, scratch: Path) -> dict[str, Any]:
        """Compute one block and write its file; gives its entry in the manifest."""
        first, last = self.blocks[number]
        shape = (self.graph.num_nodes, self.hops + 1, last - first)
        with BlockWriter(path, shape, self.dtype) as writer:
            self._fill_block(columns, writer, first, last, scratch if self.plan.on_disk else None)
            return {"file": self.files()[number][1], "columns": [first, last], **writer.finish()}

    def exponents(self, columns: Columns) -> Exponents:
        """Powers of two that keep every column in range: of stored tokens, and of the running sums."""
        nothing = np.zeros(columns.width, np.int64)
        if self.sum_dtype != np.float16:
            return nothing, nothing
        degrees = loop_degrees(self.graph)
        with stage("finding the range of every column"):
            growth = float(np.sqrt(degrees.max()))
            tokens, sums = column_exponents(*self._maxima(columns, (1 / np.sqrt(degrees)).astype(np.float32)), growth)
        return (nothing if self.dtype == "bfloat16" else tokens), sums

    def _maxima(self, columns: Columns, row_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.device == "cpu":
            return column_maxima(columns, row_scale)
        from nagphormer.tokens import gpu

        return gpu.column_maxima(columns, row_scale, self.device)

    def begin(self, exponents: Exponents) -> None:
        """Get ready to compute blocks whose columns have these powers of two."""
        degrees = loop_degrees(self.graph)
        self.inverse_root = (1 / np.sqrt(degrees)).astype(np.float32)  # D̃^-½
        self.root = np.sqrt(degrees).astype(np.float32)
        self.sums = NeighborSum(self.graph, 1 / degrees, loop=True, device=self.device)
        of_tokens, of_sums = exponents
        self.enter_scale = np.ldexp(np.float32(1), -of_sums)
        self.input_scale = np.ldexp(np.float32(1), -of_tokens)
        self.leave_scale = np.ldexp(np.float32(1), of_sums - of_tokens)

    def _fill_block(
        self, columns: Columns, block: MemoryBlock | GpuBlock | BlockWriter, first: int, last: int, scratch: Path | None
    ) -> None:
        for low in range(first, last, self.plan.width):
            high = min(low + self.plan.width, last)
            hop_slice = self._propagate(columns, low, high, scratch)
            pieces = list(self._pieces(last - first))
            with stage(f"storing columns {low:,} to {high - 1:,}", total=len(pieces)) as advance:
                for start, stop in pieces:
                    tokens = block.buffer(start, stop, refill=low > first)
                    hop_slice.pack(
                        tokens[:, :, low - first : high - first],
                        columns.read(start, stop, low, high),
                        start,
                        self.root,
                        self.input_scale[low:high],
                        self.leave_scale[low:high],
                    )
                    block.write(tokens, start, final=high == last)
                    advance(1)
            del hop_slice  # before the next one is allocated
            if scratch is not None:
                scratch.unlink(missing_ok=True)

    def _propagate(self, columns: Columns, low: int, high: int, scratch: Path | None) -> Any:
        """Columns low … high after all hops, ready to be packed."""
        num_tiles = -(-(high - low) // self.plan.tile)
        shape = (num_tiles, self.hops, self.graph.num_nodes, self.plan.tile)
        hop_slice: Any
        if self.device == "cpu":
            hop_slice = HopSlice(self.sums, shape, self.sum_dtype, scratch)
        else:
            from nagphormer.tokens.gpu import GpuHopSlice

            hop_slice = GpuHopSlice(self.sums, shape, self.sum_dtype)
        span = f"columns {low:,} to {high - 1:,}"
        pieces = columns.pieces() if self.hops else []
        with stage(f"reading {span} of {columns.width:,}", total=len(pieces)) as advance:
            for start, stop in pieces:
                x = columns.read(start, stop, low, high)
                hop_slice.enter(x, start, self.inverse_root, self.enter_scale[low:high])
                advance(1)
        with stage(f"{self.hops} hops of {span}", total=num_tiles * self.hops) as advance:
            hop_slice.run(advance)
        return hop_slice

    def _pieces(self, width: int) -> Iterator[tuple[int, int]]:
        """Row ranges whose tokens are packed and written at a time."""
        itemsize = np.dtype(DTYPES[self.dtype]).itemsize
        piece_bytes = PIECE_BYTES if self.device == "cpu" else GPU_PIECE_BYTES
        rows = max(16, piece_bytes // ((self.hops + 1) * width * itemsize))
        for start in range(0, self.graph.num_nodes, rows):
            yield start, min(start + rows, self.graph.num_nodes)
