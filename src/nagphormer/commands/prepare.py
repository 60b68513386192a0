"""`nagphormer prepare`: the hop tokens of every node, as a token store."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from nagphormer.commands.flags import Whole
from nagphormer.commands.terminal import describe_store, result, say, say_next
from nagphormer.settings import Dtype, Scaling


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TokenFlags:
    """How hop tokens are made."""

    hops: Whole = 3
    """K: every node gets K+1 tokens."""
    encoding_dim: Whole = 0
    """Laplacian eigenvectors joined to the features."""
    dtype: Dtype = "float16"
    """What tokens are stored as; sums are float32 in any case."""
    feature_scaling: Scaling = "none"
    """Standardize columns, make rows sum to one or of one length (√F), or none of it."""
    reduce_dim: Whole = 0
    """Most columns that features may have: wider ones are reduced to their first singular vectors; 0 for no limit."""
    memory: str | None = None
    """Limit for the process's own memory, such as 4GB; memory-mapped files do not count."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    cluster: str | None = None
    """Address of a Ray cluster that makes the blocks; without one, a local cluster is started."""
    statistics: Path | None = None
    """A run's folder, whose scaling, mean, deviation, order of features and eigenvectors are taken: tokens for it."""


def run(
    graph: str,
    /,
    flags: TokenFlags = TokenFlags(),  # noqa: B008 (it is frozen)
    *,
    out: Path,
    gpu_memory: str | None = None,
    allow_pickle: bool = False,
) -> None:
    """Load the graph and make its tokens, or find that they are there.

    Args:
        graph: a graph folder, an .npz file or a data set's name.
        flags: how tokens are made.
        out: folder for the store; reused when it holds the same tokens already.
        gpu_memory: GPU memory to take at most, such as 8GB; columns that do not fit go through it one after another.
        allow_pickle: let a data set's download be read from pickles, which can run any code.
    """
    from nagphormer.data.datasets import load_graph
    from nagphormer.device import machine
    from nagphormer.tokens.hop2token import hop_tokens

    if gpu_memory is not None:
        machine(flags.device, gpu_memory)
    loaded = load_graph(graph, allow_pickle=allow_pickle)
    if not loaded.num_features:
        say("note: the graph has no features; log(1 + degree) stands for them")
    store = hop_tokens(loaded, out=out, **asdict(flags))
    plain = flags.feature_scaling == "none" and flags.statistics is None
    if plain and loaded.feature_kind is not None and loaded.feature_kind.measurements:
        say("note: the features are measurements, which train standardizes; --feature-scaling standardize does so here")
    _report(store)
    if flags.statistics is None:
        say_next("train", graph, "--tokens", out, "--out", "my-run")
    else:
        say_next("predict", flags.statistics, graph, "--tokens", out, "--out", "predictions.csv")


def _report(store: Any) -> None:
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
