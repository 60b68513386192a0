"""The token store: hop tokens of every node, in memory or memory-mapped from disk.

Shapes: N nodes, B nodes asked for, K hops, F columns (features and encoding)
"""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.errors import UserError
from nagphormer.files import check_size, checksum, read_json

FORMAT = 1
MANIFEST = "manifest.json"
KEYS = ("shape", "dtype", "hops", "graph", "encoding_dim", "feature_scaling", "column_exponents", "blocks")
DTYPES = {"float16": np.uint16, "bfloat16": np.int16, "float32": np.float32}
"""How each token type lies in a file; half precision as its bits, float16 unsigned and bfloat16 signed."""
BLOCK_BYTES = 4 * 2**30
"""Bytes of one hop of a block; wider stores are cut into several column blocks."""


class TokenStore:
    """Hop tokens of all nodes, (N, K+1, F): open one with `TokenStore.open`, make one with `hop_tokens`.

    `store[idx]` and `np.asarray(store)` give float32 with the column scales undone.
    """

    def __init__(self, blocks: list[Any], manifest: dict[str, Any], path: Path | None = None):
        self.blocks: list[Any] = blocks  # NumPy arrays or memory maps; CUDA tensors where they were made on a GPU
        self.manifest = manifest
        self.path = path
        self.shape: tuple[int, int, int] = tuple(manifest["shape"])
        self.dtype: str = manifest["dtype"]
        self.hops: int = manifest["hops"]
        self.on_gpu = bool(blocks) and not isinstance(blocks[0], np.ndarray)
        self.scales = np.ldexp(np.float32(1), manifest["column_exponents"])  # (F,)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "TokenStore":
        """Open a store folder memory-mapped; sizes are checked now, checksums by `verify`."""
        folder = Path(path)
        manifest = read_json(folder / MANIFEST, "tokens", FORMAT, KEYS)
        blocks: list[np.ndarray] = []
        for block in manifest["blocks"]:
            check_size(folder / block["file"], block["bytes"])
            shape = (*manifest["shape"][:2], block["columns"][1] - block["columns"][0])
            blocks.append(np.memmap(folder / block["file"], DTYPES[manifest["dtype"]], "r", shape=shape))
        return cls(blocks, manifest, folder)

    def verify(self) -> None:
        """Compare every block file with its checksum."""
        for block in self.manifest["blocks"] if self.path else ():
            if checksum(self.path / block["file"]) != block["sha256"]:
                raise UserError(f"{self.path / block['file']} is corrupt (checksum differs): make the store again")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, nodes: Any) -> np.ndarray:
        """Tokens of some nodes (positions, mask or slice), (B, K+1, F) float32; (K+1, F) for one integer."""
        single = isinstance(nodes, int | np.integer)
        index = [nodes] if single else nodes
        parts = [self._values(block, index) for block in self.blocks]
        tokens = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        tokens *= self.scales
        return tokens[0] if single else tokens

    def _values(self, block: Any, index: Any) -> np.ndarray:
        """A float32 copy of some rows of a block."""
        if not self.on_gpu:
            return _decode(block[index], self.dtype)
        rows = np.ascontiguousarray(np.arange(len(self))[index])  # NumPy's rules, and its errors
        return block[rows].float().cpu().numpy()

    def host_blocks(self) -> list[np.ndarray]:
        """The blocks as NumPy arrays or memory maps: copies of those that are on a GPU."""
        if not self.on_gpu:
            return self.blocks
        import torch

        bits: Any = {torch.float16: torch.uint16, torch.bfloat16: torch.int16, torch.float32: torch.float32}
        return [block.cpu().view(bits[block.dtype]).numpy() for block in self.blocks]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a token store cannot become an array without a copy")
        return self[:].astype(dtype or np.float32, copy=False)

    def __repr__(self) -> str:
        return f"TokenStore(shape={self.shape}, dtype={self.dtype!r}, path={str(self.path) if self.path else None!r})"


