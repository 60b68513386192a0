"""Blocks of a token store as Ray tasks: no communication, one file each, the bytes of one machine.

Ray schedules, retries what a dead worker left, and holds back what does not fit a worker's memory. The graph folder and
the store lie where all workers see them.
"""

import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np

from nagphormer.data.folder import open_graph
from nagphormer.data.graph import Graph
from nagphormer.device import RESERVE
from nagphormer.errors import MissingExtra, UserError
from nagphormer.files import format_size, parse_size
from nagphormer.progress import note, stage
from nagphormer.tokens.engine import LANES
from nagphormer.tokens.inputs import Columns
from nagphormer.tokens.job import Exponents, Job, Layout, sum_dtype
from nagphormer.tokens.slices import column_bytes, node_bytes
from nagphormer.tokens.store import ENCODING, REDUCTION, Block

LOCAL = "local"
INTERPRETER = 300 * 10**6
"""Bytes that a worker holds before it works."""


class Made(NamedTuple):
    """A block, and how many workers began it."""

    block: Block
    attempts: int


@dataclass(frozen=True)
class Blocks:
    """What a worker needs to know to make any block of a store."""

    graph: str
    folder: str
    layout: Layout
    encoding: bool
    statistics: dict[str, list[float]]
    exponents: Exponents

    def write(self, number: int) -> Made:
        """Make one block under a name of this attempt, then give it its own; runs in a worker."""
        folder = Path(self.folder)
        attempts = folder / f"attempts-{number:03d}"
        with open(attempts, "a") as file:
            file.write(".")
        attempt = attempts.stat().st_size
        graph = open_graph(self.graph)
        encoding = np.load(folder / ENCODING, mmap_mode="r", allow_pickle=False) if self.encoding else None
        tokens = self.layout.tokens
        components = np.load(folder / REDUCTION, allow_pickle=False) if tokens.reduces(graph.num_features) else None
        columns = Columns(graph, encoding, tokens.feature_scaling, self.statistics, tokens.reduce_dim, components)
        job = Job(graph, self.layout, columns, self.exponents)
        own = f"{number:03d}-{uuid4().hex}"  # no name of another attempt, which may still be at work
        unfinished, scratch = (folder / f"{kind}-{own}" for kind in ("unfinished", "scratch"))
        block = job.write_block(number, unfinished, scratch)
        unfinished.rename(folder / block.file)
        return Made(block, attempt)


def write_blocks(
    graph: Graph,
    layout: Layout,
    columns: Columns,
    exponents: Exponents,
    folder: Path,
    address: str,
    memory: str | int | None,
) -> tuple[Block, ...]:
    """Have the workers of a cluster write every block; gives their entries in the manifest.

    Args:
        graph: opened from a folder.
        layout: how the store is cut; workers cut its blocks into slices of their own.
        columns: the input.
        exponents: its powers of two.
        folder: where the blocks go; seen by all workers.
        address: of the cluster, or `local` to start one here.
        memory: limit for each worker; by default what a block needs, as far as a worker has it.
    """
    place = check_shared(graph)
    with connected(address) as ray:
        share = _share(workers(ray), layout, memory)
        usable = share.memory - RESERVE - INTERPRETER - node_bytes(graph.num_nodes, 0)
        layout = Layout.of(graph, layout.tokens, "cpu", usable, may_spill=True)
        _check_scratch(layout, folder)
        blocks = Blocks(
            graph=str(place.absolute()),
            folder=str(folder),
            layout=layout,
            encoding=columns.encoding is not None,
            statistics=columns.statistics(),
            exponents=exponents,
        )
        note(f"{len(layout.blocks)} blocks, each on {share.cpus} cores with {format_size(share.memory)}")
        made = gather(ray, blocks, len(layout.blocks), share.cpus, share.memory, "blocks on the cluster")
    retried = sum(attempts > 1 for _, attempts in made)
    if retried:
        note(f"{retried} of {len(made)} blocks were made again after their worker had died")
    for left in (*folder.glob("attempts-*"), *folder.glob("unfinished-*"), *folder.glob("scratch-*")):
        left.unlink(missing_ok=True)
    return tuple(block for block, _ in made)


