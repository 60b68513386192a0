"""What this code computes and says, in digests: written before a change, compared after it.

    python scripts/frozen.py write DIR      before: every digest goes to DIR/frozen.json
    python scripts/frozen.py compare DIR    after: says what is no longer the same, and exits with 1 if anything is

The same machine, one thread: sums of products depend on the processor, so a file written elsewhere proves nothing.
Covered are graph folders of every reader, token stores, weights, histories, run folders, predictions, the words of
every command, and the messages about wrong input. What depends on the day (seconds, versions, sizes of memory) is left
out. Only public names and the command line are used, so the same script runs before and after a redesign.
"""

# ruff: noqa: E402 (the number of threads is read when the libraries are loaded)

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import scipy.sparse as sp
import yaml

import nagphormer
from nagphormer import (
    Graph,
    NodeClassifier,
    TokenStore,
    TrainConfig,
    UserError,
    from_dgl,
    from_networkx,
    from_pyg,
    from_scipy,
    hop_tokens,
    laplacian_encoding,
    load_graph,
    per_class_split,
    random_split,
    read_ogb,
    read_tables,
    synthetic_graph,
)

FILE = "frozen.json"
COMMANDS = ("", "demo", "import", "info", "prepare", "train", "evaluate", "predict")
QUICK: dict[str, Any] = {
    "hops": 2,
    "hidden_dim": 16,
    "num_heads": 2,
    "batch_size": 40,
    "epochs": 4,
    "warmup_updates": 2,
    "lr": 0.01,
    "device": "cpu",
}
# settings that are younger leave the same model as before them
QUICK |= {each.name: each.metadata["before"] for each in fields(TrainConfig) if each.metadata.get("since") == "0.2.0"}
NAMES = ("ash", "birch", "cedar")
Facts = Iterator[tuple[str, Any]]


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("work", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = json.loads(json.dumps(collect()))
    path = options.folder / FILE
    if options.work == "write":
        options.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path}: {len(found)} facts of nagphormer {nagphormer.__version__}")
        return
    known = json.loads(path.read_text(encoding="utf-8"))
    changed = [name for name in sorted(known.keys() | found.keys()) if known.get(name) != found.get(name)]
    for name in changed:
        print(f"{name}\n  before: {known.get(name, 'absent')}\n  now:    {found.get(name, 'absent')}")
    print(f"{len(found) - len(changed)} of {len(known)} facts are the same, {len(changed)} are not")
    sys.exit(bool(changed))


def collect() -> dict[str, Any]:
    """All facts by name, in an empty folder."""
    found: dict[str, Any] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("NAGPHORMER_DATA", "NAGPHORMER_CACHE"):
            os.environ.pop(name, None)
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        try:
            for part in (readers, draws, stores, trainings, other_graphs, commands, mistakes):
                for name, value in part():
                    assert name not in found, name
                    found[name] = value
                print(f"{part.__name__}: {len(found)} facts so far", file=sys.stderr, flush=True)
        finally:
            os.chdir(before)
    return found


def digest(*arrays: Any) -> str:
    """A hash of arrays: values, types and shapes."""
    whole = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        whole.update(f"{array.dtype} {array.shape}".encode())
        whole.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return whole.hexdigest()[:24]


