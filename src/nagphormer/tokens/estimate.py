"""What the tokens of a graph will cost on this machine, before they are made.

Shapes: N nodes, K hops, W columns
"""

import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np

from nagphormer.data.graph import Graph
from nagphormer.device import RESERVE, anonymous_memory, cache_bytes, usable_memory
from nagphormer.settings import Dtype, TokenSettings
from nagphormer.tokens.cpu import cut_rows, sum_neighbors
from nagphormer.tokens.normalization import loop_degrees
from nagphormer.tokens.slices import column_bytes, node_bytes, plan_slices
from nagphormer.tokens.store import STORED, block_columns

SAMPLE_EDGES = 4_000_000
SAMPLE_BYTES = 256 * 10**6


@dataclass(frozen=True)
class Cost:
    """Expected cost of `nagphormer prepare` on the CPU; the search for eigenvectors comes on top."""

    disk_bytes: int
    """Size of the store."""
    memory_bytes: int
    """Memory used while propagating."""
    seconds: float
    """Time for all hops and for writing, from a sample of this graph's rows."""


def estimate_cost(graph: Graph, hops: int, encoding_dim: int = 0, dtype: Dtype = "float16") -> Cost:
    """Measure a sample of rows and the disk for about a second, and scale up."""
    tokens = TokenSettings(hops=hops, encoding_dim=encoding_dim, dtype=dtype)
    width = tokens.width(graph.num_features)
    itemsize = STORED[dtype].itemsize
    disk_bytes = graph.num_nodes * (hops + 1) * width * itemsize
    first, last = block_columns(graph.num_nodes, width, dtype)[0]
    plan = plan_slices(
        graph.num_nodes, last - first, hops, itemsize, usable_memory(None), may_spill=True, cache=cache_bytes()
    )
    held = 0 if plan.on_disk else column_bytes(graph.num_nodes, hops, itemsize) * plan.width
    if encoding_dim:
        from nagphormer.tokens.laplacian import search_bytes

        held = max(held, search_bytes(graph.num_nodes, encoding_dim))
    held += node_bytes(graph.num_nodes, encoding_dim) + anonymous_memory()
    sums = _seconds_per_column(graph, plan.tile, itemsize) * width * hops
    return Cost(disk_bytes, held + RESERVE, sums + disk_bytes / _write_rate())


def _seconds_per_column(graph: Graph, tile: int, itemsize: int) -> float:
    """Time of one hop for one column, from rows all over the graph."""
    narrow = SAMPLE_BYTES // (graph.num_nodes * itemsize) // 16 * 16
    width = min(tile, max(16, narrow))
    y = np.ones((graph.num_nodes, width), np.float16 if itemsize == 2 else np.float32)
    out = np.empty_like(y)
    factor = (1 / loop_degrees(graph)).astype(np.float32)
    bounds = cut_rows(graph.indptr, max(64, len(graph.indices) // 65536))
    step = max(1, len(graph.indices) // SAMPLE_EDGES)
    parts = [bounds[i : i + 2] for i in range(0, len(bounds) - 1, step)]
    csr = (graph.indptr, graph.indices, graph.weights)
    sum_neighbors(y, out, *csr, factor, True, np.zeros(2, np.int64))  # compile
    start = time.perf_counter()
    edges = 0
    for part in parts:
        rows = np.linspace(part[0], part[1], 17).astype(np.int64)
        sum_neighbors(y, out, *csr, factor, True, rows)
        edges += int(graph.indptr[part[1]] - graph.indptr[part[0]]) + int(part[1] - part[0])
    seconds = time.perf_counter() - start
    return seconds * (len(graph.indices) + graph.num_nodes) / max(edges, 1) / width


def _write_rate() -> float:
    """Bytes a second into a new file, on the disk of the working folder."""
    data = bytes(64 * 10**6)
    folder = os.getcwd() if os.access(os.getcwd(), os.W_OK) else None
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        os.write(file.fileno(), data)
        os.fsync(file.fileno())
        return len(data) / (time.perf_counter() - start)
