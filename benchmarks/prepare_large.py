"""The Amazon2M-size graph from graph folder to token store, with and without a memory budget.

    python benchmarks/prepare_large.py --memory 4GB [--nodes 2449029 --edges 61859140]

Each run is a process of its own, timed from start to end, with the peak memory of its whole process tree. The graph is
synthetic, with shuffled ids; it is made first, in a process of its own, too. "rest by hops" is all time but the search
for eigenvectors, divided by that of the hops alone.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import describe_machine, print_table, run_child

from nagphormer import TokenStore

MAKE = "import sys; from nagphormer import synthetic_graph as make; make(*map(int, sys.argv[1:5])).save(sys.argv[5])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=61_859_140)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--hops", type=int, default=10)
    parser.add_argument("--encoding-dim", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    options = parser.parse_args()
    print(describe_machine(), "\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sizes = map(str, (options.nodes, options.edges, options.features, 47))
        child = run_child([sys.executable, "-c", MAKE, *sizes, f"{folder}/graph"])
        print(f"graph made in {child.seconds:.0f} s and {child.memory.peak_anonymous / 1e9:.2f} GB\n")
        rows = [
            _prepare(folder, options, name, extra)
            for name, extra in (("budget", ["--memory", options.memory]), ("none", []))
        ]
        header = ("memory", "seconds", "rest by hops", "peak anonymous", "peak RSS", "store", "stages")
        print_table(header, rows)
        _compare(f"{folder}/budget", f"{folder}/none")


def _prepare(folder: str, options: argparse.Namespace, name: str, extra: list[str]) -> list[str]:
    command = [sys.executable, "-m", "nagphormer", "prepare", f"{folder}/graph", "--out", f"{folder}/{name}"]
    command += ["--hops", str(options.hops), "--encoding-dim", str(options.encoding_dim), "--device", "cpu", *extra]
    child = run_child(command)
    stages = re.findall(r"^  (.+): ([\d.]+) s$", child.stderr, re.MULTILINE)
    sums = sum(float(seconds) for text, seconds in stages if "hops of columns" in text)
    search = sum(float(seconds) for text, seconds in stages if "eigenvectors" in text)
    size = sum(file.stat().st_size for file in Path(f"{folder}/{name}").iterdir())
    return [
        extra[1] if extra else "no limit",
        f"{child.seconds:.1f}",
        f"{(child.seconds - search) / sums:.2f}",
        f"{child.memory.peak_anonymous / 1e9:.2f} GB",
        f"{child.memory.peak_rss / 1e9:.2f} GB",
        f"{size / 1e9:.2f} GB",
        "; ".join(f"{text} {seconds} s" for text, seconds in stages),
    ]


def _compare(first: str, second: str) -> None:
    one, two = TokenStore.open(first), TokenStore.open(second)
    rows = np.random.default_rng(0).choice(len(one), min(len(one), 100_000), replace=False)
    rows.sort()
    same = all(np.array_equal(a[rows], b[rows]) for a, b in zip(one.blocks, two.blocks, strict=True))
    checksums = [[block.sha256 for block in store.manifest.blocks] for store in (one, two)]
    print(f"\n{len(rows):,} sampled rows agree exactly: {same}; checksums equal: {checksums[0] == checksums[1]}")


if __name__ == "__main__":
    main()
