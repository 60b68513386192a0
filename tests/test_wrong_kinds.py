"""A thing of the wrong kind, wherever it is given, is refused in words."""

import numpy as np
import pytest
import torch

from nagphormer import (
    NodeClassifier,
    UserError,
    cross_validate,
    from_scipy,
    hop_tokens,
    laplacian_encoding,
    load_graph,
    per_class_split,
    random_split,
    search,
    synthetic_graph,
)

GRAPH = random_split(synthetic_graph(60, 150, 4, 2))
EYE = np.eye(3)


@pytest.fixture(scope="module")
def clf():
    return NodeClassifier(epochs=1, hidden_dim=8, num_heads=2, device="cpu").fit(GRAPH)


WRONG = {
    "unknown split ndarray: use train, val or test": lambda clf: clf.score(GRAPH, GRAPH.labels),
    "unknown metric <function": lambda clf: clf.score(GRAPH, metric=np.mean),
    "tokens must be a TokenStore, not 'my-tokens'": lambda clf: clf.predict(GRAPH, tokens="my-tokens"),
    "tokens must be a TokenStore, not 5": lambda clf: clf.fit(GRAPH, tokens=5),
    "tokens must be a TokenStore, not 6": lambda clf: clf.score(GRAPH, tokens=6),
    "device must be text": lambda clf: NodeClassifier(device=torch.device("cpu")).fit(GRAPH),
    "unknown device": lambda clf: hop_tokens(GRAPH, 1, device=torch.device("cpu")),
    "node_ids must be ids as the graph has them, int64": lambda clf: clf.predict(GRAPH, node_ids=[2**70]),
    "folds must be a whole number, not 3.0": lambda clf: search(clf, GRAPH, {"hops": [1]}, folds=3.0),
    "folds must be a whole number, not None": lambda clf: cross_validate(clf, GRAPH, folds=None),
    "the grid is None": lambda clf: search(clf, GRAPH, None),
    "a NodeClassifier is needed, such as .*, not <class": lambda clf: search(NodeClassifier, GRAPH, {"hops": [1]}),
    "a NodeClassifier is needed, such as .*, not 'clf'": lambda clf: cross_validate("clf", GRAPH),
    r"unknown metric \['accuracy'\]": lambda clf: search(clf, GRAPH, {"hops": [1]}, metric=["accuracy"]),
    "the name of a data set or a path is needed, not None": lambda clf: load_graph(None),
    "seed must be a whole number, not 'a'": lambda clf: random_split(GRAPH, seed="a"),
    "train must be a finite number, not None": lambda clf: random_split(GRAPH, train=None),
    "train must be a whole number, not 'a'": lambda clf: per_class_split(GRAPH, train="a"),
    "dim must be a whole number, not 'a'": lambda clf: laplacian_encoding(GRAPH, "a"),
    "num_nodes must be a whole number, not '10'": lambda clf: synthetic_graph("10", 5, 3, 2),
    "splits must be a dict such as": lambda clf: from_scipy(EYE, splits=["train", "val", "test"]),
    "splits must be a dict such as .*, not ndarray": lambda clf: from_scipy(
        EYE, splits=np.array(["train", "val", "test"])
    ),
    "node_ids must be integers or strings, not double": lambda clf: from_scipy(EYE, node_ids=[1.5, 2.5, 3.5]),
    "node_ids must be integers or strings, not list": lambda clf: from_scipy(EYE, node_ids=[[1], [2], [3]]),
    r"node_ids must be all integers below 2\*\*63": lambda clf: from_scipy(EYE, node_ids=[2**70, 1, 2]),
}


@pytest.mark.parametrize("message", WRONG)
def test_it_is_refused_in_words(message, clf):
    with pytest.raises(UserError, match=message):
        WRONG[message](clf)


def test_categories_are_ids():
    pandas = pytest.importorskip("pandas")
    graph = from_scipy(EYE, node_ids=pandas.Categorical(["b", "a", "c"]))
    assert graph.node_ids.tolist() == ["b", "a", "c"]
