"""`nagphormer predict`: the class of every node, or of some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nagphormer.commands.terminal import result, say
from nagphormer.commands.use import UseFlags
from nagphormer.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from nagphormer.data.graph import Graph
    from nagphormer.training.ensemble import Trained

STDOUT = "-"


def run(
    run: Path,
    graph: str,
    /,
    use: UseFlags = UseFlags(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    nodes: str | None = None,
    split: str | None = None,
    cluster: str | None = None,
) -> None:
    """A table of classes and probabilities.

    Args:
        run: the run folder.
        graph: a graph folder, an .npz file or a data set's name.
        use: where tokens are and what to run on.
        out: file to write, .parquet or .csv, or - for CSV on stdout; on a cluster, the folder of a Parquet data set.
        nodes: ids of nodes, separated by commas, or a file with an id a line; all nodes by default.
        split: only the nodes of a split: train, val or test.
        cluster: address of a Ray cluster that predicts; without one, a local cluster is started.
    """
    from nagphormer.inference.predict import fitting, open_sources, usable
    from nagphormer.inference.table import check_table_path, write_predictions

    piped = str(out) == STDOUT
    if nodes is not None and split is not None:
        raise UserError("give --nodes or --split, not both")
    if cluster is None and not piped:
        check_table_path(out)
    if cluster is not None:
        _check_cluster(use, piped, nodes, split)
    trained, whole, device = use.open(run, graph)
    loaded = fitting(trained, whole)
    trained = usable(trained, loaded)
    chosen = _chosen(trained, loaded, nodes, split)
    count = loaded.num_nodes if chosen is None else len(chosen)
    if cluster is None:
        source = open_sources(trained, loaded, device, use.tokens, run)
        write_predictions(trained, source, loaded, None if piped else out, chosen)
    else:
        from nagphormer.inference.cluster import write_data_set

        write_data_set(trained, run, whole, out, cluster, use.tokens)
    facts = {"path": str(out), "nodes": count, "classes": trained.classes.num_classes}
    text = f"wrote {out}: {count:,} nodes, {trained.classes.num_classes} classes"
    if piped:  # the table is the result
        say(text.replace("wrote -", "wrote stdout"))
    else:
        result(facts, text)


def _check_cluster(use: UseFlags, piped: bool, nodes: str | None, split: str | None) -> None:
    if use.device not in (None, "cpu"):
        raise UserError(f"a cluster works on processors, not on {use.device!r}: leave --device out")
    if piped or nodes is not None or split is not None:
        raise UserError("a cluster predicts all nodes into a folder: leave --nodes, --split and --out - out")


def _chosen(run: Trained, graph: Graph, nodes: str | None, split: str | None) -> np.ndarray | None:
    """Positions of the nodes that are asked for; None for all."""
    from nagphormer.inference.predict import nodes_of_split, positions

    if split is not None:
        return nodes_of_split(run, graph, split)[0]
    if nodes is None:
        return None
    file = Path(nodes)
    try:
        listed = file.read_text(encoding="utf-8-sig").splitlines() if file.is_file() else nodes.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the ids in {file}: {getattr(error, 'strerror', None) or error}") from error
    ids = [each.strip() for each in listed if each.strip()]
    if not ids:
        raise UserError(f"--nodes {nodes!r} names no node: give ids, separated by commas, or a file with an id a line")
    return positions(graph, None, ids)
