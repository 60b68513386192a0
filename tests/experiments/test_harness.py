import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from experiments import cells, harness, records
from experiments.data import load
from experiments.harness import DONE, FAILED, OUT_OF_MEMORY, TIME_OUT, Cell, Grid, Limits, _Child, _is_memory, tell
from experiments.items import Item, Row
from experiments.measure import Budget
from experiments.methods import METHODS
from nagphormer import UserError

ROOT = Path(__file__).parents[2]
QUICK = Budget(epochs=2, patience=2)


@pytest.fixture(autouse=True)
def results(monkeypatch, tmp_path):
    """Cells are kept in a folder of the test."""
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    return tmp_path


def grid(memory=8, seconds=100, jobs=1):
    return Grid("cpu", jobs, Limits(memory, seconds), QUICK)


def logistic(seed=0, **settings):
    return Cell("cora", "logistic", seed, {"encoding_dim": 0} | settings)


@pytest.mark.slow
def test_a_cell_is_measured_in_a_child_and_kept_with_all_that_tells_where_it_comes_from(results, capsys):
    cell = logistic()
    grid().fill([cell])
    assert {path.name for path in results.glob("*.jsonl")} == {"cora.jsonl", "machines.jsonl"}
    facts = cell.read()
    assert (facts["dataset"], facts["method"], facts["seed"]) == ("cora", "logistic", 0)
    assert facts["outcome"] == DONE
    assert facts["test_accuracy"] > facts["majority"]
    assert facts["settings"] == {"encoding_dim": 0}
    assert facts["resolved"] == {"hops": 3, "encoding_dim": 0, "lr": 0.01, "weight_decay": 5e-4}
    assert facts["budget"] == {"epochs": 2, "patience": 2, "restart_on_ties": False}
    assert (facts["jobs"], facts["gpu"]) == (1, False)
    assert facts["limits"] == {"memory": 8, "seconds": 100}
    assert facts["epochs"] == 2
    assert set(facts["stages"]) == {"prepare", "train", "infer"}
    assert facts["peak_gb"] > 0.05
    assert {"torch", "numpy"} <= set(facts["versions"])
    assert facts["code"] == cells.fingerprint()
    assert "[1/1" in capsys.readouterr().out


def test_another_line_of_code_is_another_fingerprint(monkeypatch, tmp_path):
    monkeypatch.setattr(cells, "SOURCES", (tmp_path,))
    found = []
    for line in ("x = 1", "x = 2", "x = 1"):
        (tmp_path / "code.py").write_text(line)
        found.append(cells.fingerprint())
    assert found[0] == found[2] != found[1]
    assert len(found[0]) == 12


@pytest.mark.parametrize(("cores", "told"), [({5}, ", 1 core"), ({0, 1}, ", 2 cores")])
def test_a_cell_tells_the_cores_it_may_use(monkeypatch, cores, told):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: cores)
    assert cells.describe("cpu")["device"].endswith(told)


@pytest.mark.slow
def test_a_cell_names_the_code_it_began_with(monkeypatch, tmp_path):
    monkeypatch.setattr(cells, "SOURCES", (tmp_path,))
    before = cells.fingerprint()
    child = _Child(multiprocessing.get_context("forkserver"), logistic(), grid())
    (tmp_path / "code.py").write_text("x = 1")
    assert child.connection.poll(60)
    assert child.result()["code"] == before != cells.fingerprint()


def test_what_the_budget_replaces_is_not_recorded_as_a_setting():
    resolved = Cell("cora", "nagphormer").resolved
    assert "hops" in resolved
    assert not {"epochs", "patience"} & set(resolved)


@pytest.mark.slow
def test_a_recorded_cell_is_not_measured_again_and_the_rest_of_a_grid_is(capsys):
    grid().fill([logistic()])
    before = logistic().read() | {"test_accuracy": 0.123}
    logistic().write(before)
    grid(jobs=2).fill([logistic(), logistic(seed=1), logistic(seed=2)])
    assert logistic().read() == before
    assert {logistic(seed).read()["seed"] for seed in range(3)} == {0, 1, 2}
    assert "1 of 3 cells are recorded" in capsys.readouterr().out


@pytest.mark.slow
def test_progress_is_that_of_the_whole(capsys):
    progress = grid().fill([logistic()], later=2)
    assert "[1/3, " in capsys.readouterr().out
    grid().fill([logistic(), logistic(seed=1)], progress=progress)  # in the end only one more
    assert "[2/2, 0 s left]" in capsys.readouterr().out


