"""Readouts: one vector for a node from its encoded hop tokens (paper 3.3, Eq. 11 and 12).

Shapes: B nodes in a batch, K hops, D model width
"""

import torch
from torch import nn


class AttentionReadout(nn.Module):
    """Z_0 + Σ α_k Z_k with α_k = softmax over k = 1 … K of (Z_0‖Z_k) W_a (paper Eq. 11 and 12).

    As published, α does not depend on Z_0: its half of W_a adds the same number to every score, and the softmax
    takes it out again. The parameter is kept so that the network is the paper's; its gradient is zero.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(2 * dim, 1)

    def attention(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weights of hops 1 … K, (B, K+1, D) -> (B, K); in float32, so that they sum to one."""
        own, hops = tokens[:, :1], tokens[:, 1:]
        pairs = torch.cat([own.expand_as(hops), hops], dim=-1)  # (B, K, 2D)
        return self.score(pairs).squeeze(-1).softmax(dim=-1, dtype=torch.promote_types(tokens.dtype, torch.float32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        if tokens.shape[1] == 1:
            return tokens[:, 0]
        weights = self.attention(tokens).to(tokens.dtype).unsqueeze(1)  # (B, 1, K)
        return tokens[:, 0] + (weights @ tokens[:, 1:]).squeeze(1)


class SelfReadout(nn.Module):
    """The node's own token, Z_0; SIN. in the paper."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        return tokens[:, 0]


class SumReadout(nn.Module):
    """The sum of all tokens; SUM. in the paper."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        return tokens.sum(dim=1)
