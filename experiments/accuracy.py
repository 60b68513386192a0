"""Test accuracy of a recipe on the paper's small sets.

    python -m experiments.accuracy --recipe paper --datasets pubmed cora --seeds 5

Seed s draws split, weights and batches. Each cell goes to `experiments/results/accuracy-<recipe>/`; one that lies
there already, with the same settings, is shown and not measured again.
"""

import argparse
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.cells import measured, read_cell, write_cell
from experiments.statistics import paired_difference, spread
from nagphormer import NodeClassifier, load_graph
from nagphormer.settings import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="paper")
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0 on")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), help="instead of the recipe's")
    options = parser.parse_args()
    rows = []
    for dataset in options.datasets:
        cells = [_cell(dataset, seed, options) for seed in range(options.seeds)]
        rows.append(
            _row(dataset, cells) + (f" {_change(dataset, cells, options.recipe)} |" if options.precision else "")
        )
    columns = ["data set", "test accuracy", "validation", "epochs", "seconds per run", "peak memory"]
    if options.precision:
        columns.append("minus the recipe's own precision")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    print("\n".join(rows))


def _cell(dataset: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    table = f"accuracy-{Path(options.recipe).stem}" + (f"-{options.precision}" if options.precision else "")
    config = resolve(options.recipe, dataset, {"precision": options.precision, "seed": seed})
    if known := read_cell(table, f"{dataset}-{seed}", config):
        return known
    graph = load_graph(dataset, seed=seed)

    def work() -> dict[str, Any]:
        classifier = NodeClassifier(recipe=options.recipe, precision=options.precision, seed=seed).fit(graph)
        return {
            "dataset": dataset,
            "seed": seed,
            "test_accuracy": classifier.score(graph),
            "val_accuracy": classifier.score(graph, "val"),
            "best_epoch": classifier.best_epoch_,
            "epochs": len(classifier.history_),
            "config": asdict(classifier.config_),
        }

    facts = measured(work)
    write_cell(table, f"{dataset}-{seed}", facts)
    print(f"{dataset} seed {seed}: {facts['test_accuracy']:.4f} in {facts['seconds']:.1f} s", flush=True)
    return facts


def _change(dataset: str, cells: list[dict[str, Any]], recipe: str) -> str:
    """The paired difference to the cells of the recipe as it is, on the same splits, with its 95 % interval."""
    ours, theirs = {cell["seed"]: 100 * cell["test_accuracy"] for cell in cells}, {}
    for seed in ours:
        config = resolve(recipe, dataset, {"seed": seed})
        if known := read_cell(f"accuracy-{Path(recipe).stem}", f"{dataset}-{seed}", config):
            theirs[seed] = 100 * known["test_accuracy"]
    return str(paired_difference(ours, theirs) or "–")


def _row(dataset: str, cells: list[dict[str, Any]]) -> str:
    epochs = mean(cell["epochs"] for cell in cells)
    seconds = mean(cell["seconds"] for cell in cells)
    peak = max(cell["peak_gb"] for cell in cells)
    accuracies = " | ".join(spread([100 * cell[key] for cell in cells]) for key in ("test_accuracy", "val_accuracy"))
    return f"| {dataset} | {accuracies} | {epochs:.0f} | {seconds:.1f} | {peak:.2f} GB |"


if __name__ == "__main__":
    main()
