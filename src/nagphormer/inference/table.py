"""The table of predictions: `node_id, prediction, probability, p_<class>…` as Parquet or CSV.

Shapes: n nodes asked for, C classes
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.classes import Classes
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file
from nagphormer.inference.predict import probability_blocks
from nagphormer.metrics import decide
from nagphormer.training.batches import TokenSource
from nagphormer.training.run import Run

GROUP_ROWS = 1 << 17
"""Rows of predictions written at a time."""


def write_predictions(
    run: Run,
    source: TokenSource,
    graph: Graph,
    path: str | os.PathLike[str],
    rows: tuple[int, int] | None = None,
) -> None:
    """Write `node_id, prediction, probability, p_<class>…` of every node, as Parquet or CSV by the path's ending.

    Args:
        run: the model.
        source: the graph's tokens.
        graph: the graph.
        path: the file.
        rows: from which node to before which one; all by default.
    """
    import pyarrow as pa

    target = Path(path)
    start, stop = rows or (0, graph.num_nodes)
    nodes = np.arange(start, stop)
    ids = pa.array(nodes) if graph.ids is None else graph.ids.slice(start, stop - start)
    done = 0
    writer: Any = None
    with new_file(target) as staging:
        try:
            for block in _gathered(probability_blocks(run, source, nodes)):
                table = _table(run.classes, ids.slice(done, len(block)), block)
                writer = writer or _writer(target, staging, table.schema)
                writer.write_table(table)
                done += len(block)
        finally:
            if writer is not None:
                writer.close()


def check_table_path(path: str | os.PathLike[str]) -> None:
    """Refuse a folder, and an ending that is neither .parquet nor .csv."""
    if Path(path).suffix not in (".parquet", ".csv"):
        raise UserError(f"{path} should end in .parquet or .csv, so that its format is known")
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder: name a file to write")


def _gathered(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Blocks put together until they have GROUP_ROWS rows, so that a Parquet file has few row groups."""
    held: list[np.ndarray] = []
    for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= GROUP_ROWS:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _writer(target: Path, staging: Path, schema: Any) -> Any:
    if target.suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(str(staging), schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(str(staging), schema)


def _table(classes: Classes, ids: Any, probability: np.ndarray) -> Any:
    """A block of the predictions' table; several labels of a node are joined by a bar."""
    import pyarrow as pa

    names = classes.values
    decided = decide(probability, classes.multi_label)
    if classes.multi_label:
        prediction = pa.array(["|".join(map(str, names[row > 0])) for row in decided], pa.string())
    else:
        prediction = pa.array(names[decided])
    columns = {"node_id": ids, "prediction": prediction, "probability": pa.array(probability.max(axis=1))}
    columns |= {f"p_{name}": pa.array(np.ascontiguousarray(probability[:, i])) for i, name in enumerate(names)}
    return pa.table(columns)
