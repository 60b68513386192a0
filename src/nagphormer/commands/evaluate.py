"""`nagphormer evaluate`: how good a trained model is."""

from pathlib import Path

from nagphormer.commands.terminal import result, say_next, table
from nagphormer.commands.use import UseFlags


def run(
    run: Path,
    graph: str,
    /,
    use: UseFlags = UseFlags(),  # noqa: B008 (it is frozen)
    *,
    split: str = "test",
) -> None:
    """Every metric on the nodes of a split.

    Args:
        run: the run folder.
        graph: a graph folder, an .npz file or a data set's name.
        use: where tokens are and what to run on.
        split: train, val or test.
    """
    from nagphormer.inference.predict import fitting, open_sources, probabilities, question, usable
    from nagphormer.metrics import measure

    trained, loaded, device = use.open(run, graph)
    loaded = fitting(trained, loaded)
    trained = usable(trained, loaded)
    nodes, target = question(trained, loaded, split)
    source = open_sources(trained, loaded, device, use.tokens, run)
    facts = measure(target, probabilities(trained, source, nodes))
    result(facts, table({name: None if value is None else f"{value:.4f}" for name, value in facts.items()}))
    say_next("predict", run, graph, "--out", "predictions.parquet")
