"""Outputs of a trained network for some or all nodes, block by block.

Shapes: n nodes asked for, B nodes in a block, K hops, D model width, C classes
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from nagphormer.data.checks import SPLITS
from nagphormer.data.graph import Graph, check_graph
from nagphormer.data.nodes import positions as positions
from nagphormer.data.splits import labeled_among
from nagphormer.device import memory_explained
from nagphormer.errors import UserError
from nagphormer.model import ops
from nagphormer.model.classifier import Classifier
from nagphormer.progress import note, stage
from nagphormer.tokens.store import TokenStore
from nagphormer.training.batches import TokenSource
from nagphormer.training.ensemble import Trained, lead_of, runs_of
from nagphormer.training.forward import Output, forward, rows_at_once
from nagphormer.training.loop import kernel_shape
from nagphormer.training.run import Run
from nagphormer.training.sources import find_store, token_source, tokens_folder, with_labels

Sources = tuple[TokenSource, ...]
"""Tokens of a graph for each of the runs that are asked."""


def fitting(run: Trained, graph: Graph) -> Graph:
    """The graph with its features in the order of training; refuses one with others.

    Warns where it is another graph than that of training, and the run does not hold what its tokens have to be made
    with, since 0.1.0 wrote it.
    """
    check_graph(graph)
    run = lead_of(run)
    plan = run.best.plan
    if run.fitted is not None:
        graph = run.fitted.arranged(graph)
    width = max(graph.num_features, 1)
    expected = width if run.fitted is not None else plan.model.input_dim - plan.tokens.encoding_dim
    if width != expected:
        has = f"{graph.num_features:,}" if graph.num_features else "none"
        raise UserError(f"the model was trained on {expected:,} features, but this graph has {has}")
    if plan.tokens.fits and run.fitted is None and not run.is_of(graph):
        warnings.warn(
            "this is not the graph the model was trained on, and its run does not hold mean, deviation and "
            "eigenvectors of training: this graph's own are taken, so predictions may be poor; train again",
            stacklevel=3,
        )
    return graph


def usable(run: Trained, graph: Graph) -> Trained:
    """The run as far as it can be used on a graph: without members that read labels of nodes which are not there."""
    if isinstance(run, Run) or run.is_of(graph):
        return run
    able = [part for part in run.asked if part.run.shown is None or part.run.shown.known_in(graph)]
    left_out = [part.name for part in run.asked if part not in able]
    if not able or not left_out:
        return run
    warnings.warn(
        f"this graph has too few of the training nodes for members that read their labels: {', '.join(left_out)} are "
        f"not asked",
        stacklevel=3,
    )
    return run.of_parts(able)


def splits_of(run: Trained, graph: Graph) -> tuple[Mapping[str, np.ndarray], bool]:
    """The splits that a run is judged by on a graph, and whether they are the run's own: see `split_nodes`."""
    of_run = bool(run.splits) and run.is_of(graph) and (graph.drawn or not graph.splits)
    return (run.splits if of_run else graph.splits), of_run


def nodes_of_split(run: Trained, graph: Graph, split: str) -> tuple[np.ndarray, bool]:
    """All nodes of a split, labeled or not, and whether it is the run's own."""
    if not isinstance(split, str) or split not in SPLITS:
        given = repr(split) if isinstance(split, str) else type(split).__name__
        raise UserError(f"unknown split {given}: use train, val or test; labels are the graph's")
    splits, of_run = splits_of(run, graph)
    nodes = splits.get(split, np.empty(0, np.int64))
    if len(nodes) == 0:
        raise UserError(
            f"the split {split!r} is empty: name its nodes with graph.with_splits({split}=…), or in the column 'split' "
            f"of a node table"
        )
    return nodes, of_run


def split_nodes(run: Trained, graph: Graph, split: str) -> np.ndarray:
    """Nodes of a split to judge a run by.

    They are the graph's own where its file or the user gave them. Where they were drawn from a seed, or there are none,
    and it is the graph of training, they are the run's. Says which, and warns of nodes that were trained on.
    """
    nodes, of_run = nodes_of_split(run, graph, split)
    same = run.is_of(graph)
    labeled = labeled_among(graph, nodes)
    if len(labeled) < len(nodes):
        if not len(labeled):
            raise UserError(f"none of the {len(nodes):,} {split} nodes has a label to compare with")
        unknown = len(nodes) - len(labeled)
        warnings.warn(f"{unknown:,} of the {len(nodes):,} {split} nodes have no label and are left out", stacklevel=3)
        nodes = labeled
    note(f"judged by the {len(nodes):,} {split} nodes of {'training' if of_run else 'the graph'}")
    own = labeled_among(graph, np.asarray(graph.splits.get(split, nodes)))
    if of_run and not np.array_equal(nodes, own):
        warnings.warn(
            f"the graph's {split} nodes were drawn from a seed, and not as in training: those of training are taken, "
            f"{len(nodes):,}; to judge by others, give them with graph.with_splits({split}=…)",
            stacklevel=3,
        )
    seen = np.isin(nodes, run.splits.get("train", ())).sum() if same and split != "train" else 0
    if seen:
        warnings.warn(
            f"{seen:,} of the {len(nodes):,} {split} nodes were trained on: training had another split than this graph",
            stacklevel=3,
        )
    return nodes


