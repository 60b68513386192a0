"""`read_tables` of frames with string ids beside the same Parquet file, in alternating runs: time and memory.

python benchmarks/import_frames.py [--edges 2000000] [--nodes 200000] [--rounds 5]
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from measure import TreeMemory, alternate, describe_machine

from nagphormer import read_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(describe_machine(), "\n")
    rng = np.random.default_rng(0)
    names = pa.array([f"user_{number:07d}" for number in rng.permutation(options.nodes)])
    ends = [names.take(pa.array(rng.integers(0, options.nodes, options.edges))) for _ in range(2)]
    table = pa.table(ends, ["source", "target"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.parquet"
        pa.parquet.write_table(table, path)
        given = {
            "Parquet file": path,
            "Arrow": table,
            "pandas, Arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
            "pandas, objects": table.to_pandas().astype(object),
            "polars": pl.from_arrow(table),
        }
        works: dict[str, Callable[[], object]] = {name: partial(read_tables, each) for name, each in given.items()}
        seconds = alternate(works, options.rounds)
        memory = {name: _beyond(work) for name, work in works.items()}
    base = seconds["Parquet file"]
    print(f"{options.edges:,} edges, {options.rounds} alternating runs; ratios are medians of time by the file's\n")
    for name, times in seconds.items():
        ratio = statistics.median(ours / other for ours, other in zip(times, base, strict=True))
        print(
            f"{name:<16} {statistics.median(times):5.2f} s   {ratio:.2f}   {memory[name] / 1e9:.2f} GB beyond the frame"
        )


def _beyond(work: Callable[[], object]) -> int:
    """Anonymous memory at its peak beyond what is held before, which is the frame."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with TreeMemory() as before:
        time.sleep(0.1)
    with TreeMemory() as memory:
        work()
    return memory.peak_anonymous - before.peak_anonymous


if __name__ == "__main__":
    main()
