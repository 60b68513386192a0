"""Progress of long work: a bar on a terminal, a line in a notebook, on stderr a line per finished stage elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

LINE_SECONDS = 5.0
"""Seconds between lines about training where there is no terminal."""
NOTEBOOK_SECONDS = 0.5
"""Seconds between changes of the line in a notebook."""

_plain_lines = False
_bars = True


def configure(quiet: bool) -> None:
    """What the command line wants shown: nothing when quiet, else a line for every finished stage."""
    global _plain_lines, _bars
    _plain_lines, _bars = not quiet, not quiet


@contextmanager
def shown(verbose: bool | None) -> Iterator[None]:
    """What a caller in Python wants shown meanwhile: lines, too, nothing, or, by default, what moves alone."""
    global _plain_lines, _bars
    before = _plain_lines, _bars
    if verbose is not None:
        _plain_lines = _bars = verbose
    try:
        yield
    finally:
        _plain_lines, _bars = before


@contextmanager
def without_lines() -> Iterator[None]:
    """Leave lines out meanwhile, as where many trainings follow each other; what moves is still shown."""
    global _plain_lines
    before, _plain_lines = _plain_lines, False
    try:
        yield
    finally:
        _plain_lines = before


def note(text: str) -> None:
    """A line about what is going on, where lines are wanted."""
    if _plain_lines:
        print(f"  {text}", file=sys.stderr, flush=True)


@contextmanager
def stage(text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show that `text` is going on; call what it yields with the number of steps just done.

    As a library, only terminals and notebooks see anything, unless `shown` says otherwise; the command line also
    prints a line with the seconds taken.

    >>> with stage("hops", total=3) as advance:
    ...     advance(3)
    """
    start = time.perf_counter()
    if _bars and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(text, total=total)
            yield lambda steps: bar.advance(task, steps)
    elif _bars and _in_notebook():
        line, done = _Line(), 0

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            line.show(f"{text}: {done} of {total}" if total else text)

        yield advance
    else:
        yield lambda steps: None
    if _plain_lines:
        print(f"  {text}: {time.perf_counter() - start:.1f} s", file=sys.stderr)


@contextmanager
def epochs_shown(total: int, first: int) -> Iterator[Callable[[int, str], None]]:
    """Show training; call what it yields with the epoch just done and how it went.

    A live bar on a terminal, a line in a notebook; elsewhere a line every few seconds, where lines are wanted.
    """
    if _bars and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("  epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total, completed=first - 1)
            yield lambda epoch, text: bar.update(task, completed=epoch, description=text)
        return
    if _bars and _in_notebook():
        line = _Line()
        yield lambda epoch, text: line.show(f"epoch {epoch} of {total}: {text}")
        return
    last_line = time.perf_counter()

    def show(epoch: int, text: str) -> None:
        nonlocal last_line
        if _plain_lines and time.perf_counter() - last_line > LINE_SECONDS:
            last_line = time.perf_counter()
            print(f"  epoch {epoch}: {text}", file=sys.stderr, flush=True)

    yield show


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Line:
    """A line of a notebook's output that is written over; none for work that is done at once.

    rich's bars would need ipywidgets, and leave an empty output behind for every stage.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._next_time = time.perf_counter() + NOTEBOOK_SECONDS

    def show(self, text: str) -> None:
        if time.perf_counter() < self._next_time:
            return
        self._next_time = time.perf_counter() + NOTEBOOK_SECONDS
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = import_module("IPython.display").display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