def question(run: Trained, graph: Graph, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of a split to judge a run by and the truth about them; refuses what cannot be asked, before any work.

    Returns:
        Positions (n,), and classes in the model's order, (n,), or 0 and 1, (n, C).
    """
    nodes = split_nodes(run, graph, split)
    return nodes, run.classes.targets(graph, nodes)


def open_source(
    run: Run, graph: Graph, device: str, tokens: TokenStore | Path | None = None, folder: Path | None = None
) -> TokenSource:
    """A graph's tokens as one model wants them.

    Args:
        run: the model.
        graph: the graph, as `fitting` gives it.
        device: where the network runs.
        tokens: the graph's token store; by default that of training, one in the cache or beside the run, or made now.
        folder: of the run, if it has one; what is made is kept in the cache.
    """
    plan, out = run.best.plan, None
    way = plan.way_for(graph)
    if folder is not None and way == "stored":
        out = tokens_folder(folder, graph, plan.tokens, run.fitted)
        tokens = tokens or store_of(run, graph, folder)
    store = TokenStore.open(tokens) if isinstance(tokens, Path) else tokens
    with memory_explained(f"making tokens of {plan.tokens.hops} hops", "use nagphormer prepare --memory, and --tokens"):
        return token_source(graph, plan.tokens, way, device, store, out, run.fitted)


def open_sources(
    run: Trained, graph: Graph, device: str, tokens: TokenStore | Path | None = None, folder: Path | None = None
) -> Sources:
    """A graph's tokens as each of the models that are asked wants them; those that read the same share them."""
    runs = runs_of(run)
    if tokens is not None and len({each.best.plan.tokens for each in runs}) > 1:
        raise UserError("the members of this run read tokens of several kinds: leave tokens out, and they are made")
    made: dict[Any, TokenSource] = {}
    sources = []
    for each in runs:
        plan = each.best.plan
        key = plan.tokens, plan.way_for(graph)
        if key not in made:
            made[key] = open_source(each, graph, device, tokens, folder)
        sources.append(with_labels(made[key], graph, plan, each.shown, same=each.is_of(graph)))
    return tuple(sources)


def store_of(run: Run, graph: Graph, folder: Path) -> Path | None:
    """The token store of a graph, if there is one already: that of training, or one in the cache or beside the run."""
    plan = run.best.plan
    used = run.store.path if run.is_of(graph) else None
    return find_store(folder, graph, plan.tokens, used, run.fitted)


def probabilities(run: Trained, source: TokenSource | Sources, nodes: np.ndarray) -> np.ndarray:
    """Probability of every class, (n, C) float32; for multi-label tasks of each label on its own."""
    return _collect(_Question.of_classes(run), source, nodes)


def probability_blocks(run: Trained, source: TokenSource | Sources, nodes: np.ndarray) -> Iterator[np.ndarray]:
    """The same, block by block in order."""
    return _blocks(_Question.of_classes(run), source, nodes)


def decisions(run: Trained, source: TokenSource | Sources, nodes: np.ndarray) -> np.ndarray:
    """The class of every node, (n,), or 0 and 1 for every label, (n, C): what `decide` gives, but on the device."""
    asked = _Question.of_classes(run)

    def decided(found: list[torch.Tensor]) -> torch.Tensor:
        probability = asked.join(found)
        return (probability > 0.5).long() if run.classes.multi_label else probability.argmax(dim=1)

    return _collect(replace(asked, join=decided), source, nodes)


def embeddings(run: Trained, source: TokenSource | Sources, nodes: np.ndarray) -> np.ndarray:
    """Node representations, what the last layers read, (n, D) float32: Z_out of the paper's Eq. 12.

    Those of several members stand side by side, each times its weight.
    """
    runs = runs_of(run)
    weights = [1.0] if isinstance(run, Run) else [part.weight for part in run.asked]

    def beside(found: list[torch.Tensor]) -> torch.Tensor:
        if len(found) == 1:
            return found[0]
        return torch.cat([weight * each for weight, each in zip(weights, found, strict=True)], dim=1)

    outputs = [partial(_represented, each.best.model) for each in runs]
    return _collect(_Question(runs, outputs, beside), source, nodes)


def _represented(model: Classifier, hidden: torch.Tensor) -> torch.Tensor:
    return model.represent(hidden).float()


def hop_attention(run: Trained, source: TokenSource | Sources, nodes: np.ndarray) -> np.ndarray:
    """The readout's weights of hops 1 … K, (n, K) float32; of several members that have such, the weighted mean."""
    runs, sources = runs_of(run), _as_tuple(source)
    if len(runs) == 1:
        return _collect(_Question(runs, [runs[0].best.model.hop_attention], _only), source, nodes)
    assert not isinstance(run, Run)
    able = [number for number, each in enumerate(runs) if each.best.model.weighs_hops]
    if not able:
        raise UserError(
            "no member of this run weighs hops: only a transformer does, NodeClassifier(network='transformer'); "
            "leaderboard() names the members"
        )
    able = [number for number in able if sources[number].hops] or able  # those without hops have nothing to share out
    weights = np.array([run.asked[number].weight for number in able])
    widest = max(sources[number].hops for number in able)

    def mean(found: list[torch.Tensor]) -> torch.Tensor:
        wide = (functional.pad(each, (0, widest - each.shape[1])) for each in found)
        total = sum(weight * each for weight, each in zip((weights / weights.sum()).tolist(), wide, strict=True))
        assert isinstance(total, torch.Tensor)
        return total

    outputs = [runs[number].best.model.hop_attention for number in able]
    asked = _Question(tuple(runs[number] for number in able), outputs, mean)
    return _collect(asked, tuple(sources[number] for number in able), nodes)


@dataclass(frozen=True)
class _Question:
    """What is asked of each of some models, and how their answers become one."""

    runs: tuple[Run, ...]
    outputs: Sequence[Output]
    """For each model, what is wanted of embedded tokens, (B, K+1, D) -> (B, …)."""
    join: Callable[[list[torch.Tensor]], torch.Tensor]

    @classmethod
    def of_classes(cls, run: Trained) -> "_Question":
        """Asks for probabilities."""
        runs = runs_of(run)
        outputs = [partial(_probability, each) for each in runs]
        return cls(runs, outputs, _only if isinstance(run, Run) else run.combine)


def _only(found: list[torch.Tensor]) -> torch.Tensor:
    return found[0]


def _as_tuple(source: TokenSource | Sources) -> Sources:
    return source if isinstance(source, tuple) else (source,)


def _probability(run: Run, hidden: torch.Tensor) -> torch.Tensor:
    return run.probability(run.best.model.classify(hidden))


def _collect(asked: _Question, source: TokenSource | Sources, nodes: np.ndarray) -> np.ndarray:
    whole: np.ndarray | None = None
    done = 0
    for block in _blocks(asked, source, nodes):
        if whole is None:
            whole = np.empty((len(nodes), *block.shape[1:]), block.dtype)
        whole[done : done + len(block)] = block
        done += len(block)
    if whole is not None:
        return whole
    found = []
    with torch.no_grad():  # for the width of no rows
        for run, output, each in zip(asked.runs, asked.outputs, _as_tuple(source), strict=True):
            tokens, model = each.hops + 1 + run.best.plan.model.label_tokens, run.best.model.to(each.device).eval()
            found.append(output(torch.zeros(0, tokens, model.embed.out_features, device=each.device)))
        return asked.join(found).cpu().numpy()


def _blocks(asked: _Question, source: TokenSource | Sources, nodes: np.ndarray) -> Iterator[np.ndarray]:
    """What is asked of each block of nodes."""
    sources = _as_tuple(source)
    models = [run.best.model.to(each.device).eval() for run, each in zip(asked.runs, sources, strict=True)]
    rows = min(rows_at_once(each, model.embed.out_features) for each, model in zip(sources, models, strict=True))
    wanted = torch.from_numpy(np.array(nodes, np.int64))
    passes = [
        _pass(run, each, wanted, output, rows)
        for run, each, output in zip(asked.runs, sources, asked.outputs, strict=True)
    ]
    with (
        stage(f"predicting {len(nodes):,} nodes", total=-(-len(wanted) // rows)) as advance,
        memory_explained("predicting", "ask for fewer nodes at a time"),
    ):
        joined = (asked.join(list(found)) for found in zip(*passes, strict=True))
        for result in _one_behind(_on_its_way(block) for block in joined):
            yield result
            advance(1)


def _pass(run: Run, source: TokenSource, nodes: torch.Tensor, output: Output, rows: int) -> Iterator[torch.Tensor]:
    """What one model answers, block by block."""
    plan, model = run.best.plan, run.best.model
    shape = plan.model
    work = len(nodes) * (source.hops + 1) * shape.hidden_dim * max(shape.num_layers, 1) / 3  # forward only
    mode = partial(ops.enough_work, work, kernel_shape(shape, source, plan.precision))
    for _, found in forward(model, source, nodes, output, plan.precision, rows, mode):
        yield found


def _one_behind(results: Iterator[tuple[torch.Tensor, Any]]) -> Iterator[np.ndarray]:
    """Results in the CPU's memory; on a GPU the next block runs while this one is used."""
    ahead = next(results, None)
    while ahead is not None:
        (result, arrived), ahead = ahead, next(results, None)
        if arrived is not None:
            arrived.synchronize()
        yield result.numpy()


def _on_its_way(result: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """A result in the CPU's memory, and the event after which it is there."""
    if not result.is_cuda:
        return result, None
    pinned = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    pinned.copy_(result, non_blocking=True)
    return pinned, torch.cuda.current_stream(result.device).record_event()
