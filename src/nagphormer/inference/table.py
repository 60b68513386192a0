"""The table of predictions: `node_id, prediction, probability, p_<class>…`, and what is known, as Parquet or CSV.

Shapes: n nodes asked for, C classes
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nagphormer.data.checks import SPLITS
from nagphormer.data.classes import Classes
from nagphormer.data.graph import Graph
from nagphormer.errors import UserError
from nagphormer.files import new_file
from nagphormer.inference.predict import Sources, probabilities, probability_blocks, splits_of
from nagphormer.metrics import decide
from nagphormer.training.batches import TokenSource
from nagphormer.training.ensemble import Trained

GROUP_ROWS = 1 << 17
"""Rows of predictions written at a time."""


def write_predictions(
    run: Trained,
    source: TokenSource | Sources,
    graph: Graph,
    path: str | os.PathLike[str] | None,
    nodes: np.ndarray | None = None,
    truth: bool = True,
) -> None:
    """Write the table of predictions, as Parquet or CSV by the path's ending, or as CSV to stdout.

    Its columns are `node_id, prediction, probability, p_<class>…`, and, if asked for and where the graph knows them,
    `label`, `split` and `correct`.

    Args:
        run: the model.
        source: the graph's tokens.
        graph: the graph.
        path: the file; None for stdout.
        nodes: positions of the nodes, a row each; all by default.
        truth: whether to say what is known of the nodes, also of those to be tested on.
    """
    nodes = np.arange(graph.num_nodes) if nodes is None else nodes
    known = _Known(run, graph) if truth else None
    done = 0
    writer: Any = None
    with _target(path) as (target, file):
        try:
            for block in _gathered(probability_blocks(run, source, nodes)):
                table = _table(run.classes, graph, nodes[done : done + len(block)], block, known)
                writer = writer or _writer(target, file, table.schema)
                writer.write_table(table)
                done += len(block)
        finally:
            if writer is not None:
                writer.close()


def predictions_table(run: Trained, source: TokenSource | Sources, graph: Graph, nodes: np.ndarray) -> Any:
    """The same table of some nodes in memory, as Arrow, without what is known of them."""
    return _table(run.classes, graph, nodes, probabilities(run, source, nodes), None)


@contextmanager
def _target(path: str | os.PathLike[str] | None) -> Iterator[tuple[Path, Any]]:
    """What is asked for, and where to write: beside the file, so that it is whole or not there."""
    if path is None:
        yield Path("stdout.csv"), sys.stdout.buffer
        return
    with new_file(Path(path)) as staging:
        yield Path(path), str(staging)


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


def _writer(target: Path, file: Any, schema: Any) -> Any:
    if target.suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(file, schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(file, schema)


class _Known:
    """What a graph knows of its nodes' classes and splits, in the words of a model."""

    def __init__(self, run: Trained, graph: Graph):
        self.classes, self.graph, self.values = run.classes, graph, run.classes.values
        self.labeled = graph.labels is not None and graph.num_classes > 0 and self._comparable()
        if not self.classes.multi_label and self.labeled:
            if graph.class_names is not None and self.classes.names is not None:
                self.values = np.array(graph.class_names)
            elif graph.num_classes > len(self.values):
                self.values = np.array([*self.values, *range(len(self.values), graph.num_classes)])
        self.split = np.full(graph.num_nodes, -1, np.int8)
        splits, _ = splits_of(run, graph)
        for number, split in enumerate(SPLITS):
            self.split[splits.get(split, [])] = number

    def columns(self, nodes: np.ndarray, prediction: Any) -> dict[str, Any]:
        """Columns `label`, `split` and `correct` of some nodes, null where unknown; those that there are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = {}
        if self.labeled:
            assert self.graph.labels is not None
            multi_label = self.classes.multi_label
            labels = self.classes.targets(self.graph, nodes) if multi_label else self.graph.labels[nodes]
            columns["label"] = label = _words(labels, self.values)
        if (self.split >= 0).any():
            columns["split"] = _words(self.split[nodes], np.array(SPLITS))
        if self.labeled:
            columns["correct"] = pc.equal(prediction.cast(pa.string()), label.cast(pa.string()))
        return columns

    def _comparable(self) -> bool:
        """Whether the graph's labels are of the model's kind."""
        try:
            self.classes.targets(self.graph, np.empty(0, np.int64))
        except UserError:
            return False
        return True


def _words(chosen: np.ndarray, names: np.ndarray) -> Any:
    """Names of classes as a column: one of each node, null for -1, or several joined by a bar."""
    import pyarrow as pa

    if chosen.ndim == 2:
        return pa.array(["|".join(map(str, names[row > 0])) for row in chosen], pa.string())
    return pa.array(names[chosen], mask=chosen < 0)


def _table(classes: Classes, graph: Graph, nodes: np.ndarray, probability: np.ndarray, known: _Known | None) -> Any:
    """A block of the predictions' table."""
    import pyarrow as pa

    names = classes.values
    prediction = _words(decide(probability, classes.multi_label), names)
    ids = pa.array(nodes) if graph.ids is None else graph.ids.take(pa.array(nodes))
    columns = {"node_id": ids, "prediction": prediction, "probability": pa.array(probability.max(axis=1))}
    columns |= {f"p_{name}": pa.array(np.ascontiguousarray(probability[:, i])) for i, name in enumerate(names)}
    return pa.table(columns | (known.columns(nodes, prediction) if known else {}))
