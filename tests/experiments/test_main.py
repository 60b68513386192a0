import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments, **environment):
    command = [sys.executable, "-m", "experiments", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment, check=False, timeout=300
    )


def test_quick_measures_every_row_and_leaves_no_cell_behind(data_folder):
    before = sorted((ROOT / "experiments" / "results").rglob("*.json"))
    done = run("table-small", "--quick", "--methods", "gprgnn", "tuned_gcn")
    assert done.returncode == 0, done.stderr
    assert "each of 2 rows beats the commonest class on Cora and Citeseer" in done.stdout
    assert "[4/4" in done.stdout
    assert sorted((ROOT / "experiments" / "results").rglob("*.json")) == before


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
