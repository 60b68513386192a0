"""Progress of long work on stderr: a bar on a terminal or in a notebook, one line per finished stage elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

LINE_SECONDS = 5.0
"""Seconds between lines about training where there is no terminal."""

_plain_lines = False
_bars = True


def configure(quiet: bool) -> None:
    """What the command line wants shown: nothing when quiet, else a line for every finished stage."""
    global _plain_lines, _bars
    _plain_lines, _bars = not quiet, not quiet


@contextmanager
def shown(verbose: bool | None) -> Iterator[None]:
    """What a caller in Python wants shown meanwhile: lines, too, nothing, or, by default, bars alone."""
    global _plain_lines, _bars
    before = _plain_lines, _bars
    if verbose is not None:
        _plain_lines = _bars = verbose
    try:
        yield
    finally:
        _plain_lines, _bars = before


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
    if _bars and _can_draw():
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
    else:
        yield lambda steps: None
    if _plain_lines:
        print(f"  {text}: {time.perf_counter() - start:.1f} s", file=sys.stderr)


@contextmanager
def epochs_shown(total: int, first: int) -> Iterator[Callable[[int, str], None]]:
    """Show training; call what it yields with the epoch just done and how it went.

    A live bar on a terminal or in a notebook; elsewhere a line every few seconds, where lines are wanted.
    """
    if _bars and _can_draw():
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
    last_line = time.perf_counter()

    def show(epoch: int, text: str) -> None:
        nonlocal last_line
        if _plain_lines and time.perf_counter() - last_line > LINE_SECONDS:
            last_line = time.perf_counter()
            print(f"  epoch {epoch}: {text}", file=sys.stderr, flush=True)

    yield show


def _can_draw() -> bool:
    """Whether bars can move where stderr goes: on a terminal, or in a notebook, for which rich needs ipywidgets."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    notebook = type(shell).__name__ == "ZMQInteractiveShell" and find_spec("ipywidgets") is not None
    return notebook or sys.stderr.isatty()
