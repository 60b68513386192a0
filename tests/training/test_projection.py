import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import embedded, make_trainer, quick, source_of, sparse_graph, weights_of

from nagphormer import from_scipy, hop_tokens
from nagphormer.model.embedding import Embedding
from nagphormer.training.projection import ProjectedTokens
from nagphormer.training.sources import StoredTokens

NODES = torch.tensor([3, 49, 0, 7, 3, 12, 47])  # one twice, two isolated, one without features
SCALINGS = ["none", "standardize", "row"]


def projected(graph, **settings):
    source = source_of(graph, quick(project_first="always", **settings))
    assert isinstance(source, ProjectedTokens)
    return source


def stored(graph, hops=2, **settings):
    return StoredTokens(hop_tokens(graph, hops, dtype="float32", device="cpu", **settings), "cpu")


def embedding_of(source, dim=16, feature_dropout=0.0):
    torch.manual_seed(1)
    embedding = Embedding(source.width, dim, feature_dropout)
    torch.nn.init.normal_(embedding.bias)
    return embedding


def embed(source, embedding, *batches):
    """Embedded tokens of all batches, and the gradients of weight and bias for a random linear loss."""
    embedding.zero_grad()
    torch.manual_seed(2)  # of the columns to hide
    hidden = torch.cat(embedded(source, embedding, *batches))
    (hidden.float() * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    return hidden.detach(), embedding.weight.grad.clone(), embedding.bias.grad.clone()


def assert_equal_ways(one, other, embedding, *batches, tolerance=1e-5):
    for ours, expected in zip(embed(one, embedding, *batches), embed(other, embedding, *batches), strict=True):
        assert ours.shape == expected.shape
        largest = float(expected.abs().max())
        torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("encoding_dim", [0, 3])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_tokens_and_gradients_are_those_of_stored_tokens(scaling, encoding_dim, weighted):
    graph = sparse_graph(weighted=weighted)
    assert (graph.degrees == 0).sum() >= 5
    settings = {"encoding_dim": encoding_dim, "feature_scaling": scaling}
    ours, theirs = projected(graph, **settings), stored(graph, **settings)
    assert (ours.num_nodes, ours.hops, ours.width) == (theirs.num_nodes, theirs.hops, theirs.width)
    assert_equal_ways(ours, theirs, embedding_of(ours), NODES)


@pytest.mark.parametrize("dim", [1, 5, 16, 20, 40])
def test_any_width_of_the_network_will_do(dim):
    graph, settings = sparse_graph(), {"encoding_dim": 2, "feature_scaling": "standardize"}
    ours = projected(graph, **settings)
    assert_equal_ways(ours, stored(graph, **settings), embedding_of(ours, dim), NODES)


@pytest.mark.parametrize("hops", [0, 1, 7])
def test_any_number_of_hops_will_do(hops):
    graph, settings = sparse_graph(), {"hops": hops, "encoding_dim": 2, "feature_scaling": "standardize"}
    ours = projected(graph, **settings)
    assert_equal_ways(ours, stored(graph, **settings), embedding_of(ours), NODES)


@pytest.mark.parametrize("nodes", [[9], [49], list(range(50))], ids=["one", "one isolated", "all"])
def test_any_batch_will_do(nodes):
    graph = sparse_graph()
    ours = projected(graph)
    assert_equal_ways(ours, stored(graph), embedding_of(ours), torch.tensor(nodes))


def test_batches_embedded_before_the_first_gradient_do_not_disturb_each_other():
    graph = sparse_graph()
    ours = projected(graph)
    assert_equal_ways(ours, stored(graph), embedding_of(ours), NODES, torch.arange(20), NODES)


def test_one_source_serves_networks_of_different_width():
    graph = sparse_graph()
    ours, theirs = projected(graph), stored(graph)
    for dim in (20, 5, 20):
        assert_equal_ways(ours, theirs, embedding_of(ours, dim), NODES)


def test_hidden_columns_are_the_same_both_ways():
    graph = sparse_graph()
    ours = projected(graph, feature_scaling="standardize")
    embedding = embedding_of(ours, feature_dropout=0.5)
    assert_equal_ways(ours, stored(graph, feature_scaling="standardize"), embedding, NODES)
    assert (embedding.weight.grad.abs().sum(dim=0) == 0).sum() > 3


def test_a_graph_without_edges_is_projected():
    graph = from_scipy(sp.csr_array((50, 50)), sparse_graph().features)
    ours = projected(graph, hops=3)
    assert_equal_ways(ours, stored(graph, hops=3), embedding_of(ours), NODES)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_values_are_the_same_without_gradients(scaling):
    source = projected(sparse_graph(), encoding_dim=3, feature_scaling=scaling)
    embedding = embedding_of(source, 20)
    with_gradients = torch.cat(embedded(source, embedding, *NODES.split(3)))
    with torch.no_grad():
        without = torch.cat(embedded(source, embedding, *NODES.split(3)))
    assert not without.requires_grad
    torch.testing.assert_close(without, with_gradients.detach(), rtol=0, atol=0)


def test_without_gradients_one_propagation_serves_all_batches(monkeypatch):
    source, count = projected(sparse_graph()), []
    propagate = source._propagate
    monkeypatch.setattr(source, "_propagate", lambda weight: count.append(1) or propagate(weight))
    with torch.no_grad():
        assert len(embedded(source, embedding_of(source), *torch.arange(50).split(10))) == 5
    assert len(count) == 1


@pytest.mark.parametrize("scaling", SCALINGS)
def test_autocast_gives_bfloat16_near_the_float32_values(scaling):
    settings = {"encoding_dim": 3, "feature_scaling": scaling}
    source = projected(sparse_graph(), **settings)
    embedding = embedding_of(source)
    expected = embed(source, embedding, NODES)
    with torch.autocast("cpu", torch.bfloat16):
        found = embed(source, embedding, NODES)
    assert [part.dtype for part in found] == [torch.bfloat16, torch.float32, torch.float32]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=0.02 * float(theirs.abs().max()))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_autocast_gives_the_same_with_and_without_gradients(scaling):
    source = projected(sparse_graph(), encoding_dim=3, feature_scaling=scaling)
    embedding = embedding_of(source)
    with torch.autocast("cpu", torch.bfloat16):
        (with_gradients,) = embedded(source, embedding, NODES)
        with torch.no_grad():
            (without,) = embedded(source, embedding, NODES)
    torch.testing.assert_close(without, with_gradients.detach(), rtol=0, atol=0)


def test_standardizing_columns_far_from_zero_keeps_its_precision_under_autocast():
    features = sp.csr_array(np.random.default_rng(0).normal(100, 1, (50, 23)))  # every entry is stored
    graph = from_scipy(sparse_graph().adjacency(), features)
    ours, theirs = (way(graph, feature_scaling="standardize") for way in (projected, stored))
    embedding = embedding_of(ours)
    with torch.autocast("cpu", torch.bfloat16):
        assert_equal_ways(ours, theirs, embedding, NODES, tolerance=0.02)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_training_gives_nearly_the_same_weights_both_ways(scaling):
    graph = sparse_graph()
    found = []
    for way in ("always", "never"):
        config = quick(project_first=way, encoding_dim=2, feature_scaling=scaling, epochs=2, batch_size=8, lr=1e-3)
        source = stored(graph, encoding_dim=2, feature_scaling=scaling) if way == "never" else None
        trainer = make_trainer(graph, config, source)
        trainer.run()
        found.append((trainer.update, weights_of(trainer.model)))
    (updates, ours), (_, theirs) = found
    assert updates == 8
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=2e-5)
