"""Settings of the commands: one dataclass each. Its fields are the flags, the keys of `--config FILE` and the help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Dtype = Literal["float16", "bfloat16", "float32"]
Scaling = Literal["none", "standardize", "row"]


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
