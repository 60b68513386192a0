"""The Transformer encoder that reads a node's hop tokens (paper Eq. 8 and 9).

Shapes: B nodes in a batch, T = K+1 tokens, D model width, H heads, d = D/H
"""

import torch
from torch import nn

from nagphormer.model import ops
from nagphormer.model.dropout import Dropout


class SelfAttention(nn.Module):
    """Multi-head self-attention over the tokens of each node."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = Dropout(dropout)
        self.project = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        batch, tokens, dim = hidden.shape
        parts = self.project(hidden).view(batch, tokens, 3, self.num_heads, dim // self.num_heads)
        return self.out(ops.attend(parts, self.dropout))


class EncoderLayer(nn.Module):
    """One pre-norm layer: Z' = MSA(LN(Z)) + Z, then FFN(LN(Z')) + Z' (paper Eq. 8 and 9); the FFN is 2·D wide.

    The last sum is left to whoever normalizes next, so that a GPU does both in one pass over the tokens.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads, attention_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden: torch.Tensor, update: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Z and what is still to be added to it, both (B, T, D), after this layer."""
        hidden, normed = ops.add_norm(hidden, update, self.attention_norm, self.dropout)
        hidden, normed = ops.add_norm(hidden, self.attention(normed), self.ffn_norm, self.dropout)
        return hidden, self.ffn(normed)
