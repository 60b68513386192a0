"""A grid of cells: each a method on one data set with one seed, measured in a child process and kept as a small file.

A child has a limit on memory and on time; hitting one is a result like any other. Cells that lie in
`experiments/results/cells/` are not measured again, so a grid can be stopped at any moment and filled in several runs.
"""

import hashlib
import json
import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any

from experiments import cells
from experiments.baselines.method import Settings

LONGEST_KEY = 120
"""Letters of the settings in a file's name; beyond that they go by a hash."""
DONE, OUT_OF_MEMORY, TIME_OUT, FAILED = "done", "out of memory", "time-out", "failed"


@dataclass(frozen=True)
class Limits:
    """What one cell may use."""

    memory: float
    """GB: of the GPU, or anonymous memory of the process on a CPU."""
    seconds: float


@dataclass(frozen=True, eq=False)
class Cell:
    """A method with its settings on one data set and one seed."""

    dataset: str
    method: str
    seed: int = 0
    settings: Settings = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What its file is called."""
        key = ",".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        if len(key) > LONGEST_KEY:
            key = hashlib.sha256(key.encode()).hexdigest()[:12]
        return f"{self.method}-{key or 'published'}-seed{self.seed}"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cells.RESULTS / "cells" / self.dataset / f"{self.name}.json"

    def read(self) -> dict[str, Any] | None:
        """Its recorded facts, if it was measured."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else None


@dataclass
class Grid:
    """How cells are measured: on which device, how many at once, within which limits."""

    device: str
    jobs: int
    limits: Limits
    budget: dict[str, int]
    """Arguments of `Budget`."""

    def fill(self, wanted: Iterable[Cell]) -> None:
        """Measure every cell that is not recorded yet."""
        unique = {cell.path: cell for cell in wanted}
        todo = [cell for cell in unique.values() if self._missing(cell)]
        if len(todo) < len(unique):
            print(f"{len(unique) - len(todo)} of {len(unique)} cells are recorded", flush=True)
        start = time.perf_counter()
        for count, (cell, facts) in enumerate(self._measured(todo), 1):
            cells.write_facts(cell.path, facts)
            passed = time.perf_counter() - start
            left = passed / count * (len(todo) - count)
            print(f"[{count}/{len(todo)}, {_minutes(left)} left] {cell.dataset} {cell.name}: {tell(facts)}", flush=True)

    def _missing(self, cell: Cell) -> bool:
        """Whether a cell has to be measured: never was, failed, or met limits that are wider now."""
        facts = cell.read()
        if facts is None or facts["outcome"] == FAILED:
            return True
        if facts["outcome"] == OUT_OF_MEMORY:
            return facts["limits"]["memory"] < self.limits.memory
        return facts["outcome"] == TIME_OUT and facts["limits"]["seconds"] < self.limits.seconds

    def _measured(self, todo: list[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Cells as they are done, `jobs` at a time."""
        context = multiprocessing.get_context("forkserver")
        # children start with torch imported; not with torch_geometric, which opens the GPU and spoils it for them
        context.set_forkserver_preload(["experiments.measure"])
        waiting, running = list(reversed(todo)), dict[int, _Child]()
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    child = _Child(context, waiting.pop(), self)
                    running[child.process.sentinel] = child
                wait(list(running), timeout=0.2)
                for sentinel, child in list(running.items()):
                    if (facts := child.result()) is not None:
                        del running[sentinel]
                        yield child.cell, facts
        finally:
            for child in running.values():
                child.process.kill()


class _Child:
    """A process that measures one cell."""

    def __init__(self, context: Any, cell: Cell, grid: Grid):
        self.cell, self.grid = cell, grid
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(cell, grid, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.start = time.perf_counter()

    def result(self) -> dict[str, Any] | None:
        """What came of it, or None while it goes on."""
        outcome: dict[str, Any] = {}
        if self.process.is_alive() and time.perf_counter() - self.start > self.grid.limits.seconds:
            self.process.kill()
            outcome = {"outcome": TIME_OUT}
        elif self.connection.poll():
            with suppress(EOFError):
                outcome = self.connection.recv()
        elif self.process.is_alive():
            return None
        self.process.join()
        if not outcome:  # it died without a word: the kernel kills what takes too much memory
            killed = self.process.exitcode == -9
            outcome = {"outcome": OUT_OF_MEMORY if killed else FAILED, "error": f"exit code {self.process.exitcode}"}
        facts = {"dataset": self.cell.dataset, "method": self.cell.method, "seed": self.cell.seed}
        facts |= {"settings": self.cell.settings, "limits": asdict(self.grid.limits), "budget": self.grid.budget}
        return facts | (outcome if "versions" in outcome else outcome | cells.describe(self.grid.device))


def _work(cell: Cell, grid: Grid, connection: Connection) -> None:
    """Measure a cell within its memory and send what came of it; runs in the child."""
    import torch

    Thread(target=_end_with_parent, daemon=True).start()
    from experiments.data import load
    from experiments.measure import Budget
    from experiments.methods import METHODS

    try:
        _limit(grid)
        graph = load(cell.dataset, cell.seed)
        measure, budget = METHODS[cell.method].measure, Budget(**grid.budget)
        facts = cells.measured(lambda: measure(graph, cell.settings, cell.seed, grid.device, budget), grid.device)
        facts["outcome"] = DONE
    except (MemoryError, torch.OutOfMemoryError):
        facts = {"outcome": OUT_OF_MEMORY}
    except Exception as error:
        memory = "can't allocate memory" in str(error) or "CUDA out of memory" in str(error)
        facts = {"outcome": OUT_OF_MEMORY} if memory else {"outcome": FAILED, "error": traceback.format_exc(limit=-3)}
    connection.send(facts | cells.describe(grid.device))
    connection.close()


def _end_with_parent() -> None:
    """End this process when the one that started it does, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _limit(grid: Grid) -> None:
    """Bound the memory of this process, and its threads to its share of the cores."""
    import torch

    bound = int(grid.limits.memory * 1e9)
    if grid.device.startswith("cuda"):
        total = torch.cuda.get_device_properties(grid.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, bound / total))
        torch.eye(2, device=grid.device).mm(torch.eye(2, device=grid.device))  # opening the GPU is no preparation
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    threads = max(1, len(os.sched_getaffinity(0)) // grid.jobs)
    torch.set_num_threads(threads)
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def tell(facts: dict[str, Any]) -> str:
    """A cell's outcome in a few words."""
    if facts["outcome"] != DONE:
        return facts["outcome"] + (f": {facts['error'].strip().splitlines()[-1]}" if "error" in facts else "")
    found = f"validation {100 * facts['val_accuracy']:.2f} after {facts['epochs']} epochs"
    return f"{found}, {facts['seconds']:.1f} s, {facts['peak_gb']:.2f} GB"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
