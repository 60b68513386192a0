import json
import shutil
import subprocess
import sys
from dataclasses import field, make_dataclass, replace

import pytest

from experiments import harness, records
from experiments.harness import Cell
from experiments.items import ITEMS
from experiments.render import section
from nagphormer import TrainConfig, UserError
from nagphormer.settings import since


@pytest.fixture
def results(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    return tmp_path


def facts(seed=0, accuracy=0.5, date="2026-01-02", device="abacus", **more):
    own = {"dataset": "cora", "method": "mlp", "seed": seed, "settings": {"lr": 0.1, "depth": 2}}
    return own | {"test_accuracy": accuracy, "date": date, "device": device, "versions": {"torch": "2"}} | more


def found(seed=0):
    return records.find("cora", "mlp", {"depth": 2, "lr": 0.1}, seed)


def lines(path):
    return path.read_text().splitlines()


def test_what_was_written_is_found_whatever_the_order_of_its_settings(results):
    written = facts(error="line one\nline two\u2028—", limits={"memory": 8.0}, resolved={"hops": None})
    records.write(written)
    assert found() == written | {"machine": found()["machine"]}
    assert found(seed=1) is None
    assert records.find("citeseer", "mlp", written["settings"], 0) is None


def test_a_machine_is_written_once(results):
    for seed, device in enumerate(("abacus", "lathe", "abacus")):
        records.write(facts(seed, device=device))
    assert len(lines(results / "machines.jsonl")) == 2
    assert not any("abacus" in line or "torch" in line for line in lines(results / "cora.jsonl"))
    assert [found(seed)["device"] for seed in range(3)] == ["abacus", "lathe", "abacus"]


def test_a_cell_that_is_measured_again_has_one_answer(results):
    records.write(facts(accuracy=0.5))
    records.write(facts(seed=1))
    records.write(facts(accuracy=0.6, date="2026-01-01"))
    assert found()["test_accuracy"] == 0.6
    assert len(lines(results / "cora.jsonl")) == 2


def test_the_order_of_writing_leaves_no_trace(results):
    for seeds in ((0, 1, 2), (2, 0, 1)):
        (results / "cora.jsonl").unlink(missing_ok=True)
        for seed in seeds:
            records.write(facts(seed))
        assert [json.loads(line)["seed"] for line in lines(results / "cora.jsonl")] == [0, 1, 2]


def test_of_two_lines_of_a_cell_the_newer_counts_and_of_the_same_day_the_later(results):
    records.write(facts())
    first = json.loads(lines(results / "cora.jsonl")[0])
    for newer, older in (({"date": "2026-01-03"}, {}), ({}, {"date": "2025-12-31"})):
        pair = [first | newer | {"test_accuracy": 0.7}, first | older | {"test_accuracy": 0.6}]
        (results / "cora.jsonl").write_text("".join(json.dumps(line) + "\n" for line in pair))
        assert found()["test_accuracy"] == 0.7
    same_day = [first | {"test_accuracy": accuracy} for accuracy in (0.7, 0.6, 0.8)]
    (results / "cora.jsonl").write_text("".join(json.dumps(line) + "\n" for line in same_day))
    assert found()["test_accuracy"] == 0.8
    records.write(facts(seed=1))
    assert len(lines(results / "cora.jsonl")) == 2


def test_a_last_line_that_was_cut_short_does_no_harm(results):
    records.write(facts())
    whole = (results / "cora.jsonl").read_text()
    for rest in (whole[: len(whole) // 2], '{"dataset": "co'):
        (results / "cora.jsonl").write_text(whole + rest)
        assert found()["test_accuracy"] == 0.5
        records.write(facts(seed=1))
        assert len(lines(results / "cora.jsonl")) == 2
        assert found(0)
        assert found(1)
    (results / "cora.jsonl").write_text(whole.rstrip("\n"))  # whole but for the end of the line
    assert found()


def test_a_line_in_the_middle_that_is_none_is_refused_with_its_place(results):
    records.write(facts())
    path = results / "cora.jsonl"
    path.write_text("<<<<<<< HEAD\n" + path.read_text())
    with pytest.raises(UserError, match=r"cora\.jsonl, line 1, is not JSON"):
        found()


def test_a_write_that_fails_leaves_what_there_was(results, monkeypatch):
    records.write(facts())
    before = (results / "cora.jsonl").read_bytes()
    with pytest.raises(TypeError):
        records.write(facts(seed=1, error=object()))
    assert (results / "cora.jsonl").read_bytes() == before
    assert not list(results.glob(".cora*"))


@pytest.mark.slow
def test_two_processes_that_write_at_once_lose_nothing(results):
    code = """
import sys, time
from pathlib import Path
from experiments import records
records.RESULTS = Path(sys.argv[1])
(records.RESULTS / sys.argv[2]).touch()
while len(list(records.RESULTS.glob("ready*"))) < 2:
    time.sleep(0.001)
for seed in range(int(sys.argv[2][5:]), 60, 2):
    records.write({"dataset": "cora", "method": "mlp", "settings": {"depth": 2, "lr": 0.1}, "seed": seed,
        "date": "2026-01-02", "device": sys.argv[2], "versions": {}})
"""
    command = [sys.executable, "-c", code, str(results)]
    writers = [subprocess.Popen([*command, name]) for name in ("ready0", "ready1")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert [found(seed)["device"] for seed in range(60)] == ["ready0", "ready1"] * 30


def test_what_two_branches_recorded_is_found_after_a_merge(results):
    if not shutil.which("git"):
        pytest.skip("needs git")
    versions = {}
    for name, added in (
        ("base", [facts(0), facts(4)]),
        ("ours", [facts(2, 0.6), facts(4, 0.7, "2026-01-04")]),
        ("theirs", [facts(3, 0.8, device="lathe"), facts(4, 0.9, "2026-01-03")]),
    ):
        for path in results.glob("*.jsonl"):
            path.write_text(versions.get(f"base {path.name}", ""))
        for each in added:
            records.write(each)
        versions |= {f"{name} {path.name}": path.read_text() for path in results.glob("*.jsonl")}
    for path in list(results.glob("*.jsonl")):
        for name in ("base", "ours", "theirs"):
            (results / name).write_text(versions[f"{name} {path.name}"])
        merged = ["git", "merge-file", "--union", "-p", "ours", "base", "theirs"]
        path.write_bytes(subprocess.run(merged, cwd=results, check=True, capture_output=True).stdout)
    assert {seed: found(seed)["test_accuracy"] for seed in (0, 2, 3, 4)} == {0: 0.5, 2: 0.6, 3: 0.8, 4: 0.7}
    assert found(3)["device"] == "lathe"


OURS = ("nagphormer", "recipe", "transformer")


def recorded():
    """Whether the recorded cells of our own methods are found, by method."""
    told = {method: [] for method in OURS}
    for path in records.RESULTS.glob("*.jsonl"):
        for facts in map(json.loads, lines(path)):
            if facts.get("method") in OURS:
                cell = Cell(facts["dataset"], facts["method"], facts["seed"], facts["settings"])
                told[cell.method].append(cell.read() is not None)
    return told


@pytest.fixture
def change(monkeypatch):
    """Give `TrainConfig` a field more, or another default."""

    def put(name, declared):
        kind = make_dataclass("TrainConfig", [(name, int, declared)], bases=(TrainConfig,), frozen=True, kw_only=True)
        monkeypatch.setattr("nagphormer.settings.TrainConfig", kind)
        monkeypatch.setattr("experiments.methods.TrainConfig", kind)
        harness._resolved.cache_clear()

    yield put
    harness._resolved.cache_clear()


def test_every_recorded_cell_is_found():
    told = recorded()
    assert {method: len(found) for method, found in told.items()} == {
        "nagphormer": 338,
        "recipe": 120,
        "transformer": 142,
    }
    assert all(map(all, told.values()))


def test_a_younger_setting_leaves_recorded_cells_what_they_are(change):
    change("echo_hops", since("9.0.0", before=0, default=0))
    assert all(map(all, recorded().values()))
    assert "echo_hops" not in Cell("cora", "nagphormer").resolved
    assert Cell("cora", "nagphormer", 0, {"echo_hops": 2}).resolved["echo_hops"] == 2


def test_a_younger_setting_that_is_on_by_default_is_another_default_but_the_same_recipe(change):
    change("echo_hops", since("9.0.0", before=0, default=2))
    told = recorded()
    assert all(told["nagphormer"])
    assert all(told["recipe"])
    assert all(told["transformer"])
    assert Cell("cora", "default").resolved["echo_hops"] == 2


def test_cells_of_another_default_are_not_found(change):
    change("hops", field(default=4))
    told = recorded()
    assert not any(told["transformer"])
    assert all(told["nagphormer"])  # the recipe names its hops


@pytest.mark.filterwarnings("ignore:a recorded cell")
def test_a_setting_of_which_older_cells_cannot_know_is_named(change):
    change("echo_hops", field(default=0))
    assert not any(map(any, recorded().values()))
    with pytest.warns(UserWarning, match="a recorded cell lacks the setting 'echo_hops'"):
        assert Cell("cora", "nagphormer").read() is None


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("accuracy", {"Pubmed": "89.41 ± 0.47 ×5", "Citeseer": "75.95 ± 2.13 ×5", "Flickr": "89.31 ± 0.90 ×5"}),
        ("encoding", {"Cora": "89.08 ± 1.83 ×5", "Photo": "95.44 ± 0.37 ×5", "WordNet": "86.21 ×1"}),
        ("defaults", {"Cora": "87.93 ± 0.58 ×5", "Minesweeper": "85.48 ± 0.48 ×5", "WordNet": "85.98 ×1"}),
    ],
)
def test_recorded_accuracies_of_the_estimator_are_shown(name, numbers):
    rows = tuple(replace(row, seeds=5) for row in ITEMS[name].rows)
    text = section(replace(ITEMS[name], rows=rows))
    for title, number in numbers.items():
        assert number in next(line for line in text.splitlines() if line.startswith(f"| {title} |"))
