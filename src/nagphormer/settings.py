"""Settings of the commands: one dataclass each. Its fields are the flags, the keys of `--config FILE` and the help."""

import ast
import inspect
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from nagphormer.errors import UserError, nearest

Dtype = Literal["float16", "bfloat16", "float32"]
Scaling = Literal["none", "standardize", "row"]
Readout = Literal["attention", "self", "sum"]
ClassWeights = Literal["none", "balanced"]
Precision = Literal["auto", "fp32", "bf16"]
Choice = Literal["auto", "always", "never"]


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


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """What of the network is free to choose; data gives the rest."""

    hidden_dim: int = 512
    """D, width of the network."""
    num_layers: int = 1
    """L, encoder layers."""
    num_heads: int = 8
    """Attention heads; must divide hidden_dim."""
    dropout: float = 0.1
    """Dropout after attention and feed-forward."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    readout: Readout = "attention"
    """How tokens become one vector: attention (the paper's), self (hop 0 alone) or sum."""

    def __post_init__(self) -> None:
        _check_values(self)
        _check_least(self, 1, "hidden_dim", "num_heads")
        _check_least(self, 0, "num_layers")
        if self.hidden_dim % self.num_heads:
            raise UserError(f"hidden_dim={self.hidden_dim} is not a multiple of num_heads={self.num_heads}")
        _check_shares(self, "dropout", "attention_dropout")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(NetworkConfig):
    """Shape of the network."""

    input_dim: int
    """F, width of a token: features and structural encoding together."""
    num_classes: int
    """C, number of outputs."""
    feature_dropout: float = 0.0
    """Share of input columns hidden from each batch in training."""
    linear_tokens: int = 0
    """K+1 for a linear classifier of all tokens beside the network, 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, 1, "input_dim", "num_classes")
        _check_least(self, 0, "linear_tokens")
        _check_shares(self, "feature_dropout")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(NetworkConfig):
    """Everything a training run depends on beside the graph, with the defaults."""

    hidden_dim: int = 256
    dropout: float = 0.5
    hops: int = 3
    """K: every node gets K+1 tokens."""
    encoding_dim: int = 3
    """Laplacian eigenvectors joined to the features."""
    feature_scaling: Scaling | None = None
    """Standardize columns, make rows sum to one, or neither; by default dense features are standardized, sparse not."""
    feature_dropout: float | None = None
    """Share of input columns hidden from each batch in training; by default F / (F + training nodes)."""
    linear: bool = True
    """Train a linear classifier of the tokens along and average its scores with the network's; the paper has none."""
    lr: float = 0.0005
    """Learning rate at its peak."""
    final_lr: float = 0.0001
    """Learning rate after the decay; never above lr."""
    warmup_updates: int = 50
    """Updates over which the learning rate rises to its peak."""
    decay_updates: int = 1000
    """Update at which it has fallen, along a line, to final_lr."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    clip_norm: float = 0.0
    """Largest norm of a gradient; longer ones are shortened to it. 0 for no limit."""
    class_weights: ClassWeights = "none"
    """balanced: rare classes weigh more in the loss, each class the same in total."""
    batch_size: int = 1000
    """Nodes of an update."""
    epochs: int = 2000
    """Passes over the training nodes, at most."""
    patience: int = 50
    """Epochs to go on without a better accuracy or loss on the validation nodes."""
    averaging: float = 0.85
    """Share of earlier epochs in the weights that are validated and kept; 0 for each epoch's own, as in the paper."""
    precision: Precision = "auto"
    """fp32, bf16, or auto: bf16 where the processor multiplies it faster."""
    project_first: Choice = "auto"
    """Embed features before the hops, inside every update, instead of storing tokens; auto: whichever costs less."""
    device: str | None = None
    """cpu or cuda; by default a GPU where there is one."""
    seed: int = 0
    """Of the initial weights, batches and dropout; and of the split where one is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_least(self, 1, "batch_size", "epochs", "patience")
        _check_least(self, 0, "hops", "encoding_dim", "final_lr", "warmup_updates", "weight_decay", "clip_norm", "seed")
        _check_shares(self, "averaging", *(() if self.feature_dropout is None else ("feature_dropout",)))
        if not self.lr > 0:
            raise UserError(f"lr must be above 0, not {self.lr}")
        if self.seed >= 2**32:
            raise UserError(f"seed must be below 2**32, not {self.seed}")
        if self.decay_updates < self.warmup_updates:
            raise UserError(
                f"decay_updates={self.decay_updates} is below warmup_updates={self.warmup_updates}: "
                f"the learning rate falls only after it has risen"
            )


def field_help(kind: type) -> dict[str, str]:
    """The docstring under every field of a dataclass, inherited ones too."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in pairwise(tree.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(field.target, ast.Name)
                texts[field.target.id] = str(text.value.value)
    return texts


for _kind in (ModelConfig, TrainConfig):
    _lines = (f"    {name}: {text}" for name, text in field_help(_kind).items())
    _kind.__doc__ = f"{_kind.__doc__}\n\nAttributes:\n" + "\n".join(_lines)


def _check_least(config: object, least: int, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= least:
            raise UserError(f"{name} must be {least} or more, not {getattr(config, name)}")


def _check_shares(config: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 0 and below 1, not {getattr(config, name)}")


def _check_values(config: Any) -> None:
    """Refuse values of another kind than their field's; NumPy's numbers become Python's, which YAML can hold."""
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if value is None and type(None) in kinds:
            continue
        if get_origin(kinds[0]) is Literal:
            known = list(get_args(kinds[0]))
            if value not in known:
                raise UserError(f"unknown {name} {value!r}: use {', '.join(known)}.{nearest(str(value), known)}")
        elif bool in kinds:
            if not isinstance(value, bool):
                raise UserError(f"{name} must be true or false, not {value!r}")
        elif int in kinds:
            if not isinstance(value, Integral) or isinstance(value, bool):
                raise UserError(f"{name} must be a whole number, not {value!r}")
            object.__setattr__(config, name, int(value))
        elif float in kinds:
            if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value):
                raise UserError(f"{name} must be a finite number, not {value!r}")
            object.__setattr__(config, name, float(value))
