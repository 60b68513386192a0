"""The command line: a thin map from commands to functions. Heavy modules are imported inside the commands."""

import signal
import sys
import warnings
from dataclasses import asdict, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from cyclopts import App, Parameter

from nagphormer import __version__, console, progress
from nagphormer.console import describe_run, describe_store, result, say, say_next, table, timed
from nagphormer.errors import UserError, nearest
from nagphormer.files import check_writable, format_size
from nagphormer.settings import Dtype, Scaling, TokenSettings, TrainConfig, check_settings, field_help, read_yaml

app = App(
    name="nagphormer",
    help="Node classification in graphs too large for a graph neural network.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    suppress_keyboard_interrupt=False,  # main() has a word to say about it
)
app.meta.suppress_keyboard_interrupt = False
_after_interrupt = "nothing partial was left behind"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportConfig:
    """Where a graph's tables lie and what their columns mean."""

    out: Path
    """Graph folder to write."""
    edges: Path | None = None
    """Edge list, CSV or Parquet: a file, a folder or a pattern such as 'edges/*.parquet'."""
    nodes: Path | None = None
    """Node table, CSV or Parquet, with ids, features, labels and splits."""
    source: str = "source"
    """Column of the edge list with the one end."""
    target: str = "target"
    """Column of the edge list with the other end."""
    weight: str | None = None
    """Column of the edge list with weights; without it every edge counts alike."""
    id: str = "id"
    """Column of the node table with the ids that the edge list uses."""
    label: str = "label"
    """Column of the node table with the class; empty for unknown."""
    split: str = "split"
    """Column of the node table with train, val or test."""
    features: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = ()
    """Columns with features, or one column of lists; by default all that are left, which must hold numbers."""
    ogb: Path | None = None
    """Folder of an OGB node data set, instead of tables."""
    grand_plus: Path | None = None
    """Folder with GRAND+'s files (aminer, reddit, amazon2m), instead of tables; they are pickles."""
    allow_pickle: bool = False
    """Read pickle files, which can run any code: only for files you trust."""
    memory: str | None = None
    """Memory limit for joining and sorting, such as 2GB; beyond it DuckDB works on disk."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """How hop tokens are made."""

    hops: int = 3
    """K: every node gets K+1 tokens."""
    encoding_dim: int = 0
    """Laplacian eigenvectors joined to the features."""
    dtype: Dtype = "float16"
    """What tokens are stored as; sums are float32 in any case."""
    feature_scaling: Scaling = "none"
    """Standardize columns, make rows sum to one, or neither."""
    memory: str | None = None
    """Limit for the process's own memory, such as 4GB; memory-mapped files do not count."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    cluster: str | None = None
    """Address of a Ray cluster that makes the blocks; without one, a local cluster is started."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UseConfig:
    """How a trained model is used."""

    tokens: Path | None = None
    """The graph's token store; by default that of training, or one made beside the run."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    gpu_memory: str | None = None
    """GPU memory to take at most, such as 8GB; what does not fit is streamed."""
    allow_pickle: bool = False
    """Let a data set's download be read from pickles, which can run any code."""


def _optional_flags() -> Any:
    """Flags for the fields of `TrainConfig`; one not given is None, so that the recipe's value stands."""
    hints, help_of = get_type_hints(TrainConfig), field_help(TrainConfig)
    flags = []
    for field in fields(TrainConfig):
        text = help_of[field.name] + ("" if field.default is None else f" [default: {field.default}]")
        negative = f"--no-{field.name.replace('_', '-')}" if hints[field.name] is bool else ""
        kind: Any = Annotated[hints[field.name] | None, Parameter(help=text, show_default=False, negative=negative)]
        flags.append((field.name, kind, None))
    home = {"__module__": __name__}  # without one of its own, Cyclopts takes the class for a built-in
    return Parameter(name="*")(make_dataclass("TrainFlags", flags, frozen=True, kw_only=True, namespace=home))


