"""The tour of docs/ runs."""

import json
import warnings
from pathlib import Path

import pytest

TOUR = Path(__file__).parent.parent / "docs" / "tour.ipynb"
CELLS = json.loads(TOUR.read_text(encoding="utf-8"))["cells"]


@pytest.mark.slow
def test_every_cell_of_the_tour_runs():
    for package in ("pandas", "torch_geometric", "sklearn", "duckdb"):
        pytest.importorskip(package)
    names = {}
    with warnings.catch_warnings(action="ignore"):
        for cell in CELLS:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["found"].best_.score(names["graph"], "test") > 0.6
    assert names["tomorrow"].num_nodes == names["num_nodes"] + 1


def test_the_tour_names_no_machine():
    kept = [output for cell in CELLS for output in cell.get("outputs", ())]
    assert kept, "run it: nbconvert --to notebook --execute --inplace docs/tour.ipynb"
    assert all(output["output_type"] == "execute_result" for output in kept)