def _decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """A float32 copy of stored tokens."""
    if dtype == "float16":
        return stored.view(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        return (stored.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.array(stored)


def block_columns(num_nodes: int, width: int, dtype: str) -> list[tuple[int, int]]:
    """Column ranges of a store's blocks; they follow from N, F and the type only, never from the machine."""
    widest = max(1, BLOCK_BYTES // (num_nodes * np.dtype(DTYPES[dtype]).itemsize))
    if widest >= 16:
        widest -= widest % 16
    return [(first, min(first + widest, width)) for first in range(0, width, widest)]


class MemoryBlock:
    """A block that stays in memory, filled like a `BlockWriter`."""

    def __init__(self, shape: tuple[int, int, int], dtype: str):
        self.tokens = np.empty(shape, DTYPES[dtype])

    def buffer(self, start: int, stop: int, refill: bool) -> np.ndarray:
        """The place of rows start … stop, (R, K+1, F)."""
        return self.tokens[start:stop]

    def write(self, piece: np.ndarray, start: int, final: bool) -> None:
        """Nothing: the buffer is the block."""


class GpuBlock:
    """A block that stays on the GPU, filled like a `BlockWriter`."""

    def __init__(self, shape: tuple[int, int, int], dtype: str, device: str):
        import torch

        self.tokens = torch.empty(shape, dtype=getattr(torch, dtype), device=device)

    def buffer(self, start: int, stop: int, refill: bool) -> Any:
        """The place of rows start … stop, (R, K+1, F)."""
        return self.tokens[start:stop]

    def write(self, piece: Any, start: int, final: bool) -> None:
        """Nothing: the buffer is the block."""


class BlockWriter:
    """Writes one block file front to back, in pieces of rows, hashing as it goes.

    A block may be written in several passes, each filling some columns; only the last pass is hashed. Writing and
    hashing run in threads of their own, while the next piece is computed. A context manager.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int], dtype: str):
        self.path, self.shape, self._dtype = path, shape, DTYPES[dtype]
        self._row_bytes = shape[1] * shape[2] * np.dtype(self._dtype).itemsize
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._threads = ThreadPoolExecutor(2)
        self._running: list[Future[Any]] = []
        self._buffers: list[np.ndarray] = []  # one is filled while the other is written
        self._digest = hashlib.sha256()

    def buffer(self, start: int, stop: int, refill: bool) -> np.ndarray:
        """An array for rows start … stop, (R, K+1, F); with what an earlier pass wrote when `refill`.

        It is used again for the piece after the next, so pieces must be written in turn.
        """
        if len(self._buffers) < 2 or len(self._buffers[0]) < stop - start:
            self._wait()
            self._buffers = [np.empty((stop - start, *self.shape[1:]), self._dtype) for _ in range(2)]
        self._buffers.reverse()
        piece = self._buffers[0][: stop - start]
        if refill:
            if start == 0:
                self._wait()  # the earlier pass may still be writing
            view = _bytes(piece)
            done = 0
            while done < len(view):
                done += os.preadv(self._file, [view[done:]], start * self._row_bytes + done)
        return piece

    def write(self, piece: np.ndarray, start: int, final: bool) -> None:
        """Write a filled buffer at row `start`, while the caller goes on."""
        self._wait()
        data = _bytes(piece)
        self._running = [self._threads.submit(_write_all, self._file, data, start * self._row_bytes)]
        if final:
            self._running.append(self._threads.submit(self._digest.update, data))

    def finish(self) -> dict[str, Any]:
        """Wait for the last piece; gives the file's size and checksum."""
        self._wait()
        return {"bytes": os.fstat(self._file).st_size, "sha256": self._digest.hexdigest()}

    def __enter__(self) -> "BlockWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown()
        os.close(self._file)

    def _wait(self) -> None:
        for job in self._running:
            job.result()


def _bytes(piece: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    return piece.reshape(-1).view(np.uint8).data


def _write_all(file: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], offset + done)


def check_same(store: TokenStore, wanted: dict[str, Any]) -> None:
    """Refuse a store that was made from another graph or with other settings."""
    if store.manifest["graph"] != wanted["graph"]:
        raise UserError(f"{_where(store)} tokens of another graph: choose another folder or remove it first")
    for key, value in wanted.items():
        if store.manifest[key] != value:
            raise UserError(
                f"{_where(store)} tokens with {key}={store.manifest[key]!r}, not {value!r}: "
                f"choose another folder or remove it first"
            )


def _where(store: TokenStore) -> str:
    return "these are" if store.path is None else f"{store.path} holds"
