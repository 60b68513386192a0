"""Tokens and labels for a `torch.utils.data.DataLoader`, which reads a batch of them by one gather.

Shapes: N nodes, n nodes of the data set, B nodes in a batch, K hops, F token width, C classes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from nagphormer.data.nodes import chosen
from nagphormer.errors import UserError

if TYPE_CHECKING:
    from nagphormer.tokens.store import TokenStore

Sample = tuple[torch.Tensor, int | torch.Tensor]
"""Tokens of a node, (K+1, F) float32, and its class, or (C,) floats of 0 and 1."""


class TokenDataset(Dataset[Sample]):
    """Pairs of tokens and label; made by `TokenStore.dataset`."""

    def __init__(self, store: TokenStore, labels: Any, nodes: Any = None):
        self.store = store
        self.nodes = chosen(nodes, len(store))  # (n,)
        found = np.asarray(labels)
        if found.dtype.kind not in "biuf" or found.shape[:1] != (len(store),):
            raise UserError(
                f"labels must be numbers of all {len(store):,} nodes, as in graph.labels, "
                f"not {found.dtype} of shape {found.shape}"
            )
        own = found[self.nodes]
        if own.ndim == 1:  # numbers: a loader stacks tensors of one slower than it reads tokens
            self.labels: Any = own.astype(np.int64).tolist()
        else:
            self.labels = torch.from_numpy(own.astype(np.float32))  # (n, C), as the loss takes them

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, number: int) -> Sample:
        return torch.from_numpy(self.store[int(self.nodes[number])]), self.labels[number]

    def __getitems__(self, numbers: list[int]) -> list[Sample]:
        """The samples of a batch; a `DataLoader` asks for them together where it can."""
        tokens = torch.from_numpy(self.store[self.nodes[numbers]])  # (B, K+1, F)
        return [(each, self.labels[number]) for each, number in zip(tokens.unbind(), numbers, strict=True)]
