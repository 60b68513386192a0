"""The one pass without gradients: for validation, evaluation, prediction and embeddings.

Shapes: n nodes asked for, B nodes in a batch, K hops, D model width
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch

from nagphormer.device import autocast, gpu_memory
from nagphormer.model.classifier import Classifier
from nagphormer.training.batches import AHEAD, TokenSource

CACHED_VALUES = 3 << 20
"""Hidden values, B·(K+1)·D, that one pass through the network may hold on a CPU so that they stay in its cache."""
MOST_ROWS = 1 << 14
"""Nodes that one pass through the network takes on a GPU, where memory allows."""
VALUE_BYTES = 48
"""Bytes that a pass on a GPU holds for each hidden value of a layer while gradients are wanted."""
INPUT_BYTES = 4 * (AHEAD + 1) + 8
"""Bytes that it holds for each value of the tokens: those on their way, and some in float32."""

Output = Callable[[torch.Tensor], torch.Tensor]
"""What is wanted of embedded tokens, (B, K+1, D) -> (B, …)."""


def forward(
    model: Classifier,
    source: TokenSource,
    nodes: torch.Tensor,
    output: Output,
    precision: str,
    rows: int | None = None,
    mode: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batch by batch the nodes, (B,), and their outputs, (B, …); both on the source's device.

    Args:
        model: on that device, in evaluation mode.
        source: the graph's tokens.
        nodes: positions, (n,), on the CPU.
        output: what is wanted of embedded tokens.
        precision: `fp32`, or `bf16` for products in bfloat16.
        rows: nodes of a batch; they decide how sums are rounded.
        mode: entered, like all others, for each batch, since the caller runs between them.
    """
    pieces = nodes.split(rows or rows_at_once(source, model.embed.out_features)) if len(nodes) else ()
    embed = None
    for batch in source.batches(pieces):
        with torch.no_grad(), autocast(source.device, precision), mode():
            embed = embed or source.embedder(model.embed)
            found = output(embed(batch))
        yield batch.nodes, found


def rows_at_once(source: TokenSource, hidden_dim: int, num_layers: int = 1) -> int:
    """Nodes to send through the network together: as many as a CPU's cache holds, many on a GPU."""
    if source.device == "cpu":
        return max(16, CACHED_VALUES // ((source.hops + 1) * hidden_dim))
    token = VALUE_BYTES * hidden_dim * max(num_layers, 1)
    if not source.projects_first:
        token += INPUT_BYTES * source.width
    return max(16, min(MOST_ROWS, gpu_memory(source.device) // 2 // ((source.hops + 1) * token)))