def files(folder: Path, name: str, without: tuple[str, ...] = ("versions",)) -> Facts:
    """A fact for every file of a folder; of JSON and YAML the text, less what depends on the day."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        where = f"{name}/{path.relative_to(folder)}"
        if path.suffix in (".json", ".jsonl"):
            lines = path.read_text(encoding="utf-8")
            parsed = [json.loads(line) for line in lines.splitlines()] if path.suffix == ".jsonl" else json.loads(lines)
            yield where, json.dumps(_less(parsed, without), ensure_ascii=False)  # the order of keys counts
        elif path.suffix == ".yaml":
            yield where, path.read_text(encoding="utf-8")
        else:
            yield where, hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def _less(content: Any, without: tuple[str, ...]) -> Any:
    if isinstance(content, list):
        return [_less(each, without) for each in content]
    if isinstance(content, dict):
        return {key: _less(value, without) for key, value in content.items() if key not in without}
    return content


# readers


def named_graph(seed: int = 0, sparse: bool = False, features: bool = True, weighted: bool = False) -> Graph:
    """120 nodes with names of their own, split at random."""
    drawn = synthetic_graph(120, 360, 8, 3, seed=seed)
    adjacency, values = drawn.adjacency(), np.asarray(drawn.features)
    if weighted:
        upper = sp.triu(adjacency).tocsr()
        upper.data = (1 + np.arange(upper.nnz) % 5).astype(np.float32)
        adjacency = upper + upper.T
    return random_split(
        from_scipy(
            adjacency,
            (sp.csr_array(np.maximum(values, 0)) if sparse else values) if features else None,
            drawn.labels,
            node_ids=[f"node-{number}" for number in range(drawn.num_nodes)],
            class_names=NAMES,
            name="small",
        )
    )


def multi_label_graph() -> Graph:
    """The same nodes, each with any of three labels."""
    graph = named_graph()
    assert graph.labels is not None
    labels = np.stack([graph.labels == 0, graph.labels != 1, graph.degrees > 5], axis=1)
    return random_split(from_scipy(graph.adjacency(), graph.features, labels, class_names=NAMES))


def write_tables(folder: Path) -> None:
    """An edge list and node tables, as CSV and Parquet."""
    import pyarrow.csv
    import pyarrow.parquet

    folder.mkdir()
    people = [f"user_{number:02d}" for number in range(60)]
    edges = [f"{people[i]},{people[(i + step) % 60]},{1 + i % 3}" for i in range(60) for step in (2, 4)]
    (folder / "edges.csv").write_text("source,target,weight\n" + "\n".join(edges) + "\n")
    splits = ("train", "train", "train", "val", "test")
    rows = [f"{name},{('even', 'odd')[i % 2]},{splits[i % 5]},{i % 2},{i / 7}" for i, name in enumerate(people)]
    (folder / "nodes.csv").write_text("id,label,split,kind,age\n" + "\n".join(rows) + "\n")
    numbers = [f"{i},{(10, 9, 2)[i % 3]},{i % 2}" for i in range(60)]
    (folder / "numbers.csv").write_text("id,label,kind\n" + "\n".join(numbers) + "\n")
    ends = [f"{i},{(i + 1) % 60}" for i in range(60)]
    (folder / "ends.csv").write_text("source,target\n" + "\n".join(ends) + "\n")
    for name in ("edges", "nodes", "numbers", "ends"):
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / f"{name}.csv"), folder / f"{name}.parquet")


def write_ogb(folder: Path) -> None:
    """A data set in the layout of the Open Graph Benchmark."""
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    contents = {
        "raw/edge.csv.gz": "0,1\n1,2\n2,1\n3,3\n",
        "raw/num-node-list.csv.gz": "4\n",
        "raw/num-edge-list.csv.gz": "4\n",
        "raw/node-feat.csv.gz": "0.5,-1\n0,2\n1e-8,3\n7,8\n",
        "raw/node-label.csv.gz": "3\nnan\n\n0\n",
        "split/time/train.csv.gz": "2\n0\n",
        "split/time/valid.csv.gz": "1\n",
        "split/time/test.csv.gz": "3\n",
    }
    for name, text in contents.items():
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def write_grand_plus(folder: Path) -> None:
    """Pickles as GRAND+ publishes them."""
    folder.mkdir()
    matrix = sp.csr_matrix(np.array([[0, 2, 0], [2, 1, 0.5], [0, 0, 0]]))
    labels = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0]])
    for ending, content in ((".adj.sp", matrix), (".features", np.arange(6.0).reshape(3, 2)), (".labels", labels)):
        (folder / f"aminer{ending}.pkl").write_bytes(pickle.dumps(content))


def readers() -> Facts:
    """The graph folder that each reader's graph becomes."""
    import networkx
    import torch
    from torch_geometric.data import Data

    write_tables(Path("tables"))
    write_ogb(Path("ogb"))
    write_grand_plus(Path("grand-plus"))
    ends = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 2, 0, 1]])
    labels, features = torch.tensor([0, 1, 1, 0]), torch.arange(8.0).reshape(4, 2)
    masks = {name: torch.tensor([i == j for j in range(4)]) for i, name in enumerate(("train", "val", "test"))}
    masks = {f"{name}_mask": mask for name, mask in masks.items()}
    web = networkx.Graph()
    web.add_nodes_from((name, {"x": [float(i)], "y": NAMES[i % 3]}) for i, name in enumerate("abcdef"))
    web.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 1.0), ("d", "e", 0.5)])
    fake = SimpleNamespace(
        ndata={"feat": features, "label": labels, **masks},
        edata={"w": torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])},
        edges=lambda: (ends[0], ends[1]),
        num_nodes=lambda: 4,
        is_homogeneous=True,
    )
    repeated = sp.coo_array(([1, 1, 1, 1], ([0, 0, 1, 2], [1, 1, 2, 2])), shape=(4, 4))
    npz = {f"adj_{part}": getattr(sp.csr_array(repeated), part) for part in ("data", "indices", "indptr", "shape")}
    np.savez("plain.npz", **npz, attr_matrix=np.eye(4, 3, dtype=np.float32), labels=np.array([0, 1, -1, 1]))
    made: dict[str, Callable[[], Graph]] = {
        "scipy": lambda: from_scipy(repeated, np.arange(8.0).reshape(4, 2), ["10", "9", "", "2"]),
        "scipy-named": named_graph,
        "scipy-sparse": lambda: named_graph(sparse=True),
        "scipy-weighted": lambda: named_graph(weighted=True),
        "scipy-multi": multi_label_graph,
        "pyg": lambda: from_pyg(Data(edge_index=ends, x=features, y=labels, **masks)),
        "dgl": lambda: from_dgl(fake),
        "networkx": lambda: from_networkx(web, features="x", label="y", weight="weight"),
        "csv": lambda: read_tables("tables/edges.csv", "tables/nodes.csv"),
        "csv-weighted": lambda: read_tables("tables/edges.csv", "tables/nodes.csv", weight="weight"),
        "parquet": lambda: read_tables("tables/edges.parquet", "tables/nodes.parquet"),
        "csv-numbers": lambda: read_tables("tables/ends.csv", "tables/numbers.csv"),
        "csv-edges": lambda: read_tables("tables/ends.csv"),
        "ogb": lambda: read_ogb("ogb"),
        "npz": lambda: load_graph("plain.npz"),
        "cora": lambda: load_graph("cora"),
    }
    for name, make in made.items():
        graph = make()
        graph.save(f"graph-{name}")
        yield f"graph {name} fingerprint", graph.fingerprint
        yield from files(Path(f"graph-{name}"), f"graph {name}")


