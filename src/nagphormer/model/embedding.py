"""The linear embedding of tokens (paper Eq. 7), with dropout of whole input columns.

Tokens of labels are narrower than those of features: an embedding's `labels`, where there are such, has a map for each.

Shapes: B nodes in a batch, T = K+1 tokens, F token width, D model width
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn
from torch.nn import functional


def drawn_columns(weight: torch.Tensor, rate: float) -> torch.Tensor:
    """A weight, (…, D, F), for one batch: a random share of its columns is hidden, the others make up for them."""
    if rate == 0:
        return weight
    kept = torch.rand(weight.shape[-1], device=weight.device) >= rate
    return weight * (kept / (1 - rate))


class Embedding(nn.Linear):
    """One linear map shared by all hops; in training a random share of input columns is hidden from each batch.

    Hiding a column of the input is the same as hiding a row of the weight, before or after any number of hops. So,
    unlike dropout of single entries, it is exact also where features are projected before they are propagated.
    """

    # differs from the paper: Eq. 7 has no bias, its authors' code has
    def __init__(self, input_dim: int, dim: int, feature_dropout: float = 0.0):
        super().__init__(input_dim, dim)
        self.feature_dropout = feature_dropout
        self.labels: HopMaps | None = None

    def drawn_weight(self) -> torch.Tensor:
        """The weight for one batch, (D, F): without the columns that are hidden from it."""
        return drawn_columns(self.weight, self.feature_dropout if self.training else 0)

    @staticmethod
    def multiply(tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """(B, T, F) -> (B, T, D)."""
        return functional.linear(tokens, weight, bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T, F) -> (B, T, D)."""
        return self.multiply(tokens, self.drawn_weight(), self.bias)


class HopMaps(nn.Module):
    """A linear map for each token of a node; columns are hidden from all of them together."""

    def __init__(self, num_tokens: int, input_dim: int, dim: int, feature_dropout: float = 0.0):
        super().__init__()
        self.in_features, self.out_features, self.feature_dropout = input_dim, dim, feature_dropout
        self.labels: HopMaps | None = None
        bound = 1 / sqrt(input_dim)  # as torch draws a linear layer's
        self.weight = nn.Parameter(torch.empty(num_tokens, dim, input_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_tokens, dim).uniform_(-bound, bound))

    def drawn_weight(self) -> torch.Tensor:
        """The weights for one batch, (T, D, F): without the columns that are hidden from it."""
        return drawn_columns(self.weight, self.feature_dropout if self.training else 0)

    @staticmethod
    def multiply(tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """(B, T, F) -> (B, T, D)."""
        hidden = tokens.transpose(0, 1) @ weight.transpose(1, 2)  # (T, B, D)
        return hidden.transpose(0, 1) + bias

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T, F) -> (B, T, D)."""
        return self.multiply(tokens, self.drawn_weight(), self.bias)
