"""What commands print: results on stdout, as text or JSON, and words for people on stderr."""

import json
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nagphormer import progress
from nagphormer.files import format_size

_as_json = False
_quiet = False
_after_interrupt = "nothing partial was left behind"


def configure(quiet: bool, as_json: bool) -> None:
    """What `--quiet` and `--json` ask for."""
    global _as_json, _quiet
    _as_json, _quiet = as_json, quiet
    progress.configure(quiet)


def be_silent() -> None:
    """Leave all words to the first rank, except errors."""
    configure(quiet=True, as_json=False)
    warnings.simplefilter("ignore")


def when_interrupted(text: str) -> None:
    """What `stopped` is to say of work that is stopped from now on."""
    global _after_interrupt
    _after_interrupt = text


def stopped(how: str) -> None:
    """Say that the command was stopped from outside, and what is left."""
    print(f"nagphormer: {how}; {_after_interrupt}", file=sys.stderr)


def say(text: str) -> None:
    """A line for people; not part of a command's result."""
    if not _quiet:
        print(text, file=sys.stderr)


def say_next(*words: object) -> None:
    """The command to run next, as a shell takes it."""
    say(f"next: {shlex.join(['nagphormer', *map(str, words)])}")


def result(facts: dict[str, Any], text: str) -> None:
    """A command's result."""
    print(json.dumps(facts, ensure_ascii=False) if _as_json else text)


def table(facts: dict[str, Any]) -> str:
    """Facts as lines of name and value."""
    rows = []
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(
                f"{name} {each:,}" if isinstance(each, int) else f"{name} {each}" for name, each in value.items()
            )
            value = value or None
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        rows.append(f"{key.replace('_', ' '):<20} {'–' if value is None else value}")
    return "\n".join(rows)


@contextmanager
def timed(text: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    say(text)
    start = time.perf_counter()
    yield
    say(f"  done in {time.perf_counter() - start:.1f} s")


def describe_run(run: Any) -> str:
    """How training ended, in a line; of several members in a line each."""
    if hasattr(run, "parts"):
        from nagphormer.training.leaderboard import leaderboard

        metric = "micro-F1" if run.classes.multi_label else "accuracy"
        rows = [
            f"  {row['name']:<20} weight {row['weight']:.2f}, validation {metric} {row['score']:.4f}, log loss "
            f"{row['loss']:.4f}, {row['train_seconds']:.1f} s to train"
            for row in leaderboard(run)
        ]
        return "\n".join([f"{len(run.asked)} of {len(run.parts)} members answer together", *rows])
    member = run.best
    outcome, plan = member.outcome, member.plan
    if not outcome["best_epoch"]:
        return "no epoch was finished"
    metric = "micro-F1" if run.classes.multi_label else "accuracy"
    watched, beside = plan.given.monitor, ""
    if watched != "accuracy":
        beside = f", {watched} {member.history[outcome['best_epoch'] - 1][f'val_{watched}']:.4f}"
    way = "features projected first" if plan.way == "projected" else "stored tokens"
    return (
        f"best of {outcome['epochs']} epochs is {outcome['best_epoch']}, validation {metric} "
        f"{outcome['best_metric']:.4f}{beside}; {member.num_parameters:,} parameters, {plan.precision}, {way}"
    )


def describe_store(store: Any) -> str:
    """A token store and its size, in a line."""
    nodes, tokens, width = store.shape
    where = "in memory" if store.path is None else f"{'reused' if store.reused else 'wrote'} {store.path}"
    return (
        f"{where}: {nodes:,} nodes × {tokens} tokens × {width:,} columns, {store.dtype}, {format_size(store.num_bytes)}"
    )
