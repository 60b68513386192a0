"""What goes through a network together, and where it comes from.

Shapes: N nodes, B nodes in a batch, K hops, F token width, D model width
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from nagphormer.model.embedding import Embedding, HopMaps

AHEAD = 4
"""Batches on their way to a GPU while one is used."""


@dataclass(frozen=True)
class Batch:
    """Some nodes, on the device."""

    nodes: torch.Tensor
    """(B,), their positions."""
    stored: torch.Tensor | None = None
    """(B, K+1, F), their tokens as a store holds them, where they had to be brought to the device."""


class TokenSource(Protocol):
    """Where embedded tokens come from: a store (`StoredTokens`) or the graph itself (`ProjectedTokens`).

    Two others stand before them: `Drawn` takes another copy of the graph every epoch, `Joined` adds tokens of labels.
    """

    num_nodes: int
    hops: int
    width: int
    device: str
    projects_first: bool
    statistics: dict[str, list[float]]
    """Mean and deviation that the features were scaled by, or nothing."""
    encoding: np.ndarray | None
    """The eigenvectors in the tokens, (N, s), or None without any."""
    components: np.ndarray | None
    """What features were reduced by, (F, d), or None."""

    def batches(self, nodes: Sequence[torch.Tensor]) -> Iterator[Batch]:
        """Batches of node positions, which lie on the CPU, with what is needed of them: on the device, ahead of use."""
        ...

    def in_training(self, epoch: int) -> "TokenSource":
        """Where the tokens of an epoch of training come from; itself, where they are always the same."""
        ...

    def embedder(self, embedding: Embedding | HopMaps) -> Callable[[Batch], torch.Tensor]:
        """The map from a batch to its embedded tokens, (B, K+1, D).

        In training one is made for every piece of a batch, since the columns that are hidden are drawn anew. Without
        gradients one serves all batches.
        """
        ...


def on_device(nodes: Sequence[torch.Tensor], device: str) -> Iterator[Batch]:
    """Batches of positions alone, moved to the device together."""
    sizes = [len(each) for each in nodes]
    return map(Batch, torch.cat(list(nodes)).to(device).split(sizes) if sizes else ())
