"""A user's script that calls every public name; `test_typing.py` has a type checker read it."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import torch

import nagphormer as ng
from nagphormer.pyg import HopTokens

graph = ng.from_scipy(np.eye(4), np.eye(4), [0, 1, 0, 1])
for other in (
    ng.load_graph("cora", split="public", seed=1),
    ng.read_ogb("arxiv"),
    ng.from_pyg(None, split=3),
    ng.from_dgl(None),
):
    assert_type(other, ng.Graph)
assert_type(ng.read_tables("edges.csv", Path("nodes.csv"), features=["age"], memory="2GB"), ng.Graph)
assert_type(ng.read_tables("e.txt", encode=["city"], fill="mean", train_before=("year", 2018)), ng.Graph)
assert_type(ng.read_tables("edges.csv", "nodes.csv", exclude="name", like=Path("graph")), ng.Graph)
assert_type(ng.from_networkx(None, label="club"), ng.Graph)
graph = ng.per_class_split(ng.random_split(ng.synthetic_graph(500, 2000, 16, 3), train=0.5), train=20)
assert_type(graph.with_splits(train=[0, 1], val=np.array([2])), ng.Graph)
assert_type(graph.num_nodes + graph.num_edges + graph.num_features + graph.num_classes, int)
assert_type(graph.node_ids, np.ndarray)
assert_type(graph.subgraph([0, 1]), ng.Graph)
assert_type(graph.label_names(slice(2)), np.ndarray)
frame, data, net = graph.nodes_frame("polars"), graph.to_pyg(), graph.to_networkx()
assert_type(ng.laplacian_encoding(graph, 10), np.ndarray)
store = ng.hop_tokens(graph, hops=3, encoding_dim=2, dtype="bfloat16", feature_scaling="row", out="tokens")
assert_type(store, ng.TokenStore)
assert_type(ng.TokenStore.open("tokens").shape, tuple[int, int, int])
assert_type(store[[0, 1]], np.ndarray)
assert_type(len(store.dataset(graph.labels, nodes=[0, 1])), int)
assert_type(HopTokens(hops=3, encoding_dim=2, feature_scaling="row").hops, int)
network = ng.NAGphormer(ng.ModelConfig(input_dim=16, num_classes=3, readout="sum"))
assert_type(network.config, ng.ModelConfig)
logits = network.classify(network.embed(torch.zeros(2, 4, 16)))
assert_type(logits, torch.Tensor)
clf = ng.NodeClassifier(hops=3, readout="self", recipe="paper", lr=1e-3).fit(graph, tokens=store)
assert_type(clf, ng.NodeClassifier)
assert_type(ng.NodeClassifier.load("run").set_params(hops=2).config_, ng.TrainConfig)
assert_type(clf.hops, int | None)
assert_type((clf.model_, clf.best_epoch_), tuple[torch.nn.Module, int])
frame = clf.predict(graph, split="test", as_frame="polars")
assert_type((clf.n_features_in_, clf.feature_names_in_), tuple[int, np.ndarray])
assert_type(clf.score(graph, split="val", metric="macro_f1"), float)
probability = clf.predict_proba(graph, nodes=[0, 1])
for array in (probability, clf.predict(graph), clf.embed(graph), clf.hop_attention(graph), clf.classes_):
    assert_type(array, np.ndarray)
for metric in (ng.accuracy, ng.macro_f1, ng.micro_f1, ng.roc_auc, ng.average_precision, ng.log_loss, ng.ece):
    assert_type(metric(np.array([0, 1]), probability), float)
assert_type(ng.cross_validate(clf, graph, folds=3)[0]["score"], Any)
found = ng.search(clf, graph, {"hops": [1, 2], "lr": (0.1,)}, metric="macro_f1")
assert_type((found.best_, found.best_score_), tuple[ng.NodeClassifier, float])
found = ng.search(clf, graph, [{"hops": 1}, {"hops": 2}], folds=3)
try:
    clf.save("run")
except ng.UserError as error:
    assert_type(error, ng.UserError)
