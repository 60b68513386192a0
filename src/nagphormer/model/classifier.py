"""What all models have in common: a linear embedding of tokens, and class scores of embedded tokens.

Shapes: B nodes in a batch, T = K+1 tokens, L tokens of labels, D width of the embedding, C classes
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from nagphormer.errors import UserError
from nagphormer.model.embedding import Embedding, HopMaps


class Classifier(nn.Module):
    """A model that embeds tokens, before or after the hops, and classifies what it has embedded."""

    embed: Embedding | HopMaps

    def embedded(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens of hops, (B, T, F), and of labels, (B, L, C), embedded, (B, T+L, D)."""
        hidden = self.embed(tokens)
        if self.embed.labels is None:
            return hidden
        if labels is None:
            raise UserError(f"this model reads {len(self.embed.labels.weight)} tokens of labels, too: give labels=")
        return torch.cat([hidden, self.embed.labels(labels)], dim=1)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """Class scores of a batch of nodes.

        Args:
            tokens: (B, K+1, F).
            labels: tokens of labels, (B, L, C), for a model that reads such.

        Returns:
            Scores (B, C).
        """
        return self.classify(self.embedded(tokens, labels))

    def scores(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Class scores of each part of the model that has a loss of its own, (B, T+L, D) -> (B, C)."""
        raise NotImplementedError

    def classify(self, hidden: torch.Tensor) -> torch.Tensor:
        """Class scores from embedded tokens, (B, T+L, D) -> (B, C)."""
        return averaged(self.scores(hidden))

    def represent(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the last layers read of each node, (B, T+L, D) -> (B, D')."""
        raise NotImplementedError

    @property
    def weighs_hops(self) -> bool:
        """Whether there are weights of hops to be asked for."""
        return False

    def hop_attention(self, hidden: torch.Tensor) -> torch.Tensor:
        """The weights of hops 1 … K in the readout, (B, T+L, D) -> (B, K), where the model has such."""
        raise UserError(
            "this model weighs no hops: only a transformer with readout='attention' does, "
            "NodeClassifier(network='transformer', readout='attention')"
        )


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