def draws() -> Facts:
    """Splits and synthetic graphs."""
    for seed in range(3):
        graph = random_split(synthetic_graph(500, 2000, 4, 3, seed=seed), seed=seed)
        yield f"random split {seed}", digest(*graph.splits.values())
        yield f"synthetic {seed}", graph.fingerprint
        yield f"per-class split {seed}", digest(*per_class_split(graph, 3, 4, seed=seed).splits.values())
    cora = load_graph("cora", seed=1)
    yield "cora split 1", digest(*cora.splits.values())


# tokens


def stores() -> Facts:
    """Every kind of token store, and one that is cut in blocks."""
    from nagphormer.tokens import store

    graph = load_graph("graph-scipy-weighted")
    yield "encoding", digest(laplacian_encoding(graph, 3, device="cpu"))
    dtypes, scalings = ("float16", "bfloat16", "float32"), ("none", "standardize", "row")
    for dtype, scaling, dim in product(dtypes, scalings, (0, 3)):
        name = f"store {dtype} {scaling} {dim}"
        settings: dict[str, Any] = {"encoding_dim": dim, "dtype": dtype, "feature_scaling": scaling, "device": "cpu"}
        made = hop_tokens(graph, 3, out=name.replace(" ", "-"), **settings)
        yield from files(Path(name.replace(" ", "-")), name)
        in_memory = hop_tokens(graph, 3, **settings)
        yield f"{name} in memory", digest(np.asarray(in_memory), np.asarray(made))
    yield "store of no features", digest(np.asarray(hop_tokens(named_graph(features=False), 2, device="cpu")))
    yield "store of no hops", digest(np.asarray(hop_tokens(graph, 0, device="cpu")))
    yield "store of sparse", digest(np.asarray(hop_tokens(named_graph(sparse=True), 2, device="cpu")))
    widest, store.BLOCK_BYTES = store.BLOCK_BYTES, 120 * 2 * 4
    hop_tokens(graph, 3, encoding_dim=3, out="cut", device="cpu")
    store.BLOCK_BYTES = widest
    yield from files(Path("cut"), "store cut in blocks")
    yield "repr", repr(TokenStore.open("cut"))


