"""The token store: hop tokens of every node, in memory or memory-mapped from disk.

Shapes: N nodes, B nodes asked for, K hops, F columns (features and encoding)
"""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import check_size, checksum, read_json, write_json
from nagphormer.settings import TokenSettings, read_settings, settings_to_write

if TYPE_CHECKING:
    from nagphormer.tokens.dataset import TokenDataset

FORMAT = 2
"""Of stores with the statistics of another graph, which 0.1.0 would take for the graph's own; of all others it is 1."""
MANIFEST, ENCODING, REDUCTION = "manifest.json", "encoding.npy", "reduction.npy"
BLOCK_BYTES = 4 * 2**30
"""Bytes of one hop of a block; wider stores are cut into several column blocks."""
NORMALIZATION = "D̃^-½ (A+I) D̃^-½"


@dataclass(frozen=True)
class Stored:
    """How numbers of one type lie in a file and in memory: half precision as its bits, which NumPy can hold."""

    name: str
    bits: type[np.generic]
    """Their NumPy type."""

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.bits).itemsize

    @property
    def torch(self) -> Any:
        """torch's type of the numbers."""
        import torch

        return getattr(torch, self.name)

    @property
    def torch_bits(self) -> Any:
        """torch's type of their bits."""
        import torch

        return getattr(torch, np.dtype(self.bits).name)

    def decode(self, bits: np.ndarray) -> np.ndarray:
        """A float32 copy of stored numbers."""
        if self.name == "float16":
            return bits.view(np.float16).astype(np.float32)
        if self.name == "bfloat16":
            return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        return np.array(bits)


STORED = {
    stored.name: stored
    # other signs of the same width, so that the bits alone say which of the two they are
    for stored in (Stored("float16", np.uint16), Stored("bfloat16", np.int16), Stored("float32", np.float32))
}


def stored_as(bits: np.ndarray) -> Stored:
    """How an array of a store is stored."""
    return next(stored for stored in STORED.values() if stored.bits == bits.dtype.type)


