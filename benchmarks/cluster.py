"""What Ray itself costs when it makes a token store, beside the plain call, at two sizes.

    python benchmarks/cluster.py [--nodes 100000 1000000]

Both are whole calls on the same graph folder; the cluster is started anew each time, as `--cluster` does without an
address. Blocks are made small enough for eight of them.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from measure import alternate, describe_machine, print_table, ratio

from nagphormer import Graph, hop_tokens, load_graph, synthetic_graph
from nagphormer.tokens import store
from nagphormer.tokens.cluster import connected, gather

ROUNDS = 3
BLOCKS = 8


class Nothing:
    """Work that is done at once, to see what a task costs."""

    def write(self, number: int) -> int:
        """The number."""
        return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100_000, 1_000_000])
    options = parser.parse_args()
    print(describe_machine(), "\n")
    print_table(("nodes", "plain call", "local Ray cluster", "Ray by plain"), map(_compare, options.nodes))
    start = time.perf_counter()
    with connected("local") as ray:
        started = time.perf_counter() - start
        gather(ray, Nothing(), 2, cpus=1, memory=10**8, work="")  # workers start
        start = time.perf_counter()
        gather(ray, Nothing(), 200, cpus=1, memory=10**8, work="")
        each = (time.perf_counter() - start) / 200
    print(f"\nstarting a local cluster {started:.1f} s; a task that does nothing {1000 * each:.1f} ms")


def _compare(num_nodes: int) -> list[str]:
    """A row: seconds of both, and their ratio."""
    store.BLOCK_BYTES = num_nodes * 2 * 16
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        synthetic_graph(num_nodes, 10 * num_nodes, 16 * BLOCKS, 10).save(folder / "graph")
        graph = load_graph(folder / "graph")
        works: dict[str, Callable[[], object]] = {
            "plain": lambda: _make(graph, folder, None),
            "Ray": lambda: _make(graph, folder, "local"),
        }
        times = alternate(works, ROUNDS)
    plain, cluster = (median(times[key]) for key in works)
    return [f"{num_nodes:,}", f"{plain:.2f} s", f"{cluster:.2f} s", f"{ratio(times['Ray'], times['plain']):.2f}×"]


def _make(graph: Graph, folder: Path, address: str | None) -> None:
    shutil.rmtree(folder / "tokens", ignore_errors=True)
    hop_tokens(graph, 3, out=folder / "tokens", device="cpu", cluster=address)


if __name__ == "__main__":
    main()
