"""Node classification in graphs too large for a graph neural network.

Every public name is listed here and loaded on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Graph": "data.graph",
    "ModelConfig": "settings",
    "NAGphormer": "model.network",
    "NodeClassifier": "estimator",
    "TokenStore": "tokens.store",
    "TrainConfig": "settings",
    "UserError": "errors",
    "from_dgl": "data.dgl",
    "from_networkx": "data.networkx",
    "from_pyg": "data.pyg",
    "from_scipy": "data.graph",
    "hop_tokens": "tokens.hop2token",
    "laplacian_encoding": "tokens.laplacian",
    "load_graph": "data.datasets",
    "per_class_split": "data.splits",
    "random_split": "data.splits",
    "read_ogb": "data.ogb",
    "read_tables": "data.tables",
    "synthetic_graph": "data.synthetic",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nagphormer' has no attribute {name!r}")
    return getattr(import_module(f"nagphormer.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