class Terminal(io.StringIO):
    """What is printed, and what of it between two calls of `flush`."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal, self.pieces = is_terminal, []

    def isatty(self):
        return self.is_terminal

    def flush(self):
        self.pieces.append(self.getvalue().removeprefix("".join(self.pieces)))


class Endless:
    """A child that is asked so many times before it is done."""

    def __init__(self, context, cell, grid):
        self.cell, self.start, self.asked = cell, time.perf_counter() - 130, 0
        self.process = self
        self.sentinel, self.close = os.pipe()

    def result(self):
        self.asked += 1
        return {"outcome": TIME_OUT} if self.asked > 2 + self.cell.seed else None

    def kill(self):
        """Nothing is there to be killed."""


@pytest.fixture
def endless(monkeypatch):
    monkeypatch.setattr(harness, "_Child", Endless)
    monkeypatch.setattr(Cell, "write", lambda cell, facts: None)


def test_through_a_pipe_it_is_told_now_and_then_what_runs(monkeypatch, endless):
    monkeypatch.setattr(harness, "PULSE", 0.0)
    monkeypatch.setattr(sys, "stdout", Terminal(False))
    grid(jobs=2).fill([logistic(), logistic(seed=3)])
    both, *_, last = (piece for piece in sys.stdout.pieces if "running" in piece)
    name = "cora logistic-encoding_dim=0-seed"
    assert both == f"[0/2] running: {name}0 for 2 min, {name}3 for 2 min\n"
    assert last == f"[1/2] running: {name}3 for 2 min\n"


@pytest.mark.parametrize(("is_terminal", "pulse"), [(True, 0.0), (False, 30.0)])
def test_nothing_is_told_at_a_terminal_or_before_its_time(monkeypatch, endless, is_terminal, pulse):
    monkeypatch.setattr(harness, "PULSE", pulse)
    monkeypatch.setattr(sys, "stdout", Terminal(is_terminal))
    grid().fill([logistic()])
    assert "[1/1, " in sys.stdout.getvalue()
    assert "running" not in sys.stdout.getvalue()


@pytest.mark.slow
def test_what_is_recorded_is_not_counted_as_left_to_do():
    row = Row("logistic regression", "logistic", lambda dataset: [{"encoding_dim": 0}, {"encoding_dim": 0, "lr": 0.1}])
    item = Item("some", "Some", (row,), ("cora",))
    asked = []
    whole = grid()
    whole.fill = lambda wanted, later=0, progress=None: asked.append((len(whole.missing(list(wanted))), later))
    item.fill(whole, seeds=3)
    grid().fill(row.tuning("cora"))
    item.fill(whole, seeds=3)
    grid().fill(row.cells("cora", 2))
    item.fill(whole, seeds=3)
    assert asked == [(2, 2), (0, 0), (0, 2), (2, 0), (0, 1), (1, 0)]


@pytest.mark.slow
def test_what_fails_is_recorded_with_its_reason_and_tried_again(capsys):
    wrong = logistic(no_such_setting=1)
    grid().fill([wrong, logistic()])
    assert wrong.read()["outcome"] == FAILED
    *places, reason = wrong.read()["error"].splitlines()
    assert "no_such_setting" in reason
    assert places[-1].startswith("measure.py, line ")
    assert not any("/" in place for place in places)  # cells are committed: no folders of a machine
    assert logistic().read()["outcome"] == DONE
    assert grid().missing([wrong])


@pytest.mark.slow
def test_a_cell_of_other_defaults_or_another_budget_is_measured_again():
    grid().fill([logistic()])
    assert not grid().missing([logistic()])
    longer = Grid("cpu", 1, Limits(8, 100), Budget(epochs=3, patience=2))
    assert longer.missing([logistic()])
    facts = logistic().read()
    records.write(facts | {"resolved": facts["resolved"] | {"hops": 2}})
    assert grid().missing([logistic()])


def test_a_run_that_patience_ended_is_the_same_under_a_larger_cap():
    assert Budget(epochs=3000).covers(Budget(epochs=1000), epochs=999)
    assert not Budget(epochs=3000).covers(Budget(epochs=1000), epochs=1000)
    assert not Budget(epochs=500).covers(Budget(epochs=1000), epochs=999)
    assert not Budget(patience=50).covers(Budget(patience=100), epochs=200)


def test_memory_that_ran_out_is_known_by_its_causes():
    assert _is_memory(MemoryError())
    assert _is_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 12"))
    assert _is_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"))
    advice = UserError("training took too much: lower batch_size")
    advice.__cause__ = RuntimeError("CUDA out of memory. Tried to allocate")
    assert _is_memory(advice)
    assert not _is_memory(ValueError("no"))


@pytest.mark.slow
def test_a_result_that_was_sent_is_not_lost_to_the_limit_on_time():
    child = _Child(multiprocessing.get_context("forkserver"), logistic(), grid(seconds=100))
    assert child.connection.poll(60)
    child.grid = grid(seconds=0)
    assert child.result()["outcome"] == DONE


@pytest.mark.slow
def test_our_own_advice_on_memory_is_still_running_out_of_it():
    greedy = Cell("cora", "nagphormer", 0, {"hidden_dim": 8192, "batch_size": 2000})
    grid(memory=1.2).fill([greedy])
    assert greedy.read()["outcome"] == OUT_OF_MEMORY


@pytest.mark.slow
def test_running_out_of_memory_is_a_result_until_more_is_allowed():
    greedy = Cell("random-1000000", "mlp")
    grid(memory=0.6).fill([greedy])
    facts = greedy.read()
    assert facts["outcome"] == OUT_OF_MEMORY
    assert "device" in facts
    assert not grid(memory=0.6).missing([greedy])
    assert grid(memory=0.7).missing([greedy])


@pytest.mark.slow
def test_running_out_of_time_is_a_result_until_more_is_allowed():
    slow = Cell("random-1000000", "mlp")
    start = time.monotonic()
    grid(seconds=0.5).fill([slow])
    assert time.monotonic() - start < 20
    assert slow.read()["outcome"] == TIME_OUT
    assert not grid(seconds=0.5).missing([slow])
    assert grid(seconds=1).missing([slow])


@pytest.mark.parametrize(("outcome", "limit"), [(OUT_OF_MEMORY, "memory"), (TIME_OUT, "seconds")])
def test_limits_that_a_cpu_met_are_tried_on_a_gpu_but_not_the_other_way(outcome, limit):
    cell, narrow = logistic(), {"memory": 1.0, "seconds": 1.0}
    on_cpu, on_gpu = (Grid(device, 1, Limits(8, 8), QUICK) for device in ("cpu", "cuda"))
    facts = cells.describe("cpu") | {"outcome": outcome, "limits": narrow | {limit: 8.0}}
    cell.write(facts | {"gpu": False})
    assert on_gpu.missing([cell])
    assert not on_cpu.missing([cell])
    cell.write(facts | {"gpu": True})
    assert not on_cpu.missing([cell])
    cell.write(facts | {"gpu": True, "limits": narrow})
    assert not on_cpu.missing([cell])  # however much more memory or time it has


@pytest.mark.slow
@pytest.mark.parametrize(("number", "outcome"), [(signal.SIGKILL, OUT_OF_MEMORY), (signal.SIGTERM, FAILED)])
def test_a_child_that_the_kernel_kills_ran_out_of_memory(number, outcome):
    child = _Child(multiprocessing.get_context("forkserver"), Cell("random-1000000", "mlp"), grid())
    child.process._popen._send_signal(number)
    child.process.join()
    assert child.result()["outcome"] == outcome


@pytest.mark.slow
def test_children_end_with_a_killed_parent(tmp_path):
    script = (
        "import sys; sys.path.insert(0, 'tests/experiments'); import test_harness as t; t.fill_forever(sys.argv[1])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, start_new_session=True)
    wait_for(lambda: len(session(parent.pid)) >= 4)  # itself, resource tracker, fork server, child
    time.sleep(1)
    parent.kill()
    parent.wait()
    wait_for(lambda: not session(parent.pid))


def fill_forever(folder):
    records.RESULTS = Path(folder)
    Grid("cpu", 1, Limits(8, 600), Budget(10**9, 10**9)).fill([logistic()])


def session(leader):
    """Living processes of a session, other than zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, number = path.read_text().rpartition(")")[2].split()[:4]
            if int(number) == leader and state != "Z":
                found.append(path)
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_child_keeps_to_its_share_of_the_cores():
    code = """
import os, torch
from experiments.harness import Grid, Limits, _limit
from experiments.items import Item, Row
from experiments.measure import Budget
_limit(Grid("cpu", len(os.sched_getaffinity(0)), Limits(memory=16, seconds=60), Budget()))
print(torch.get_num_threads())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"


@pytest.mark.slow
def test_a_cell_is_what_its_method_gives_on_the_split_and_with_the_weights_of_its_seed():
    cell = Cell("cora", "mlp", 1, {"hidden_dim": 8})
    grid().fill([cell])
    expected = METHODS["mlp"].measure(load("cora", 1), cell.settings, 1, "cpu", QUICK)
    assert cell.read()["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-4)
    assert cell.read()["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=1e-3)


def test_a_name_tells_settings_apart_whatever_their_order():
    assert Cell("cora", "mlp", 0, {"lr": 1, "dropout": 0}).name == Cell("cora", "mlp", 0, {"dropout": 0, "lr": 1}).name
    assert logistic(lr=1).name != logistic(lr=2).name


@pytest.mark.slow
def test_a_cell_that_is_wanted_twice_is_measured_once(capsys):
    grid().fill([logistic(), logistic()])
    assert "[1/1, " in capsys.readouterr().out


@pytest.mark.slow
def test_a_child_is_stopped_at_the_limit_and_not_before():
    child = _Child(multiprocessing.get_context("forkserver"), Cell("random-1000000", "mlp"), grid(seconds=1000))
    child.start = time.perf_counter() - 900
    assert child.result() is None
    child.start -= 101
    assert child.result()["outcome"] == TIME_OUT


def test_our_own_words_for_memory_are_known():
    assert _is_memory(RuntimeError("out of GPU memory"))


def test_what_is_told_of_a_cell_is_what_it_is_judged_by():
    facts = {"outcome": DONE, "val_accuracy": 0.8, "val_roc_auc": 0.9, "epochs": 7, "seconds": 1.0, "peak_gb": 0.5}
    assert tell(facts).startswith("validation 80.00 after 7 epochs")  # an older cell
    assert tell(facts | {"monitor": "roc_auc"}).startswith("validation 90.00 after 7 epochs")