TrainFlags = _optional_flags()


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: bool = False,
    json: bool = False,
    threads: int | None = None,
    config: Path | None = None,
) -> None:
    """Run one command.

    Args:
        tokens: the command and its own flags.
        quiet: nothing on stderr but errors and warnings.
        json: print results as JSON.
        threads: processor threads to use; all by default.
        config: YAML file with the command's settings; flags win over it.
    """
    console.configure(quiet, json)
    progress.configure(quiet)
    if threads is not None:
        _limit_threads(threads)
    if config is not None:
        app.config = _read_config(config, tokens)
    app(_with_address(tokens))


@app.command
def demo(*, out: Path = Path("nagphormer-demo")) -> None:
    """Train on the bundled citation graph Cora and compare with two plain models: no file and no network needed.

    Args:
        out: folder for what it writes.
    """
    from nagphormer.data.datasets import BUNDLED, find, load_graph
    from nagphormer.data.summary import summarize
    from nagphormer.device import machine
    from nagphormer.inference.predict import probabilities, question
    from nagphormer.metrics import accuracy
    from nagphormer.tokens.hop2token import make_tokens
    from nagphormer.training.comparison import logistic_accuracy, mlp_accuracy
    from nagphormer.training.plan import decide
    from nagphormer.training.run import train
    from nagphormer.training.run_folder import RunFolder
    from nagphormer.training.sources import tokens_folder

    path = BUNDLED / "cora.npz"
    name = "cora" if find("cora") == path else path  # yours, where you have one, may number its nodes otherwise
    with timed("1. Load the bundled graph"):
        graph = load_graph(path)
        facts = summarize(graph)
    say(
        f"  Cora: {graph.num_nodes:,} papers, {graph.num_edges:,} citations, {graph.num_features:,} words, "
        f"{graph.num_classes} fields; {facts['homophily']:.0%} of citations stay within a field"
    )
    config, here = TrainConfig(), machine()
    wanted = TokenSettings(hops=config.hops, encoding_dim=config.encoding_dim)
    with timed("2. Structural encoding and hop tokens"):
        store = make_tokens(graph, wanted, tokens_folder(out / "run", graph, wanted))
    say(f"  {describe_store(store)}")
    with timed("3. Train NAGphormer"):
        folder = RunFolder.take(out / "run", resume=True)
        run, source = train(graph, decide(graph, config, here, store, folder.begun), here, store, folder)
    say(f"  {describe_run(run)}")
    with timed("4. Train an MLP on the words alone, without the graph"):
        mlp = mlp_accuracy(graph, run.config)
    with timed("5. Train logistic regression on the same tokens"):
        logistic = logistic_accuracy(graph, run.config, source)
    nodes, target = question(run, graph, "test")
    right = accuracy(target, probabilities(run, source, nodes))
    result(
        {"run": str(out / "run"), "test_accuracy": right, "mlp": mlp, "logistic_regression": logistic},
        f"test accuracy: NAGphormer {right:.1%}, logistic regression on the tokens {logistic:.1%}, "
        f"MLP without the graph {mlp:.1%}\nwrote {out / 'run'}: weights, settings, metrics",
    )
    say_next("predict", out / "run", name, "--out", "predictions.csv")
    say_next("import", "--edges", "YOUR-EDGES.csv", "--nodes", "YOUR-NODES.csv", "--out", "my-graph")


@app.command(name="import")
def import_graph(config: ImportConfig) -> None:
    """Turn tables (CSV, Parquet) or a downloaded data set into a graph folder."""
    sources = {"--edges": config.edges, "--ogb": config.ogb, "--grand-plus": config.grand_plus}
    given = [flag for flag, value in sources.items() if value is not None]
    if len(given) != 1:
        raise UserError(f"give exactly one of --edges, --ogb and --grand-plus, not {' and '.join(given) or 'none'}")
    graph = _read_source(config)
    result(
        {
            "path": str(config.out),
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
        },
        f"wrote {config.out}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features, "
        f"{graph.num_classes} classes",
    )
    if config.nodes is not None and graph.labels is None:
        say(f"note: {config.nodes} has no column {config.label!r}, so no node has a class")
    say_next("info", config.out, "--hops", 3)


