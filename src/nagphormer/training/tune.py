"""Tuning: trials one after another in this process, or several at once in processes of their own.

Only the process that was started chooses settings and writes; the others train what they are sent and report every
epoch, so that the same database, pruning and progress serve both.
"""

import multiprocessing
import signal
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numba
import torch

from nagphormer import progress
from nagphormer.data.datasets import load_graph
from nagphormer.data.graph import Graph
from nagphormer.data.splits import with_splits
from nagphormer.device import Machine, machine
from nagphormer.errors import UserError
from nagphormer.settings import TrainConfig
from nagphormer.training.study import Begun, Ended, Study
from nagphormer.training.trial import Result, run_trial

IN_A_ROW = 3
"""Trials that could not be run, one after another, before the tuning ends: more would not help."""
SECONDS_TO_END = 5.0
"""How long a worker process may take to tidy up."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where trials run, as a worker process needs to know it."""

    graph: str
    """As `load_graph` takes it."""
    allow_pickle: bool
    seed: int
    """Of the split, where one is drawn."""
    folder: Path
    jobs: int
    device: str
    threads: int
    """Of each job."""
    gpu_memory: int | None
    """Of each job; None where nobody else takes any."""

    @classmethod
    def of(cls, graph: str, allow_pickle: bool, seed: int, folder: Path, jobs: int, here: Machine) -> "Setup":
        """A machine shared between jobs."""
        share = here.gpu_memory // jobs if here.on_gpu and jobs > 1 else None
        threads = max(1, torch.get_num_threads() // jobs)
        return cls(
            graph=graph,
            allow_pickle=allow_pickle,
            seed=seed,
            folder=folder,
            jobs=jobs,
            device=here.device,
            threads=threads,
            gpu_memory=share,
        )


def tune(
    study: Study, graph: Graph, here: Machine, setup: Setup, trials: int, seconds: float | None = None
) -> Generator[Ended, None, None]:
    """Run trials until there are so many in all; gives each as it ends.

    Args:
        study: the trials before.
        graph: with its splits.
        here: the machine.
        setup: with more than one job, each has a process, which loads the graph again.
        trials: how many to have in the end.
        seconds: trials that run after this time are dropped: they are begun again the next time.
    """
    deadline = None if seconds is None else time.perf_counter() + seconds
    if setup.jobs > 1:
        ended = _in_workers(study, setup, trials, deadline)
    else:
        ended = _here(study, graph, here, setup.folder, trials, deadline)
    refused = 0
    with closing(ended):
        for each in ended:
            yield each
            refused = refused + 1 if each.state == "pruned" and each.reason else 0
            if refused == IN_A_ROW:
                raise UserError(f"{IN_A_ROW} trials in a row could not be run, the last one because: {each.reason}")


class _TimeIsUp(Exception):
    """The time limit passed within a trial."""


def _left(deadline: float | None) -> float | None:
    """Seconds until then."""
    return None if deadline is None else max(0.0, deadline - time.perf_counter())


def _here(
    study: Study, graph: Graph, here: Machine, folder: Path, trials: int, deadline: float | None
) -> Generator[Ended, None, None]:
    """Trials one after another."""
    while _left(deadline) != 0 and (begun := study.begin(trials)) is not None:

        def report(epoch: int, best: float, begun: Begun = begun) -> bool:
            if _left(deadline) == 0:
                raise _TimeIsUp
            return study.report(begun, epoch, best)

        try:
            result = run_trial(graph, begun.config, here, folder, report)
        except _TimeIsUp:
            return
        yield study.end(begun, result)


def _in_workers(study: Study, setup: Setup, trials: int, deadline: float | None) -> Generator[Ended, None, None]:
    """As many trials at once as there are jobs."""
    busy: dict[Connection, _Worker] = {}
    try:
        while len(busy) < setup.jobs and (begun := study.begin(trials)) is not None:
            worker = _Worker(setup, begun)
            busy[worker.connection] = worker
        while busy and _left(deadline) != 0:
            for connection in wait(list(busy), _left(deadline)):
                assert isinstance(connection, Connection)
                worker = busy[connection]
                if (result := worker.heard(study)) is None:
                    continue
                yield study.end(worker.begun, result)
                del busy[connection]
                begun = study.begin(trials) if _left(deadline) != 0 else None
                if begun is not None and worker.process.is_alive():
                    worker.give(begun)
                else:
                    worker.terminate()
                    worker.end()
                    if begun is None:
                        continue
                    worker = _Worker(setup, begun)
                busy[worker.connection] = worker
    finally:
        for worker in busy.values():
            worker.terminate()
        for worker in busy.values():
            worker.end()


class _Worker:
    """A process that runs the trials it is given."""

    def __init__(self, setup: Setup, begun: Begun):
        own = multiprocessing.get_context("spawn")  # a fork would share the threads of torch
        self.connection, theirs = own.Pipe()
        self.process = own.Process(target=work, args=(theirs, setup), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process can be heard
        self.give(begun)

    def give(self, begun: Begun) -> None:
        """Have it run a trial."""
        self.begun = begun
        with suppress(ConnectionError):  # should it have ended, that is heard next
            self.connection.send(begun.config)

    def heard(self, study: Study) -> Result | None:
        """What it has to say: a trial's result; or an epoch, which is answered, and None."""
        try:
            said = self.connection.recv()
            if isinstance(said, Result):
                return said
            self.connection.send(study.report(self.begun, *said))
        except (EOFError, ConnectionError):
            return self._lost()
        return None

    def _lost(self) -> Result:
        """The result of a trial whose process was killed; what our own code raises there is an error here, too."""
        self.process.join()
        code = self.process.exitcode
        if code in (0, 1):
            raise RuntimeError("a worker process ended by itself: what it printed says why")
        reason = f"its process was killed (exit code {code}): does memory suffice?"
        return Result(state="failed", value=None, loss=None, best_epoch=0, epochs=0, seconds=0.0, reason=reason)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.process.terminate()

    def end(self) -> None:
        """See that the process has ended."""
        self.process.join(SECONDS_TO_END)
        self.process.kill()
        self.process.join()
        self.connection.close()


def work(connection: Connection, setup: Setup) -> None:
    """What a worker process does: run the trials it is sent, until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that was started, which ends this one
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that partial files are removed
    progress.configure(quiet=True)
    numba.set_num_threads(min(setup.threads, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(setup.threads)
    with warnings.catch_warnings(action="ignore"):  # said by the process that was started
        graph = with_splits(load_graph(setup.graph, seed=setup.seed, allow_pickle=setup.allow_pickle), setup.seed)
    here = machine(setup.device, setup.gpu_memory)

    def report(epoch: int, best: float) -> bool:
        connection.send((epoch, best))
        return connection.recv()

    with suppress(EOFError, ConnectionError):  # the process that was started is gone
        while True:
            config: TrainConfig = connection.recv()
            connection.send(run_trial(graph, config, here, setup.folder, report))
