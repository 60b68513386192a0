"""What the benchmarks share: the machine, alternating pairs, memory of a process tree, and plain tables."""

import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numba
import numpy as np

from nagphormer import __version__

PACKAGES = ("torch", "torch-geometric", "numba", "numpy", "scipy")


def describe_machine() -> str:
    """Processor, cores, memory and versions, on two lines."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join([f"nagphormer {__version__}", *(f"{name} {version(name)}" for name in PACKAGES)])
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}\n{versions}"


@numba.njit(parallel=True)
def _copy(target, source):
    for part in numba.prange(64):
        step = len(source) // 64
        target[part * step : (part + 1) * step] = source[part * step : (part + 1) * step]


def copy_bandwidth() -> float:
    """Bytes a second that all cores read and write while copying 1 GB."""
    source, target = np.ones(64 * 2_000_000), np.ones(64 * 2_000_000)
    seconds = min(_seconds(lambda: _copy(target, source)) for _ in range(6))
    return 2 * source.nbytes / seconds


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every piece of work, run in turn after one warm-up each."""
    for work in works.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(_seconds(work))
    return seconds


def ratio(rival: list[float], ours: list[float]) -> float:
    """Median over the rounds of rival's time by ours."""
    return statistics.median(slow / fast for slow, fast in zip(rival, ours, strict=True))


def print_table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(list(header)))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


class TreeMemory:
    """Peak memory of a process and all its children while the block runs (Linux)."""

    def __init__(self, process: int | None = None):
        self.peak_anonymous = 0
        self.peak_rss = 0
        self._process = process or os.getpid()

    def __enter__(self) -> "TreeMemory":
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            fields = [_status(process) for process in _descendants(self._process)]
            self.peak_anonymous = max(self.peak_anonymous, sum(field.get("RssAnon", 0) for field in fields))
            self.peak_rss = max(self.peak_rss, sum(field.get("VmRSS", 0) for field in fields))
            if self._stop.wait(0.02):
                return


def _descendants(process: int) -> list[int]:
    found = [process]
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:
            continue
        for child in children:
            found += _descendants(int(child))
    return found


def _status(process: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines)
    return {key: int(value.split()[0]) * 1024 for key, value in pairs if value.strip().endswith("kB")}


@dataclass(frozen=True)
class Child:
    """What a process printed, how long it took and how much memory it held."""

    stdout: str
    stderr: str
    seconds: float
    memory: TreeMemory


def run_child(arguments: list[str]) -> Child:
    """Run a command in a process of its own and watch it."""
    start = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True) as child, TreeMemory(child.pid) as memory:
        stdout, stderr = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {child.returncode}:\n{stderr}")
    return Child(stdout, stderr, time.perf_counter() - start, memory)
