"""What lies between the network's products: plain torch, which is the definition, or a fused kernel for large work.

Nobody else chooses a kernel. Where one takes the place of the plain lines it is exact in their sense, with sums in
float32.

Shapes: B nodes in a batch, T = K+1 tokens, D model width, H heads, d = D/H
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from nagphormer.model import kernels
from nagphormer.model.dropout import Dropout
from nagphormer.model.recorded import recorded

REPAID = 6e10
"""Hidden values, B·T·D of all layers and batches of a training, after which compiling has been paid back (H200)."""

_enough = False
_compiled: set[Hashable] = set()


@contextmanager
def enough_work(values: float, shape: Hashable) -> Iterator[None]:
    """Use the kernels while the block runs, if so many hidden values repay compiling them, or that is done already.

    Args:
        values: B·T·D of all layers and batches.
        shape: what they are compiled for; another shape is compiled anew.
    """
    global _enough
    if kernels.triton is not None and values >= REPAID:
        _compiled.add(shape)
    before, _enough = _enough, shape in _compiled
    try:
        yield
    finally:
        _enough = before


def fused(tensor: torch.Tensor) -> bool:
    """Whether a kernel is to work on a tensor."""
    return _enough and tensor.is_cuda and tensor.dtype != torch.float64 and not recorded()


def captured(tensor: torch.Tensor) -> bool:
    """Whether whole steps on such tensors are to be captured as CUDA graphs."""
    return tensor.is_cuda and kernels.triton is not None


def attend(qkv: torch.Tensor, dropout: Dropout) -> torch.Tensor:
    """Multi-head attention over a node's own tokens (paper Eq. 4), (B, T, 3, H, d) -> (B, T, D).

    Written out instead of calling `scaled_dot_product_attention`: at a dozen tokens the plain products are faster.
    """
    if fused(qkv) and kernels.can_attend(qkv):
        return kernels.attend(qkv, dropout.active_rate)
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()  # each (B, H, T, d)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)  # (B, H, T, T)
    attention = dropout(scores.softmax(dim=-1))
    mixed = mix_values(attention, value).transpose(1, 2)  # (B, T, H, d)
    return mixed.flatten(2)


def mix_values(attention: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Weigh value vectors by attention (paper Eq. 4, right factor): (B, H, T, T) × (B, H, T, d) -> (B, H, T, d)."""
    return attention @ values


def add_norm(
    hidden: torch.Tensor, update: torch.Tensor | None, norm: nn.LayerNorm, dropout: Dropout
) -> tuple[torch.Tensor, torch.Tensor]:
    """Z + dropout(update), and its LayerNorm: all (B, T, D)."""
    if fused(hidden):
        return kernels.add_norm(hidden, update, norm, dropout.active_rate)
    if update is not None:
        hidden = hidden + dropout(update)
    return hidden, norm(hidden)


def read_out(tokens: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Z_0 + Σ α_k Z_k (paper Eq. 12), (B, T, D) and (D,) -> (B, D); T is at least 2."""
    if fused(tokens) and kernels.can_read_out(tokens):
        return kernels.read_out(tokens, direction)
    weights = hop_weights(tokens, direction).to(tokens.dtype).unsqueeze(1)  # (B, 1, K)
    return tokens[:, 0] + (weights @ tokens[:, 1:]).squeeze(1)


def hop_weights(tokens: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """α of hops 1 … K (paper Eq. 11), (B, T, D) and (D,) -> (B, K); in float32, so that they sum to one."""
    scores = (tokens @ direction.to(tokens.dtype))[:, 1:]
    return scores.softmax(dim=-1, dtype=torch.promote_types(tokens.dtype, torch.float32))
