from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

from nagphormer import (
    Graph,
    NodeClassifier,
    UserError,
    hop_tokens,
    laplacian_encoding,
    per_class_split,
    random_split,
    synthetic_graph,
)
from nagphormer.data.doors import no_graph

FITTED = NodeClassifier(hops=1, encoding_dim=0, hidden_dim=8, epochs=1, device="cpu").fit(
    random_split(synthetic_graph(60, 120, 4, 2))
)
PLACES = {
    "Graph": Graph,
    "fit": NodeClassifier().fit,
    "predict": FITTED.predict,
    "predict_proba": FITTED.predict_proba,
    "embed": FITTED.embed,
    "hop_attention": FITTED.hop_attention,
    "score": FITTED.score,
    "hop_tokens": lambda thing: hop_tokens(thing, hops=2),
    "laplacian_encoding": lambda thing: laplacian_encoding(thing, 2),
    "random_split": random_split,
    "per_class_split": per_class_split,
}


class PygDataset(list):
    def get_idx_split(self):
        return {}


class FrameOfPandas:
    __module__ = "pandas.core.frame"


DOORS = {
    "a PyG graph": (SimpleNamespace(edge_index=torch.zeros(2, 0), x=torch.ones(2, 2)), r"from_pyg\(data\) makes"),
    "an adjacency of PyG": (SimpleNamespace(adj_t=None), r"from_pyg\(data\) makes"),
    "an OGB data set": (PygDataset(), r"from_pyg\(data\) makes"),
    "a DGL graph": (
        SimpleNamespace(ndata={}, edata={}, nodes=None, edges=None, number_of_edges=None),
        r"from_dgl\(graph\) makes",
    ),
    "a NetworkX graph": (SimpleNamespace(nodes=[], edges=[], number_of_edges=None), r"from_networkx\(graph"),
    "a frame": (FrameOfPandas(), r"read_tables\(edges"),
    "an Arrow table": (pa.table({"source": [0]}), r"read_tables\(edges"),
    "a name": ("cora", r"not 'cora': load_graph\('cora'\)"),
    "a path": (Path("my-graph"), r"load_graph\('my-graph'\)"),
    "a sparse matrix": (sp.eye_array(3), "not scipy.dia_array: from_scipy"),
    "a dense matrix": (np.eye(3), r"from_scipy\(adj"),
    "nothing": (None, "not NoneType: load_graph, read_tables, from_scipy"),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_no_graph_is_refused_where_one_belongs(place):
    with pytest.raises(UserError, match=r"a Graph is needed, not networkx\.Graph: from_networkx"):
        place(pytest.importorskip("networkx", reason="needs networkx").path_graph(3))


@pytest.mark.parametrize(("thing", "door"), DOORS.values(), ids=DOORS)
def test_the_refusal_names_the_function_that_makes_a_graph_of_it(thing, door):
    with pytest.raises(UserError, match=door):
        raise no_graph(thing)


def test_an_array_of_two_dimensions_is_no_graph_and_row_starts_alone_are_one_without_edges():
    with pytest.raises(UserError, match=r"from_scipy\(adjacency"):
        Graph(np.eye(3))
    assert Graph(np.zeros(4, np.int64)).num_edges == 0
