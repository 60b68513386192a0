"""How well settings do on labels that are held out, and which of several do best.

Features and edges of all nodes are seen in every fit, as a node's neighbors are when a model is used; it is labels that
are held out. So these numbers are about nodes of this graph, not about another graph.

Shapes: n nodes held out
"""

import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from nagphormer.data.graph import Graph, check_graph
from nagphormer.data.splits import draw_folds, labeled_nodes, with_splits
from nagphormer.device import machine
from nagphormer.errors import UserError, check_whole
from nagphormer.estimator import NodeClassifier
from nagphormer.metrics import check_metric
from nagphormer.settings import TokenSettings
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.store import TokenStore
from nagphormer.training.plan import check_trainable, choose_tokens, choose_way

FALLING = ("log_loss", "ece")
"""Metrics of which less is better."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    best_params_: dict[str, Any]
    best_score_: float
    """On validation nodes: it chose among several, so test nodes may give less."""
    best_: NodeClassifier
    """With the best settings, fitted on the graph's training nodes."""
    results_: list[dict[str, Any]]
    """For each candidate, in the order of the grid: `params`, its `score`, the `scores` of its fits, and `seconds`; or
    `score` None and `error`, where training diverged."""


def cross_validate(
    clf: NodeClassifier, graph: Graph, folds: int = 5, metric: str = "accuracy", seed: int = 0
) -> list[dict[str, Any]]:
    """Fit as often as there are folds, each time judged by another fold of all labeled nodes.

    Of every class each fold has its share. While one is held out, the next serves for early stopping and the others are
    trained on; the graph's own splits play no part. Do not choose settings by this if test nodes shall still tell
    something new: `search` leaves them out.

    Args:
        clf: the settings; it is not fitted itself.
        graph: a graph with labels.
        folds: parts of the labeled nodes, 3 or more.
        metric: as for `score`.
        seed: of the folds; that of weights and batches is the classifier's.

    Returns:
        For each fold `fold`, its `score`, `best_epoch`, `seconds`, and how many nodes `train`, `val` and `test` had.

    >>> from nagphormer import synthetic_graph
    >>> found = cross_validate(NodeClassifier(hidden_dim=32, epochs=3), synthetic_graph(300, 900, 8, 3), folds=3)
    >>> [fold["test"] for fold in found]
    [100, 100, 100]
    """
    check_metric(metric)
    _check_kinds(clf, graph)
    return _fits(clf, _folded(graph, labeled_nodes(graph), folds, seed), metric, "test", _Tokens())


def search(
    clf: NodeClassifier,
    graph: Graph,
    grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    metric: str | None = None,
    folds: int | None = None,
    seed: int = 0,
) -> SearchResult:
    """Try settings, and keep those that are best on validation nodes; labels of test nodes are not looked at.

    Args:
        clf: the settings that are the same for all; it is not fitted itself.
        graph: a graph with labels; without splits it gets a random one, and a warning says so.
        grid: values to try by parameter, every combination of them; or candidates one by one, such as a list of dicts
            or scikit-learn's `ParameterGrid`.
        metric: as for `score`; by default what the classifier monitors.
        folds: judge by cross-validation over training and validation nodes, which takes as many fits; by default
            candidates are fitted on the training nodes and judged by the validation nodes.
        seed: of the folds.

    >>> from nagphormer import random_split, synthetic_graph
    >>> graph = random_split(synthetic_graph(300, 900, 8, 3))
    >>> found = search(NodeClassifier(hidden_dim=32, epochs=3), graph, {"hops": [1, 2], "lr": [0.001, 0.01]})
    >>> len(found.results_), sorted(found.best_params_)
    (4, ['hops', 'lr'])
    """
    _check_kinds(clf, graph)
    candidates = _candidates(grid)
    tried = [_like(clf).set_params(**params) for params in candidates]
    settings = [each.settings_for(graph) for each in tried]  # refuses wrong values before any work
    graph = with_splits(graph, settings[0].seed)
    check_trainable(graph)
    metric = metric or _monitored(graph, clf)
    check_metric(metric)
    if folds is None:
        graphs = [graph]
    else:
        nodes = np.concatenate([graph.splits["train"], graph.splits["val"]])
        graphs = _folded(graph, nodes, folds, seed)
    held_out, tokens = "val" if folds is None else "test", _Tokens()
    results: list[dict[str, Any]] = [{}] * len(tried)
    for number in sorted(range(len(tried)), key=lambda each: tokens.turn(graphs[0], tried[each])):
        results[number] = {"params": candidates[number], "score": None}
        try:
            found = _fits(tried[number], graphs, metric, held_out, tokens)
        except UserError as error:
            results[number]["error"] = str(error)
            continue
        scores = [fold["score"] for fold in found]
        seconds = round(sum(fold["seconds"] for fold in found), 3)
        results[number] |= {"score": float(np.mean(scores)), "scores": scores, "seconds": seconds}
    best = _best(results, metric)
    chosen = tried[best]
    chosen.fit(graph, tokens=tokens.of(graph, chosen))
    return SearchResult(results[best]["params"], results[best]["score"], chosen, results)


