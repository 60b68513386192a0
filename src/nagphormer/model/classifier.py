"""What all models have in common: a linear embedding of tokens, and class scores of embedded tokens.

Shapes: B nodes in a batch, K hops, D width of the embedding, C classes
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from nagphormer.model.embedding import Embedding


class Classifier(nn.Module):
    """A model that embeds tokens, before or after the hops, and classifies what it has embedded."""

    embed: Embedding

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Class scores of each part of the model that has a loss of its own, (B, K+1, D) -> (B, C)."""
        raise NotImplementedError

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Class scores from embedded tokens, (B, K+1, D) -> (B, C)."""
        return averaged(self.scores(hidden))


def averaged(scores: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The scores that the parts of a model give together, (B, C)."""
    return sum(scores[1:], start=scores[0]) / len(scores)


def linear_scores(parts: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Class scores linear in all tokens, (B, K+1, (K+1)·C) -> (B, C): of hop k only the k-th part counts."""
    own = parts.unflatten(-1, (-1, num_classes)).diagonal(dim1=1, dim2=2)  # (B, C, K+1)
    return own.sum(dim=-1, dtype=torch.promote_types(own.dtype, torch.float32))


@contextmanager
def weights_drawn(seed: int) -> Iterator[None]:
    """Draw the weights of models that are made in the block from a seed; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
