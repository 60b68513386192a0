import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
import yaml
from examples import named_graph

from nagphormer import cli
from nagphormer.training import space as space_file
from nagphormer.training.space import Between, OneOf, Space
from nagphormer.training.task import Task

pytest.importorskip("optuna", reason="needs the extra 'tune'")
pytest.importorskip("matplotlib", reason="needs the extra 'tune'")
pytestmark = [
    pytest.mark.usefixtures("hasty", "one_thread"),
    pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens"),
]

FIXED = {"hidden_dim": 16, "num_heads": 2, "batch_size": 50, "epochs": 3, "device": "cpu", "precision": "fp32"}
SMALL = Space(
    "wide", None, {"hops": OneOf((1, 2)), "lr": Between(0.001, 0.1, log=True), "readout": OneOf(("sum", "self"))}
)


def words(trials=4, out="tuned", **changes):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (FIXED | changes).items()]
    return ["tune", "graph", "--out", out, f"--trials={trials}", *flags]


@pytest.fixture
def graph(tmp_path, monkeypatch):
    """A graph folder, and a small space."""
    monkeypatch.setitem(space_file.SPACES, "wide", SMALL)
    graph = named_graph()
    graph.save(tmp_path / "graph")
    return graph


def test_tune_says_what_it_does_and_what_came_of_it(run, graph, tmp_path):
    code, out, err = run(*words())
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0] == "tuning on graph: 4 trials, 0 of them done already, 1 at a time"
    assert lines[1] == "judged by accuracy of 24 validation nodes; tried, of the space wide:"
    assert lines[2:5] == [
        "  hops               1, 2",
        "  lr                 0.001 to 0.1",
        "  readout            sum, self",
    ]
    trials = [line for line in lines if line.startswith("trial ")]
    assert [line.split(":")[0] for line in trials] == ["trial 1", "trial 2", "trial 3", "trial 4"]
    assert ", 3 left, about " in trials[0]
    assert trials[3].endswith(", 0 left")
    assert out.startswith("best of 4 trials is ")
    assert out.endswith("wrote tuned: best.yaml, trials.csv, trials.svg\n")
    assert lines[-1] == "next: nagphormer train graph --recipe tuned/best.yaml --out my-run"
    visible = sorted(path.name for path in (tmp_path / "tuned").iterdir() if path.name[0] != ".")
    assert visible == ["best.yaml", "trials.csv", "trials.sqlite", "trials.svg"]


def test_the_next_command_trains_with_the_settings_of_the_winner_and_does_as_well(run, graph, tmp_path):
    code, out, err = run(*words(class_weights="balanced"), "--json")
    assert code == 0, err
    best = json.loads(out)["best"]
    code, out, err = run(
        *shlex.split(err.splitlines()[-1].removeprefix("next: nagphormer ")), "--device", "cpu", "--json"
    )
    assert code == 0, err
    used = yaml.safe_load((tmp_path / "my-run" / "config.yaml").read_text())
    wanted = FIXED | {"class_weights": "balanced"} | best["settings"]
    assert {name: used[name] for name in wanted} == wanted
    assert json.loads(out)["best_metric"] == best["accuracy"]
    assert json.loads(out)["best_loss"] == best["loss"]


def test_json_is_one_object_on_stdout(run, graph):
    code, out, err = run(*words(2), "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert {name: facts[name] for name in ("path", "recipe", "trials")} == {
        "path": "tuned",
        "recipe": "tuned/best.yaml",
        "trials": {"complete": 2},
    }
    assert facts["best"].keys() == {"trial", "accuracy", "loss", "best_epoch", "settings"}
    assert facts["best"]["settings"].keys() == SMALL.choices.keys()


def test_quiet_leaves_stderr_empty(run, graph):
    code, out, err = run("--quiet", *words(1))
    assert (code, err) == (0, "")
    assert out.startswith("best of 1 trials")


def test_it_goes_on_where_it_was_interrupted_and_ends_as_if_it_had_not_been(run, graph, monkeypatch, tmp_path):
    assert run(*words())[0] == 0
    loss, calls = Task.loss, []

    def interrupted(self, logits, nodes, *smoothing):
        calls.append(len(nodes))
        if len(calls) == 20:
            raise KeyboardInterrupt
        return loss(self, logits, nodes, *smoothing)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "loss", interrupted)
        code, out, err = run("--quiet", *words(out="half"))
    assert (code, out) == (130, "")
    assert err == "nagphormer: interrupted; run it again to go on: the trials that have ended are in half\n"
    assert "best.yaml" in os.listdir("half")
    code, out, err = run(*words(out="half"))
    assert code == 0
    assert err.startswith("tuning on graph: 4 trials, 2 of them done already")
    assert (tmp_path / "half" / "best.yaml").read_text() == (tmp_path / "tuned" / "best.yaml").read_text()


def test_when_all_is_done_it_says_the_result_again(run, graph):
    _, first, _ = run(*words(2))
    code, again, err = run(*words(2))
    assert (code, again) == (0, first)
    assert "trial 1:" not in err


def test_a_setting_that_is_given_holds_for_all_trials(run, graph, tmp_path):
    code, out, err = run(*words(3, hops=2), "--json")
    assert code == 0, err
    assert "hops  " not in err
    assert json.loads(out)["best"]["settings"].keys() == {"lr", "readout"}
    assert yaml.safe_load((tmp_path / "tuned" / "best.yaml").read_text()).get("hops", 3) == 2


