"""Embedded tokens of a batch, gathered by index from memory, a memory map or the GPU.

Shapes: N nodes, B nodes in a batch, K hops, F token width, D model width
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch

from nagphormer.model.embedding import Embedding
from nagphormer.tokens.store import TokenStore

CACHED_VALUES = 3 << 20
"""Hidden values, B·(K+1)·D, that one pass through the network may hold on a CPU so that they stay in its cache."""

_KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


class TokenSource(Protocol):
    """Where embedded tokens come from: a store (`StoredTokens`) or the graph itself (`ProjectedTokens`)."""

    num_nodes: int
    hops: int
    width: int
    device: str
    projects_first: bool

    def embed(self, embedding: Embedding, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Embedded tokens of each batch of node positions, (B, K+1, D)."""
        ...


class StoredTokens:
    """Tokens of a store, on the GPU where they fit, else gathered from where the store lies."""

    projects_first = False

    def __init__(self, store: TokenStore, device: str):
        self.num_nodes, num_tokens, self.width = store.shape
        self.hops = num_tokens - 1
        self.device = device
        self._scales = torch.from_numpy(store.scales).to(device)
        self._kind = _KINDS[store.dtype]
        self._blocks: list[np.ndarray] | list[torch.Tensor] = store.blocks
        self._resident = device != "cpu" and _fits(store, device)
        if self._resident:
            self._blocks = [torch.from_numpy(np.array(block)).to(device).view(self._kind) for block in store.blocks]

    def embed(self, embedding: Embedding, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Embedded tokens of each batch of node positions, (B, K+1, D)."""
        for nodes in batches:
            yield embedding(self.gather(nodes))

    def gather(self, nodes: torch.Tensor) -> torch.Tensor:
        """Tokens of some nodes, (B, K+1, F) float32."""
        if self._resident:
            parts = [block[nodes] for block in self._blocks]
        else:
            rows = nodes.cpu().numpy()
            taken = (np.take(block, rows, axis=0) for block in self._blocks)
            parts = [torch.from_numpy(part).view(self._kind).to(self.device) for part in taken]
        tokens = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return tokens.to(torch.float32).mul_(self._scales)


def _fits(store: TokenStore, device: str) -> bool:
    """Whether the whole store takes at most half of the GPU's free memory."""
    return sum(block.nbytes for block in store.blocks) <= torch.cuda.mem_get_info(device)[0] // 2


def rows_at_once(source: TokenSource, hidden_dim: int) -> int:
    """Nodes to send through the network together: as many as a CPU's cache holds, many on a GPU."""
    if source.device != "cpu":
        return 1 << 14
    return max(16, CACHED_VALUES // ((source.hops + 1) * hidden_dim))
