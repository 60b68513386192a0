"""What the Transformers over a whole graph share: how they read features, and attention of all nodes to all nodes.

Shapes: N nodes, H heads, d width of a head, F features, D model width
"""

import math
from functools import partial
from itertools import repeat

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LARGEST = 2**31
"""Weights of one call: beyond, torch's memory-efficient kernel draws one dropout in the forward pass, another in the
backward pass."""
ROWS = 256
"""Nodes whose weights a CPU holds at a time."""
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

    The H N² weights are not stored. On a GPU torch's fused kernels see to it, in bfloat16; they want widths that are
    multiples of 8, and spare themselves a copy of the bias where its rows start at such (see `empty_rows`). On a CPU,
    whose fused kernel knows neither dropout nor a bias that learns, they are computed some rows at a time, and once
    more in the backward pass.
    """
    num_heads, num_nodes, dim = query.shape
    if dropout > 0 and bias is not None and query.is_cuda and num_nodes**2 >= LARGEST:
        raise ValueError(f"{num_nodes:,} nodes are too many for dropout of biased attention on a GPU")
    dtype, width = value.dtype, value.shape[-1]
    fast = torch.bfloat16 if query.is_cuda else dtype
    query, key, value = (functional.pad(part, (0, -part.shape[-1] % 8)).to(fast) for part in (query, key, value))
    weigh = partial(functional.scaled_dot_product_attention, dropout_p=dropout, scale=1 / math.sqrt(dim))
    if not query.is_cuda and (dropout > 0 or (bias is not None and bias.requires_grad)):
        masks = repeat(None) if bias is None else bias.split(ROWS, dim=-2)
        blocks = zip(query.split(ROWS, dim=1), masks, strict=bias is not None)
        rows = [checkpoint(weigh, block, key, value, mask, use_reentrant=False) for block, mask in blocks]
        return torch.cat(rows, dim=1)[..., :width]
    size = max(1, LARGEST // num_nodes**2)
    attended = [
        weigh(
            query[None, heads],
            key[None, heads],
            value[None, heads],
            bias[heads] if bias is not None and bias.dim() == 3 else bias,
        )[0]
        for heads in (slice(start, start + size) for start in range(0, num_heads, size))
    ]
    return torch.cat(attended)[..., :width].to(dtype)


def empty_rows(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A bias for `attend` to be filled: its rows start at multiples of 8, and it is bfloat16 on a GPU."""
    *outer, length = shape
    dtype = torch.bfloat16 if device.type == "cuda" else dtype
    return torch.empty(*outer, length + -length % 8, device=device, dtype=dtype)[..., :length]
