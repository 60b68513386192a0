import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(*arguments, **environment):
    command = [sys.executable, "-m", "experiments", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment, check=False, timeout=300
    )


def recorded():
    return {path.name: path.read_bytes() for path in (ROOT / "experiments" / "results").iterdir()}


def test_quick_measures_every_row_and_leaves_no_cell_behind(data_folder):
    before = recorded()
    done = run("table-small", "--quick", "--methods", "gprgnn", "tuned_gcn")
    assert done.returncode == 0, done.stderr
    assert "each of 2 rows beats the commonest class on Cora and Citeseer" in done.stdout
    assert "[4/4" in done.stdout
    assert recorded() == before


def test_without_data_it_says_what_is_missing_and_goes_on(tmp_path):
    done = run("table-small", "--quick", "--methods", "gprgnn", NAGPHORMER_DATA=str(tmp_path), HOME=str(tmp_path))
    assert "no data here for Citeseer" in done.stderr
    assert "each of 1 rows beats the commonest class on Cora\n" in done.stdout
    assert done.returncode == 0


def test_what_cannot_fit_ends_with_an_error():
    done = run("table-small", "--quick", "--methods", "gprgnn", "--time-limit", "0.1")
    assert done.returncode == 1
    assert "not measured: GPRGNN on Cora" in done.stderr


def test_unknown_names_are_refused():
    done = run("table-small", "--methods", "gnc")
    assert done.returncode == 2
    assert "gnc" in done.stderr


def test_the_estimator_is_measured_with_its_recipe_in_another_precision_too(tmp_path):
    few = ("--quick", "--time-limit", "100")
    done = run("accuracy", *few, "--precision", "bf16", NAGPHORMER_DATA=str(tmp_path), HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "each of 2 rows beats the commonest class on Cora\n" in done.stdout
    assert '| data set | `NodeClassifier(recipe="paper")` in bf16 | `NodeClassifier(recipe="paper")` |' in done.stdout


def test_rivals_and_ours_run_on_graphs_that_they_were_never_tuned_on(tmp_path):
    few = ("--quick", "--methods", "mlp", "tuned_sage", "default")
    done = run("table-others", *few, NAGPHORMER_DATA=str(tmp_path), HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "each of 3 rows beats the commonest class on Cora\n" in done.stdout
    assert "*MLP*, *tuned SAGE*: one setting each" in done.stdout


def test_help_tells_how_many_seeds_a_table_takes():
    for name, seeds in (("table-others", 3), ("table-small", 5)):
        assert f"(default {seeds})" in " ".join(run(name, "--help").stdout.split())
