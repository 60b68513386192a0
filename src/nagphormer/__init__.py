"""Node classification in graphs too large for a graph neural network.

Every public name is listed here and loaded on first use, so that importing the package stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

_HOME = {
    "Graph": "data.graph",
    "ModelConfig": "settings",
    "NAGphormer": "model.network",
    "NodeClassifier": "estimator",
    "TokenStore": "tokens.store",
    "TrainConfig": "settings",
    "UserError": "errors",
    "accuracy": "metrics",
    "average_precision": "metrics",
    "cross_validate": "selection",
    "ece": "metrics",
    "from_dgl": "data.dgl",
    "from_networkx": "data.networkx",
    "from_pyg": "data.pyg",
    "from_scipy": "data.graph",
    "hop_tokens": "tokens.hop2token",
    "laplacian_encoding": "tokens.laplacian",
    "load_graph": "data.datasets",
    "log_loss": "metrics",
    "macro_f1": "metrics",
    "micro_f1": "metrics",
    "per_class_split": "data.splits",
    "random_split": "data.splits",
    "read_ogb": "data.ogb",
    "read_tables": "data.tables",
    "roc_auc": "metrics",
    "search": "selection",
    "synthetic_graph": "data.synthetic",
}

if TYPE_CHECKING:  # the same names for type checkers, which a test compares with the table
    from nagphormer.data.datasets import load_graph as load_graph
    from nagphormer.data.dgl import from_dgl as from_dgl
    from nagphormer.data.graph import Graph as Graph
    from nagphormer.data.graph import from_scipy as from_scipy
    from nagphormer.data.networkx import from_networkx as from_networkx
    from nagphormer.data.ogb import read_ogb as read_ogb
    from nagphormer.data.pyg import from_pyg as from_pyg
    from nagphormer.data.splits import per_class_split as per_class_split
    from nagphormer.data.splits import random_split as random_split
    from nagphormer.data.synthetic import synthetic_graph as synthetic_graph
    from nagphormer.data.tables import read_tables as read_tables
    from nagphormer.errors import UserError as UserError
    from nagphormer.estimator import NodeClassifier as NodeClassifier
    from nagphormer.metrics import accuracy as accuracy
    from nagphormer.metrics import average_precision as average_precision
    from nagphormer.metrics import ece as ece
    from nagphormer.metrics import log_loss as log_loss
    from nagphormer.metrics import macro_f1 as macro_f1
    from nagphormer.metrics import micro_f1 as micro_f1
    from nagphormer.metrics import roc_auc as roc_auc
    from nagphormer.model.network import NAGphormer as NAGphormer
    from nagphormer.selection import cross_validate as cross_validate
    from nagphormer.selection import search as search
    from nagphormer.settings import ModelConfig as ModelConfig
    from nagphormer.settings import TrainConfig as TrainConfig
    from nagphormer.tokens.hop2token import hop_tokens as hop_tokens
    from nagphormer.tokens.laplacian import laplacian_encoding as laplacian_encoding
    from nagphormer.tokens.store import TokenStore as TokenStore

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nagphormer' has no attribute {name!r}")
    return getattr(import_module(f"nagphormer.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