def _best(results: list[dict[str, Any]], metric: str) -> int:
    """The number of the best candidate, the first one of equals; warns of those that have no score."""
    errors = [each["error"] for each in results if "error" in each]
    if len(errors) == len(results):
        raise UserError(f"no candidate could be judged; the first one says: {errors[0]}")
    if errors:
        warnings.warn(f"{len(errors)} of {len(results)} candidates could not be judged: {errors[0]}", stacklevel=3)
    sign = -1 if metric in FALLING else 1
    judged = [number for number, each in enumerate(results) if "error" not in each]
    return max(judged, key=lambda number: sign * results[number]["score"])


class _Tokens:
    """Tokens that several fits share: those of one setting are held at a time."""

    def __init__(self) -> None:
        self._turns: dict[Any, int] = {}
        self._held: tuple[Any, TokenStore | None] = (None, None)

    def turn(self, graph: Graph, clf: NodeClassifier) -> int:
        """When a classifier's tokens are due: those that need the same ones come one after another."""
        return self._turns.setdefault(self._wanted(graph, clf), len(self._turns))

    def of(self, graph: Graph, clf: NodeClassifier) -> TokenStore | None:
        """The tokens that a classifier takes; None where features are projected first."""
        wanted = self._wanted(graph, clf)
        if self._held[0] != wanted:
            self._held = None, None  # before others are made
            tokens, device = wanted
            self._held = wanted, None if tokens is None else make_tokens(graph, tokens, device=device)
        return self._held[1]

    def _wanted(self, graph: Graph, clf: NodeClassifier) -> tuple[TokenSettings | None, str]:
        given = clf.settings_for(graph)
        here, tokens = machine(given.device), choose_tokens(graph, given)
        if clf.has_members(graph):  # which share theirs among themselves
            return None, here.device
        return tokens if choose_way(graph, given, tokens, here) == "stored" else None, here.device


def _fits(clf: NodeClassifier, graphs: list[Graph], metric: str, split: str, tokens: _Tokens) -> list[dict[str, Any]]:
    """A fit on each of some splits of a graph, and its score on the nodes held out."""
    found = []
    for fold, graph in enumerate(graphs):
        start = time.perf_counter()
        fitted = _like(clf).fit(graph, tokens=tokens.of(graph, clf))
        score = fitted.score(graph, split, metric)
        seconds = round(time.perf_counter() - start, 3)
        facts = {"fold": fold, "score": score, "best_epoch": fitted.best_epoch_, "seconds": seconds}
        found.append(facts | {name: len(nodes) for name, nodes in graph.splits.items()})
    return found


def _folded(graph: Graph, nodes: np.ndarray, folds: int, seed: int) -> list[Graph]:
    """The graph with another fold held out as `test` each time, and the next as `val`."""
    check_whole("folds", folds)
    if not 3 <= folds <= len(nodes):
        raise UserError(
            f"folds={folds} of {len(nodes):,} labeled nodes: one fold is held out, one stops the training and the rest "
            f"is trained on, so give from 3 to {len(nodes):,}"
        )
    parts = draw_folds(graph, nodes, folds, seed)
    turned = [parts[fold:] + parts[:fold] for fold in range(folds)]
    return [graph.with_splits(test=test, val=val, train=np.concatenate(rest)) for test, val, *rest in turned]


def _candidates(grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every combination of settings that a grid asks for."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise UserError(
                    f"the grid has {name!r}: {values!r}: give a list of values to try, such as [{values!r}]"
                )
        found = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    else:
        if isinstance(grid, str) or not isinstance(grid, Iterable):
            raise UserError(f"the grid is {grid!r}: give a dict of lists, or a list of dicts")
        found = []
        for each in grid:
            if not isinstance(each, Mapping):
                raise UserError(f"the grid holds {each!r}: give a dict of lists, or a list of dicts")
            found.append(dict(each))
    if not found:
        raise UserError("the grid holds nothing to try: give at least one value for every parameter")
    return found


def _check_kinds(clf: NodeClassifier, graph: Graph) -> None:
    """Refuse anything but a NodeClassifier and a Graph."""
    if not isinstance(clf, NodeClassifier):
        raise UserError(f"a NodeClassifier is needed, such as NodeClassifier(hops=3), not {clf!r}")
    check_graph(graph)


def _monitored(graph: Graph, clf: NodeClassifier) -> str:
    """The metric that early stopping watches."""
    monitor = clf.settings_for(graph).monitor
    several = graph.labels is not None and graph.labels.ndim == 2
    return {"accuracy": "micro_f1" if several else "accuracy", "loss": "log_loss"}.get(monitor, monitor)


def _like(clf: NodeClassifier) -> NodeClassifier:
    """A classifier with the same parameters, not fitted."""
    return type(clf)(**clf.get_params())
