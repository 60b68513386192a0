"""Embedded tokens of a batch, gathered by index from memory, a memory map or the GPU.

Shapes: N nodes, B nodes in a batch, K hops, F token width, D model width
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional

from nagphormer.device import gpu_memory
from nagphormer.files import format_size
from nagphormer.model import kernels
from nagphormer.model.embedding import Embedding
from nagphormer.progress import note
from nagphormer.tokens.engine import round_up
from nagphormer.tokens.store import Stored, TokenStore

CACHED_VALUES = 3 << 20
"""Hidden values, B·(K+1)·D, that one pass through the network may hold on a CPU so that they stay in its cache."""
ALIGNED = 8
"""Rows of a matrix on a GPU have a multiple of so many values: matrix units are several times slower on others."""
MOST_ROWS = 1 << 14
"""Nodes that one pass through the network takes on a GPU, where memory allows."""
VALUE_BYTES = 48
"""Bytes that a pass on a GPU holds for each hidden value of a layer while gradients are wanted."""
AHEAD = 4
"""Batches on their way to a GPU while one is used."""
UPLOAD_BYTES = 64 << 20
"""Bytes of tokens that go to a GPU at a time."""
INPUT_BYTES = 4 * (AHEAD + 1) + 8
"""Bytes that it holds for each value of the tokens: those on their way, and some in float32."""


class TokenSource(Protocol):
    """Where embedded tokens come from: a store (`StoredTokens`) or the graph itself (`ProjectedTokens`)."""

    num_nodes: int
    hops: int
    width: int
    device: str
    projects_first: bool

    def fetch(self, batches: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """What `embed` needs of each batch of node positions, which lie on the CPU: on the device, ahead of its use."""
        ...

    def embed(self, embedding: Embedding, fetched: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Embedded tokens of each batch, (B, K+1, D)."""
        ...


def to_device(batches: Sequence[torch.Tensor], device: str) -> Iterator[torch.Tensor]:
    """Batches of node positions on the device, moved there together."""
    sizes = [len(nodes) for nodes in batches]
    return iter(torch.cat(list(batches)).to(device).split(sizes) if sizes else ())


