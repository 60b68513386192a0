"""Hop2Token: turn every node's neighborhood into a short sequence of vectors (paper 3.1, Eq. 6, Algorithm 1).

X_0 = X‖U, X_k = Â X_{k-1}, Â = D̃^-½ (A+I) D̃^-½.

Shapes: N nodes, K hops, F features, s encoding columns
"""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer import __version__
from nagphormer.data.graph import Graph, check_graph
from nagphormer.device import gpu_memory, resolve_device, usable_memory
from nagphormer.errors import Taken, UserError
from nagphormer.files import check_vacant, format_size, new_folder
from nagphormer.progress import note
from nagphormer.settings import Dtype, Scaling, TokenSettings
from nagphormer.tokens.engine import LANES, engine
from nagphormer.tokens.fitted import Fitted
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.job import Job, Layout, find_exponents
from nagphormer.tokens.slices import GPU_PIECE_BYTES, NARROWEST, adjacency_bytes, column_bytes, node_bytes
from nagphormer.tokens.store import ENCODING, MANIFEST, REDUCTION, STORED, StoreManifest, TokenStore, write_array


def hop_tokens(
    graph: Graph,
    hops: int,
    encoding_dim: int = 0,
    dtype: Dtype = "float16",
    out: str | os.PathLike[str] | None = None,
    memory: str | int | None = None,
    device: str | None = None,
    feature_scaling: Scaling = "none",
    cluster: str | None = None,
    statistics: Any = None,
    reduce_dim: int = 0,
) -> TokenStore:
    """Compute the hop tokens of every node, once and offline.

    Args:
        graph: the graph, N nodes; without features its degrees serve as the only feature.
        hops: K; every node gets K+1 tokens.
        encoding_dim: s, Laplacian eigenvectors joined to the features; 0 for none.
        dtype: what tokens are stored as, `float16`, `bfloat16` or `float32`; sums are float32 in any case.
        out: folder for the store, which is then memory-mapped; a store of the same graph and settings is reused.
            None keeps the tokens in memory; on a GPU, in its own where they take less than half of it.
        memory: limit for the process's own memory, such as `4GB`; memory-mapped files do not count.
        device: `cpu`, `cuda`, or None for a GPU where there is one.
        feature_scaling: `none`, `standardize` (columns), `row` (rows sum to one) or `length` (rows of length √F).
        cluster: address of a Ray cluster whose workers make the blocks, or `local` to start one here; the graph must
            have been opened from a folder, and folder and `out` lie where all workers see them. The bytes are the same.
        statistics: a fitted `NodeClassifier` or the folder of a run, whose scaling, mean, deviation, order of features
            and eigenvectors are taken instead of the graph's own: tokens that this model can read.
        reduce_dim: most columns that features may have; wider ones are reduced to their first singular vectors.

    Returns:
        A store of shape (N, K+1, F+s); its `reused` says whether it was there already.

    >>> from nagphormer import synthetic_graph
    >>> hop_tokens(synthetic_graph(100, 300, 8, 2), hops=3).shape
    (100, 4, 8)
    """
    check_graph(graph)
    tokens = TokenSettings(
        hops=hops, encoding_dim=encoding_dim, dtype=dtype, feature_scaling=feature_scaling, reduce_dim=reduce_dim
    )
    fitted = None if statistics is None else Fitted.given(statistics)
    if fitted is not None:
        graph, tokens = fitted.arranged(graph), fitted.settings(tokens)
    elif not tokens.reduces(graph.num_features):
        tokens = replace(tokens, reduce_dim=0)  # nothing is reduced, and runs and stores shall agree on that
    return make_tokens(graph, tokens, out, memory, device, cluster, fitted)


def make_tokens(
    graph: Graph,
    tokens: TokenSettings,
    out: str | os.PathLike[str] | None = None,
    memory: str | int | None = None,
    device: str | None = None,
    cluster: str | None = None,
    fitted: Fitted | None = None,
) -> TokenStore:
    """Like `hop_tokens`, with the settings as one; the features are arranged as `fitted` has them already."""
    if out is not None and (Path(out) / MANIFEST).is_file():
        return _reuse(graph, tokens, out, fitted)
    if out is not None:
        check_vacant(Path(out))
    if cluster is not None:
        _check_cluster(graph, out, device)
        device = "cpu"
    try:
        return _make(graph, tokens, out, memory, resolve_device(device), cluster, fitted)
    except Taken:  # by another run that needs the same tokens
        assert out is not None
        return _reuse(graph, tokens, out, fitted)


def _reuse(graph: Graph, tokens: TokenSettings, out: str | os.PathLike[str], fitted: Fitted | None) -> TokenStore:
    """Open a store if it is the one wanted."""
    store = TokenStore.open(out)
    store.refuse_other(graph, tokens)
    refuse_statistics(store, graph, fitted)
    store.reused = True
    return store


def refuse_statistics(store: TokenStore, graph: Graph, fitted: Fitted | None) -> None:
    """Refuse a graph's store that was made with another graph's statistics, or with others than those wanted."""
    if fitted is not None:
        fitted.refuse_other(graph, store.manifest, store.encoding, store.where, store.components)
    elif store.manifest.statistics_of is not None:
        raise UserError(
            f"{store.where} tokens with mean, deviation and eigenvectors of another graph, made for a run that was "
            f"trained there: make tokens of this graph's own"
        )


