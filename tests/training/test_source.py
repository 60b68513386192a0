from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import class_graph, quick, sparse_graph

from nagphormer import TokenStore, UserError, from_scipy, hop_tokens
from nagphormer.training import source as source_module
from nagphormer.training.projection import ProjectedTokens
from nagphormer.training.source import projection_pays, token_source, tokens_folder
from nagphormer.training.sources import StoredTokens


def wide_graph():
    """A small graph whose 5,000 features are nearly all zero."""
    features = sp.random_array((200, 5000), density=0.005, rng=np.random.default_rng(0))
    adjacency = sp.random_array((200, 200), density=0.02, rng=np.random.default_rng(1))
    nodes = np.arange(200)
    splits = {"train": nodes[:120], "val": nodes[120:160], "test": nodes[160:]}
    return from_scipy(adjacency, features, nodes % 2, splits)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_projecting_first_pays_for_wide_sparse_features_on_a_small_graph(device, monkeypatch):
    monkeypatch.setattr(source_module, "gpu_memory", lambda device: 2**33)
    config = quick(project_first="auto", batch_size=200, hidden_dim=128)
    assert projection_pays(wide_graph(), config, device)


def test_projecting_first_does_not_pay_for_narrow_or_dense_features():
    config = quick(project_first="auto", batch_size=200, hidden_dim=128)
    assert not projection_pays(class_graph(), config, "cpu")
    assert not projection_pays(class_graph(sparse=True), config, "cpu")
    wide = wide_graph()
    dense = from_scipy(wide.adjacency(), wide.features.toarray(), wide.labels, wide.splits)
    assert not projection_pays(dense, config, "cpu")


def test_projecting_first_does_not_pay_for_many_small_batches():
    assert not projection_pays(wide_graph(), quick(project_first="auto", batch_size=1, hidden_dim=128), "cpu")


def test_projecting_first_does_not_pay_where_it_needs_more_memory_than_there_is(monkeypatch):
    monkeypatch.setattr(source_module, "available_memory", lambda: 10**6)
    assert not projection_pays(wide_graph(), quick(project_first="auto", batch_size=200, hidden_dim=128), "cpu")


def test_the_linear_classifiers_columns_need_memory_too(monkeypatch):
    config = quick(project_first="auto", batch_size=200, hidden_dim=128)  # 3 tokens, 2 classes
    held = 200 * 5 * 128 * 4
    for columns, pays in ((6, True), (5, False)):
        there_is = 2 * (held + 200 * 5 * columns * 4)
        monkeypatch.setattr(source_module, "available_memory", lambda there_is=there_is: there_is)
        assert projection_pays(wide_graph(), config, "cpu") == pays
    assert projection_pays(wide_graph(), replace(config, linear=False), "cpu")


def test_a_graph_without_features_is_never_projected():
    graph = from_scipy(wide_graph().adjacency(), None, np.arange(200) % 2, {"train": range(99), "val": [99]})
    assert not projection_pays(graph, quick(project_first="auto"), "cpu")


def test_always_and_never_are_obeyed():
    assert projection_pays(class_graph(sparse=True), quick(project_first="always"), "cpu")
    assert not projection_pays(wide_graph(), quick(project_first="never", hidden_dim=128), "cpu")
    for features in (np.ones((3, 2)), None):
        with pytest.raises(UserError, match="'always' needs sparse features"):
            projection_pays(from_scipy(np.ones((3, 3)), features), quick(project_first="always"), "cpu")


def test_tokens_are_projected_first_when_that_was_decided():
    source = token_source(sparse_graph(), quick(project_first="always", encoding_dim=2, hops=3), "cpu")
    assert isinstance(source, ProjectedTokens)
    assert (source.num_nodes, source.hops, source.width, source.projects_first) == (50, 3, 25, True)


def test_tokens_are_made_in_memory_by_default():
    source = token_source(sparse_graph(), quick(encoding_dim=2, hops=3, feature_scaling="row"), "cpu")
    assert isinstance(source, StoredTokens)
    assert (source.num_nodes, source.hops, source.width) == (50, 3, 25)


def test_tokens_are_kept_in_a_folder_and_used_again(tmp_path, monkeypatch):
    config = quick(encoding_dim=2, feature_scaling="row")
    token_source(sparse_graph(), config, "cpu", out=tmp_path / "tokens")
    tokens = TokenStore.open(tmp_path / "tokens").tokens
    assert (tokens.hops, tokens.encoding_dim, tokens.feature_scaling) == (2, 2, "row")
    monkeypatch.setattr("nagphormer.tokens.hop2token._make", None)  # no work may start
    token_source(sparse_graph(), config, "cpu", out=tmp_path / "tokens")


def test_a_store_that_is_given_is_used():
    store = hop_tokens(sparse_graph(), 2, dtype="bfloat16", device="cpu")
    assert token_source(sparse_graph(), quick(), "cpu", store)._host is store.blocks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hops": 3}, "hops=2, not 3"),
        ({"encoding_dim": 2}, "encoding_dim=0, not 2"),
        ({"feature_scaling": "row"}, "feature_scaling='none', not 'row'"),
    ],
)
def test_a_store_with_other_settings_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        token_source(sparse_graph(), quick(**changes), "cpu", hop_tokens(sparse_graph(), 2))


def test_a_store_of_another_graph_is_refused():
    with pytest.raises(UserError, match="another graph"):
        token_source(sparse_graph(), quick(), "cpu", hop_tokens(sparse_graph(seed=1), 2))


def test_runs_that_need_the_same_tokens_share_a_folder_and_others_do_not():
    graph, runs = sparse_graph(), Path("runs")
    shared = tokens_folder(runs / "one", graph, quick())
    assert shared.parent.absolute() == runs.absolute()
    assert shared == tokens_folder(runs / "two", graph, quick(seed=3, hidden_dim=64, lr=0.1))
    changes = ({"hops": 3}, {"encoding_dim": 1}, {"feature_scaling": "row"}, {"feature_scaling": "standardize"})
    others = [tokens_folder(runs / "one", graph, quick(**change)) for change in changes]
    others.append(tokens_folder(runs / "one", sparse_graph(seed=1), quick()))
    assert len({shared, *others}) == 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tokens_are_stored_as_asked(dtype):
    assert token_source(sparse_graph(), quick(), "cpu", dtype=dtype)._kind == getattr(torch, dtype)
