"""What the Transformers over a whole graph share: how they read features, and attention of all nodes to all nodes.

Shapes: N nodes, H heads, d width of a head, F features, D model width
"""

import math

import torch
from torch import nn
from torch.nn import functional

LARGEST = 2**31
"""Weights of one call: beyond, torch's memory-efficient kernel draws one dropout in the forward pass, another in the
backward pass."""
MOMENTUM = 0.5
"""Of BatchNorm: with one step an epoch, torch's 0.1 leaves validation ten epochs behind."""


def embedding(num_features: int, dim: int, dropout: float = 0.0) -> nn.Module:
    """A linear map of features, of which some are dropped, to unit variance, (N, F) -> (N, D).

    The published models look features up in tables of learned vectors; a linear map of sparse words alone is small, and
    positions added to it, or put beside it, would drown it.
    """
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(num_features, dim), nn.BatchNorm1d(dim, momentum=MOMENTUM))


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """softmax(q·kᵀ / √d + b) v: (H, N, d) three times, b either (N, N) or (H, N, N) -> (H, N, d).

    On a GPU in bfloat16, by torch's fused kernels, which never store the H N² weights. They want widths that are
    multiples of 8, and spare themselves a copy of the bias where its rows start at such (see `empty_rows`).
    """
    num_heads, num_nodes, dim = query.shape
    if dropout > 0 and bias is not None and query.is_cuda and num_nodes**2 >= LARGEST:
        raise ValueError(f"{num_nodes:,} nodes are too many for dropout of biased attention on a GPU")
    dtype, width = value.dtype, value.shape[-1]
    fast = torch.bfloat16 if query.is_cuda else dtype
    query, key, value = (functional.pad(part, (0, -part.shape[-1] % 8)).to(fast) for part in (query, key, value))
    size = max(1, LARGEST // num_nodes**2)
    attended = [
        functional.scaled_dot_product_attention(
            query[None, heads],
            key[None, heads],
            value[None, heads],
            attn_mask=bias[heads] if bias is not None and bias.dim() == 3 else bias,
            dropout_p=dropout,
            scale=1 / math.sqrt(dim),
        )[0]
        for heads in (slice(start, start + size) for start in range(0, num_heads, size))
    ]
    return torch.cat(attended)[..., :width].to(dtype)


def empty_rows(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A bias for `attend` to be filled: its rows start at multiples of 8, and it is bfloat16 on a GPU."""
    *outer, length = shape
    dtype = torch.bfloat16 if device.type == "cuda" else dtype
    return torch.empty(*outer, length + -length % 8, device=device, dtype=dtype)[..., :length]
