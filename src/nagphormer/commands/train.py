"""`nagphormer train`: from a graph to a run folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from nagphormer.commands import terminal
from nagphormer.commands.terminal import describe_run, result, say_next, timed
from nagphormer.commands.train_flags import OF_RUN, TrainFlags
from nagphormer.errors import UserError


def run(
    graph: str,
    /,
    flags: TrainFlags = TrainFlags(),  # noqa: B008 (it is frozen)
    *,
    out: Annotated[Path, OF_RUN],
    tokens: Annotated[Path | None, OF_RUN] = None,
    recipe: Annotated[str | None, OF_RUN] = None,
    resume: Annotated[bool, OF_RUN] = False,
    gpu_memory: Annotated[str | None, OF_RUN] = None,
    tensorboard: Annotated[bool, OF_RUN] = False,
    allow_pickle: Annotated[bool, OF_RUN] = False,
) -> None:
    """Resolve, load, split, decide, train; under `torchrun` together with the other ranks.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        flags: how to train.
        out: folder for the run.
        tokens: the graph's token store; by default it is made in the cache where it is needed, and used again.
        recipe: a recipe's name (paper), which picks the data set's settings by the graph's name, or a YAML file.
        resume: go on with the run in that folder where it was stopped, or, with more --epochs than it had, where they
            ended; start it if there is none.
        gpu_memory: GPU memory to take at most, such as 8GB; tokens that do not fit are streamed.
        tensorboard: also write events for TensorBoard into the run folder (extra `tensorboard`).
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.data.datasets import load_graph, name_of
    from nagphormer.data.splits import with_splits
    from nagphormer.device import machine
    from nagphormer.inference.table import write_predictions
    from nagphormer.settings import resolve
    from nagphormer.tokens.store import TokenStore
    from nagphormer.training.plan import decide
    from nagphormer.training.ranks import ranks_of_torchrun
    from nagphormer.training.run import train
    from nagphormer.training.run_folder import PREDICTIONS, RunFolder

    settings = asdict(flags)
    with ranks_of_torchrun(settings["device"]) as ranks:
        if not ranks.first:
            terminal.be_silent()
        folder = RunFolder.take(out, resume, ranks)
        store = None if tokens is None else TokenStore.open(tokens)
        given = resolve(recipe, name_of(graph), settings, store.tokens if store else None)
        machine(given.device, gpu_memory)  # refuses what there is not, before anything is loaded
        with ranks.in_turn():  # the first one may have to download it
            loaded = load_graph(graph, seed=given.seed, allow_pickle=allow_pickle)
        loaded, here = with_splits(loaded, given.seed), machine(given.device, gpu_memory)
        plan = ranks.agreed(decide(loaded, given, here, store, folder.begun))
        terminal.when_interrupted(f"run it again with --resume to go on: what was learned so far is in {out}")
        counts = ", ".join(f"{len(nodes):,} {split}" for split, nodes in loaded.splits.items())
        with timed(f"training on {counts} nodes" + (f", {ranks.count} ranks" if ranks.count > 1 else "")):
            trained, source = train(loaded, plan, here, store, folder, tensorboard)
        if ranks.first and not trained.diverged:
            write_predictions(trained, source, loaded, out / PREDICTIONS, truth=False)  # test labels are not looked at
        ranks.wait()
    if not ranks.first:
        return
    result({"path": str(out), **trained.best.outcome}, f"wrote {out}: {describe_run(trained)}")
    if trained.diverged:
        raise UserError(trained.diverged)
    say_next("evaluate", out, graph, "--split", "test")
