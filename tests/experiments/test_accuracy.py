import argparse
import json
import sys
from dataclasses import asdict

import numpy as np
import pytest
import yaml
from examples import SETTINGS

import nagphormer
from experiments import accuracy, cells
from nagphormer import NodeClassifier, load_graph

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = SETTINGS | {"epochs": 2, "batch_size": 2000}


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Run the experiment in a folder that has the recipe `tiny.yaml`; results go to `results`."""
    monkeypatch.setattr(cells, "RESULTS", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(SMALL))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["accuracy", "--recipe", "tiny.yaml", *arguments])
        accuracy.main()

    return run


def test_every_seed_gives_a_cell_and_every_data_set_a_row(measure, tmp_path, capsys):
    measure("--datasets", "cora", "--seeds", "2")
    paths = sorted((tmp_path / "results").rglob("*"))
    assert [path.name for path in paths] == ["accuracy-tiny", "cora-0.json", "cora-1.json"]
    cells = [json.loads(path.read_text()) for path in paths[1:]]
    for seed, cell in enumerate(cells):
        assert (cell["dataset"], cell["seed"], cell["config"]["seed"]) == ("cora", seed, seed)
        assert {name: cell["config"][name] for name in SMALL if name != "seed"} == {
            name: value for name, value in SMALL.items() if name != "seed"
        }
        assert cell["versions"]["nagphormer"] == nagphormer.__version__
        assert {"python", "torch", "numpy"} <= set(cell["versions"])
        assert cell["seconds"] > 0
        assert cell["peak_gb"] > 0.01
        assert cell["epochs"] == 2
    graph = load_graph("cora", seed=1)
    classifier = NodeClassifier(**SMALL | {"seed": 1}).fit(graph)
    assert cells[1]["test_accuracy"] == classifier.score(graph)
    assert cells[1]["val_accuracy"] == classifier.score(graph, "val")
    mean, spread = np.mean([100 * cell["test_accuracy"] for cell in cells]), cells[0]["test_accuracy"]
    spread = 100 * abs(spread - cells[1]["test_accuracy"]) / np.sqrt(2)  # of two, by hand
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith(f"| cora | {mean:.2f} ± {spread:.2f} ×2 | ")


def test_a_cell_that_is_there_is_not_measured_again(measure, tmp_path, capsys):
    measure("--datasets", "cora", "--seeds", "1", "--precision", "fp32")
    (path,) = (tmp_path / "results").rglob("*.json")
    assert path.parent.name == "accuracy-tiny-fp32"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"test_accuracy": 0.123}))
    measure("--datasets", "cora", "--seeds", "1", "--precision", "fp32")
    assert "| cora | 12.30 ×1 | " in capsys.readouterr().out


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Cells that are there, so that nothing is measured."""
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    facts = {"val_accuracy": 0.5, "epochs": 3, "date": "2026-01-02", "device": "abacus"}
    for precision, accuracies in ((None, (0.90, 0.91, 0.92)), ("bf16", (0.89, 0.905, 0.91))):
        for seed, value in enumerate(accuracies):
            config = accuracy.resolve("paper", "cora", {"precision": precision, "seed": seed})
            own = {"test_accuracy": value, "seed": seed, "seconds": 1.0 + seed, "peak_gb": 1.0 + seed}
            table = f"accuracy-paper{f'-{precision}' if precision else ''}"
            cells.write_cell(table, f"cora-{seed}", facts | own | {"config": asdict(config)})


def test_a_precision_is_compared_with_the_recipes_own(known, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["accuracy", "--datasets", "cora", "--seeds", "3", "--precision", "bf16"])
    accuracy.main()
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| cora | 90.17 ± 1.04 ×3 | 50.00 ± 0.00 ×3 | 3 | 2.0 | 3.00 GB | -0.83 [")


def test_a_cell_is_measured_with_the_precision_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    built = []
    monkeypatch.setattr(accuracy, "NodeClassifier", lambda **options: built.append(options) or Stop())
    options = argparse.Namespace(recipe="paper", precision="bf16")
    with pytest.raises(AttributeError, match="fit"):
        accuracy._cell("cora", 1, options)
    assert built == [{"recipe": "paper", "precision": "bf16", "seed": 1}]


class Stop:
    pass
