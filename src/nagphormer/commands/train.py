"""`nagphormer train`: from a graph to a run folder."""

from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nagphormer.commands import terminal
from nagphormer.commands.flags import SecondsOrNone
from nagphormer.commands.terminal import describe_run, result, say_next, timed
from nagphormer.commands.train_flags import OF_RUN, TrainFlags
from nagphormer.errors import UserError
from nagphormer.files import parse_size

if TYPE_CHECKING:
    from nagphormer.training.ensemble import Trained


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
    time_limit: Annotated[SecondsOrNone, OF_RUN] = None,
    disk: Annotated[str | None, OF_RUN] = None,
    predictions: Annotated[bool, OF_RUN] = False,
) -> None:
    """Resolve, load, split, decide, train; under `torchrun` together with the other ranks.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        flags: how to train.
        out: folder for the run.
        tokens: the graph's token store; by default it is made in the cache where it is needed, and used again.
        recipe: a recipe's name, best (several models that answer together) or paper (the paper's settings for the
            graph's name), or a YAML file.
        resume: go on with the run in that folder where it was stopped, or, with more --epochs than it had, where they
            ended; start it if there is none.
        gpu_memory: GPU memory to take at most, such as 8GB; tokens that do not fit are streamed.
        tensorboard: also write events for TensorBoard into the run folder (extra `tensorboard`).
        allow_pickle: let a data set's download be read from pickles, which can run any code.
        time_limit: for a recipe with several members: how long training them and predicting every node may take, such
            as 10m; the first member always ends.
        disk: for a recipe with several members: what their tokens may take, such as 20GB; half of what is free.
        predictions: also predict every node, into the run folder.
    """
    from nagphormer.data.datasets import load_graph, name_of
    from nagphormer.data.splits import with_splits
    from nagphormer.device import machine
    from nagphormer.inference.table import write_predictions
    from nagphormer.settings import resolve_members
    from nagphormer.tokens.store import TokenStore
    from nagphormer.training.ensemble import lead_of, train_members
    from nagphormer.training.ensemble_folder import EnsembleFolder, as_begun
    from nagphormer.training.leaderboard import leaderboard
    from nagphormer.training.plan import decide
    from nagphormer.training.ranks import ranks_of_torchrun
    from nagphormer.training.run import Run, train
    from nagphormer.training.run_folder import PREDICTIONS, RunFolder

    settings, limit = asdict(flags), inf if time_limit is None else time_limit
    with ranks_of_torchrun(settings["device"]) as ranks:
        if not ranks.first:
            terminal.be_silent()
        store = None if tokens is None else TokenStore.open(tokens)
        recipe, settings = as_begun(out, recipe, settings) if resume else (recipe, settings)
        members = resolve_members(recipe, name_of(graph), settings, store.tokens if store else None)
        given, several = next(iter(members.values())), len(members) > 1
        if several and store is not None:
            raise UserError(f"the members of recipe {recipe} read tokens of several kinds: leave --tokens out")
        if not several and (time_limit is not None or disk is not None):
            raise UserError("--time-limit and --disk are for a recipe with several members, such as --recipe best")
        if several and tensorboard:
            raise UserError(f"--tensorboard is for one model, and recipe {recipe} has several members: leave it out")
        folder = None if several else RunFolder.take(out, resume, ranks)
        if folder is not None and folder.begun is not None and recipe is None:  # its settings are not today's defaults
            given = replace(folder.begun.given, **{name: each for name, each in settings.items() if each is not None})
        joined = EnsembleFolder.take(out, resume, ranks) if several else None
        machine(given.device, gpu_memory)  # refuses what there is not, before anything is loaded
        with ranks.in_turn():  # the first one may have to download it
            loaded = load_graph(graph, seed=given.seed, allow_pickle=allow_pickle)
        loaded, here = with_splits(loaded, given.seed), machine(given.device, gpu_memory)
        plan = None if folder is None else ranks.agreed(decide(loaded, given, here, store, folder.begun))
        terminal.when_interrupted(f"run it again with --resume to go on: what was learned so far is in {out}")
        counts = ", ".join(f"{len(nodes):,} {split}" for split, nodes in loaded.splits.items())
        with timed(f"training on {counts} nodes" + (f", {ranks.count} ranks" if ranks.count > 1 else "")):
            if joined is not None:
                own = {name: value for name, value in settings.items() if value is not None}
                room = parse_size(disk) if disk else _half_of_free()
                found = train_members(loaded, members, here, str(recipe), own, joined, limit, room)
                trained: Trained = found[0]
                sources = tuple(found[1][part.name] for part in found[0].asked)
            else:
                assert plan is not None
                trained, source = train(loaded, plan, here, store, folder, tensorboard)
                sources = (source,)
        diverged = "" if several else lead_of(trained).diverged
        if predictions and ranks.first and not diverged:
            write_predictions(trained, sources, loaded, out / PREDICTIONS, truth=False)  # test labels are not looked at
        ranks.wait()
    if not ranks.first:
        return
    if isinstance(trained, Run):
        facts: dict[str, Any] = trained.best.outcome
    else:
        facts = {"members": leaderboard(trained)}
    result({"path": str(out), **facts}, f"wrote {out}: {describe_run(trained)}")
    if diverged:
        raise UserError(diverged)
    say_next("evaluate", out, graph, "--split", "test")


def _half_of_free() -> float:
    """Half of what is free where tokens are kept."""
    import shutil

    from nagphormer.cache import cache_folder

    place = cache_folder()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free / 2
