"""From a graph folder to the class of every node within less memory than either the folder or its tokens take.

    python benchmarks/out_of_core.py [--nodes 4000000] [--memory 1.5GB]

The system bounds the anonymous memory of every command (`ulimit -d`); memory-mapped files do not count.
"""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from measure import describe_machine, print_table, run_child

from nagphormer import random_split, synthetic_graph
from nagphormer.files import format_size, parse_size

NETWORK = "--hidden-dim 64 --num-heads 4 --epochs 2 --batch-size 10000 --hops 3 --encoding-dim 0 --no-linear"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--memory", default="1.5GB")
    options = parser.parse_args()
    limit = parse_size(options.memory)
    print(describe_machine(), "\n")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).absolute()
        graph = synthetic_graph(options.nodes, 5 * options.nodes, num_features=100, num_classes=10)
        random_split(graph, train=0.05, val=0.01).save(folder / "graph")
        del graph
        steps = (
            f"prepare graph --out tokens --hops 3 --device cpu --memory {options.memory}",
            f"train graph --tokens tokens --out run --device cpu {NETWORK}",
            "predict run graph --tokens tokens --device cpu --out labels.parquet",
        )
        rows = []
        for step in steps:
            command = (
                f"cd {shlex.quote(str(folder))} && ulimit -d {limit // 1024} && exec {sys.executable} -m nagphormer"
            )
            child = run_child(["sh", "-c", f"{command} {step}"])
            rows.append([step.split()[0], f"{child.seconds:.1f}", format_size(child.memory.peak_anonymous)])
        print_table(("command", "seconds", "peak anonymous memory of the process tree"), rows)
        sizes = [sum(path.stat().st_size for path in (folder / each).rglob("*")) for each in ("graph", "tokens")]
    print(f"\nlimit {format_size(limit)}; graph folder {format_size(sizes[0])}, token store {format_size(sizes[1])};")
    print(f"{options.nodes:,} nodes, {5 * options.nodes:,} edges, 100 features, 3 hops, 10 classes")


if __name__ == "__main__":
    main()
