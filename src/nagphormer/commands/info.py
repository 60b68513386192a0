"""`nagphormer info`: what a graph, a token store or a run is, and what hop tokens would cost."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from nagphormer.commands.flags import Whole, WholeOrNone
from nagphormer.commands.terminal import result, say_next, table
from nagphormer.files import format_size
from nagphormer.settings import TrainConfig

MATTER = ("hops", "encoding_dim", "feature_scaling", "hidden_dim", "num_layers", "lr", "epochs", "patience", "seed")
"""Settings of a run that are always told, those of the rest where they are not the default."""


def run(
    graph: str,
    /,
    *,
    hops: WholeOrNone = None,
    encoding_dim: Whole = 0,
    verify: bool = False,
    allow_pickle: bool = False,
) -> None:
    """Describe whatever lies there.

    Args:
        graph: a graph folder, an .npz file, a data set's name, a token store's folder or a run's.
        hops: also estimate memory, disk and time for so many hops.
        encoding_dim: eigenvectors to count in that estimate.
        verify: compare every file with its checksum; of a run, see that its weights fit.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.tokens.store import MANIFEST

    described = (Path(graph) / MANIFEST).is_file()
    if described and (Path(graph) / "config.yaml").is_file():
        _describe_run(graph, verify)
        return
    if described:
        facts = _store_facts(graph, verify)
    else:
        facts = _graph_facts(graph, hops, encoding_dim, verify, allow_pickle)
    result(facts, table(facts))


def _describe_run(run: str, verify: bool) -> None:
    from nagphormer.training.ensemble_folder import is_ensemble
    from nagphormer.training.summary import summarize_members, summarize_run, verify_run

    if is_ensemble(Path(run)):
        facts = summarize_members(run, verify)
        told = {name: value for name, value in facts.items() if name != "members"} | {
            "class_names": facts["class_names"] and ", ".join(facts["class_names"]),
            "can": ", ".join(facts["can"]),
        }
        rows = [
            f"  {each['name']:<18} weight {each['weight']:.2f}, validation {each['score']:.4f}, log loss "
            f"{each['loss']:.4f}, {each['train_seconds']:.1f} s to train, {each['predict_seconds']:.0f} s to predict a "
            f"million nodes"
            for each in facts["members"]
        ]
        result(facts, "\n".join([table(told), *rows]))
        _say_what_next(run, facts)
        return
    if verify:
        verify_run(run)
    facts = summarize_run(run) | ({"weights": "fit"} if verify else {})
    settings, names = facts["settings"], facts["class_names"]
    defaults = {each.name: each.default for each in fields(TrainConfig)}
    told = {name: value for name, value in settings.items() if name in MATTER or value != defaults[name]}
    shown = {
        "ended_by": facts["ended_by"] or "nothing: it was stopped, or is still at work",
        "classes": facts["classes"] if names is None else f"{facts['classes']}: {', '.join(names)}",
        "settings": ", ".join(f"{name} {value}" for name, value in told.items()) + "; others by default",
        "can": ", ".join(facts["can"]),
    }
    result(facts, table({name: shown.get(name, value) for name, value in facts.items() if name != "class_names"}))
    _say_what_next(run, facts)


def _say_what_next(run: str, facts: dict[str, Any]) -> None:
    """The command that goes on with a run, or uses it."""
    from nagphormer.data.datasets import find

    graph = facts["graph"] if facts["graph"] and find(facts["graph"]) else "GRAPH"
    if "resume" in facts["can"]:
        say_next("train", graph, "--out", run, "--resume")
    else:
        say_next("evaluate", run, graph, "--split", "test")


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
        "reduce_dim": store.tokens.reduce_dim,
        **({"copy": store.tokens.copy} if store.tokens.copy else {}),
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
