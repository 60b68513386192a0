"""Copies of a graph with half of its edges: which ones stay, and what tokens follow them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import hop_tokens as expected_tokens
from reference import isolated, random_adjacency, random_graph

from nagphormer import Graph, UserError, from_scipy, load_graph, synthetic_graph
from nagphormer.settings import TokenSettings
from nagphormer.tokens.hop2token import make_tokens
from nagphormer.tokens.thinned import structure_of

LARGE = synthetic_graph(3000, 15_000, 4, 3)


def thinned(graph, copy=1):
    return structure_of(graph, TokenSettings(copy=copy))


def edges_of(graph):
    """Pairs of ends, the lower one first."""
    upper = sp.triu(graph.adjacency()).tocoo()
    return set(zip(upper.row.tolist(), upper.col.tolist(), strict=True))


def test_copy_zero_is_the_graph_itself():
    assert thinned(LARGE, 0) is LARGE


@pytest.mark.parametrize("copy", [1, 2, 7, 10**12])
def test_half_of_the_edges_stay_and_both_ways(copy):
    found, whole = thinned(LARGE, copy), edges_of(LARGE)
    kept, count = edges_of(found), len(whole)
    assert kept < whole
    assert abs(len(kept) - count / 2) < 4 * np.sqrt(count) / 2
    adjacency = found.adjacency()
    assert (adjacency != adjacency.T).nnz == 0


def test_every_copy_has_another_half():
    copies = [edges_of(thinned(LARGE, copy)) for copy in (1, 2, 3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        share = len(copies[one] & copies[other]) / len(copies[one])
        assert 0.45 < share < 0.55


def test_no_node_keeps_all_its_edges_or_none_because_of_its_number():
    share = np.asarray(thinned(LARGE).degrees) / np.maximum(LARGE.degrees, 1)
    wide = LARGE.degrees >= 30
    assert wide.sum() > 30
    assert share[wide].min() > 0.1
    assert share[wide].max() < 0.9
    for offset in (0, 1):
        assert abs(share[offset::2].mean() - share.mean()) < 0.05


def test_a_number_always_gives_the_same_copy():
    one, again = thinned(LARGE), thinned(LARGE)
    for name in ("indptr", "indices"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert len(edges_of(thinned(random_graph(40)))) == len(edges_of(thinned(random_graph(40))))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 10))
def test_weights_of_the_edges_that_stay_are_kept(seed, copy):
    graph = random_graph(40, seed=seed, weighted=True)
    whole, kept = graph.adjacency().toarray(), thinned(graph, copy).adjacency().toarray()
    assert np.array_equal(kept[kept != 0], whole[kept != 0])
    assert np.array_equal(kept, kept.T)


def test_whether_there_are_weights_plays_no_part():
    plain = random_graph(60)
    weighted = from_scipy(plain.adjacency() * np.float32(2.5))
    assert weighted.weights is not None
    assert edges_of(thinned(plain)) == edges_of(thinned(weighted))


def test_a_graph_without_edges_stays_as_it_is():
    found = thinned(isolated(5))
    assert (found.num_nodes, len(found.indices)) == (5, 0)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_indices_keep_their_type(kind):
    graph = random_graph(40)
    graph = replace(graph, indices=np.asarray(graph.indices, kind))
    found = thinned(graph)
    assert found.indices.dtype == kind
    assert edges_of(found) == edges_of(thinned(random_graph(40)))


def test_memory_mapped_edges_are_read(tmp_path):
    random_graph(40).save(tmp_path / "graph")
    assert edges_of(thinned(load_graph(tmp_path / "graph"))) == edges_of(thinned(random_graph(40)))


def test_a_copy_has_neither_features_nor_labels():
    assert (thinned(LARGE).features, thinned(LARGE).labels) == (None, None)


# tokens


@pytest.mark.parametrize("weighted", [False, True])
def test_tokens_follow_the_edges_that_stay(weighted):
    graph = random_graph(60, weighted=weighted)
    store = make_tokens(graph, TokenSettings(hops=3, dtype="float32", copy=2), device="cpu")
    kept = thinned(graph, 2)
    bare = Graph(indptr=kept.indptr, indices=kept.indices, weights=kept.weights, features=graph.features)
    np.testing.assert_allclose(store, expected_tokens(bare, 3), atol=1e-5)
    np.testing.assert_array_equal(np.asarray(store)[:, 0], graph.features)  # all nodes, with their own


def test_sums_stay_in_range_where_heavy_edges_are_left_out():
    pairs = np.arange(40).reshape(20, 2)
    heavy = sp.coo_array((np.full(20, 1e6), (pairs[:, 0], pairs[:, 1])), shape=(40, 40))
    graph = from_scipy(heavy, np.random.default_rng(0).uniform(1, 2, (40, 3)))
    for copy in (1, 2):
        lost = thinned(graph, copy).degrees == 0
        assert 0 < lost.sum() < 40
        found = np.asarray(make_tokens(graph, TokenSettings(hops=2, copy=copy), device="cpu"))
        np.testing.assert_allclose(found[lost], np.repeat(graph.features[lost, None], 3, axis=1), rtol=1e-3)


def test_a_store_says_which_copy_it_is_and_is_reused_as_that(tmp_path):
    graph = from_scipy(random_adjacency(50, 0), np.eye(50, 4))
    for copy in (0, 1, 2):
        made = make_tokens(graph, TokenSettings(hops=1, copy=copy), out=tmp_path / str(copy), device="cpu")
        assert made.tokens.copy == copy
        assert make_tokens(graph, TokenSettings(hops=1, copy=copy), out=tmp_path / str(copy)).reused
    with pytest.raises(UserError, match="tokens with copy=1, not 2"):
        make_tokens(graph, TokenSettings(hops=1, copy=2), out=tmp_path / "1")


def test_folders_of_copies_have_names_of_their_own():
    names = {TokenSettings(copy=copy, reduce_dim=dim).folder_name("f" * 64) for copy in (0, 1, 2) for dim in (0, 8)}
    assert len(names) == 6
    assert TokenSettings().folder_name("f" * 64) == "tokens-ffffffff-hops3-encoding0"
