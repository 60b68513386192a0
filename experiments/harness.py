"""A grid of cells: each a method on one data set with one seed, measured in a child process and kept as a line.

A child has a limit on memory and on time; hitting one is a result like any other. Cells that are recorded in
`experiments/results/` are not measured again, so a grid can be stopped at any moment and filled in several runs.
A cell whose method has other defaults by now is; when a method itself was changed, delete its lines.
"""

import json
import multiprocessing
import os
import re
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any

import numba
import torch

from experiments import cells, records
from experiments.baselines.method import Settings
from experiments.data import load
from experiments.measure import Budget
from experiments.methods import METHODS

FAREWELL = 60.0
"""Seconds a child may take to end after it has sent its result; a GPU that many share lets go slowly."""
PULSE = 30.0
"""Seconds between two lines about what runs, where nobody sits at a terminal."""
DONE, OUT_OF_MEMORY, TIME_OUT, FAILED = "done", "out of memory", "time-out", "failed"
OUT_OF_MEMORY_SIGNS = re.compile("out of (GPU )?memory|can't allocate memory|ALLOC_FAILED|bad_alloc", re.IGNORECASE)


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
    budget: Budget | None = None
    """Its own, where it is not the grid's."""

    @property
    def name(self) -> str:
        """What it is called where it is told of."""
        key = ",".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{self.method}-{key or 'published'}-seed{self.seed}"

    @property
    def resolved(self) -> Settings:
        """All its settings, with the method's defaults, as JSON holds them."""
        return json.loads(_resolved(self.method, self.dataset, json.dumps(self.settings)))

    def read(self) -> dict[str, Any] | None:
        """Its recorded facts, if it was measured and its method's defaults are the same today."""
        facts = records.find(self.dataset, self.method, self.settings, self.seed)
        return facts if facts and METHODS[self.method].same(facts["resolved"], self.resolved) else None

    def write(self, facts: dict[str, Any]) -> None:
        """Record what came of it."""
        own = {name: getattr(self, name) for name in ("dataset", "method", "seed", "settings", "resolved")}
        records.write(own | facts | own)  # in this order, and as this cell whatever the facts say


@cache  # asked for every cell of a page many times
def _resolved(method: str, dataset: str, settings: str) -> str:
    return json.dumps(METHODS[method].resolved(dataset, json.loads(settings)))


@dataclass
class Progress:
    """How far a grid has come."""

    total: int
    count: int = 0
    start: float = field(default_factory=time.perf_counter)

    def step(self) -> str:
        """One more is done: how many there are by now, and the time the rest will take."""
        self.count += 1
        left = (time.perf_counter() - self.start) / self.count * (self.total - self.count)
        return f"[{self.count}/{self.total}, {_minutes(left)} left]"

    def pulse(self, children: Iterable["_Child"]) -> str:
        """What runs at the moment, and since when."""
        now = time.perf_counter()
        running = (f"{each.cell.dataset} {each.cell.name} for {_minutes(now - each.start)}" for each in children)
        return f"[{self.count}/{self.total}] running: {', '.join(running)}"