@dataclass(frozen=True)
class Share:
    """Cores and bytes of memory: of a worker, or what one task takes of it."""

    cpus: int
    memory: int


def workers(ray: Any) -> list[Share]:
    """What each machine of the cluster has to give."""
    found = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if not found:
        raise UserError("the Ray cluster has no worker with a processor: start one with ray start --address ADDRESS")
    return [Share(int(node["CPU"]), int(node["memory"])) for node in found]


def _share(available: list[Share], layout: Layout, memory: str | int | None) -> Share:
    """Memory for a whole block where workers have it, and the cores that are left for each block in flight."""
    widest = max(last - first for first, last in layout.blocks)
    num_nodes, num_blocks = layout.num_nodes, len(layout.blocks)
    held = INTERPRETER + RESERVE + node_bytes(num_nodes, 0)
    able = [worker for worker in available if worker.memory > held]
    largest = max(worker.memory for worker in available)
    if not able or (memory is not None and parse_size(memory) <= held):
        least = largest if memory is None else min(largest, parse_size(memory))
        raise UserError(f"a worker needs more than {format_size(held)} for this graph, but has {format_size(least)}")
    itemsize = sum_dtype(layout.tokens.dtype).itemsize
    wanted = held + column_bytes(num_nodes, layout.tokens.hops, itemsize) * (widest + LANES)
    given = min(wanted if memory is None else parse_size(memory), min(worker.memory for worker in able))
    cores = min(worker.cpus for worker in able)
    at_once = min(-(-num_blocks // len(able)), min(worker.memory for worker in able) // given, cores)
    return Share(max(1, cores // max(1, at_once)), given)


def _check_scratch(layout: Layout, folder: Path) -> None:
    """Refuse work whose hops go to more scratch files than the disk has room for."""
    needed = layout.scratch_bytes * len(layout.blocks)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"with so little memory a worker, hops go to scratch files of {format_size(needed)} in all, but "
            f"{format_size(free)} are free: give workers more memory"
        )


def check_shared(graph: Graph) -> Path:
    """The folder of a graph that all workers can open; refuses one that has none."""
    if graph.folder is None:
        raise UserError("a cluster needs a graph folder that all workers can open: write one with graph.save(FOLDER)")
    return graph.folder


class Work(Protocol):
    """Numbered pieces of work that any worker can do."""

    def write(self, number: int) -> Any:
        """Do one piece."""
        ...


def gather(ray: Any, pieces: Work, count: int, cpus: int, memory: int, work: str) -> list[Any]:
    """What each piece of work gives, in order; each is a task with its cores and memory, retried when a worker dies.

    Args:
        ray: connected.
        pieces: the work.
        count: how many pieces there are.
        cpus: of a task.
        memory: of a task, bytes.
        work: what is going on, for the progress shown.
    """
    task = ray.remote(num_cpus=cpus, memory=memory)(_write)
    shared = ray.put(pieces)
    waiting = {task.remote(shared, number, cpus): number for number in range(count)}
    results: dict[int, Any] = {}
    with stage(work, total=count) as advance:
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            try:
                results[number] = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise UserError(f"part {number} could not be made: {str(error).splitlines()[0]}") from error
            advance(1)
    return [results[number] for number in range(count)]


def _write(pieces: Work, number: int, cpus: int) -> Any:
    import numba
    import torch

    numba.set_num_threads(min(cpus, numba.config.NUMBA_NUM_THREADS))
    torch.set_num_threads(cpus)
    return pieces.write(number)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtra("ray", "cluster", "working on a cluster") from error
    _check_answers(address)
    try:
        ray.init(
            address=None if address == LOCAL else address,
            include_dashboard=False if address == LOCAL else None,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except ConnectionError as error:
        raise UserError(f"no Ray cluster answers at {address!r}: start one with ray start --head") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise UserError(f"no Ray cluster answers at {address!r} ({error}): start one with ray start --head") from error
