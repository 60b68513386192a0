import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from nagphormer import TokenStore, UserError, hop_tokens, synthetic_graph

GRAPH = synthetic_graph(50, 120, 6, 3)
STORE = hop_tokens(GRAPH, hops=2, device="cpu")


def test_an_item_is_the_tokens_of_a_node_and_its_label():
    data = STORE.dataset(GRAPH.labels, nodes=[7, 3])
    assert len(data) == 2
    tokens, label = data[1]
    np.testing.assert_array_equal(tokens, STORE[3])
    assert (tokens.dtype, label) == (torch.float32, GRAPH.labels[3])


def test_a_loader_gives_what_indexing_the_store_gives():
    loader = DataLoader(STORE.dataset(GRAPH.labels), batch_size=20)
    batches = [(STORE[start : start + 20], GRAPH.labels[start : start + 20]) for start in (0, 20, 40)]
    for (tokens, labels), (expected, classes) in zip(loader, batches, strict=True):
        np.testing.assert_array_equal(tokens, expected)
        np.testing.assert_array_equal(labels, classes)
        assert labels.dtype == torch.int64


def test_a_shuffled_loader_keeps_tokens_and_labels_together():
    nodes = np.arange(10, 40)
    loader = DataLoader(STORE.dataset(np.arange(50), nodes), batch_size=8, shuffle=True)
    seen = []
    for tokens, labels in loader:
        np.testing.assert_array_equal(tokens, STORE[labels.numpy()])
        seen += labels.tolist()
    assert seen != sorted(seen)
    assert sorted(seen) == nodes.tolist()


def test_a_batch_is_read_by_one_gather(monkeypatch):
    asked = []
    read = TokenStore.__getitem__
    monkeypatch.setattr(TokenStore, "__getitem__", lambda store, nodes: asked.append(nodes) or read(store, nodes))
    next(iter(DataLoader(STORE.dataset(GRAPH.labels), batch_size=20)))
    assert [len(nodes) for nodes in asked] == [20]


def test_nodes_may_be_a_mask_or_a_slice():
    assert len(STORE.dataset(GRAPH.labels, GRAPH.labels == 1)) == (GRAPH.labels == 1).sum()
    assert STORE.dataset(GRAPH.labels, slice(5, 8)).nodes.tolist() == [5, 6, 7]


def test_several_labels_of_a_node_are_floats():
    _, labels = next(iter(DataLoader(STORE.dataset(np.eye(50, 4, dtype=int)), batch_size=3)))
    assert labels.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert labels.dtype == torch.float32


@pytest.mark.parametrize("labels", [GRAPH.labels[:20], None, np.array(["a"] * 50)], ids=["too few", "none", "names"])
def test_labels_that_are_not_a_number_for_every_node_are_refused(labels):
    with pytest.raises(UserError, match="labels must be numbers of all 50 nodes"):
        STORE.dataset(labels)


def test_a_store_on_disk_is_opened_by_other_processes_and_not_sent_to_them(tmp_path):
    store = hop_tokens(GRAPH, hops=2, out=tmp_path / "tokens", device="cpu")
    sent = pickle.dumps(store.dataset(GRAPH.labels))
    assert len(sent) < store.num_bytes
    np.testing.assert_array_equal(pickle.loads(sent)[3][0], store[3])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(STORE)), STORE)


@pytest.mark.slow
def test_workers_read_it(tmp_path):
    store = hop_tokens(GRAPH, hops=2, out=tmp_path / "tokens", device="cpu")
    loader = DataLoader(store.dataset(GRAPH.labels), batch_size=20, num_workers=2, multiprocessing_context="spawn")
    np.testing.assert_array_equal(torch.cat([tokens for tokens, _ in loader]), np.asarray(store))
