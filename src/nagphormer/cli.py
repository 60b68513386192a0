"""The command line: a thin map from commands to functions. Heavy modules are imported inside the commands."""

import json as json_format
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from nagphormer import __version__, progress
from nagphormer.config import ImportConfig, TokenConfig
from nagphormer.errors import UserError
from nagphormer.files import check_writable, format_size

app = App(
    name="nagphormer",
    help="Node classification in graphs too large for a graph neural network.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    suppress_keyboard_interrupt=False,  # main() has a word to say about it
)
app.meta.suppress_keyboard_interrupt = False
_as_json = False
_quiet = False


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
        quiet: nothing on stderr but errors.
        json: print results as JSON.
        threads: processor threads to use; all by default.
        config: YAML file with the command's settings; flags win over it.
    """
    global _as_json, _quiet
    _as_json, _quiet = json, quiet
    progress.configure(quiet)
    if threads is not None:
        _limit_threads(threads)
    if config is not None:
        app.config = _read_config(config)
    app(tokens)


@app.command
def demo(*, out: Path = Path("nagphormer-demo")) -> None:
    """Prepare the bundled citation graph Cora: no file and no network needed.

    Args:
        out: folder for what it writes.
    """
    from nagphormer.data.datasets import BUNDLED, load_graph
    from nagphormer.data.summary import summarize
    from nagphormer.tokens.hop2token import hop_tokens
    from nagphormer.tokens.store import MANIFEST

    with _timed("1. Load the bundled graph"):
        graph = load_graph(BUNDLED / "cora.npz")
        facts = summarize(graph)
    _say(
        f"  Cora: {graph.num_nodes:,} papers, {graph.num_edges:,} citations, {graph.num_features:,} words, "
        f"{graph.num_classes} fields; {facts['homophily']:.0%} of citations stay within a field"
    )
    tokens_path = out / "tokens"
    known = (tokens_path / MANIFEST).is_file()
    with _timed("2. Structural encoding and hop tokens"):
        store = hop_tokens(graph, hops=3, encoding_dim=3, out=tokens_path)
    _report_store(store, reused=known)
    _next("nagphormer import --edges YOUR-EDGES.csv --out my-graph")


@app.command(name="import")
def import_graph(config: ImportConfig) -> None:
    """Turn tables (CSV, Parquet) or a downloaded data set into a graph folder."""
    sources = {"--edges": config.edges, "--ogb": config.ogb, "--grand-plus": config.grand_plus}
    given = [flag for flag, value in sources.items() if value is not None]
    if len(given) != 1:
        raise UserError(f"give exactly one of --edges, --ogb and --grand-plus, not {' and '.join(given) or 'none'}")
    graph = _read_source(config)
    _result(
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
        _say(f"note: {config.nodes} has no column {config.label!r}, so no node has a class")
    _next(f"nagphormer info {config.out} --hops 3")


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
        facts |= {key: store.manifest[key] for key in ("hops", "encoding_dim", "feature_scaling", "graph")}
        facts |= {"checksums": "match"} if verify else {}
        _result(facts, _table(facts))
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
    _result(facts, _table(facts))


@app.command
def prepare(
    graph: str,
    /,
    config: TokenConfig = TokenConfig(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    allow_pickle: bool = False,
) -> None:
    """Compute the hop tokens of every node and write them as a token store.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        config: how tokens are made.
        out: folder for the store; reused when it holds the same tokens already.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.data.datasets import load_graph
    from nagphormer.tokens.hop2token import hop_tokens
    from nagphormer.tokens.store import MANIFEST

    known = (out / MANIFEST).is_file()
    loaded = load_graph(graph, allow_pickle=allow_pickle)
    if not loaded.num_features:
        _say("note: the graph has no features; log(1 + degree) stands for them")
    store = hop_tokens(loaded, out=out, **asdict(config))
    _report_store(store, reused=known)
    _next(f"nagphormer info {out} --verify")


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
        print("nagphormer: interrupted; nothing partial was left behind", file=sys.stderr)
        sys.exit(130)


def _terminate(number: int, frame: Any) -> None:
    """End as after an interrupt, so that partial files are removed."""
    print("nagphormer: terminated; nothing partial is left behind", file=sys.stderr)
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


def _report_store(store: Any, reused: bool) -> None:
    nodes, tokens, width = store.shape
    size = sum(block["bytes"] for block in store.manifest["blocks"])
    residuals = store.manifest["encoding"].get("residuals")
    if residuals:
        _say(f"  {len(residuals)} eigenvectors, largest residual {max(residuals):.1e}")
    _result(
        {"path": str(store.path), "shape": list(store.shape), "dtype": store.dtype, "bytes": size, "reused": reused},
        f"{'reused' if reused else 'wrote'} {store.path}: {nodes:,} nodes × {tokens} tokens × {width:,} columns, "
        f"{store.dtype}, {format_size(size)}",
    )


def _limit_threads(threads: int) -> None:
    import os

    import numba

    most = numba.config.NUMBA_NUM_THREADS
    if not 1 <= threads <= most:
        raise UserError(f"--threads must be between 1 and {most} on this machine, not {threads}")
    numba.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read by torch when it loads


def _read_config(path: Path) -> Any:
    import yaml
    from cyclopts.config import Yaml

    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"the configuration {path} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise UserError(f"the configuration {path} must hold lines such as 'hops: 3'")
    return Yaml(path, use_commands_as_keys=False)


@contextmanager
def _timed(text: str) -> Iterator[None]:
    _say(text)
    start = time.perf_counter()
    yield
    _say(f"  done in {time.perf_counter() - start:.1f} s")


def _say(text: str) -> None:
    """A line for people; not part of a command's result."""
    if not _quiet:
        print(text, file=sys.stderr)


def _next(command: str) -> None:
    _say(f"next: {command}")


def _result(facts: dict[str, Any], text: str) -> None:
    print(json_format.dumps(facts, ensure_ascii=False) if _as_json else text)


def _table(facts: dict[str, Any]) -> str:
    rows = []
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {count:,}" for name, count in value.items()) or None
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        rows.append(f"{key.replace('_', ' '):<20} {'–' if value is None else value}")
    return "\n".join(rows)
