"""The linear embedding of tokens (paper Eq. 7), with dropout of whole input columns.

Shapes: B nodes in a batch, K hops, F token width, D model width
"""

import torch
from torch import nn
from torch.nn import functional


class Embedding(nn.Linear):
    """One linear map shared by all hops; in training a random share of input columns is hidden from each batch.

    Hiding a column of the input is the same as hiding a row of the weight, before or after any number of hops. So,
    unlike dropout of single entries, it is exact also where features are projected before they are propagated.
    """

    # differs from the paper: Eq. 7 has no bias, its authors' code has
    def __init__(self, input_dim: int, dim: int, feature_dropout: float = 0.0):
        super().__init__(input_dim, dim)
        self.feature_dropout = feature_dropout

    def drawn_weight(self) -> torch.Tensor:
        """The weight for one batch, (D, F): without the columns that are hidden from it."""
        if not self.training or self.feature_dropout == 0:
            return self.weight
        kept = torch.rand(self.in_features, device=self.weight.device) >= self.feature_dropout
        return self.weight * (kept / (1 - self.feature_dropout))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, F) -> (B, K+1, D)."""
        return functional.linear(tokens, self.drawn_weight(), self.bias)