def _make(
    graph: Graph,
    tokens: TokenSettings,
    out: str | os.PathLike[str] | None,
    memory: str | int | None,
    device: str,
    cluster: str | None,
    fitted: Fitted | None,
) -> TokenStore:
    device = device_for_hops(graph, tokens.hops, device)
    shape = (graph.num_nodes, tokens.hops + 1, tokens.width(graph.num_features))
    num_bytes = shape[0] * shape[1] * shape[2] * STORED[tokens.dtype].itemsize
    search_device = _device_for_search(graph, tokens, device)  # brings torch: before memory is measured
    engine(device)  # brings numba or Triton, likewise
    layout = _fit(graph, tokens, num_bytes, usable_memory(memory), out is not None, device, search_device)
    with new_folder(out, num_bytes + layout.scratch_bytes) if out is not None else nullcontext() as folder:
        encoding, report = _encoding(graph, tokens, search_device, fitted)
        known = (fitted.statistics, tokens.reduce_dim, fitted.components) if fitted else (None, tokens.reduce_dim)
        columns = Columns(graph, encoding, tokens.feature_scaling, *known)
        if device != "cpu" and layout.slices.width < shape[2]:
            note(f"{shape[2]:,} columns go through the GPU {layout.slices.width:,} at a time: memory holds no more")
        exponents = find_exponents(graph, columns, layout)
        manifest = StoreManifest(
            shape=shape,
            graph=graph.fingerprint,
            tokens=tokens,
            statistics=columns.statistics(),
            encoding=report,
            column_exponents=tuple(exponents.tokens.tolist()),
            statistics_of=fitted.graph if fitted and fitted.is_foreign(graph) else None,
            encoding_sha256=None if folder is None else write_array(folder / ENCODING, encoding),
            reduction_sha256=None if folder is None else write_array(folder / REDUCTION, columns.components),
        )
        if folder is None:
            blocks = Job(graph, layout, columns, exponents).hold()
            return TokenStore(blocks, manifest, encoding=encoding, components=columns.components)
        if cluster is None:
            written = Job(graph, layout, columns, exponents).write(folder)
        else:
            from nagphormer.tokens.cluster import write_blocks

            written = write_blocks(graph, layout, columns, exponents, folder, cluster, memory)
        replace(manifest, blocks=written, versions={"nagphormer": __version__}).write(folder)
    assert out is not None
    return TokenStore.open(out)


def _fit(
    graph: Graph,
    tokens: TokenSettings,
    num_bytes: int,
    usable: int,
    on_disk: bool,
    device: str,
    search_device: str,
) -> Layout:
    """The layout that fits memory; refuses what cannot fit, before any work."""
    usable -= node_bytes(graph.num_nodes, tokens.encoding_dim)
    if tokens.encoding_dim and search_device == "cpu":
        from nagphormer.tokens.laplacian import search_bytes

        needed = search_bytes(graph.num_nodes, tokens.encoding_dim)
        _check_fits(f"the search for {tokens.encoding_dim} eigenvectors", needed, usable, "lower encoding_dim")
    stays = not on_disk and device != "cpu" and _can_stay(graph, tokens, num_bytes, device)
    if not on_disk and not stays:
        _check_fits("holding the tokens", num_bytes, usable, "write to disk: hop_tokens(…, out=FOLDER)")
        usable -= num_bytes
    return Layout.of(graph, tokens, device, usable, on_disk, num_bytes if stays else 0)


def _device_for_search(graph: Graph, tokens: TokenSettings, device: str) -> str:
    if not tokens.encoding_dim:
        return "cpu"
    from nagphormer.tokens.laplacian import device_for_search

    return device_for_search(graph, tokens.encoding_dim, device)


def _encoding(
    graph: Graph, tokens: TokenSettings, device: str, fitted: Fitted | None
) -> tuple[np.ndarray | None, dict[str, list[float]]]:
    """The eigenvectors, where there shall be any, and what the manifest says of them."""
    if not tokens.encoding_dim:
        return None, {}
    if fitted is not None:
        return fitted.encoding_of(graph, device), {}
    from nagphormer.tokens.laplacian import solve

    found = solve(graph, tokens.encoding_dim, device=device)
    return found.vectors, found.report()


def device_for_hops(graph: Graph, hops: int, device: str) -> str:
    """The device itself, or the CPU where a GPU has no room for the graph and a few columns."""
    if device == "cpu":
        return device
    columns = LANES * column_bytes(graph.num_nodes, hops, STORED["float32"].itemsize)
    needed, room = adjacency_bytes(graph) + columns + 8 * GPU_PIECE_BYTES, gpu_memory(device)
    if needed <= room:
        return device
    note(f"hops are made on the CPU: {format_size(needed)} do not fit the GPU's {format_size(room)}")
    return "cpu"


def _can_stay(graph: Graph, tokens: TokenSettings, num_bytes: int, device: str) -> bool:
    """Whether tokens may stay on a GPU: they take half of it at most, and leave room to make them."""
    room = gpu_memory(device)
    slice_bytes = NARROWEST * column_bytes(graph.num_nodes, tokens.hops, STORED[tokens.dtype].itemsize)
    return max(2 * num_bytes, num_bytes + adjacency_bytes(graph) + slice_bytes + 8 * GPU_PIECE_BYTES) <= room


def _check_cluster(graph: Graph, out: str | os.PathLike[str] | None, device: str | None) -> None:
    from nagphormer.tokens.cluster import check_shared

    check_shared(graph)
    if out is None:
        raise UserError("a cluster needs a folder for the tokens: give out=FOLDER where all workers see it")
    if device not in (None, "cpu"):
        raise UserError(f"a cluster works on processors, not on {device!r}: leave device out")


def _check_fits(work: str, num_bytes: int, usable: int, instead: str) -> None:
    if num_bytes > usable:
        raise UserError(
            f"{work} takes {format_size(num_bytes)}, but the memory limit leaves {format_size(max(usable, 0))} beside "
            f"the process itself: raise it by {format_size(num_bytes - usable)} or more, or {instead}"
        )
