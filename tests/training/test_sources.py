import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import sparse_graph

from nagphormer import TokenStore, from_scipy, hop_tokens
from nagphormer.model.embedding import Embedding
from nagphormer.tokens import store as store_module
from nagphormer.training import sources
from nagphormer.training.sources import StoredTokens, rows_at_once


def uneven_graph():
    """Columns of very different size, so that the column scales matter."""
    graph = sparse_graph(40, 21)
    return from_scipy(graph.adjacency(), graph.features.toarray() * 10.0 ** np.arange(-10, 11))


STORE = hop_tokens(uneven_graph(), 2, device="cpu")


@pytest.mark.parametrize("block_bytes", [store_module.BLOCK_BYTES, 40 * 8])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gathered_tokens_are_those_of_the_store(dtype, mapped, block_bytes, monkeypatch, tmp_path):
    monkeypatch.setattr(store_module, "BLOCK_BYTES", block_bytes)
    store = hop_tokens(uneven_graph(), 2, dtype=dtype, out=tmp_path / "tokens" if mapped else None)
    assert (len(store.blocks) > 1) == (block_bytes == 40 * 8)
    assert (len(set(store.scales)) > 1) == (dtype == "float16")
    source = StoredTokens(TokenStore.open(tmp_path / "tokens") if mapped else store, "cpu")
    assert (source.num_nodes, source.hops, source.width, source.projects_first) == (40, 2, 21, False)
    for nodes in (np.arange(40), np.arange(40)[::-1].copy(), np.array([5, 5, 39, 0, 5]), np.array([7]), np.arange(0)):
        gathered = source.gather(torch.from_numpy(nodes))
        assert gathered.dtype == torch.float32
        np.testing.assert_array_equal(gathered, store[nodes])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 39), max_size=60))
def test_any_nodes_in_any_order_are_gathered(nodes):
    idx = torch.tensor(nodes, dtype=torch.int64)
    np.testing.assert_array_equal(StoredTokens(STORE, "cpu").gather(idx), STORE[idx.numpy()])


def test_gathered_tokens_can_be_changed_without_changing_the_store(tmp_path):
    for store in (hop_tokens(uneven_graph(), 1, dtype="float32", out=out) for out in (None, tmp_path / "tokens")):
        before = np.asarray(store)
        StoredTokens(store, "cpu").gather(torch.arange(40)).add_(1)
        np.testing.assert_array_equal(store, before)


def test_each_batch_is_embedded_in_turn():
    embedding = Embedding(21, 5)
    parts = list(StoredTokens(STORE, "cpu").embed(embedding, torch.arange(40).split(16)))
    assert [tuple(part.shape) for part in parts] == [(16, 3, 5), (16, 3, 5), (8, 3, 5)]
    torch.testing.assert_close(torch.cat(parts), embedding(torch.from_numpy(np.asarray(STORE))))


def test_a_cpu_takes_as_many_rows_as_its_cache_holds(monkeypatch):
    source = StoredTokens(STORE, "cpu")
    monkeypatch.setattr(sources, "CACHED_VALUES", 9600)
    assert rows_at_once(source, 32) == 100
    monkeypatch.setattr(sources, "CACHED_VALUES", 1)
    assert rows_at_once(source, 32) == 16


@pytest.mark.parametrize(("memory", "rows"), [(10**12, 16384), (10**9, 6623), (0, 16)])
def test_a_gpu_takes_as_many_rows_as_its_memory_holds(memory, rows, monkeypatch):
    source = StoredTokens(STORE, "cpu")
    source.device = "cuda"
    monkeypatch.setattr(sources, "gpu_memory", lambda device: memory)
    assert rows_at_once(source, 512) == rows