# training


def trained(name: str, graph: Graph, tokens: TokenStore | None = None, **settings: Any) -> Facts:
    """All that a training leaves: its folder, and what the model says of every node."""
    classifier = NodeClassifier(**(QUICK | settings)).fit(graph, tokens=tokens)
    classifier.save(f"run-{name}")
    yield from files(Path(f"run-{name}"), f"run {name}", ("versions", "seconds"))
    for what in ("predict", "predict_proba", "embed"):
        yield f"run {name} {what}", digest(getattr(classifier, what)(graph))
    if settings.get("readout", "attention") == "attention":
        yield f"run {name} hop_attention", _answer(lambda: classifier.hop_attention(graph))
    yield (
        f"run {name} score",
        {
            metric: classifier.score(graph, "test", metric)
            for metric in ("accuracy", "macro_f1", "micro_f1", "roc_auc", "log_loss", "ece")
        },
    )
    loaded = NodeClassifier.load(f"run-{name}")
    yield f"run {name} loaded", digest(loaded.predict_proba(graph, nodes=slice(0, 50)))
    yield f"run {name} decided", {key: repr(value) for key, value in vars(loaded.config_).items()}


def trainings() -> Facts:
    """Four epochs of every way, precision, readout, with and without the linear classifier; and of odd graphs."""
    graph = load_graph("graph-scipy-sparse")
    ways, precisions = ("never", "always"), ("fp32", "bf16")
    for way, precision, readout, linear in product(ways, precisions, ("attention", "self", "sum"), (True, False)):
        settings: dict[str, Any] = {"project_first": way, "precision": precision, "readout": readout, "linear": linear}
        yield from trained(f"{way}-{precision}-{readout}-{linear}", graph, encoding_dim=2, **settings)
    dense = named_graph()
    yield from trained("default", dense, precision="fp32")
    yield from trained("paper", dense, recipe="paper", encoding_dim=2)
    yield from trained("balanced", dense, class_weights="balanced", clip_norm=0.5, averaging=0, precision="fp32")
    yield from trained("deep", dense, num_layers=2, dropout=0.3, feature_dropout=0.2, precision="fp32", seed=3)
    yield from trained("no-hops", dense, hops=0, precision="fp32")
    yield from trained("multi", multi_label_graph(), precision="fp32")
    yield from trained("no-features", named_graph(features=False), precision="fp32")
    tokens = hop_tokens(dense, 2, encoding_dim=2, dtype="bfloat16", out="tokens-of-dense", device="cpu")
    yield from trained("tokens", dense, tokens, precision="fp32", hops=None)


def other_graphs() -> Facts:
    """A model on graphs that are not that of training."""
    model = NodeClassifier.load("run-default")
    other = named_graph(seed=1)
    yield "other graph", _answer(lambda: model.predict_proba(other))
    sparse = NodeClassifier.load("run-always-fp32-attention-True")
    dense = from_scipy(other.adjacency(), np.maximum(np.asarray(other.features), 0), other.labels)
    yield "other dense graph", _answer(lambda: sparse.predict_proba(dense))


def _answer(ask: Callable[[], np.ndarray]) -> str:
    """The digest of an answer, or the refusal of a question."""
    try:
        return digest(ask())
    except UserError as error:
        return str(error)


# commands


