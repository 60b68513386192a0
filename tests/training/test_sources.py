from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import embedded, quick, source_of, sparse_graph, tokens_of

from nagphormer import TokenStore, UserError, from_scipy, hop_tokens
from nagphormer.cache import cache_folder
from nagphormer.data.checks import check_ids
from nagphormer.model.embedding import Embedding
from nagphormer.tokens import store as store_module
from nagphormer.tokens.fitted import Fitted
from nagphormer.training.projection import ProjectedTokens
from nagphormer.training.sources import StoredTokens, check_store, find_store, token_source, tokens_folder


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
    parts = embedded(StoredTokens(STORE, "cpu"), embedding, *torch.arange(40).split(16))
    assert [tuple(part.shape) for part in parts] == [(16, 3, 5), (16, 3, 5), (8, 3, 5)]
    torch.testing.assert_close(torch.cat(parts), embedding(torch.from_numpy(np.asarray(STORE))))


def test_tokens_are_projected_first_when_that_was_decided():
    source = source_of(sparse_graph(), quick(project_first="always", encoding_dim=2, hops=3))
    assert isinstance(source, ProjectedTokens)
    assert (source.num_nodes, source.hops, source.width, source.projects_first) == (50, 3, 25, True)


def test_tokens_are_made_in_memory_by_default():
    source = source_of(sparse_graph(), quick(encoding_dim=2, hops=3, feature_scaling="row"))
    assert isinstance(source, StoredTokens)
    assert (source.num_nodes, source.hops, source.width) == (50, 3, 25)


def test_tokens_are_kept_in_a_folder_and_used_again(tmp_path, monkeypatch):
    config = quick(encoding_dim=2, feature_scaling="row")
    source_of(sparse_graph(), config, out=tmp_path / "tokens")
    assert TokenStore.open(tmp_path / "tokens").tokens == tokens_of(config)
    monkeypatch.setattr("nagphormer.tokens.hop2token._make", None)  # no work may start
    source_of(sparse_graph(), config, out=tmp_path / "tokens")


def test_a_store_that_is_given_is_used():
    store = hop_tokens(sparse_graph(), 2, dtype="bfloat16", device="cpu")
    assert source_of(sparse_graph(), quick(), store=store)._host is store.blocks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": 3}, "hops=2, not 3"),
        ({"encoding_dim": 2}, "encoding_dim=0, not 2"),
        ({"feature_scaling": "row"}, "feature_scaling='none', not 'row'"),
    ],
)
def test_a_store_with_other_settings_is_refused(changes, message):
    store = hop_tokens(sparse_graph(), 2, dtype="bfloat16", device="cpu")
    check_store(store, sparse_graph(), tokens_of(quick()))  # whatever its type
    with pytest.raises(UserError, match=message):
        source_of(sparse_graph(), quick(**changes), store=store)


def test_a_store_of_another_graph_is_refused():
    with pytest.raises(UserError, match="another graph"):
        source_of(sparse_graph(), quick(), store=hop_tokens(sparse_graph(seed=1), 2))


def test_runs_that_need_the_same_tokens_share_a_folder_and_others_do_not():
    graph, runs = sparse_graph(), Path("runs")
    shared = tokens_folder(runs / "one", graph, tokens_of(quick()))
    assert shared.is_relative_to(cache_folder())
    assert shared == tokens_folder(runs / "two", graph, tokens_of(quick(seed=3, hidden_dim=64, lr=0.1)))
    changes = ({"hops": 3}, {"encoding_dim": 1}, {"feature_scaling": "row"}, {"feature_scaling": "standardize"})
    others = [tokens_folder(runs / "one", graph, tokens_of(quick(**change))) for change in changes]
    others.append(tokens_folder(runs / "one", sparse_graph(seed=1), tokens_of(quick())))
    assert len({shared, *others}) == 6


def test_a_store_beside_the_run_of_another_type_is_not_taken_for_its_own(tmp_path):
    graph, run, tokens = sparse_graph(), tmp_path / "run", tokens_of(quick())
    wide = replace(tokens, dtype="float32")
    hop_tokens(graph, 2, dtype="float32", out=tokens_folder(run, graph, wide), device="cpu")
    assert find_store(run, graph, tokens, None) is None
    assert find_store(run, graph, wide, None) is not None
    beside = run.parent / tokens.folder_name(graph.fingerprint)
    hop_tokens(graph, 2, dtype="float32", out=beside, device="cpu")  # as 0.1.0 called it
    assert find_store(run, graph, tokens, None) is None
    assert tokens_folder(run, graph, tokens) != beside


def test_tokens_beside_a_run_are_used_and_a_cache_that_cannot_be_written_to_is_not(tmp_path, monkeypatch):
    graph, run, tokens = sparse_graph(), tmp_path / "runs" / "one", tokens_of(quick())
    beside = run.parent / tokens.folder_name(graph.fingerprint)
    with monkeypatch.context() as broken:
        (tmp_path / "file").touch()
        broken.setenv("NAGPHORMER_CACHE", str(tmp_path / "file"))
        assert tokens_folder(run, graph, tokens) == beside
    assert tokens_folder(run, graph, tokens) != beside
    hop_tokens(graph, 2, out=beside, device="cpu")  # as 0.1.0 did
    assert tokens_folder(run, graph, tokens) == find_store(run, graph, tokens, None) == beside


def test_the_store_of_training_is_found_before_one_in_the_cache_and_that_before_one_beside_the_run(tmp_path):
    graph, run, tokens = sparse_graph(), tmp_path / "runs" / "one", tokens_of(quick())
    assert find_store(run, graph, tokens, "../../tokens") is None
    cached = hop_tokens(graph, 2, out=tokens_folder(run, graph, tokens), device="cpu").path
    hop_tokens(graph, 2, out=run.parent / cached.name, device="cpu")
    assert find_store(run, graph, tokens, "../../tokens") == cached
    run.mkdir()
    hop_tokens(graph, 2, out=tmp_path / "tokens", device="cpu")
    assert find_store(run, graph, tokens, "../../tokens").samefile(tmp_path / "tokens")
    assert find_store(run, graph, tokens, None) == cached


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tokens_are_stored_as_asked(dtype):
    tokens = replace(tokens_of(quick()), dtype=dtype)
    assert token_source(sparse_graph(), tokens, "stored", "cpu")._kind == getattr(torch, dtype)


def test_tokens_for_a_run_lie_apart_from_those_for_another_run_and_for_other_ids(tmp_path):
    graph, tokens = sparse_graph(), replace(tokens_of(quick()), feature_scaling="standardize")
    mean = {"mean": [0.0] * graph.num_features, "std": [1.0] * graph.num_features}
    one = replace(Fitted.of(graph, tokens, mean, None), graph="another")
    other = replace(one, mean=one.mean + 1)
    places = {tokens_folder(tmp_path / "run", graph, tokens, fitted) for fitted in (None, one, other)}
    assert len(places) == 3
    encoded = replace(one, encoding=np.ones((graph.num_nodes, 2), np.float32), encoding_dim=2)
    for ids in (None, [f"n{number}" for number in range(graph.num_nodes)]):
        named = replace(graph, ids=check_ids(ids, graph.num_nodes))
        places.add(tokens_folder(tmp_path / "run", named, tokens, encoded))
    assert len(places) == 5
