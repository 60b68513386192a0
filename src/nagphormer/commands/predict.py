"""`nagphormer predict`: the class of every node."""

from pathlib import Path

from nagphormer.commands.terminal import result
from nagphormer.commands.use import UseFlags
from nagphormer.errors import UserError


def run(
    run: Path,
    graph: str,
    /,
    use: UseFlags = UseFlags(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    cluster: str | None = None,
) -> None:
    """A table of classes and probabilities.

    Args:
        run: the run folder.
        graph: a graph folder, an .npz file or a data set's name.
        use: where tokens are and what to run on.
        out: file to write, .parquet or .csv; on a cluster, the folder of a Parquet data set.
        cluster: address of a Ray cluster that predicts; without one, a local cluster is started.
    """
    from nagphormer.inference.predict import open_source
    from nagphormer.inference.table import check_table_path, write_predictions

    if cluster is None:
        check_table_path(out)
    elif use.device not in (None, "cpu"):
        raise UserError(f"a cluster works on processors, not on {use.device!r}: leave --device out")
    trained, loaded, device = use.open(run, graph)
    if cluster is None:
        source = open_source(trained, loaded, device, use.tokens, run)
        write_predictions(trained, source, loaded, out)
    else:
        from nagphormer.inference.cluster import write_data_set

        write_data_set(trained, run, loaded, out, cluster, use.tokens)
    facts = {"path": str(out), "nodes": loaded.num_nodes, "classes": trained.classes.num_classes}
    result(facts, f"wrote {out}: {loaded.num_nodes:,} nodes, {trained.classes.num_classes} classes")
