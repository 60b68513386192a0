"""`NodeClassifier()` as it is, beside an MLP on the features and logistic regression on the same tokens.

    python -m experiments.defaults --seeds 3 [--datasets cora actor]

Seed s draws the split (where the file holds ten splits it is number s), weights and batches. The two plain models are
tuned by validation. Each cell goes to `experiments/results/defaults/`; one that lies there already, with the
same settings, is shown and not measured again.
"""

import argparse
import warnings
from dataclasses import asdict
from statistics import mean
from typing import Any

from experiments.cells import measured, read_cell, write_cell
from experiments.statistics import spread
from nagphormer import Graph, NodeClassifier, TrainConfig, load_graph, random_split
from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy

PAPER = ["pubmed", "computers", "photo", "cs", "physics", "cora", "citeseer", "dblp", "blogcatalog", "flickr"]
OTHERS = ["actor", "chameleon_filtered", "squirrel_filtered", "minesweeper", "wordnet"]
TEN_SPLITS = OTHERS[:4]
MODELS = ("test_accuracy", "mlp", "logistic_regression")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=PAPER + OTHERS)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    options = parser.parse_args()
    rows = []
    for dataset in options.datasets:
        cells = [_cell(dataset, seed) for seed in range(options.seeds)]
        rows.append(_row(dataset, cells))
    print("| data set | NodeClassifier() | MLP | logistic regression | difference to the better | seconds |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))


def _load(dataset: str, seed: int) -> Graph:
    graph = load_graph(dataset, split=seed if dataset in TEN_SPLITS else None, seed=seed)
    return graph if graph.splits else random_split(graph, seed=seed)


def _cell(dataset: str, seed: int) -> dict[str, Any]:
    if known := read_cell("defaults", f"{dataset}-{seed}", TrainConfig(seed=seed)):
        return known
    graph = _load(dataset, seed)
    classifier = NodeClassifier(seed=seed)

    def work() -> dict[str, Any]:
        classifier.fit(graph)
        return {
            "dataset": dataset,
            "seed": seed,
            "test_accuracy": classifier.score(graph),
            "val_accuracy": classifier.score(graph, "val"),
            "epochs": len(classifier.history_),
            "config": asdict(classifier.config_),
        }

    facts = measured(work)
    facts["mlp"] = mlp_accuracy(graph, classifier.config_)
    assert classifier.tokens_ is not None
    facts["logistic_regression"] = logistic_accuracy(graph, classifier.config_, classifier.tokens_)
    write_cell("defaults", f"{dataset}-{seed}", facts)
    print(dataset, seed, *(f"{model} {facts[model]:.4f}" for model in MODELS), f"{facts['seconds']:.1f} s", flush=True)
    return facts


def _row(dataset: str, cells: list[dict[str, Any]]) -> str:
    columns = {model: [100 * cell[model] for cell in cells] for model in MODELS}
    texts = [spread(values) for values in columns.values()]
    ours, *rivals = (mean(values) for values in columns.values())
    seconds = mean(cell["seconds"] for cell in cells)
    return f"| {dataset} | {' | '.join(texts)} | {ours - max(rivals):+.2f} | {seconds:.1f} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