def test_the_first_trial_has_the_defaults_that_follow_from_the_graph(run, graph, monkeypatch):
    choices = {"feature_scaling": OneOf(("none", "row", "standardize")), "feature_dropout": Between(0.0, 0.9)}
    monkeypatch.setitem(space_file.SPACES, "wide", Space("wide", None, choices))
    code, out, err = run(*words(1), "--json")
    assert code == 0, err
    assert json.loads(out)["best"]["settings"] == {"feature_scaling": "standardize", "feature_dropout": 0.1}


def test_what_is_monitored_judges(run, graph, tmp_path):
    code, out, err = run(*words(2, monitor="loss"), "--json")
    assert code == 0, err
    best = json.loads(out)["best"]
    assert best["loss"] == min(
        float(row.split(",")[3]) for row in (tmp_path / "tuned/trials.csv").read_text().split()[1:]
    )
    assert yaml.safe_load((tmp_path / "tuned" / "best.yaml").read_text())["monitor"] == "loss"


def test_the_papers_grid_takes_the_papers_recipe(run, graph, tmp_path):
    code, _, err = run("tune", "graph", "--out", "tuned", "--trials=1", "--space=paper", "--epochs=2", "--device=cpu")
    assert code == 0, err
    found = yaml.safe_load((tmp_path / "tuned" / "best.yaml").read_text())
    assert (found["hidden_dim"], found["encoding_dim"], found["linear"], found["batch_size"]) == (512, 10, False, 2000)


def test_the_recipe_draws_the_split_that_trials_were_judged_by(run, graph, tmp_path):
    named_graph(split=False).save(tmp_path / "whole")
    code, out, err = run("tune", "whole", *words(2, seed=3)[2:], "--json")
    assert (code, err.count("at random, seed 3")) == (0, 1)
    best = json.loads(out)["best"]
    trained = run("train", "whole", "--recipe", "tuned/best.yaml", "--out", "run", "--device", "cpu", "--json")[1]
    assert json.loads(trained)["best_loss"] == best["loss"]


MISTAKES = [
    ("--trials=0", "--trials must be 1 or more, not 0"),
    ("--jobs=0", "--jobs must be 1 or more, not 0"),
    ("--time-limit=30", "invalid value for --time-limit: '30' is no time: write it like 90s, 30m or 2h"),
    ("--time-limit=0s", "invalid value for --time-limit: '0s' is no time"),
    ("--space=huge", 'invalid value "huge" for --space. Choose from: '),
    (
        "--hops=1 --lr=0.1 --readout=sum",
        "all settings of the space 'wide' are given: leave out one of hops, lr, readout",
    ),
    ("--hidden-dim=15", "hidden_dim=15 is not a multiple of num_heads=2"),
    ("--out=graph", "graph is not empty and holds no trials: choose another folder"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_a_users_mistake_is_one_line_and_nothing_is_written(flags, message, run, graph, tmp_path):
    before = [path.name for path in (tmp_path / "graph").iterdir()]
    named = {flag.partition("=")[0] for flag in flags.split()}
    fixed = [flag for flag in words()[4:] if flag.partition("=")[0] not in named]
    code, out, err = run("tune", "graph", *(() if "--out" in named else ("--out", "tuned")), *fixed, *flags.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"nagphormer: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    assert [path.name for path in (tmp_path / "graph").iterdir()] == before


def test_trials_of_another_graph_are_refused(run, graph, tmp_path):
    assert run(*words(1))[0] == 0
    named_graph(seed=1).save(tmp_path / "other")
    code, _, err = run("tune", "other", *words(1)[2:])
    assert (code, err) == (2, "nagphormer: tuned holds trials on another graph: choose another folder\n")


def test_optuna_is_named_where_it_is_missing(run, graph, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = run(*words(1))
    assert (code, err) == (2, "nagphormer: tuning needs the package optuna: pip install 'nagphormer[tune]'\n")
    assert not (tmp_path / "tuned").exists()


def test_without_a_complete_trial_it_says_why(run, graph, monkeypatch):
    loss = Task.loss
    monkeypatch.setattr(Task, "loss", lambda *given: loss(*given) * float("nan"))
    code, out, err = run("--quiet", *words(2))
    assert (code, out) == (2, "")
    assert err.startswith("nagphormer: none of 2 trials in tuned is complete; the last one says: the loss became nan")


def test_when_the_time_is_up_it_says_so(run, graph, monkeypatch):
    code, _, err = run(*words(50), "--time-limit", "1s")
    assert code in (0, 2)  # 2 where not one trial ended in time
    assert "the time is up after" in err


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "sent"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGINT)])
def test_a_tuning_that_is_killed_can_go_on(jobs, sent, tmp_path):
    named_graph().save(tmp_path / "graph")
    command = [sys.executable, "-m", "nagphormer", *words(200, epochs=30), f"--jobs={jobs}", "--threads=1"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("trial "):
                break
        time.sleep(1)
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.kill()
        lines += process.stderr.readlines()  # ends when no process of it holds the pipe any more
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert "Traceback" not in "".join(lines)
    done = sum(line.startswith("trial ") for line in lines)
    again = subprocess.run(
        [sys.executable, "-m", "nagphormer", "--json", *words(done + 2, epochs=30), f"--jobs={jobs}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{done} of them done already" in again.stderr or f"{done + 1} of them done already" in again.stderr
    assert sum(json.loads(again.stdout)["trials"].values()) == done + 2


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_a_time_limit_has_a_unit(text, seconds):
    given = ["tune", "graph", "--out", "tuned", "--time-limit", text]
    _, bound, _ = cli.app.parse_args(given, exit_on_error=False, print_error=False)
    assert bound.arguments["time_limit"] == seconds