class StoredTokens:
    """Tokens of a store, on the GPU where they fit, else read from where the store lies."""

    projects_first = False

    def __init__(self, store: TokenStore, device: str):
        self.num_nodes, num_tokens, self.width = store.shape
        self.hops = num_tokens - 1
        self.device = device
        self._scales = torch.from_numpy(store.scales).to(device)
        self._stored = store.stored
        self._kind: torch.dtype = store.stored.torch
        self._columns = np.cumsum([0, *(block.shape[2] for block in store.blocks)])
        self._host: list[np.ndarray] = []
        self._resident: list[torch.Tensor] = []
        self._stream: torch.cuda.Stream | None = None
        if store.on_gpu and device != "cpu" and store.blocks[0].device == torch.empty(0, device=device).device:
            note(f"tokens are held on the GPU: {format_size(store.num_bytes)}")
            self._resident = store.blocks
        elif device != "cpu" and _fits(store, device):
            self._resident = [_upload(block, store.stored, device) for block in store.host_blocks()]
        else:
            self._host = store.host_blocks()

    def fetch(self, batches: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Node positions, where the tokens are on the device or it is the CPU; else tokens as stored, (B, K+1, F)."""
        if self._resident or self.device == "cpu":
            return to_device(batches, self.device)
        return self._read_ahead(batches)

    def embed(self, embedding: Embedding, fetched: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Embedded tokens of each batch, (B, K+1, D)."""
        for given in fetched:
            tokens = self.gather(given) if given.ndim == 1 else self._decode(given)
            columns, rows = tokens.shape[-1] - self.width, 0
            if tokens.is_cuda:
                rows = round_up(embedding.out_features, ALIGNED) - embedding.out_features
            if columns == rows == 0:
                yield embedding(tokens)
            else:
                weight = functional.pad(embedding.drawn_weight(), (0, columns, 0, rows))
                wide = functional.linear(tokens, weight, functional.pad(embedding.bias, (0, rows)))
                yield wide[..., : embedding.out_features]

    def gather(self, nodes: torch.Tensor) -> torch.Tensor:
        """Tokens of some nodes, (B, K+1, F) float32.

        On a GPU perhaps with columns of zeros after the last, and in the autocast type.
        """
        if self._resident and kernels.usable(nodes):
            kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else torch.float32
            width = round_up(self.width, ALIGNED)
            tokens = torch.empty(len(nodes), self.hops + 1, width, dtype=kind, device=self.device)
            for block, first in zip(self._resident, self._columns, strict=False):
                kernels.take(block, nodes, self._scales, tokens, int(first))
            return tokens
        if self._resident:
            return self._decode(torch.cat([block[nodes] for block in self._resident], dim=-1))
        return self._decode(torch.from_numpy(self._read(nodes.cpu().numpy())).view(self._kind).to(self.device))

    def _decode(self, stored: torch.Tensor) -> torch.Tensor:
        """Stored values as float32, with the column scales undone."""
        return stored.to(torch.float32).mul_(self._scales)

    def _read(self, nodes: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Tokens of some nodes as they are stored, (B, K+1, F)."""
        if len(self._host) == 1:
            return np.take(self._host[0], nodes, axis=0, out=out, mode="clip")
        parts = [np.take(block, nodes, axis=0) for block in self._host]
        return np.concatenate(parts, axis=-1, out=out)

    def _read_ahead(self, batches: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Stored tokens of each batch on the GPU; others are read and copied while one is used."""
        stream = self._stream = self._stream or torch.cuda.Stream(self.device)
        coming: deque[Future[tuple[torch.Tensor, torch.cuda.Event]]] = deque()
        with ThreadPoolExecutor(AHEAD) as threads:
            for nodes in batches:
                coming.append(threads.submit(self._send, nodes.numpy(), stream))
                if len(coming) > AHEAD:
                    yield self._received(coming.popleft())
            while coming:
                yield self._received(coming.popleft())

    def _send(self, nodes: np.ndarray, stream: torch.cuda.Stream) -> tuple[torch.Tensor, torch.cuda.Event]:
        """Read tokens into pinned memory and start their copy to the GPU."""
        pinned = torch.empty(len(nodes), self.hops + 1, self.width, dtype=self._kind, pin_memory=True)
        self._read(nodes, pinned.view(self._stored.torch_bits).numpy())
        with torch.cuda.stream(stream):
            sent = pinned.to(self.device, non_blocking=True)
            return sent, stream.record_event()

    def _received(self, coming: "Future[tuple[torch.Tensor, torch.cuda.Event]]") -> torch.Tensor:
        tokens, copied = coming.result()
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(copied)
        tokens.record_stream(stream)
        return tokens


def _fits(store: TokenStore, device: str) -> bool:
    """Whether the whole store takes at most half of the GPU memory we may use; says what follows from it."""
    needed, room = store.num_bytes, gpu_memory(device)
    if needed <= room // 2:
        note(f"tokens are held on the GPU: {format_size(needed)} of {format_size(room)}")
        return True
    where = "memory" if store.path is None else store.path
    note(f"tokens are streamed from {where}: {format_size(needed)} are over half of the GPU's {format_size(room)}")
    return False


def _upload(block: np.ndarray, stored: Stored, device: str) -> torch.Tensor:
    """A copy of a stored block on the GPU, piece by piece through pinned memory."""
    target = torch.empty(block.shape, dtype=stored.torch, device=device)
    rows = max(1, min(len(block), UPLOAD_BYTES // block[:1].nbytes))
    rooms = [torch.empty(rows, *block.shape[1:], dtype=stored.torch, pin_memory=True) for _ in range(2)]
    stream = torch.cuda.current_stream(device)
    sent = [stream.record_event() for _ in rooms]
    for number, start in enumerate(range(0, len(block), rows)):
        piece, room = block[start : start + rows], rooms[number % 2]
        sent[number % 2].synchronize()
        np.copyto(room.view(stored.torch_bits).numpy()[: len(piece)], piece)
        target[start : start + len(piece)].copy_(room[: len(piece)], non_blocking=True)
        sent[number % 2] = stream.record_event()
    return target


def rows_at_once(source: TokenSource, hidden_dim: int, num_layers: int = 1) -> int:
    """Nodes to send through the network together: as many as a CPU's cache holds, many on a GPU."""
    if source.device == "cpu":
        return max(16, CACHED_VALUES // ((source.hops + 1) * hidden_dim))
    token = VALUE_BYTES * hidden_dim * max(num_layers, 1)
    if not source.projects_first:
        token += INPUT_BYTES * source.width
    return max(16, min(MOST_ROWS, gpu_memory(source.device) // 2 // ((source.hops + 1) * token)))
