"""`nagphormer import` of a large edge list with string ids, with its peak memory; are the ids unchanged?

python benchmarks/import_tables.py [--edges 10000000] [--nodes 1000000]
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from measure import describe_machine, run_child

from nagphormer import load_graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    options = parser.parse_args()
    print(describe_machine(), "\n")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.csv"
        names = pa.array([f"user_{number:07d}" for number in rng.permutation(options.nodes)])
        ends = {
            end: names.take(pa.array(rng.integers(0, options.nodes, options.edges))) for end in ("source", "target")
        }
        pyarrow.csv.write_csv(pa.table(ends), path)
        child = run_child(
            [sys.executable, "-m", "nagphormer", "import", "--edges", str(path), "--out", f"{folder}/graph"]
        )
        print(child.stdout.strip().replace(folder, "…"))
        graph = load_graph(f"{folder}/graph")
        seen = pc.unique(pa.chunked_array([ends["source"], ends["target"]]))
        expected = seen.take(pc.sort_indices(seen))
        print(
            f"{options.edges:,} rows, {path.stat().st_size / 1e6:.0f} MB of CSV: {child.seconds:.1f} s, "
            f"peak {child.memory.peak_anonymous / 1e9:.2f} GB anonymous, {child.memory.peak_rss / 1e9:.2f} GB RSS; "
            f"ids unchanged: {graph.ids.equals(expected)}"
        )


if __name__ == "__main__":
    main()