@app.command
def info(
    graph: str,
    /,
    *,
    hops: int | None = None,
    encoding_dim: int = 0,
    verify: bool = False,
    allow_pickle: bool = False,
) -> None:
    """Describe a graph or a token store, and what hop tokens would cost on this machine.

    Args:
        graph: a graph folder, an .npz file, a data set's name, or a token store's folder.
        hops: also estimate memory, disk and time for so many hops.
        encoding_dim: eigenvectors to count in that estimate.
        verify: compare every file with its checksum.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.tokens.store import MANIFEST, TokenStore

    if (Path(graph) / MANIFEST).is_file():
        store = TokenStore.open(graph)
        if verify:
            store.verify()
        nodes, _, width = store.shape
        facts = {"tokens_of_nodes": nodes, "columns": width, "dtype": store.dtype}
        facts |= {
            "hops": store.hops,
            "encoding_dim": store.tokens.encoding_dim,
            "feature_scaling": store.tokens.feature_scaling,
            "graph": store.manifest.graph,
        }
        facts |= {"checksums": "match"} if verify else {}
        result(facts, table(facts))
        return
    from nagphormer.data.datasets import load_graph
    from nagphormer.data.folder import verify_graph
    from nagphormer.data.summary import summarize

    if verify:
        verify_graph(graph)
    loaded = load_graph(graph, allow_pickle=allow_pickle)
    facts = summarize(loaded) | ({"checksums": "match"} if verify else {})
    if hops is not None:
        facts |= _cost(loaded, hops, encoding_dim)
    result(facts, table(facts))


@app.command
def prepare(
    graph: str,
    /,
    config: TokenConfig = TokenConfig(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    gpu_memory: str | None = None,
    allow_pickle: bool = False,
) -> None:
    """Compute the hop tokens of every node and write them as a token store.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        config: how tokens are made.
        out: folder for the store; reused when it holds the same tokens already.
        gpu_memory: GPU memory to take at most, such as 8GB; columns that do not fit go through it one after another.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.data.datasets import load_graph
    from nagphormer.tokens.hop2token import hop_tokens

    if gpu_memory is not None:
        from nagphormer.device import machine

        machine(config.device, gpu_memory)
    loaded = load_graph(graph, allow_pickle=allow_pickle)
    if not loaded.num_features:
        say("note: the graph has no features; log(1 + degree) stands for them")
    store = hop_tokens(loaded, out=out, **asdict(config))
    _report_store(store)
    say_next("train", graph, "--tokens", out, "--out", "my-run")


