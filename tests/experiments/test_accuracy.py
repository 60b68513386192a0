import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from examples import SETTINGS

import nagphormer
from nagphormer import NodeClassifier, load_graph

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = SETTINGS | {"epochs": 2, "batch_size": 2000}


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Run the experiment in a folder that has the recipe `tiny.yaml`; results go to `results`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    accuracy, cells = (importlib.import_module(f"experiments.{name}") for name in ("accuracy", "cells"))
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
