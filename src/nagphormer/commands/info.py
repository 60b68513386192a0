"""`nagphormer info`: what a graph or a token store is, and what hop tokens would cost."""

from pathlib import Path
from typing import Any

from nagphormer.commands.terminal import result, table
from nagphormer.files import format_size


def run(
    graph: str,
    /,
    *,
    hops: int | None = None,
    encoding_dim: int = 0,
    verify: bool = False,
    allow_pickle: bool = False,
) -> None:
    """Describe whatever lies there.

    Args:
        graph: a graph folder, an .npz file, a data set's name, or a token store's folder.
        hops: also estimate memory, disk and time for so many hops.
        encoding_dim: eigenvectors to count in that estimate.
        verify: compare every file with its checksum.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.tokens.store import MANIFEST

    if (Path(graph) / MANIFEST).is_file():
        facts = _store_facts(graph, verify)
    else:
        facts = _graph_facts(graph, hops, encoding_dim, verify, allow_pickle)
    result(facts, table(facts))


def _store_facts(path: str, verify: bool) -> dict[str, Any]:
    from nagphormer.tokens.store import TokenStore

    store = TokenStore.open(path)
    if verify:
        store.verify()
    nodes, _, width = store.shape
    facts = {
        "tokens_of_nodes": nodes,
        "columns": width,
        "dtype": store.dtype,
        "hops": store.hops,
        "encoding_dim": store.tokens.encoding_dim,
        "feature_scaling": store.tokens.feature_scaling,
        "graph": store.manifest.graph,
    }
    return facts | ({"checksums": "match"} if verify else {})


def _graph_facts(graph: str, hops: int | None, encoding_dim: int, verify: bool, allow_pickle: bool) -> dict[str, Any]:
    from nagphormer.data.datasets import load_graph
    from nagphormer.data.folder import verify_graph
    from nagphormer.data.summary import summarize
    from nagphormer.tokens.estimate import estimate_cost

    if verify:
        verify_graph(graph)
    loaded = load_graph(graph, allow_pickle=allow_pickle)
    facts = summarize(loaded) | ({"checksums": "match"} if verify else {})
    if hops is None:
        return facts
    cost = estimate_cost(loaded, hops, encoding_dim)
    return facts | {
        f"{hops}_hops_disk": format_size(cost.disk_bytes),
        f"{hops}_hops_memory": format_size(cost.memory_bytes),
        f"{hops}_hops_seconds": round(cost.seconds, 1),
    }
