"""The propagation of one store: block by block, slice of columns by slice of columns.

The sums run on y = D̃^-½ x, for which a hop is a plain average, y_k = D̃^-1 (A+I) y_{k-1}; tokens are √D̃ y_k.
Columns never mix, so a slice of them goes through all hops alone, and memory stays bounded.

Shapes: N nodes, K hops, F columns of X‖U, R rows of a piece; a slice holds T tiles of W columns
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.device import cache_bytes, gpu_memory
from nagphormer.progress import stage
from nagphormer.settings import TokenSettings
from nagphormer.tokens.engine import engine
from nagphormer.tokens.inputs import Columns, column_exponents
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.tokens.slices import (
    GPU_PIECE_BYTES,
    PIECE_BYTES,
    SlicePlan,
    adjacency_bytes,
    column_bytes,
    plan_slices,
)
from nagphormer.tokens.store import STORED, Block, BlockWriter, HeldBlock, block_columns
from nagphormer.tokens.thinned import structure_of


@dataclass(frozen=True)
class Layout:
    """How a store is cut and computed: known before work starts, from sizes alone."""

    tokens: TokenSettings
    num_nodes: int
    blocks: tuple[tuple[int, int], ...]
    """Columns of each block; they follow from the sizes of the store only, never from the machine."""
    slices: SlicePlan
    device: str
    held: int = 0
    """Bytes of the tokens if they stay on the GPU, else 0."""

    @classmethod
    def of(
        cls, graph: Graph, tokens: TokenSettings, device: str, usable: int, may_spill: bool, held: int = 0
    ) -> "Layout":
        """The layout for a machine.

        Args:
            graph: the graph.
            tokens: what is to be made of it.
            device: where the hops are computed.
            usable: bytes of main memory that may be allocated.
            may_spill: whether hops that do not fit may lie in a scratch file.
            held: bytes of the tokens if they stay on the GPU.
        """
        blocks = tuple(block_columns(graph.num_nodes, tokens.width(graph.num_features), tokens.dtype))
        cache = cache_bytes()
        if device != "cpu":
            # the last are for rows on their way from and to it
            usable = gpu_memory(device) - adjacency_bytes(graph) - held - 8 * GPU_PIECE_BYTES
            may_spill, cache = False, 0
        widest = max(last - first for first, last in blocks)
        itemsize = sum_dtype(tokens.dtype).itemsize
        slices = plan_slices(graph.num_nodes, widest, tokens.hops, itemsize, usable, may_spill, cache)
        return cls(tokens, graph.num_nodes, blocks, slices, device, held)

    @property
    def scratch_bytes(self) -> int:
        """Disk needed while working, besides the result."""
        per_column = column_bytes(self.num_nodes, self.tokens.hops, sum_dtype(self.tokens.dtype).itemsize)
        return per_column * self.slices.width if self.slices.on_disk else 0

    def block_shape(self, number: int) -> tuple[int, int, int]:
        """The shape of a block, (N, K+1, its columns)."""
        first, last = self.blocks[number]
        return self.num_nodes, self.tokens.hops + 1, last - first

    def pieces(self, width: int) -> Iterator[tuple[int, int]]:
        """Row ranges whose tokens, of so many columns, are packed and written at a time."""
        piece_bytes = PIECE_BYTES if self.device == "cpu" else GPU_PIECE_BYTES
        rows = max(16, piece_bytes // ((self.tokens.hops + 1) * width * STORED[self.tokens.dtype].itemsize))
        for start in range(0, self.num_nodes, rows):
            yield start, min(start + rows, self.num_nodes)


class Exponents(NamedTuple):
    """Powers of two that keep every column in range, each (F,)."""

    tokens: np.ndarray
    """Of stored tokens."""
    sums: np.ndarray
    """Of the running sums."""


def sum_dtype(dtype: str) -> np.dtype:
    """What running sums are stored as between hops."""
    # float16 sums carry three more bits than bfloat16 tokens and cost the same
    return np.dtype(np.float32 if dtype == "float32" else np.float16)


def find_exponents(graph: Graph, columns: Columns, layout: Layout) -> Exponents:
    """Look at the input once and choose the powers of two."""
    nothing = np.zeros(columns.width, np.int64)
    if sum_dtype(layout.tokens.dtype) != np.float16:
        return Exponents(nothing, nothing)
    degrees = loop_degrees(structure_of(graph, layout.tokens))
    with stage("finding the range of every column"):
        growth = float(np.sqrt(degrees.max()))
        row_scale = (1 / np.sqrt(degrees)).astype(np.float32)
        largest_x, largest_y = engine(layout.device).column_maxima(columns, row_scale, layout.device)
        tokens, sums = column_exponents(largest_x, largest_y, growth)
    return Exponents(nothing if layout.tokens.dtype == "bfloat16" else tokens, sums)


class Job:
    """Makes the blocks of one store."""

    def __init__(self, graph: Graph, layout: Layout, columns: Columns, exponents: Exponents):
        self.layout, self.columns = layout, columns
        self._engine = engine(layout.device)
        graph = structure_of(graph, layout.tokens)
        degrees = loop_degrees(graph)
        self._inverse_root = (1 / np.sqrt(degrees)).astype(np.float32)  # D̃^-½
        self._root = np.sqrt(degrees).astype(np.float32)
        self._sums = self._engine.NeighborSum(graph, 1 / degrees, loop=True, device=layout.device)
        self._enter_scale = np.ldexp(np.float32(1), -exponents.sums)
        self._input_scale = np.ldexp(np.float32(1), -exponents.tokens)
        self._leave_scale = np.ldexp(np.float32(1), exponents.sums - exponents.tokens)

    def hold(self) -> list[Any]:
        """Compute every block and keep it: in main memory, or on the GPU."""
        blocks = []
        for number, (first, last) in enumerate(self.layout.blocks):
            device = self.layout.device if self.layout.held else None
            block = HeldBlock(self.layout.block_shape(number), self.layout.tokens.dtype, device)
            self._fill(block, first, last, None)
            blocks.append(block.tokens)
        return blocks

    def write(self, folder: Path) -> tuple[Block, ...]:
        """Compute every block and write it into a folder."""
        return tuple(
            self.write_block(number, folder / block_file(number), folder / "scratch")
            for number in range(len(self.layout.blocks))
        )

    def write_block(self, number: int, path: Path, scratch: Path) -> Block:
        """Compute one block and write its file; gives its entry in the manifest."""
        first, last = self.layout.blocks[number]
        with BlockWriter(path, self.layout.block_shape(number), self.layout.tokens.dtype) as writer:
            self._fill(writer, first, last, scratch if self.layout.slices.on_disk else None)
            return Block(block_file(number), (first, last), **writer.finish())

    def _fill(self, block: HeldBlock | BlockWriter, first: int, last: int, scratch: Path | None) -> None:
        width = self.layout.slices.width
        for low in range(first, last, width):
            high = min(low + width, last)
            hop_slice = self._propagate(low, high, scratch)
            pieces = list(self.layout.pieces(last - first))
            with stage(f"storing columns {low:,} to {high - 1:,}", total=len(pieces)) as advance:
                for start, stop in pieces:
                    tokens = block.buffer(start, stop, refill=low > first)
                    hop_slice.pack(
                        tokens[:, :, low - first : high - first],
                        self.columns.read(start, stop, low, high),
                        start,
                        self._root,
                        self._input_scale[low:high],
                        self._leave_scale[low:high],
                    )
                    block.write(tokens, start, final=high == last)
                    advance(1)
            del hop_slice  # before the next one is allocated
            if scratch is not None:
                scratch.unlink(missing_ok=True)

    def _propagate(self, low: int, high: int, scratch: Path | None) -> Any:
        """Columns low … high after all hops, ready to be packed."""
        layout, hops = self.layout, self.layout.tokens.hops
        num_tiles = -(-(high - low) // layout.slices.tile)
        shape = (num_tiles, hops, layout.num_nodes, layout.slices.tile)
        hop_slice = self._engine.HopSlice(self._sums, shape, sum_dtype(layout.tokens.dtype), scratch)
        span = f"columns {low:,} to {high - 1:,}"
        pieces = self.columns.pieces() if hops else []
        with stage(f"reading {span} of {self.columns.width:,}", total=len(pieces)) as advance:
            for start, stop in pieces:
                x = self.columns.read(start, stop, low, high)
                hop_slice.enter(x, start, self._inverse_root, self._enter_scale[low:high])
                advance(1)
        with stage(f"{hops} hops of {span}", total=num_tiles * hops) as advance:
            hop_slice.run(advance)
        return hop_slice


def block_file(number: int) -> str:
    """What a block's file is called."""
    return f"block-{number:03d}.bin"
