"""`nagphormer tune`: settings for a graph, chosen by its validation nodes."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nagphormer.commands import terminal
from nagphormer.commands.flags import SecondsOrNone, Whole
from nagphormer.commands.terminal import result, say, say_next
from nagphormer.commands.train_flags import OF_RUN, TrainFlags
from nagphormer.errors import UserError
from nagphormer.training.space import SPACES, SpaceName

if TYPE_CHECKING:
    from nagphormer.training.study import Ended, Study


def run(
    graph: str,
    /,
    flags: TrainFlags = TrainFlags(),  # noqa: B008 (it is frozen)
    *,
    out: Annotated[Path, OF_RUN],
    trials: Annotated[Whole, OF_RUN] = 50,
    jobs: Annotated[Whole, OF_RUN] = 1,
    space: Annotated[SpaceName, OF_RUN] = "wide",
    time_limit: Annotated[SecondsOrNone, OF_RUN] = None,
    allow_pickle: Annotated[bool, OF_RUN] = False,
) -> None:
    """Load, split, try settings, keep the best as a recipe.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        flags: settings that are the same in all trials; those of the space that are given are not tried.
        out: folder for the trials; where it holds some, they go on until there are as many as asked for.
        trials: how many, with those that are there already.
        jobs: how many at once, each in a process with its share of the threads.
        space: what is tried: the paper's grid, with its recipe for all else, or ours, wider, around the defaults.
        time_limit: end after this time, such as 90s, 30m or 2h; trials that run then are begun again the next time.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.data.datasets import load_graph, name_of
    from nagphormer.data.splits import with_splits
    from nagphormer.device import machine
    from nagphormer.settings import resolve
    from nagphormer.training.plan import decide
    from nagphormer.training.study import About, open_study
    from nagphormer.training.trial import watched
    from nagphormer.training.tune import Setup, tune
    from nagphormer.training.tuned import PICTURE, RECIPE, TABLE, write_tuned

    for name, number in (("trials", trials), ("jobs", jobs)):
        if number < 1:
            raise UserError(f"--{name} must be 1 or more, not {number}")
    given = {name: value for name, value in asdict(flags).items() if value is not None}
    chosen = SPACES[space].without(given)
    base = resolve(chosen.recipe, name_of(graph), given)
    machine(base.device)  # refuses what there is not, before anything is loaded
    loaded = with_splits(load_graph(graph, seed=base.seed, allow_pickle=allow_pickle), base.seed)
    here = machine(base.device)
    plan = decide(loaded, base, here)  # refuses what cannot be trained on
    metric, start = watched(loaded, base), time.perf_counter()
    with open_study(out, About.of(loaded, chosen, base), plan.resolved) as study:
        done = len(study.ended)
        terminal.when_interrupted(f"run it again to go on: the trials that have ended are in {out}")
        say(f"tuning on {graph}: {trials} trials, {done} of them done already, {jobs} at a time")
        say(f"judged by {metric} of {len(loaded.splits['val']):,} validation nodes; tried, of the space {space}:")
        for name, choice in chosen.choices.items():
            say(f"  {name:<18} {choice}")
        write_tuned(out, study, metric, graph)  # before any work: it may lack a package
        setup = Setup.of(graph, allow_pickle, base.seed, out, jobs, here)
        with closing(tune(study, loaded, here, setup, trials, time_limit)) as ended:
            for each in ended:
                write_tuned(out, study, metric, graph)
                per_trial = (time.perf_counter() - start) / (len(study.ended) - done)
                say(f"{_line(each, metric)}; {_so_far(study, trials, per_trial)}")
        if len(study.ended) < trials:
            say(f"the time is up after {len(study.ended)} of {trials} trials: run it again to go on")
        best = _winner(study, out)
        facts = {metric: best.value, "loss": best.loss, "best_epoch": best.best_epoch, "settings": best.tried}
        states = dict(Counter(each.state for each in study.ended))
        found = {
            "path": str(out),
            "recipe": str(out / RECIPE),
            "trials": states,
            "best": {"trial": best.number, **facts},
        }
        result(found, f"{_summary(best, len(study.ended), metric)}\nwrote {out}: {RECIPE}, {TABLE}, {PICTURE}")
    say_next("train", graph, "--recipe", out / RECIPE, "--out", "my-run")


def _winner(study: Study, out: Path) -> Ended:
    """The best trial; says why there is none."""
    if study.best is not None:
        return study.best
    reasons = [each.reason for each in study.ended if each.reason]
    why = f"; the last one says: {reasons[-1]}" if reasons else ": give it more time"
    raise UserError(f"none of {len(study.ended)} trials in {out} is complete{why}")


def _line(ended: Ended, metric: str) -> str:
    """How a trial ended."""
    text = f"trial {ended.number}: "
    if ended.reason:
        return f"{text}{ended.state}, {ended.reason}"
    if ended.state == "pruned":
        return f"{text}pruned after {ended.epochs} epochs at {ended.value:.4f}"
    return (
        f"{text}{metric} {ended.value:.4f}, loss {ended.loss:.4f}, epoch {ended.best_epoch} of {ended.epochs}, "
        f"{ended.seconds:.1f} s"
    )


def _so_far(study: Study, trials: int, per_trial: float) -> str:
    """The best trial, and how long the others will take."""
    best, left = study.best, max(0, trials - len(study.ended))
    found = "" if best is None else f"best {best.value:.4f} in trial {best.number}, "
    return f"{found}{left} left" + (f", about {_duration(left * per_trial)}" if left else "")


def _duration(seconds: float) -> str:
    """A time for people."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _summary(best: Ended, num_trials: int, metric: str) -> str:
    """The winner and its settings."""
    settings = "\n".join(f"  {name:<18} {value}" for name, value in best.tried.items())
    return (
        f"best of {num_trials} trials is {best.number}: validation {metric} {best.value:.4f}, loss {best.loss:.4f}\n"
        f"{settings}"
    )