def run(*arguments: str) -> tuple[int, str, str]:
    """The command line in this process: exit code, stdout and stderr."""
    from nagphormer import cli, progress

    os.environ["COLUMNS"] = "120"
    if "--config" in arguments:  # settings of a file stay with the process
        command = [sys.executable, "-m", "nagphormer", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, steady(done.stdout), steady(done.stderr)
    code: Any = 0
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["nagphormer", *arguments]
    shown = warnings.showwarning
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
    sys.argv, warnings.showwarning = before, shown
    progress.configure(quiet=True)
    return int(code), steady(out.getvalue()), steady(err.getvalue())


def steady(text: str) -> str:
    """A text without seconds and other passing numbers, and without the temporary folder."""
    text = text.replace(os.path.realpath("."), "HERE").replace(os.getcwd(), "HERE")
    text = re.sub(r"\d+(\.\d+)? s\b", "T s", text)
    text = re.sub(r"[\d.]+ [MG]B are kept", "… are kept", text)
    text = re.sub(r'("seconds": )[\d.]+', r"\1T", text)
    text = re.sub(r"(\d+_hops_(?:memory|seconds)\W+)[^,}\n]+", r"\1…", text)
    text = re.sub(r"(\d+ hops (?:memory|seconds) +)[^\n]+", r"\1…", text)
    return re.sub(r"(?m)^  epoch \d+: .*\n", "", text)  # shown every few seconds


def commands() -> Facts:
    """What every command prints and writes."""
    for command in COMMANDS:
        yield f"help {command}", run(*command.split(), "--help")
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()] + ["--precision=fp32"]
    Path("settings.yaml").write_text(yaml.safe_dump(QUICK | {"precision": "fp32"}))
    calls: dict[str, str] = {
        "version": "--version",
        "import": "import --edges tables/edges.csv --nodes tables/nodes.csv --out my-graph",
        "import json": "--json import --edges tables/edges.csv --weight weight --out my-edges",
        "import ogb": "import --ogb ogb --out my-ogb",
        "import grand-plus": "import --grand-plus grand-plus --allow-pickle --out my-grand",
        "info": "info my-graph --hops 3 --encoding-dim 2 --verify",
        "info json": "--json info my-graph --hops 3",
        "prepare": "prepare my-graph --out my-tokens --hops 2 --encoding-dim 2",
        "prepare again": "--json prepare my-graph --out my-tokens --hops 2 --encoding-dim 2",
        "info tokens": "info my-tokens --verify",
        "train": f"train my-graph --out my-run {' '.join(settings)}",
        "train resumed": f"--json train my-graph --out my-run --resume {' '.join(settings)}",
        "train tokens": f"--quiet train my-graph --out run-tokened --tokens my-tokens {' '.join(settings)}",
        "train config": "--config settings.yaml train my-graph --out run-configured --no-linear",
        "train recipe": f"train my-graph --out run-recipe --recipe paper {' '.join(settings)}",
        "evaluate": "evaluate my-run my-graph --split test",
        "evaluate json": "--json evaluate my-run my-graph --split val --device cpu",
        "predict": "predict my-run my-graph --out labels.csv",
        "predict json": "--json predict my-run my-graph --out labels.parquet",
    }
    for name, call in calls.items():
        code, out, err = run(*call.split())
        assert code == 0, (call, err)
        yield f"command {name}", (code, out, err)
    for folder in ("my-graph", "my-edges", "my-ogb", "my-grand", "my-tokens"):
        yield from files(Path(folder), f"wrote {folder}")
    for folder in ("my-run", "run-tokened", "run-configured", "run-recipe"):
        for name, value in files(Path(folder), f"wrote {folder}", ("versions", "seconds")):
            if "/state/" not in name:  # how often is a matter of time
                yield name, value
    yield "wrote labels.csv", Path("labels.csv").read_text()


# mistakes


