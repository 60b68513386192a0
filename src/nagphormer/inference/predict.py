"""Outputs of a trained network for some or all nodes, block by block.

Shapes: n nodes asked for, B nodes in a block, K hops, D model width, C classes
"""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from nagphormer.data.graph import SPLITS, Graph
from nagphormer.device import autocast, memory_explained, resolve_device
from nagphormer.errors import UserError
from nagphormer.files import new_file
from nagphormer.metrics import METRICS, check_metric, decide
from nagphormer.model import kernels
from nagphormer.progress import stage
from nagphormer.tokens.store import MANIFEST, TokenStore
from nagphormer.training.loop import kernel_shape
from nagphormer.training.run import Trained
from nagphormer.training.source import token_source, tokens_folder
from nagphormer.training.sources import TokenSource, rows_at_once

GROUP_ROWS = 1 << 17
"""Rows of predictions written at a time."""


def check_fits(trained: Trained, graph: Graph) -> None:
    """Refuse a graph of another width; warn where its encoding means something else than in training."""
    width = max(graph.num_features, 1)
    expected = trained.model.config.input_dim - trained.config.encoding_dim
    if width != expected:
        raise UserError(f"the model was trained on {expected:,} features, but this graph has {width:,}")
    if trained.config.encoding_dim and graph.fingerprint != trained.graph["fingerprint"]:
        warnings.warn(
            "this is not the graph the model was trained on: its Laplacian eigenvectors do not correspond to those of "
            "training, so predictions may be poor; train with encoding_dim=0 for a model that can move",
            stacklevel=3,
        )


def split_nodes(trained: Trained, graph: Graph, split: str) -> np.ndarray:
    """Nodes of a split: the graph's own; where it has none, those of training. Warns of nodes that were trained on."""
    same = graph.fingerprint == trained.graph["fingerprint"]
    splits = trained.splits if same and not graph.splits else graph.splits
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}: use train, val or test")
    if len(splits.get(split, ())) == 0:
        raise UserError(
            f"the split {split!r} is empty: name its nodes in the node table's column 'split' or with "
            f"graph.with_splits({split}=…)"
        )
    nodes = splits[split]
    seen = np.isin(nodes, trained.splits["train"]).sum() if same and split != "train" else 0
    if seen:
        warnings.warn(
            f"{seen:,} of the {len(nodes):,} {split} nodes were trained on: training had another split than this graph",
            stacklevel=3,
        )
    return nodes


def positions(graph: Graph, nodes: Any, node_ids: Any) -> np.ndarray:
    """Node positions from positions, a slice, a mask, or the user's own ids; all without any."""
    if node_ids is not None:
        if nodes is not None:
            raise UserError("give nodes (positions) or node_ids (your own ids), not both")
        return _find(graph, node_ids)
    if nodes is None:
        return np.arange(graph.num_nodes)
    if isinstance(nodes, slice):
        return np.arange(graph.num_nodes)[nodes]
    found = np.atleast_1d(np.asarray(nodes))
    if found.dtype == bool:
        if found.shape != (graph.num_nodes,):
            raise UserError(f"the mask of nodes has shape {found.shape}, not ({graph.num_nodes},)")
        return np.flatnonzero(found)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise UserError("nodes must be positions, a slice or a mask; your own ids go into node_ids=")
    outside = found[(found < 0) | (found >= graph.num_nodes)]
    if len(outside):
        raise UserError(f"there is no node {outside[0]}: positions are 0 to {graph.num_nodes - 1:,}")
    return found.astype(np.int64)


