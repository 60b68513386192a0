"""Which way tokens reach the network: from a store, or projected first; whichever costs less."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from nagphormer.data.graph import Graph
from nagphormer.device import available_memory, gpu_memory
from nagphormer.errors import UserError
from nagphormer.settings import TokenSettings, TrainConfig
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.store import TokenStore
from nagphormer.training.projection import ProjectedTokens
from nagphormer.training.sources import StoredTokens, TokenSource

SPARSE_COST = {"cpu": 10.0, "cuda": 100.0}
"""Time of a multiply-add in a sparse product, in those of a dense one."""
GATHER_COST = 150.0
"""Time of gathering and widening one stored value, in dense multiply-adds."""


def projection_pays(graph: Graph, config: TrainConfig, device: str) -> bool:
    """Whether an epoch is cheaper when features are projected before the hops than with stored tokens."""
    if config.project_first != "auto":
        if config.project_first == "always" and not isinstance(graph.features, sp.csr_array):
            raise UserError("project_first='always' needs sparse features (SciPy CSR); these are dense or none")
        return config.project_first == "always"
    if not isinstance(graph.features, sp.csr_array):
        return False
    kind = device.split(":")[0]
    outputs = config.hidden_dim + (config.hops + 1) * graph.num_classes * config.linear
    held = graph.num_nodes * (config.hops + 3) * outputs * 4
    if held > (available_memory() if kind == "cpu" else gpu_memory(device)) // 2:
        return False
    num_train, num_val = (len(graph.splits[split]) for split in ("train", "val"))
    width = graph.num_features + config.encoding_dim
    # forward and backward over the training nodes, forward over the validation nodes
    stored = (2 * num_train + num_val) * (config.hops + 1) * width * (outputs + GATHER_COST)
    entries = graph.features.nnz + config.hops * (len(graph.indices) + graph.num_nodes)
    num_updates = -(-num_train // config.batch_size)
    projected = (2 * num_updates + 1) * entries * outputs * SPARSE_COST[kind]
    return projected < stored


def token_source(
    graph: Graph,
    config: TrainConfig,
    device: str,
    store: TokenStore | None = None,
    out: str | os.PathLike[str] | None = None,
    dtype: str = "float16",
) -> TokenSource:
    """Tokens of a graph for the network.

    Args:
        graph: the graph.
        config: hops, encoding and scaling; `project_first` already decided.
        device: where the network runs.
        store: tokens made before; must be this graph's, with the same settings.
        out: folder in which tokens are kept, should they have to be made; in memory without it.
        dtype: what tokens are stored as, should they have to be made.
    """
    if store is None and config.project_first == "always":
        encoding: np.ndarray | None = None
        if config.encoding_dim:
            from nagphormer.tokens.laplacian import laplacian_encoding

            encoding = laplacian_encoding(graph, config.encoding_dim, device=device)
        return ProjectedTokens(
            graph, config.hops, Columns(graph, encoding, config.feature_scaling or "none"), encoding, device
        )
    if store is None:
        store = make_tokens(graph, _token_settings(config, dtype), out, device=device)
    check_store(store, graph, config)
    return StoredTokens(store, device)


def check_store(store: TokenStore, graph: Graph, config: TrainConfig) -> None:
    """Refuse tokens of another graph or made with other settings."""
    store.refuse_other(graph, _token_settings(config, store.dtype))


def _token_settings(config: TrainConfig, dtype: Any = "float16") -> TokenSettings:
    scaling = config.feature_scaling or "none"
    return TokenSettings(hops=config.hops, encoding_dim=config.encoding_dim, dtype=dtype, feature_scaling=scaling)


def tokens_folder(run: Path, graph: Graph, config: TrainConfig) -> Path:
    """Where tokens are cached beside a run: runs on the same graph with the same hops share them."""
    name = _token_settings(config).folder_name(graph.fingerprint)
    return (run if run.name else run.absolute()).parent / name  # "." has a parent, too
