"""What each ingredient of the default and of the recipe `best` is worth, by validation nodes alone.

    python benchmarks/ingredients.py [--datasets cora photo …] [--best]

Seed 0, or the first stored split. Test nodes are taken out of the splits before anything is trained. Accuracy in
percent and log loss, of the best epoch and of calibrated probabilities; both are chosen by the same nodes, so all of
them are a little too good, and alike. With `--best` the members of the recipe, and what they give together: their
weights and temperature are found on one half of the validation nodes and judged on the other, and the other way round.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
from measure import describe_machine, print_table

from experiments.data import load
from nagphormer import Graph, NodeClassifier, accuracy, log_loss
from nagphormer.settings import RECIPES, read_members, read_recipe
from nagphormer.training.calibration import temperature
from nagphormer.training.ensemble import as_scores, chosen_weights, cooled

DATASETS = ("cora", "citeseer", "photo", "computers", "chameleon_filtered", "squirrel_filtered", "actor", "blogcatalog")
ALTERED: dict[str, dict[str, Any]] = {
    "default": {},
    "no token dropped": {"token_dropout": 0.0},
    "one map for all hops": {"recipe": "transformer"},
    "columns as they are": {"feature_scaling": "none"},
    "columns standardized": {"feature_scaling": "standardize"},
    "labels smoothed": {"label_smoothing": 0.1},
    "copies": {"edge_copies": 4},
    "labels": {"label_hops": 3},
    "eigenvectors": {"encoding_dim": 16},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    parser.add_argument("--best", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(describe_machine(), "\n")
    if options.best:
        names = [*read_members(RECIPES / "best.yaml"), "together", "plain mean", "seconds"]
        print_table(("data set", *names), (_members(name) for name in options.datasets))
    else:
        print_table(("data set", *ALTERED), (_altered(name) for name in options.datasets))


def _graph(name: str) -> Graph:
    """A data set without test nodes."""
    graph = load(name, 0)
    return graph.with_splits(train=graph.splits["train"], val=graph.splits["val"])


def _altered(name: str) -> tuple[str, ...]:
    graph = _graph(name)
    found = (NodeClassifier(device="cpu", verbose=False, **settings).fit(graph) for settings in ALTERED.values())
    return name, *(_told(*_answers(clf, graph)) for clf in found)


def _members(name: str) -> tuple[str, ...]:
    graph, start = _graph(name), time.perf_counter()
    path = RECIPES / "best.yaml"
    members = [read_recipe(path) | own for own in read_members(path).values()]
    found = [_answers(NodeClassifier(device="cpu", verbose=False, **own).fit(graph), graph) for own in members]
    target = found[0][0]
    answers = torch.from_numpy(np.stack([probability for _, probability in found])).float()  # (M, n, C)
    joined, mean = np.empty_like(found[0][1]), np.empty_like(found[0][1])
    dealt = np.random.default_rng(0).permutation(len(target))
    halves = np.array_split(dealt, 2)
    for one, other in (halves, halves[::-1]):
        known = torch.from_numpy(np.asarray(target)[one])
        for weights, into in (
            (chosen_weights(answers[:, one], known), joined),
            (np.full(len(found), 1 / len(found)), mean),
        ):
            both = torch.einsum("m,mnc->nc", torch.from_numpy(weights).float(), answers)
            heat = temperature(as_scores(both[one], False), known)
            into[other] = cooled(both[other], heat, False).numpy()
    seconds = f"{time.perf_counter() - start:.0f}"
    return name, *(_told(*each) for each in found), _told(target, joined), _told(target, mean), seconds


def _answers(clf: NodeClassifier, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Classes and probabilities of the validation nodes."""
    nodes = graph.splits["val"]
    assert graph.labels is not None
    return np.asarray(graph.labels)[nodes], clf.predict_proba(graph, nodes)


def _told(target: np.ndarray, probability: np.ndarray) -> str:
    return f"{100 * accuracy(target, probability):.2f} {log_loss(target, probability):.3f}"


if __name__ == "__main__":
    main()