def _find(graph: Graph, node_ids: Any) -> np.ndarray:
    """Positions of the user's ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(np.arange(graph.num_nodes)) if graph.ids is None else graph.ids
    wanted = pa.array(np.atleast_1d(np.asarray(node_ids)).tolist())
    try:
        place = pc.index_in(wanted.cast(ids.type), value_set=ids)
    except pa.ArrowException as error:
        raise UserError(f"node_ids are {wanted.type}, but the graph's ids are {ids.type}") from error
    if place.null_count:
        missing = wanted.filter(pc.is_null(place))
        raise UserError(
            f"the graph has no node with id {missing[0].as_py()!r} ({len(missing):,} of the ids are unknown)"
        )
    return place.to_numpy().astype(np.int64)


def open_source(
    trained: Trained,
    graph: Graph,
    device: str | None,
    tokens: TokenStore | Path | None = None,
    run: Path | None = None,
) -> TokenSource:
    """A graph's tokens as the model wants them: those given, those of training, or made now, beside the run."""
    check_fits(trained, graph)
    config, out = trained.config, None
    if config.project_first == "always" and not sp.issparse(graph.features):
        config = replace(config, project_first="never")
    if run is not None:
        out = tokens_folder(run, graph, config)
        tokens = tokens or tokens_of_training(trained, graph, run)
    store = TokenStore.open(tokens) if isinstance(tokens, Path) else tokens
    with memory_explained(f"making tokens of {config.hops} hops", "use nagphormer prepare --memory, and --tokens"):
        return token_source(graph, config, resolve_device(device), store, out, trained.tokens["dtype"])


def tokens_of_training(trained: Trained, graph: Graph, run: Path) -> Path | None:
    """The token store that a run was trained on, if it is this graph's and still there."""
    used = trained.tokens["path"]
    if not used or graph.fingerprint != trained.graph["fingerprint"]:
        return None
    return run / used if (run / used / MANIFEST).is_file() else None


def check_question(trained: Trained, graph: Graph, split: str, metric: str = "accuracy") -> None:
    """Refuse an unknown metric, an empty split or labels never seen, before any work."""
    check_metric(metric)
    trained.classes.targets(graph, split_nodes(trained, graph, split))


def score(trained: Trained, source: TokenSource, graph: Graph, split: str, metric: str) -> float:
    """One metric on a split of a graph."""
    return METRICS[metric](*_judged(trained, source, graph, split))


def scores(trained: Trained, source: TokenSource, graph: Graph, split: str) -> dict[str, float | None]:
    """Every metric on a split of a graph; None for one that the split does not allow."""
    target, probability = _judged(trained, source, graph, split)
    found: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        try:
            found[name] = metric(target, probability)
        except UserError:
            found[name] = None
    return found


def _judged(trained: Trained, source: TokenSource, graph: Graph, split: str) -> tuple[np.ndarray, np.ndarray]:
    nodes = split_nodes(trained, graph, split)
    target = trained.classes.targets(graph, nodes)
    return target, probabilities(trained, source, nodes)


def probabilities(trained: Trained, source: TokenSource, nodes: np.ndarray) -> np.ndarray:
    """Probability of every class, (n, C) float32; for multi-label tasks of each label on its own."""
    return _collect(trained, source, nodes, lambda hidden: _probability(trained, hidden))


def decisions(trained: Trained, source: TokenSource, nodes: np.ndarray) -> np.ndarray:
    """The class of every node, (n,), or 0 and 1 for every label, (n, C): what `decide` gives, but on the device."""

    def decided(hidden: torch.Tensor) -> torch.Tensor:
        probability = _probability(trained, hidden)
        return (probability > 0.5).long() if trained.classes.multi_label else probability.argmax(dim=1)

    return _collect(trained, source, nodes, decided)


def embeddings(trained: Trained, source: TokenSource, nodes: np.ndarray) -> np.ndarray:
    """Node representations, Z_out of the paper's Eq. 12, (n, D) float32."""
    model = trained.model
    return _collect(trained, source, nodes, lambda hidden: model.readout(model.encode(hidden)).float())


def hop_attention(trained: Trained, source: TokenSource, nodes: np.ndarray) -> np.ndarray:
    """The readout's weights of hops 1 … K, (n, K) float32."""
    model = trained.model
    return _collect(trained, source, nodes, lambda hidden: model.hop_attention(model.encode(hidden)))


