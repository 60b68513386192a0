"""Is the default as sure as it is right? Calibration error and log loss of test nodes, with and without temperature.

    python benchmarks/calibration.py [--datasets cora pubmed …]

It is found on the validation nodes alone; accuracy is the same either way. Graphs are looked up in NAGPHORMER_DATA.
"""

import argparse
import warnings
from dataclasses import replace

from measure import describe_machine, print_table

from nagphormer import NodeClassifier, load_graph

DATASETS = ("cora", "citeseer", "pubmed", "minesweeper", "actor", "chameleon_filtered", "squirrel_filtered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(describe_machine(), "\n")
    print_table(("data set", "accuracy", "temperature", "ECE", "log loss"), map(_row, options.datasets))


def _row(name: str) -> tuple[str, ...]:
    graph = load_graph(name)
    clf = NodeClassifier(device="cpu").fit(graph)
    accuracy, temperature = clf.score(graph), clf.temperature_
    after = [clf.score(graph, "test", metric) for metric in ("ece", "log_loss")]
    clf._run = replace(clf._run, temperature=1.0)
    before = [clf.score(graph, "test", metric) for metric in ("ece", "log_loss")]
    told = (f"{old:.3f} → {new:.3f}" for old, new in zip(before, after, strict=True))
    return name, f"{accuracy:.4f}", f"{temperature:.2f}", *told


if __name__ == "__main__":
    main()
