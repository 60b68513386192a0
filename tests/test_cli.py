import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nagphormer import TokenStore, __version__, cli, commands, from_scipy, hop_tokens, load_graph, synthetic_graph
from nagphormer.commands.terminal import describe_store

# main() reads sys.argv, as a user's shell fills it
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


@pytest.fixture
def graph_path(tmp_path):
    adjacency = sp.coo_array((np.ones(5), ([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])), shape=(7, 7))
    from_scipy(adjacency, np.eye(7), [0, 0, 0, 1, 1, 1, -1], name="path").save(tmp_path / "graph")
    return str(tmp_path / "graph")


def test_prepare_writes_a_store_and_says_where_and_what_next(run, graph_path):
    code, out, err = run("prepare", graph_path, "--out", "tokens", "--hops", 2, "--encoding-dim", 3)
    assert code == 0
    assert out == "wrote tokens: 7 nodes × 3 tokens × 10 columns, float16, 420 B\n"
    assert "3 Laplacian eigenvectors: " in err
    assert err.endswith(f"next: nagphormer train {graph_path} --tokens tokens --out my-run\n")
    assert TokenStore.open("tokens").shape == (7, 3, 10)


def test_prepare_takes_every_setting(run, graph_path):
    flags = "--hops 1 --dtype float32 --feature-scaling row --reduce-dim 4 --memory 64GB --device cpu"
    assert run("prepare", graph_path, "--out", "tokens", *flags.split())[0] == 0
    tokens = TokenStore.open("tokens").tokens
    assert (tokens.hops, tokens.dtype, tokens.feature_scaling, tokens.reduce_dim) == (1, "float32", "row", 4)
    facts = json.loads(run("info", "tokens", "--json")[1])
    assert (facts["columns"], facts["reduce_dim"], facts["feature_scaling"]) == (4, 4, "row")


def test_preparing_again_reuses_the_store(run, graph_path):
    reused = [json.loads(run("prepare", graph_path, "--out", "tokens", "--json")[1])["reused"] for _ in range(2)]
    assert reused == [False, True]


def test_an_empty_folder_is_filled_and_not_called_reused(run, graph_path, tmp_path):
    (tmp_path / "tokens").mkdir()
    assert json.loads(run("prepare", graph_path, "--out", "tokens", "--json")[1])["reused"] is False


def test_json_is_all_that_stands_on_stdout(run, graph_path):
    code, out, _ = run("--json", "prepare", graph_path, "--out", "tokens", "--hops", 2)
    assert code == 0
    facts = {"path": "tokens", "shape": [7, 3, 7], "dtype": "float16", "bytes": 294, "reused": False}
    assert json.loads(out) == facts


@pytest.mark.parametrize("words", [(), ("--quiet",), ("--json",)])
def test_no_command_shows_the_help(words, run):
    code, out, _ = run(*words)
    assert code == 0
    assert "prepare" in out


def test_the_next_command_can_be_pasted_with_blanks_in_a_path(run, graph_path):
    _, _, err = run("prepare", graph_path, "--out", "my tokens")
    assert shlex.split(err.splitlines()[-1])[-4:] == ["--tokens", "my tokens", "--out", "my-run"]


def test_quiet_leaves_stderr_empty(run, graph_path):
    code, out, err = run("--quiet", "prepare", graph_path, "--out", "tokens")
    assert (code, err) == (0, "")
    assert out.startswith("wrote tokens")


def test_settings_come_from_a_yaml_file_and_flags_win(run, graph_path, tmp_path):
    (tmp_path / "settings.yaml").write_text("hops: 4\ndtype: float32\nencoding_dim: 2\n")
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--hops", 1, "--config", "settings.yaml")
    assert code == 0, err
    tokens = TokenStore.open("tokens").tokens
    assert (tokens.hops, tokens.dtype, tokens.encoding_dim) == (1, "float32", 2)


def test_a_yaml_file_that_is_missing_is_refused(run, graph_path):
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--config", "none.yaml")
    assert (code, err) == (2, "nagphormer: cannot read the configuration none.yaml: No such file or directory\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU to limit")
def test_a_limit_for_a_gpu_that_is_not_there_is_refused(run, graph_path, tmp_path):
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--gpu-memory", "8GB")
    assert (code, err) == (2, "nagphormer: gpu_memory=8GB was asked for, but there is no GPU to use: leave it out\n")
    assert not (tmp_path / "tokens").exists()