def write_predictions(
    trained: Trained,
    source: TokenSource,
    graph: Graph,
    path: str | os.PathLike[str],
    rows: tuple[int, int] | None = None,
) -> None:
    """Write `node_id, prediction, probability, p_<class>…` of every node, as Parquet or CSV by the path's ending.

    Args:
        trained: the model.
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
            for block in _gathered(_blocks(trained, source, nodes, lambda hidden: _probability(trained, hidden))):
                table = _table(trained, ids.slice(done, len(block)), block)
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


def _table(trained: Trained, ids: Any, probability: np.ndarray) -> Any:
    """A block of the predictions' table; several labels of a node are joined by a bar."""
    import pyarrow as pa

    names = trained.classes.values
    decided = decide(probability, trained.classes.multi_label)
    if trained.classes.multi_label:
        prediction = pa.array(["|".join(map(str, names[row > 0])) for row in decided], pa.string())
    else:
        prediction = pa.array(names[decided])
    columns = {"node_id": ids, "prediction": prediction, "probability": pa.array(probability.max(axis=1))}
    columns |= {f"p_{name}": pa.array(np.ascontiguousarray(probability[:, i])) for i, name in enumerate(names)}
    return pa.table(columns)


def _probability(trained: Trained, hidden: torch.Tensor) -> torch.Tensor:
    logits = trained.model.classify(hidden).float()
    return logits.sigmoid() if trained.classes.multi_label else logits.softmax(dim=1)


Output = Callable[[torch.Tensor], torch.Tensor]


def _collect(trained: Trained, source: TokenSource, nodes: np.ndarray, output: Output) -> np.ndarray:
    whole: np.ndarray | None = None
    done = 0
    for block in _blocks(trained, source, nodes, output):
        if whole is None:
            whole = np.empty((len(nodes), *block.shape[1:]), block.dtype)
        whole[done : done + len(block)] = block
        done += len(block)
    if whole is not None:
        return whole
    with torch.no_grad():  # for the width of no rows
        hidden = torch.zeros(0, source.hops + 1, trained.model.embed.out_features, device=source.device)
        return output(hidden).cpu().numpy()


def _blocks(trained: Trained, source: TokenSource, nodes: np.ndarray, output: Output) -> Iterator[np.ndarray]:
    """What `output` makes of the embedded tokens, (B, K+1, D), of each block of nodes."""
    model, config = trained.model.to(source.device).eval(), trained.config
    work = len(nodes) * (config.hops + 1) * config.hidden_dim * max(config.num_layers, 1) / 3  # forward only
    shape = kernel_shape(config, source)
    wanted = torch.from_numpy(np.array(nodes, np.int64))
    blocks = wanted.split(rows_at_once(source, model.embed.out_features)) if len(wanted) else ()
    with (
        stage(f"predicting {len(nodes):,} nodes", total=len(blocks)) as advance,
        memory_explained("predicting", "ask for fewer nodes at a time"),
    ):
        hidden = source.embed(model.embed, source.fetch(blocks))
        running: deque[tuple[torch.Tensor, Any]] = deque()
        for number in range(len(blocks) + 1):
            if number < len(blocks):
                # the modes are entered for each block, since the caller runs between them
                with torch.no_grad(), autocast(source.device, config.precision), kernels.worthwhile(work, shape):
                    running.append(_on_its_way(output(next(hidden))))
            if number > 0:  # on a GPU the next block runs while this one is used
                result, arrived = running.popleft()
                if arrived is not None:
                    arrived.synchronize()
                yield result.numpy()
                advance(1)


def _on_its_way(result: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """A result in the CPU's memory, and the event after which it is there."""
    if not result.is_cuda:
        return result, None
    pinned = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    pinned.copy_(result, non_blocking=True)
    return pinned, torch.cuda.current_stream(result.device).record_event()
