"""A model with a structural encoding on tomorrow's graph: some edges gone, or nodes that are new.

    python benchmarks/drift.py [--draws 20] [--data cora]

A model is trained on a graph, and used on that graph with 1, 5 and 20 % of its edges gone, and on a graph of which it
was trained without a tenth of the nodes, where those new nodes are judged. *Turned* are eigenvectors as `predict` turns
them to those of training, and refuses those that do not agree; *as found* are the graph's own, as 0.1.0 took them;
*without* is a model without eigenvectors. The graph is four communities that the features hardly show, or a data set.
The last table shows from which agreement on turned eigenvectors are worth having: `nagphormer.tokens.fitted.LEAST`.
"""

import argparse
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import describe_machine, print_table

from nagphormer import Graph, NodeClassifier, UserError, from_scipy, load_graph, random_split
from nagphormer.inference.predict import decisions, open_sources
from nagphormer.tokens import fitted
from nagphormer.tokens.fitted import Fitted, agreement
from nagphormer.training.ensemble import lead_of

SHARES = (0.01, 0.05, 0.2)
FURTHER = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SETTINGS: dict[str, Any] = {"hidden_dim": 64, "num_heads": 4, "epochs": 300, "device": "cpu", "precision": "fp32"}
Drawn = tuple[NodeClassifier, NodeClassifier, Graph, np.ndarray]
"""The model with eigenvectors, the one without, tomorrow's graph, and the nodes that are judged."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--data", help="a data set instead of the communities")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(describe_machine())
    graph = load_graph(options.data, split="random") if options.data else communities()
    ours, plain = (NodeClassifier(encoding_dim=dim, **SETTINGS).fit(graph) for dim in (3, 0))
    test = graph.splits["test"]
    print(f"{graph}\ntest accuracy where it was trained: {ours.score(graph):.3f}, without {plain.score(graph):.3f}\n")

    def fewer(share: float) -> Callable[[int], Drawn]:
        return lambda seed: (ours, plain, without_edges(graph, share, seed), test)

    kinds: dict[str, Callable[[int], Drawn]] = {f"{share:.0%} of edges gone": fewer(share) for share in SHARES}
    rows = [_row(name, draw, options.draws) for name, draw in kinds.items()]
    rows.append(_row("10 % of nodes new", lambda seed: _with_new_nodes(graph, seed), options.draws))
    columns = ("mean", "worst", "refused", "as found, mean", "worst", "without, mean", "worst", "least agreement")
    print_table(("tomorrow", *(f"turned, {columns[0]}", *columns[1:])), rows)
    _thresholds({f"{share:.0%}": fewer(share) for share in FURTHER}, options.draws)


def communities(num_nodes: int = 2000, inside: float = 5.0, outside: float = 0.8, seed: int = 0) -> Graph:
    """Four groups, so many edges a node inside and outside of its own, and features that hardly tell them apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, num_nodes)
    ends = rng.integers(0, num_nodes, (2, 40 * num_nodes))
    same = labels[ends[0]] == labels[ends[1]]
    taken = [ends[:, same][:, : int(num_nodes * inside / 2)], ends[:, ~same][:, : int(num_nodes * outside / 2)]]
    source, target = np.concatenate(taken, axis=1)
    adjacency = sp.coo_array((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes))
    features = rng.standard_normal((4, 16))[labels] / 8 + rng.standard_normal((num_nodes, 16))
    return random_split(from_scipy(adjacency, features, labels))


def without_edges(graph: Graph, share: float, seed: int) -> Graph:
    """The same nodes, and a share of the edges gone."""
    upper = sp.triu(graph.adjacency()).tocoo()
    kept = np.random.default_rng(seed).random(upper.nnz) >= share
    edges = sp.coo_array((upper.data[kept], (upper.row[kept], upper.col[kept])), shape=upper.shape)
    return from_scipy(edges, graph.features, graph.labels, node_ids=graph.ids)


def _with_new_nodes(graph: Graph, seed: int) -> Drawn:
    """Models of nine tenths of the nodes, and the whole graph, whose new nodes are judged."""
    order = np.random.default_rng(seed).permutation(graph.num_nodes)
    new, known = np.sort(order[: graph.num_nodes // 10]), np.sort(order[graph.num_nodes // 10 :])
    part = random_split(graph.subgraph(known), seed=seed)
    ours, plain = (NodeClassifier(encoding_dim=dim, **SETTINGS).fit(part) for dim in (3, 0))
    return ours, plain, graph, new


def _row(name: str, draw: Callable[[int], Drawn], draws: int) -> tuple[str, ...]:
    turned, found, plain, agreed = [], [], [], []
    for seed in range(draws):
        ours, without, graph, nodes = draw(seed)
        truth = graph.labels[nodes]  # type: ignore[index]
        agreed.append(_agreement(ours.fitted_, graph))  # type: ignore[arg-type]
        with suppress(UserError):  # refused
            turned.append((ours.predict(graph, nodes) == truth).mean())
        run = replace(lead_of(ours._run), fitted=None)
        found.append((decisions(run, open_sources(run, graph, "cpu"), nodes) == truth).mean())
        plain.append((without.predict(graph, nodes) == truth).mean())
    told = (f"{value:.3f}" for each in (found, plain) for value in (np.mean(each), min(each)))
    ours_told = (f"{np.mean(turned):.3f}", f"{min(turned):.3f}") if turned else ("–", "–")
    return name, *ours_told, f"{draws - len(turned)} of {draws}", *told, f"{min(agreed):.2f}"


def _agreement(known: Fitted, graph: Graph) -> float:
    """How far a graph's turned eigenvectors agree with those of training, however little that is."""
    least, fitted.LEAST = fitted.LEAST, -1.0
    try:
        here, there = known._matched(graph)
        return agreement(known.encoding[there], known.encoding_of(graph, "cpu")[here])  # type: ignore[index]
    finally:
        fitted.LEAST = least


def _thresholds(kinds: dict[str, Callable[[int], Drawn]], draws: int) -> None:
    """Accuracy with turned eigenvectors minus without any, by how far they agree."""
    points = []
    for draw in kinds.values():
        for seed in range(draws):
            ours, without, graph, nodes = draw(seed)
            known, truth = ours.fitted_, graph.labels[nodes]  # type: ignore[index]
            assert known is not None
            agreed = _agreement(known, graph)
            least, fitted.LEAST = fitted.LEAST, -1.0
            try:
                gain = (ours.predict(graph, nodes) == truth).mean() - (without.predict(graph, nodes) == truth).mean()
            finally:
                fitted.LEAST = least
            points.append((agreed, gain))
    found = np.array(points)
    rows = []
    for low, high in ((-1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        gains = found[(found[:, 0] >= low) & (found[:, 0] < high), 1]
        if len(gains):
            span = f"{max(low, 0):.1f} to {min(high, 1):.1f}"
            rows.append((span, str(len(gains)), f"{gains.mean():+.3f}", f"{gains.min():+.3f}"))
    print(f"\nAccuracy with turned eigenvectors minus without, {', '.join(kinds)} of the edges gone:")
    print_table(("agreement", "graphs", "mean", "worst"), rows)


if __name__ == "__main__":
    main()