def test_a_yaml_key_that_is_unknown_is_refused(run, graph_path, tmp_path):
    (tmp_path / "settings.yaml").write_text("hopps: 4\n")
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--config", "settings.yaml")
    assert code == 2
    assert "hopps" in err
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("value", ["2.5", "three", "true"])
def test_a_yaml_number_that_is_not_whole_is_refused(value, run, graph_path, tmp_path):
    (tmp_path / "settings.yaml").write_text(f"hops: {value}\n")
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--config", "settings.yaml")
    assert code == 2
    assert err.startswith("nagphormer: settings.yaml has hops: ")
    assert err.endswith("which should be a whole number\n")
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("content", [b"hops: [", b"- 1\n- 2\n", b"just text", b"hops: \xff"])
def test_a_yaml_file_that_cannot_be_read_is_refused(content, run, graph_path, tmp_path):
    (tmp_path / "settings.yaml").write_bytes(content)
    code, _, err = run("prepare", graph_path, "--out", "tokens", "--config", "settings.yaml")
    assert code == 2
    assert err.startswith(
        ("nagphormer: the configuration settings.yaml ", "nagphormer: cannot read the configuration ")
    )
    assert not (tmp_path / "tokens").exists()


def test_info_describes_a_graph(run, graph_path):
    code, out, _ = run("info", graph_path, "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["nodes"], facts["edges"], facts["components"], facts["isolated_nodes"]) == (7, 5, 2, 1)
    assert facts["label_counts"] == {"0": 3, "1": 3}
    assert facts["homophily"] == 0.8


def test_info_prints_a_table_with_costs(run, graph_path):
    code, out, _ = run("info", graph_path, "--hops", 10, "--encoding-dim", 1)
    assert code == 0
    table = dict(line.split(None, 1) for line in out.splitlines() if not line[0].isdigit())
    assert table["nodes"] == "7"
    assert "10 hops disk         1.23 kB" in out
    assert "10 hops seconds" in out


def test_info_describes_and_verifies_a_store(run, graph_path, tmp_path):
    run("prepare", graph_path, "--out", "tokens", "--hops", 2)
    code, out, _ = run("info", "tokens", "--verify", "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["tokens_of_nodes"], facts["hops"], facts["columns"], facts["checksums"]) == (7, 2, 7, "match")
    block = tmp_path / "tokens" / "block-000.bin"
    block.write_bytes(b"\xff" * block.stat().st_size)
    code, _, err = run("info", "tokens", "--verify")
    assert code == 2
    assert "block-000.bin is corrupt" in err


def test_info_verifies_a_graph(run, graph_path, tmp_path):
    assert json.loads(run("info", graph_path, "--verify", "--json")[1])["checksums"] == "match"
    file = tmp_path / "graph" / "features.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code, _, err = run("info", graph_path, "--verify")
    assert code == 2
    assert "features.npy is corrupt" in err


def test_import_turns_tables_into_a_graph_folder(run, tmp_path):
    pytest.importorskip("duckdb", reason="needs the extra 'tables'")
    (tmp_path / "edges.csv").write_text("source,target\nann,bob\nbob,cy\n")
    (tmp_path / "nodes.csv").write_text("id,age,label\nann,30,x\nbob,20,y\ncy,10,x\ndee,5,\n")
    code, out, err = run("import", "--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "people")
    assert code == 0, err
    assert out == "wrote people: 4 nodes, 2 edges, 1 features, 2 classes\n"
    assert err.endswith("next: nagphormer info people --hops 3\n")
    graph = load_graph(tmp_path / "people")
    assert graph.node_ids.tolist() == ["ann", "bob", "cy", "dee"]
    assert graph.labels.tolist() == [0, 1, 0, -1]


@pytest.fixture
def people(tmp_path):
    """Tables in the folder where commands run, with everything that needs a word."""
    pytest.importorskip("duckdb", reason="needs the extra 'tables'")
    (tmp_path / "edges.csv").write_text("source,target,since\na,b,1\nb,a,2\nb,c,2\nc,c,1\nd,a,3\n")
    rows = (
        "a,30,Oslo,2020-01-01,x,2015\nb,,Rome,2021-01-01,y,2016\nc,10,,2020-05-01,x,2019\nd,20,Oslo,2020-05-01,,2020\n"
    )
    (tmp_path / "nodes.csv").write_text(f"id,age,city,joined,label,year\n{rows}e,20,Oslo,2020-05-01,y,2021\n")
    return ["import", "--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "people graph"]


def test_import_says_what_it_took(run, people):
    options = ("--encode", "city", "--exclude", "joined", "--fill", "mean", "--train-before", "year=2018")
    code, out, err = run(*people, *options)
    assert code == 0, err
    assert out == "wrote people graph: 5 nodes, 3 edges, 4 features, 2 classes\n"
    assert [line for line in err.splitlines() if not line.startswith("  ")] == [
        "edges: 5 rows give 3: 1 merged, 1 self-loops dropped",
        "features: 4 from 1 column of numbers, city (2 categories), 1 missing of age filled with 20",
        "labels: 2 classes, 4 nodes; 1 have none",
        "splits: train 2, val 1, test 1",
        "left out: since (edges); joined (nodes)",
        "next: nagphormer info 'people graph' --hops 3",
    ]


def test_import_tells_machines_what_it_took(run, people):
    code, out, err = run("--json", *people, "--encode", "city", "--exclude", "joined,year", "--fill", "0")
    assert code == 0, err
    taken = json.loads(out)["taken"]
    assert (taken["edge_rows"], taken["edges"], taken["merged"], taken["self_loops"]) == (5, 3, 1, 1)
    assert [(column["name"], column["kind"], column["categories"]) for column in taken["features"]] == [
        ("age", "number", 0),
        ("city", "category", 2),
    ]
    assert (taken["missing"], taken["labeled"], taken["splits"]) == ({"age": 1}, 4, {})
    assert taken["left_out"] == {"edges": ["since"], "nodes": ["joined", "year"]}


def test_a_refused_import_ends_with_the_line_that_works(run, people, tmp_path):
    code, out, err = run(*people, "--train-before", "year=2018")
    assert (code, out, err.count("\n")) == (2, "", 1)
    line = err.partition("; this would be read: nagphormer ")[2]
    assert "--encode city --fill mean --exclude joined --train-before year=2018" in line
    assert run(*shlex.split(line))[0] == 0
    assert load_graph(tmp_path / "people graph").feature_names[:2] == ("age", "age is missing")


def test_the_line_that_works_names_the_features_that_were_named(run, people, tmp_path):
    _, _, err = run(*people, "--features", "age,year")
    line = err.partition("; this would be read: nagphormer ")[2]
    assert "--features age,year --fill mean" in line
    assert run(*shlex.split(line))[0] == 0
    assert load_graph(tmp_path / "people graph").feature_names[::2] == ("age", "year")


def test_import_reads_tables_like_those_of_an_earlier_graph(run, people, tmp_path):
    assert run(*people, "--encode", "city", "--exclude", "joined", "--fill", "mean")[0] == 0
    (tmp_path / "later.csv").write_text("city,new,id,year,age,label\nBonn,1,a,1,1,z\nRome,1,b,1,,x\n")
    (tmp_path / "later-edges.csv").write_text("source,target\na,b\n")
    tables = ("--edges", "later-edges.csv", "--nodes", "later.csv", "--out", "later")
    code, _, err = run("import", *tables, "--like", "people graph")
    assert code == 0
    assert "\nleft out: new (nodes)\nvalues of categories not seen before, which are zeros: city 1\n" in err
    assert "\ncolumns not seen before, which are left out: new\nclasses not seen before: z\n" in err
    later = load_graph(tmp_path / "later")
    assert later.feature_names == load_graph(tmp_path / "people graph").feature_names
    assert later.features.tolist() == [[1, 0, 0, 0, 1], [20, 1, 0, 1, 1]]


def test_a_bound_of_training_needs_a_column(run, people):
    code, _, err = run(*people, "--train-before", "2018")
    assert code == 2
    assert "--train-before is '2018': give COLUMN=DATE" in err


@pytest.mark.parametrize("sources", [[], ["--edges", "a.csv", "--ogb", "b"]])
def test_import_wants_exactly_one_source(sources, run):
    code, _, err = run("import", *sources, "--out", "graph")
    assert code == 2
    assert "give exactly one of --edges, --ogb and --grand-plus" in err


def test_pickles_are_refused_unless_allowed(run, tmp_path):
    (tmp_path / "files").mkdir()
    for part in ("adj.sp", "features", "labels"):
        (tmp_path / "files" / f"aminer.{part}.pkl").write_bytes(b"not read")
    code, _, err = run("import", "--grand-plus", "files", "--out", "graph")
    assert code == 2
    assert "--allow-pickle" in err
    assert not (tmp_path / "graph").exists()


MISTAKES = [
    ("prepare nowhere --out tokens", "there is no data set, file or folder 'nowhere'"),
    ("prepare GRAPH --out tokens --hops -1", "hops must be 0 or more, not -1"),
    ("prepare GRAPH --out tokens --memory 4XB", "cannot read '4XB' as a size"),
    ("prepare GRAPH --out tokens --device tpu", "unknown device 'tpu'"),
    ("prepare GRAPH --out GRAPH", "already exists"),
    ("info nowhere", "there is no data set, file or folder 'nowhere'"),
    ("info GRAPH --hops -1", "hops must be 0 or more, not -1"),
    ("info GRAPH --threads 0", "--threads must be between 1 and"),
    ("info GRAPH --threads 100000", "--threads must be between 1 and"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_users_mistake_is_one_line_and_exit_code_2(command, message, run, graph_path, tmp_path):
    code, out, err = run(*command.replace("GRAPH", graph_path).split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("nagphormer: ")
    assert message in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph"]


REFUSED = [
    ("prepare GRAPH --out tokens --dtype float8", 'invalid value "float8" for --dtype. Choose from: '),
    ("prepare GRAPH --out tokens --hops many", "invalid value for --hops: 'many' is no whole number\n"),
    ("prepare GRAPH", "prepare needs --out with a value: nagphormer prepare --help says more\n"),
    ("prepare GRAPH --outt tokens", "prepare has no flag --outt. Did you mean '--out'?\n"),
    ("prepare --out tokens", "prepare needs GRAPH: nagphormer prepare --help says more\n"),
    ("inof GRAPH", "there is no command 'inof'. Did you mean 'info'? Commands are: demo, import, info"),
    ("info GRAPH --nonsense", "info has no flag --nonsense\n"),
    ("info GRAPH --treads 4", "info has no flag --treads. Did you mean '--threads'?\n"),
    ("--quit info GRAPH", "nagphormer has no flag --quit. Did you mean '--quiet'?\n"),
    ("train GRAPH --out run --learning-rate 1", "train has no flag --learning-rate. Did you mean '--lr'?\n"),
    ("info GRAPH GRAPH", "info has no use for 'GRAPH': nagphormer info --help says what it takes\n"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_what_the_parser_refuses_is_one_line_and_exit_code_2_too(command, message, run, graph_path, tmp_path):
    code, out, err = run(*command.replace("GRAPH", graph_path).split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"nagphormer: {message.replace('GRAPH', graph_path if 'no use' in message else 'GRAPH')}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["graph"]


@pytest.mark.slow
def test_what_cannot_be_written_is_one_line(graph_path):
    for words, out, said in (
        (f"info {graph_path}", "/dev/full", "No space left on device"),
        (f"import --edges {graph_path}/x --out /proc/x", os.devnull, "/x"),
        (f"info {graph_path} --json", None, ""),
    ):
        command = f"{sys.executable} -m nagphormer {words} >{'&-' if out is None else out}"
        found = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
        assert "Traceback" not in found.stderr
        assert said in found.stderr
        assert found.returncode == (2 if said else 0)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["info", "GRAPH"], ["--help"], ["info", "nowhere"]])
def test_a_closed_pipe_ends_it_quietly(words, graph_path):
    there, here = os.pipe()
    os.close(there)
    command = [sys.executable, "-m", "nagphormer", *(word.replace("GRAPH", graph_path) for word in words)]
    with open(here, "wb") as nobody:
        lost = nobody if words[-1] == "nowhere" else subprocess.PIPE
        done = subprocess.run(command, stdout=nobody, stderr=lost, check=False)
    assert (done.returncode, done.stderr or b"") == (141, b"")


def test_threads_are_limited(run, graph_path):
    assert run("info", graph_path, "--threads", 1)[0] == 0
    assert numba.get_num_threads() == 1


def test_an_interrupt_says_so_and_exits_with_130(run, graph_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nagphormer.tokens.hop2token.hop_tokens", interrupt)
    code, _, err = run("prepare", graph_path, "--out", "tokens")
    assert code == 130
    assert err == "nagphormer: interrupted; nothing partial was left behind\n"


def test_version_is_printed(run):
    assert run("--version")[:2] == (0, f"{__version__}\n")


def test_help_lists_the_commands_and_their_flags(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in cli.COMMANDS)
    _, out, _ = run("prepare", "--help")
    assert all(flag in out for flag in ("--hops", "--encoding-dim", "--dtype", "--feature-scaling", "--memory"))
    assert "every node gets K+1 tokens" in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_help_ends_with_an_example_that_the_parser_takes(command, run):
    _, out, _ = run(command, "--help")
    *_, example = out.strip().splitlines()
    program, *words = shlex.split(example.removeprefix("Example: "))
    assert (program, words[0]) == ("nagphormer", command)
    found, bound, _ = cli.app.parse_args(words, exit_on_error=False, print_error=False)
    assert found.__module__.startswith(f"nagphormer.commands.{command}")
    assert bound.arguments


def test_flags_of_training_stand_in_groups(run):
    _, out, _ = run("train", "--help")
    boxes = ["Arguments", "Run", "Tokens", "Network", "Training", "Every command"]
    places = [out.index(f"─ {box} ─") for box in boxes]
    assert places == sorted(places)
    assert "─ Parameters ─" not in out
    flags = ("GRAPH", "--out ", "--hops", "--readout", "--lr ", "--quiet")
    starts = [out.index(flag, place) for flag, place in zip(flags, places, strict=True)]
    assert all(start < end for start, end in zip(starts, [*places[1:], len(out)], strict=True))


@pytest.mark.slow
def test_completion_can_be_installed(tmp_path):
    command = [sys.executable, "-m", "nagphormer", "--install-completion"]
    environment = os.environ | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (script,) = tmp_path.rglob("completions/nagphormer")
    assert "--hidden-dim" in script.read_text()


@pytest.mark.slow
def test_a_mistake_exits_with_2_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "nagphormer", "info", "nowhere"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nagphormer: there is no data set")


@pytest.mark.parametrize("listed", [["age", "income"], ["age,income"]])
def test_features_are_listed_after_one_flag_and_a_missing_label_is_said(listed, run, tmp_path):
    pytest.importorskip("duckdb", reason="needs DuckDB for tables")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,lable,age,income\na,x,1,2\nb,y,3,4\nc,x,5,6\n")
    flags = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "graph", "--features", *listed)
    code, out, err = run("import", *flags)
    assert code == 0
    assert "2 features, 0 classes" in out
    assert "note: nodes.csv has no column 'label', so no node has a class" in err


def test_a_graph_without_features_is_told_what_stands_for_them(run, tmp_path):
    synthetic_graph(50, 100, 0, 2).save(tmp_path / "bare")
    code, _, err = run("prepare", "bare", "--out", "tokens")
    assert code == 0
    assert "log(1 + degree)" in err


@pytest.mark.slow
def test_a_warning_is_one_line(tmp_path):
    synthetic_graph(8, 10, 2, 2).save(tmp_path / "small")
    command = [
        sys.executable,
        "-m",
        "nagphormer",
        "--quiet",
        "prepare",
        "small",
        "--out",
        "tokens",
        "--encoding-dim",
        "20",
    ]
    err = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert err.startswith("nagphormer: warning: the graph has only 7 non-trivial eigenvectors")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_a_terminated_run_says_so_and_leaves_nothing(tmp_path):
    synthetic_graph(100_000, 500_000, 16, 2).save(tmp_path / "graph")
    command = [sys.executable, "-m", "nagphormer", "prepare", "graph", "--out", "tokens", "--hops", "200"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(1000):
            if list(tmp_path.glob(".tokens.partial-*")):
                break
            time.sleep(0.02)
        process.terminate()
        _, err = process.communicate()
    assert process.returncode == 143
    assert "nagphormer: terminated; nothing partial was left behind" in err
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_store_in_memory_can_be_described(graph_path):
    store = hop_tokens(load_graph(graph_path), 2, device="cpu")
    assert describe_store(store) == "in memory: 7 nodes × 3 tokens × 7 columns, float16, 294 B"
    assert store.manifest.blocks == ()


@pytest.mark.parametrize(
    "words",
    [
        "train GRAPH --out run --epochs 1.5",
        "prepare GRAPH --out tokens --hops 2.5",
        "info GRAPH --hops 1.6",
        "info GRAPH --hops 1.0e999",
    ],
)
def test_fractions_are_no_whole_numbers(words, run, graph_path):
    code, _, err = run(*words.replace("GRAPH", str(graph_path)).split())
    assert code == 2
    assert "is no whole number" in err
    assert run("info", graph_path, "--hops", "2.0")[0] == 0


def test_every_command_is_in_the_file_of_its_name():
    found = {path.stem.rstrip("_") for path in Path(commands.__file__).parent.glob("*.py")}
    assert found - set(cli.COMMANDS) == {"__init", "flags", "terminal", "train_flags", "use"}
    assert set(cli.COMMANDS) <= found