def mistakes() -> Facts:
    """Exit code and words for wrong input."""
    Path("one.csv").write_text("source,target\na,\n")
    Path("bad.yaml").write_text("hopps: 3\n")
    Path("text.txt").write_text("nothing\n")
    Path("part.yaml").write_text("hops: 2.5\n")
    for call in (
        "info nowhere",
        "info text.txt",
        "info one.csv",
        "import --out x",
        "import --edges none.csv --out x",
        "import --edges one.csv --out x",
        "import --edges tables/edges.csv --nodes tables/nodes.csv --out my-graph",
        "import --edges tables/edges.csv --source from --out x",
        "import --edges tables/edges.csv --nodes tables/nodes.csv --label nothing --out x",
        "import --grand-plus grand-plus --out x",
        "prepare my-graph --out x --hops -1",
        "prepare my-graph --out x --dtype float8",
        "prepare my-graph --out my-graph",
        "prepare my-graph --out my-tokens --hops 3",
        "prepare my-graph --out x --memory 1MB",
        "prepare my-graph --out x --memory lots",
        "prepare my-graph --out x --device tpu",
        "prepare my-graph --out x --gpu-memory 1GB --device cpu",
        "prepare my-graph --out x --cluster local --device cuda",
        "train my-graph --out my-run",
        "train my-graph --out my-run --resume",
        "train my-graph --out x --hops three",
        "train my-graph --out x --num-heads 7",
        "train my-graph --out x --recipe papr",
        "train my-graph --out x --recipe bad.yaml",
        "train my-graph --out x --tokens my-tokens --hops 3",
        "train my-graph --out x --tokens my-graph",
        "train my-graph --out x --project-first always",
        "train my-graph --out x --project-first always --tokens my-tokens --hops 2 --encoding-dim 2",
        "train my-edges --out x",
        "train graph-cora --out x --tokens my-tokens",
        "train my-graph --out x --device cuda",
        "train my-graph --out x --seed -1",
        "train my-graph --out x --lr 0",
        "train my-graph --out x --dropout 1",
        "train my-graph --out x --readout loudest",
        "--config bad.yaml train my-graph --out x",
        "--config part.yaml train my-graph --out x",
        "--config none.yaml train my-graph --out x",
        "--threads 0 info my-graph",
        "evaluate nowhere my-graph",
        "evaluate my-graph my-graph",
        "evaluate my-run my-graph --split all",
        "evaluate my-run my-edges",
        "evaluate my-run graph-scipy-named",
        "predict my-run my-graph --out x.txt",
        "predict my-run my-graph --out tables",
        "predict my-run graph-cora --out x.csv",
        "predict my-run my-graph --out x.csv --tokens my-tokens",
        "predict my-run my-graph --out x --cluster local --device cuda",
        "predict run-tokened graph-csv-weighted --out elsewhere.csv",
        "nonsense",
        "train",
    ):
        yield f"mistake: {call}", run(*call.split())
        for left in ("x", "x.csv"):
            assert not Path(left).exists(), call
    graph, model = named_graph(), NodeClassifier.load("run-default")
    text: dict[str, Any] = {"hops": "3"}
    wrong: dict[str, Callable[[], Any]] = {
        "not fitted": lambda: NodeClassifier().predict(graph),
        "unknown parameter": lambda: NodeClassifier().set_params(hopps=3),
        "unknown metric": lambda: model.score(graph, metric="acuracy"),
        "unknown split": lambda: model.score(graph, "all"),
        "nodes twice": lambda: model.predict(graph, [0], node_ids=["node-0"]),
        "no such node": lambda: model.predict(graph, [500]),
        "no such id": lambda: model.predict(graph, node_ids=["nobody"]),
        "ids of another type": lambda: model.predict(graph, node_ids=[3.5]),
        "no labels": lambda: NodeClassifier(**QUICK).fit(from_scipy(graph.adjacency(), graph.features)),
        "one class": lambda: NodeClassifier(**QUICK).fit(random_split(from_scipy(sp.eye_array(10), labels=[0] * 10))),
        "other features": lambda: model.predict(synthetic_graph(50, 100, 3, 2)),
        "text as hops": lambda: NodeClassifier(**text).fit(graph),
        "hop_tokens dtype": lambda: hop_tokens(graph, 2, dtype="float"),  # type: ignore[arg-type]
        "hop_tokens scaling": lambda: hop_tokens(graph, 2, feature_scaling="standard"),  # type: ignore[arg-type]
        "hop_tokens hops": lambda: hop_tokens(graph, -2),
        "hop_tokens device": lambda: hop_tokens(graph, 2, device="gpu"),
        "encoding of nothing": lambda: laplacian_encoding(graph, 0),
        "no such data set": lambda: load_graph("coraa"),
        "no such split": lambda: load_graph("cora", split="publik"),
        "not square": lambda: from_scipy(sp.coo_array((2, 3))),
        "labels too long": lambda: from_scipy(sp.eye_array(3), labels=[0, 1]),
        "features NaN": lambda: from_scipy(sp.eye_array(2), [[1.0], [np.nan]]),
        "split twice": lambda: graph.with_splits(train=[0], val=[0]),
        "save over": lambda: model.save("run-default"),
    }
    for name, work in wrong.items():
        try:
            work()
        except UserError as error:
            yield f"mistake in Python: {name}", steady(str(error))
        else:
            raise AssertionError(f"{name} was not refused")


if __name__ == "__main__":
    main()
