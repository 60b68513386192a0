"""Progress of long work on stderr: a bar on a terminal, one line per finished stage elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_plain_lines = False
_bars = True


def configure(quiet: bool) -> None:
    """What the command line wants shown: nothing when quiet, else a line for every finished stage."""
    global _plain_lines, _bars
    _plain_lines, _bars = not quiet, not quiet


@contextmanager
def stage(text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show that `text` is going on; call what it yields with the number of steps just done.

    As a library, only terminals see anything; the command line also prints a line with the seconds taken.

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
    else:
        yield lambda steps: None
    if _plain_lines:
        print(f"  {text}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
