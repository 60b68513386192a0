"""Readouts: one vector for a node from its encoded hop tokens (paper 3.3, Eq. 11 and 12).

Shapes: B nodes in a batch, K hops, D model width
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from nagphormer.model import ops
from nagphormer.settings import Readout


class AttentionReadout(nn.Module):
    """Z_0 + Σ α_k Z_k with α_k = softmax over k = 1 … K of (Z_0‖Z_k) W_a (paper Eq. 11 and 12).

    As published, α does not depend on Z_0: its half of W_a, and a bias, add the same number to every score, and the
    softmax takes it out again. Both are kept, so that the network is the paper's, but never computed: their gradient is
    zero, where rounding would leave noise for the optimizer to follow.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(2 * dim, 1)

    def attention(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weights of hops 1 … K, (B, K+1, D) -> (B, K); in float32, so that they sum to one."""
        return ops.hop_weights(tokens, self._direction)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        return tokens[:, 0] if tokens.shape[1] == 1 else ops.read_out(tokens, self._direction)

    @property
    def _direction(self) -> torch.Tensor:
        """The half of W_a that multiplies Z_k, (D,); with a zero that ties in the bias."""
        return self.score.weight[0].chunk(2)[1] + 0 * self.score.bias


class DynamicReadout(nn.Module):
    """Z_0 + Σ α_k Z_k with α_k = softmax over k = 1 … K of v · LeakyReLU(W (Z_0‖Z_k)): here Z_0 has a say.

    What GATv2 did for GAT (Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022): with
    something non-linear between the two products, the part of Z_0 is no constant any more.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.mix = nn.Linear(2 * dim, dim)
        self.score = nn.Linear(dim, 1, bias=False)

    def attention(self, tokens: torch.Tensor) -> torch.Tensor:
        """Weights of hops 1 … K, (B, K+1, D) -> (B, K); in float32, so that they sum to one."""
        own = tokens[:, :1].expand(-1, tokens.shape[1] - 1, -1)  # (B, K, D)
        mixed = functional.leaky_relu(self.mix(torch.cat([own, tokens[:, 1:]], dim=2)), 0.2)  # (B, K, D)
        scores = self.score(mixed).squeeze(2)  # (B, K)
        return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        weights = self.attention(tokens).to(tokens.dtype).unsqueeze(1)  # (B, 1, K)
        return tokens[:, 0] + (weights @ tokens[:, 1:]).squeeze(1)


class SelfReadout(nn.Module):
    """The node's own token, Z_0; SIN. in the paper."""

    def __init__(self, dim: int):
        super().__init__()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        return tokens[:, 0]


class SumReadout(nn.Module):
    """The sum of all tokens; SUM. in the paper."""

    def __init__(self, dim: int):
        super().__init__()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, K+1, D) -> (B, D)."""
        return tokens.sum(dim=1)


READOUTS: dict[Readout, Callable[[int], nn.Module]] = {
    "attention": AttentionReadout,
    "dynamic": DynamicReadout,
    "self": SelfReadout,
    "sum": SumReadout,
}
"""How each is made for a width D."""