@dataclass(frozen=True)
class Block:
    """One file of a store: all hops of some columns, (N, K+1, last - first)."""

    file: str
    columns: tuple[int, int]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class StoreManifest:
    """What a token store holds and how it was made; in memory there are no blocks and no versions."""

    shape: tuple[int, int, int]
    """(N, K+1, F+s)."""
    graph: str
    """The graph's fingerprint."""
    tokens: TokenSettings
    statistics: dict[str, list[float]]
    """What feature scaling measured: `mean` and `std` of every column, or nothing."""
    encoding: dict[str, list[float]]
    """Eigenvalues and residuals of the structural encoding, or nothing."""
    column_exponents: tuple[int, ...]
    """Stored tokens are the true ones by 2 to the power of these, (F+s,)."""
    statistics_of: str | None = None
    """Fingerprint of the graph whose mean, deviation and eigenvectors these are; None for the graph's own."""
    encoding_sha256: str | None = None
    """Checksum of the file of eigenvectors, where there is one."""
    reduction_sha256: str | None = None
    """Checksum of the file of what features are reduced by, where there is one."""
    blocks: tuple[Block, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "StoreManifest":
        """The manifest of a store's folder."""
        keys = ("shape", "dtype", "hops", "graph", "encoding_dim", "feature_scaling", "column_exponents", "blocks")
        found = read_json(folder / MANIFEST, "tokens", FORMAT, keys)
        return cls(
            shape=tuple(found["shape"]),
            graph=found["graph"],
            tokens=read_settings(
                TokenSettings,
                {each.name: found[each.name] for each in fields(TokenSettings) if each.name in found},
                folder / MANIFEST,
            ),
            statistics=found.get("feature_statistics", {}),
            encoding=found.get("encoding", {}),
            column_exponents=tuple(found["column_exponents"]),
            statistics_of=found.get("statistics_of"),
            encoding_sha256=found.get("encoding_sha256"),
            reduction_sha256=found.get("reduction_sha256"),
            blocks=tuple(
                Block(block["file"], tuple(block["columns"]), block["bytes"], block["sha256"])
                for block in found["blocks"]
            ),
            versions=found.get("versions", {}),
        )

    def write(self, folder: Path) -> None:
        """Write the manifest into a store's folder."""
        content = {
            "kind": "tokens",
            "format": 1 if self.statistics_of is None else FORMAT,
            "shape": self.shape,
            "graph": self.graph,
            **settings_to_write(self.tokens),
            "normalization": NORMALIZATION,
            "feature_statistics": self.statistics,
            "encoding": self.encoding,
            "column_exponents": self.column_exponents,
            **({"statistics_of": self.statistics_of} if self.statistics_of else {}),
            **({"encoding_sha256": self.encoding_sha256} if self.encoding_sha256 else {}),
            **({"reduction_sha256": self.reduction_sha256} if self.reduction_sha256 else {}),
            "blocks": [asdict(block) for block in self.blocks],
            "versions": self.versions,
        }
        write_json(folder / MANIFEST, content)

    def refuse_other(self, graph: Graph, wanted: TokenSettings, where: str) -> None:
        """Refuse tokens, which lie `where`, that are not those of a graph with these settings."""
        if not graph.is_known_as(self.graph):
            raise UserError(f"{where} tokens of another graph: choose another folder or remove it first")
        self.tokens.refuse_other(wanted, where)


class TokenStore:
    """Hop tokens of all nodes, (N, K+1, F): open one with `TokenStore.open`, make one with `hop_tokens`.

    `store[idx]` and `np.asarray(store)` give float32 with the column scales undone.
    """

    def __init__(
        self,
        blocks: list[Any],
        manifest: StoreManifest,
        path: Path | None = None,
        reused: bool = False,
        encoding: np.ndarray | None = None,
        components: np.ndarray | None = None,
    ):
        self.blocks: list[Any] = blocks  # NumPy arrays or memory maps; CUDA tensors where they were made on a GPU
        self.manifest = manifest
        self.path = path
        self.reused = reused
        self._encoding, self._components = encoding, components
        self.shape: tuple[int, int, int] = manifest.shape
        self.tokens = manifest.tokens
        self.dtype: str = manifest.tokens.dtype
        self.hops: int = manifest.tokens.hops
        self.stored = STORED[self.dtype]
        self.on_gpu = bool(blocks) and not isinstance(blocks[0], np.ndarray)
        self.scales = np.ldexp(np.float32(1), manifest.column_exponents)  # (F,)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "TokenStore":
        """Open a store folder memory-mapped; sizes are checked now, checksums by `verify`."""
        folder = Path(path)
        manifest = StoreManifest.read(folder)
        blocks: list[np.ndarray] = []
        for block in manifest.blocks:
            check_size(folder / block.file, block.bytes)
            shape = (*manifest.shape[:2], block.columns[1] - block.columns[0])
            blocks.append(np.memmap(folder / block.file, STORED[manifest.tokens.dtype].bits, "r", shape=shape))
        return cls(blocks, manifest, folder)

    def verify(self) -> None:
        """Compare every block file with its checksum."""
        for block in self.manifest.blocks:
            assert self.path is not None
            if checksum(self.path / block.file) != block.sha256:
                raise UserError(f"{self.path / block.file} is corrupt (checksum differs): make the store again")
        written = {ENCODING: self.manifest.encoding_sha256, REDUCTION: self.manifest.reduction_sha256}
        for name, expected in written.items() if self.path is not None else ():
            assert self.path is not None
            file = self.path / name
            if expected is not None and (not file.is_file() or checksum(file) != expected):
                raise UserError(f"{file} is corrupt (checksum differs): make the store again")

    def refuse_other(self, graph: Graph, wanted: TokenSettings) -> None:
        """Refuse this store unless it holds a graph's tokens with these settings."""
        self.manifest.refuse_other(graph, wanted, self.where)

    @property
    def where(self) -> str:
        """The beginning of a sentence about what these tokens are."""
        return "these are" if self.path is None else f"{self.path} holds"

    @property
    def encoding(self) -> np.ndarray | None:
        """The eigenvectors joined to the features, (N, s) float32, or None without any."""
        dim = self.tokens.encoding_dim
        if self._encoding is None and dim:
            file = None if self.path is None else self.path / ENCODING
            if file is not None and file.is_file():
                self._encoding = np.load(file, mmap_mode="r", allow_pickle=False)
            else:  # 0.1.0 kept them as columns of hop 0 alone
                self._encoding = self._at_hop_zero(self.shape[2] - dim)
        return self._encoding

    @property
    def components(self) -> np.ndarray | None:
        """What features were reduced by, (F, d) float32, or None."""
        file = None if self.path is None else self.path / REDUCTION
        if self._components is None and file is not None and self.manifest.reduction_sha256 is not None:
            if not file.is_file():
                raise UserError(f"{file} is missing: make the store again")
            self._components = np.load(file, allow_pickle=False)
        return self._components

    def _at_hop_zero(self, first: int) -> np.ndarray:
        """Columns from `first` on at hop 0, float32."""
        parts, start = [], 0
        for block in self.host_blocks():
            if start + block.shape[2] > first:
                parts.append(self.stored.decode(np.ascontiguousarray(block[:, 0, max(first - start, 0) :])))
            start += block.shape[2]
        return np.concatenate(parts, axis=1) * self.scales[first:]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tokens."""
        return sum(block.nbytes for block in self.blocks)

    def dataset(self, labels: Any, nodes: Any = None) -> "TokenDataset":
        """Tokens and labels for a `torch.utils.data.DataLoader`, which reads a batch by one gather.

        Args:
            labels: of all nodes, as in `graph.labels`: (N,) whole numbers, or (N, C) of 0 and 1, given as floats.
            nodes: positions, a slice or a mask; all by default, also those whose label is unknown (-1).

        >>> from nagphormer import hop_tokens, synthetic_graph
        >>> from torch.utils.data import DataLoader
        >>> graph = synthetic_graph(100, 300, 8, 2)
        >>> data = hop_tokens(graph, hops=3).dataset(graph.labels)
        >>> tokens, label = next(iter(DataLoader(data, batch_size=50, shuffle=True)))
        >>> tokens.shape, label.shape
        (torch.Size([50, 4, 8]), torch.Size([50]))
        """
        from nagphormer.tokens.dataset import TokenDataset

        return TokenDataset(self, labels, nodes)

    def __reduce__(self) -> Any:
        """For other processes, such as a loader's workers: a store on disk is opened there, not sent."""
        return (TokenStore, (self.blocks, self.manifest)) if self.path is None else (TokenStore.open, (self.path,))

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
            return self.stored.decode(block[index])
        rows = np.ascontiguousarray(np.arange(len(self))[index])  # NumPy's rules, and its errors
        return block[rows].float().cpu().numpy()

    def host_blocks(self) -> list[np.ndarray]:
        """The blocks as NumPy arrays or memory maps: copies of those that are on a GPU."""
        if not self.on_gpu:
            return self.blocks
        return [block.cpu().view(self.stored.torch_bits).numpy() for block in self.blocks]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a token store cannot become an array without a copy")
        return self[:].astype(dtype or np.float32, copy=False)

    def __repr__(self) -> str:
        return f"TokenStore(shape={self.shape}, dtype={self.dtype!r}, path={str(self.path) if self.path else None!r})"


def write_array(path: Path, array: np.ndarray | None) -> str | None:
    """Write eigenvectors, or what features are reduced by, into a store's folder; gives the file's checksum."""
    if array is None:
        return None
    np.save(path, np.asarray(array, np.float32), allow_pickle=False)
    return checksum(path)


def block_columns(num_nodes: int, width: int, dtype: str) -> list[tuple[int, int]]:
    """Column ranges of a store's blocks; they follow from N, F and the type only, never from the machine."""
    widest = max(1, BLOCK_BYTES // (num_nodes * STORED[dtype].itemsize))
    if widest >= 16:
        widest -= widest % 16
    return [(first, min(first + widest, width)) for first in range(0, width, widest)]


class HeldBlock:
    """A block that stays in memory, or on a GPU, filled like a `BlockWriter`."""

    def __init__(self, shape: tuple[int, int, int], dtype: str, device: str | None = None):
        if device is None:
            self.tokens: Any = np.empty(shape, STORED[dtype].bits)
        else:
            import torch

            self.tokens = torch.empty(shape, dtype=STORED[dtype].torch, device=device)

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
        self.path, self.shape, self._dtype = path, shape, STORED[dtype].bits
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
