"""Which function makes a Graph of what a user has; no other library is imported to tell."""

import os
from typing import Any

from nagphormer.errors import UserError

TABLES = ("pandas", "polars", "pyarrow")
"""Libraries whose objects are tables."""


def no_graph(thing: Any) -> UserError:
    """What to say when a graph is wanted and `thing` is given.

    >>> print(no_graph("cora"))
    a Graph is needed, not 'cora': load_graph('cora') opens one
    """
    library, kind = type(thing).__module__.partition(".")[0], type(thing).__name__
    if isinstance(thing, str | os.PathLike):
        path = os.fspath(thing)
        return UserError(f"a Graph is needed, not {path!r}: load_graph({path!r}) opens one")
    if library in TABLES:
        way = "read_tables(edges, nodes) makes one of tables"
    elif library == "dgl" or (hasattr(thing, "ndata") and hasattr(thing, "edata")):
        way = "from_dgl(graph) makes one"
    elif library == "torch_geometric" or any(hasattr(thing, name) for name in ("edge_index", "adj_t", "get_idx_split")):
        way = "from_pyg(data) makes one"
    elif all(hasattr(thing, name) for name in ("nodes", "edges", "number_of_edges")):
        way = "from_networkx(graph, features=…, label=…) makes one"
    elif len(getattr(thing, "shape", ())) == 2:
        way = "from_scipy(adjacency, features, labels) makes one"
    else:
        way = "load_graph, read_tables, from_scipy, from_pyg, from_networkx and from_dgl make one"
    return UserError(f"a Graph is needed, not {kind if library == 'builtins' else f'{library}.{kind}'}: {way}")