@app.command(name="train")
def train_run(
    graph: str,
    /,
    settings: TrainFlags = TrainFlags(),  # type: ignore[valid-type]  # noqa: B008 (it is frozen)
    *,
    out: Path,
    tokens: Path | None = None,
    recipe: str | None = None,
    resume: bool = False,
    gpu_memory: str | None = None,
    tensorboard: bool = False,
    allow_pickle: bool = False,
) -> None:
    """Train on a graph and write a run folder: weights, settings, metrics, predictions.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        settings: how to train.
        out: folder for the run.
        tokens: the graph's token store; by default it is made beside the run where it is needed, and used again.
        recipe: a recipe's name (paper), which picks the data set's settings by the graph's name, or a YAML file.
        resume: go on with the run in that folder where it was stopped; start it if there is none.
        gpu_memory: GPU memory to take at most, such as 8GB; tokens that do not fit are streamed.
        tensorboard: also write events for TensorBoard into the run folder (extra `tensorboard`).
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    global _after_interrupt
    from nagphormer.data.datasets import load_graph, name_of
    from nagphormer.data.splits import with_splits
    from nagphormer.device import machine
    from nagphormer.inference.table import write_predictions
    from nagphormer.settings import resolve
    from nagphormer.tokens.store import TokenStore
    from nagphormer.training.plan import decide
    from nagphormer.training.ranks import ranks_of_torchrun
    from nagphormer.training.run import train
    from nagphormer.training.run_folder import RunFolder

    flags = asdict(settings)
    with ranks_of_torchrun(flags["device"]) as ranks:
        if not ranks.first:
            _be_silent()
        folder = RunFolder.take(out, resume, ranks)
        store = None if tokens is None else TokenStore.open(tokens)
        given = resolve(recipe, name_of(graph), flags, store.tokens if store else None)
        here = machine(given.device, gpu_memory)
        with ranks.in_turn():  # the first one may have to download it
            loaded = load_graph(graph, seed=given.seed, allow_pickle=allow_pickle)
        loaded = with_splits(loaded, given.seed)
        plan = ranks.agreed(decide(loaded, given, here, store, folder.begun))
        _after_interrupt = f"run it again with --resume to go on: what was learned so far is in {out}"
        counts = ", ".join(f"{len(nodes):,} {split}" for split, nodes in loaded.splits.items())
        with timed(f"training on {counts} nodes" + (f", {ranks.count} ranks" if ranks.count > 1 else "")):
            run, source = train(loaded, plan, here, store, folder, tensorboard)
        if ranks.first and not run.diverged:
            write_predictions(run, source, loaded, out / "predictions.parquet")
        ranks.wait()
    if not ranks.first:
        return
    result({"path": str(out), **run.best.outcome}, f"wrote {out}: {describe_run(run)}")
    if run.diverged:
        raise UserError(run.diverged)
    say_next("evaluate", out, graph, "--split", "test")


@app.command
def evaluate(
    run: Path,
    graph: str,
    /,
    use: UseConfig = UseConfig(),  # noqa: B008 (it is frozen)
    *,
    split: str = "test",
) -> None:
    """Measure a trained model on one of a graph's splits.

    Args:
        run: the run folder.
        graph: a graph folder, an .npz file or a data set's name.
        use: where tokens are and what to run on.
        split: train, val or test.
    """
    from nagphormer.inference.predict import open_source, probabilities, question
    from nagphormer.metrics import measure

    trained, loaded, device = _open_run(run, graph, use)
    nodes, target = question(trained, loaded, split)
    source = open_source(trained, loaded, device, use.tokens, run)
    facts = measure(target, probabilities(trained, source, nodes))
    result(facts, table({name: None if value is None else f"{value:.4f}" for name, value in facts.items()}))
    say_next("predict", run, graph, "--out", "predictions.parquet")


@app.command
def predict(
    run: Path,
    graph: str,
    /,
    use: UseConfig = UseConfig(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    cluster: str | None = None,
) -> None:
    """Write the class of every node, with probabilities.

    Args:
        run: the run folder.
        graph: a graph folder, an .npz file or a data set's name.
        use: where tokens are and what to run on.
        out: file to write, .parquet or .csv; on a cluster, the folder of a Parquet data set.
        cluster: address of a Ray cluster that predicts; without one, a local cluster is started.
    """
    from nagphormer.inference.predict import open_source
    from nagphormer.inference.table import check_table_path, write_predictions

    if cluster is None:
        check_table_path(out)
    elif use.device not in (None, "cpu"):
        raise UserError(f"a cluster works on processors, not on {use.device!r}: leave --device out")
    trained, loaded, device = _open_run(run, graph, use)
    if cluster is None:
        source = open_source(trained, loaded, device, use.tokens, run)
        write_predictions(trained, source, loaded, out)
    else:
        from nagphormer.inference.cluster import write_data_set

        write_data_set(trained, run, loaded, out, cluster, use.tokens)
    facts = {"path": str(out), "nodes": loaded.num_nodes, "classes": trained.classes.num_classes}
    result(facts, f"wrote {out}: {loaded.num_nodes:,} nodes, {trained.classes.num_classes} classes")


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = lambda message, *_: print(f"nagphormer: warning: {message}", file=sys.stderr)
    try:
        app.meta()
    except UserError as error:
        print(f"nagphormer: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"nagphormer: interrupted; {_after_interrupt}", file=sys.stderr)
        sys.exit(130)


def _terminate(number: int, frame: Any) -> None:
    """End as after an interrupt, so that partial files are removed."""
    print(f"nagphormer: terminated; {_after_interrupt}", file=sys.stderr)
    sys.exit(128 + number)


def _read_source(config: ImportConfig) -> Any:
    if config.edges is not None:
        from nagphormer.data.tables import read_tables

        fields = ("source", "target", "weight", "id", "label", "split", "out", "memory")
        return read_tables(
            config.edges,
            config.nodes,
            features=list(config.features) or None,
            **{field: getattr(config, field) for field in fields},
        )
    check_writable(config.out)
    if config.ogb is not None:
        from nagphormer.data.ogb import read_ogb

        graph = read_ogb(config.ogb)
    else:
        from nagphormer.data.grand_plus import read_grand_plus

        assert config.grand_plus is not None
        graph = read_grand_plus(config.grand_plus, allow_pickle=config.allow_pickle)
    graph.save(config.out)
    return graph


def _cost(graph: Any, hops: int, encoding_dim: int) -> dict[str, Any]:
    from nagphormer.tokens.estimate import estimate_cost

    cost = estimate_cost(graph, hops, encoding_dim)
    return {
        f"{hops}_hops_disk": format_size(cost.disk_bytes),
        f"{hops}_hops_memory": format_size(cost.memory_bytes),
        f"{hops}_hops_seconds": round(cost.seconds, 1),
    }


def _open_run(run: Path, graph: str, use: UseConfig) -> Any:
    """The trained model, the graph, and the device to use."""
    from nagphormer.data.datasets import load_graph
    from nagphormer.device import machine
    from nagphormer.training.run_folder import load_run

    device = machine(use.device, use.gpu_memory).device
    trained = load_run(run)
    return trained, load_graph(graph, seed=trained.config.seed, allow_pickle=use.allow_pickle), device


def _report_store(store: Any) -> None:
    residuals = store.manifest.encoding.get("residuals")
    if residuals:
        say(f"  {len(residuals)} eigenvectors, largest residual {max(residuals):.1e}")
    result(
        {
            "path": str(store.path),
            "shape": list(store.shape),
            "dtype": store.dtype,
            "bytes": store.num_bytes,
            "reused": store.reused,
        },
        describe_store(store),
    )


def _with_address(tokens: tuple[str, ...]) -> list[str]:
    """The tokens, with `--cluster` that has no address of its own meaning a local one."""
    following = (*tokens, "--")[1:]
    pairs = zip(tokens, following, strict=True)
    bare = ((token, token == "--cluster" and after.startswith("-")) for token, after in pairs)
    return [f"{token}=local" if alone else token for token, alone in bare]


def _be_silent() -> None:
    """Leave all words to the first rank, except errors."""
    console.configure(quiet=True, as_json=False)
    progress.configure(quiet=True)
    warnings.simplefilter("ignore")


def _limit_threads(threads: int) -> None:
    import numba

    most = numba.config.NUMBA_NUM_THREADS
    if not 1 <= threads <= most:
        raise UserError(f"--threads must be between 1 and {most} on this machine, not {threads}")
    import torch

    numba.set_num_threads(threads)  # before torch: it starts OpenMP anew, with all threads
    torch.set_num_threads(threads)


def _read_config(path: Path, tokens: tuple[str, ...]) -> Any:
    from cyclopts.config import Yaml

    settings = read_yaml(path, "the configuration")
    command = next((token for token in tokens if token in app), None)
    if command is not None:
        arguments = app[command].assemble_argument_collection()
        known = sorted({name.lstrip("-").replace("-", "_") for argument in arguments for name in argument.names})
        for key, value in settings.items():
            name = str(key).replace("-", "_")
            if name not in known:
                raise UserError(f"{path} has an unknown setting {key!r}.{nearest(str(key), known)}")
            if name in TrainConfig.__dataclass_fields__:
                check_settings(TrainConfig, {name: value}, path)  # Cyclopts would cut 2.5 hops to 2
    return Yaml(path, use_commands_as_keys=False)