@dataclass
class Grid:
    """How cells are measured: on which device, how many at once, within which limits."""

    device: str
    jobs: int
    limits: Limits
    budget: Budget

    def fill(self, wanted: Iterable[Cell], later: int = 0, progress: Progress | None = None) -> Progress:
        """Measure every cell that is not recorded yet.

        Args:
            wanted: the cells.
            later: about how many will follow in other calls, for the progress shown.
            progress: of the calls before.
        """
        unique = list({(cell.dataset, cell.name): cell for cell in wanted}.values())
        todo = self.missing(unique)
        if len(todo) < len(unique):
            print(f"{len(unique) - len(todo)} of {len(unique)} cells are recorded", flush=True)
        progress = progress or Progress(0)
        progress.total = progress.count + len(todo) + later
        for cell, facts in self._measured(todo, progress):
            cell.write(facts)
            print(f"{progress.step()} {cell.dataset} {cell.name}: {tell(facts)}", flush=True)
        return progress

    def missing(self, wanted: list[Cell]) -> list[Cell]:
        """Those that have to be measured: never were like this, failed, or met limits that are wider now."""
        return [cell for cell in wanted if self._is_missing(cell)]

    def _is_missing(self, cell: Cell) -> bool:
        facts = cell.read()
        if facts is None or facts["outcome"] == FAILED:
            return True
        if facts["outcome"] == DONE:
            budget = self.budget_of(cell)  # where the settings say how long, they agree
            return budget is not None and not budget.covers(Budget(**facts["budget"]), facts["epochs"])
        if facts["gpu"] != self.on_gpu:
            return self.on_gpu  # limits that a CPU met say nothing of a GPU
        limits = Limits(**facts["limits"])
        if facts["outcome"] == OUT_OF_MEMORY:
            return limits.memory < self.limits.memory
        return limits.seconds < self.limits.seconds

    def budget_of(self, cell: Cell) -> Budget | None:
        """How long a cell may train; None where its method's settings say so themselves."""
        return None if METHODS[cell.method].own_budget else cell.budget or self.budget

    @property
    def on_gpu(self) -> bool:
        """Whether cells are measured on a GPU."""
        return self.device.startswith("cuda")

    def _measured(self, todo: list[Cell], progress: Progress) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Cells as they are done, `jobs` at a time."""
        context = multiprocessing.get_context("forkserver")
        # children start with torch imported; not with torch_geometric, which opens the GPU and spoils it for them
        context.set_forkserver_preload(["experiments.measure"])
        waiting, running = list(reversed(todo)), dict[int, _Child]()
        told = time.perf_counter()
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
                if running and not sys.stdout.isatty() and time.perf_counter() - told > PULSE:
                    told = time.perf_counter()
                    print(progress.pulse(running.values()), flush=True)
        finally:
            for child in running.values():
                child.process.kill()


class _Child:
    """A process that measures one cell."""

    def __init__(self, context: Any, cell: Cell, grid: Grid):
        self.cell, self.grid = cell, grid
        self.circumstances = self._circumstances()  # now: the code may be edited before the cell is done
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(cell, grid, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.start = time.perf_counter()

    def result(self) -> dict[str, Any] | None:
        """What came of it, or None while it goes on."""
        over = not self.process.is_alive()  # asked first: what it sent before its end is then in the pipe
        outcome: dict[str, Any] = {}
        if self.connection.poll():
            with suppress(EOFError):
                outcome = self.connection.recv()
        elif time.perf_counter() - self.start > self.grid.limits.seconds:
            outcome = {"outcome": TIME_OUT}
        elif not over:
            return None
        self.process.join(0 if outcome.get("outcome") == TIME_OUT else FAREWELL)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        if not outcome:  # it died without a word: the kernel kills what takes too much memory
            killed = self.process.exitcode == -9
            outcome = {"outcome": OUT_OF_MEMORY if killed else FAILED, "error": f"exit code {self.process.exitcode}"}
        return self.circumstances | outcome

    def _circumstances(self) -> dict[str, Any]:
        """Where it is measured and how."""
        budget = self.grid.budget_of(self.cell)
        return {
            "budget": asdict(budget) if budget else None,
            "limits": asdict(self.grid.limits),
            "gpu": self.grid.on_gpu,
            "jobs": self.grid.jobs,
            **cells.describe(self.grid.device),
        }


def _work(cell: Cell, grid: Grid, connection: Connection) -> None:
    """Measure a cell within its memory and send what came of it; runs in the child."""
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        _limit(grid)
        graph, measure = load(cell.dataset, cell.seed), METHODS[cell.method].measure
        _warm_up(grid.device)
        arguments = (graph, cell.settings, cell.seed, grid.device, cell.budget or grid.budget)
        facts = cells.measured(lambda: measure(*arguments), grid.device)
        facts["outcome"] = DONE
    except Exception as error:
        facts = {"outcome": OUT_OF_MEMORY if _is_memory(error) else FAILED, "error": _explained(error)}
    connection.send(facts)
    connection.close()


def _explained(error: Exception) -> str:
    """Where an error came from, in the three innermost calls, and what it says; names of files, but no folders."""
    calls = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{Path(call.filename).name}, line {call.lineno}, in {call.name}" for call in calls]
    return "\n".join([*places, *traceback.format_exception_only(error)]).strip()


def _is_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that memory ran out."""
    if error is None:
        return False
    found = isinstance(error, MemoryError) or OUT_OF_MEMORY_SIGNS.search(str(error)) is not None
    return found or _is_memory(error.__cause__)


def _warm_up(device: str) -> None:
    """Load what the first step of any method loads, so that it does not count as the method's preparation."""
    weight = torch.nn.Parameter(torch.eye(2, device=device))
    optimizer = torch.optim.Adam([weight])  # torch loads its compiler here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that torch's CSR tensors are new
        (weight.to_sparse_csr().detach() @ weight @ weight).sum().backward()
    optimizer.step()


def _end_with_parent() -> None:
    """End this process when the one that started it does, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _limit(grid: Grid) -> None:
    """Bound the memory of this process, and its threads to its share of the cores."""
    bound = int(grid.limits.memory * 1e9)
    if grid.on_gpu:
        total = torch.cuda.get_device_properties(grid.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, bound / total))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    threads = max(1, len(os.sched_getaffinity(0)) // grid.jobs)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # before torch: it starts OpenMP anew
    torch.set_num_threads(threads)


def judged(facts: dict[str, Any], split: str) -> float:
    """What a cell is judged by on `val` or `test` nodes: accuracy, unless it says otherwise."""
    return facts[f"{split}_{facts.get('monitor', 'accuracy')}"]


def tell(facts: dict[str, Any]) -> str:
    """A cell's outcome in a few words."""
    if facts["outcome"] != DONE:
        return facts["outcome"] + (f": {facts['error'].strip().splitlines()[-1]}" if "error" in facts else "")
    found = f"validation {100 * judged(facts, 'val'):.2f} after {facts['epochs']} epochs"
    return f"{found}, {facts['seconds']:.1f} s, {facts['peak_gb']:.2f} GB"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
