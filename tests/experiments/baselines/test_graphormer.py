import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path
from torch.nn import functional as F

from experiments.baselines import graphormer
from experiments.baselines.graphormer import Graphormer, Layer, pair_bias, pair_kinds, settings, shortest_paths
from tests.experiments.small import accuracy, small_task, train

SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "max_distance": 6}


def random_graph(num_nodes=60, num_edges=50, seed=0):
    """A sparse graph of several components and some isolated nodes."""
    ends = np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))
    one_way = sp.coo_array((np.ones(num_edges), ends), shape=(num_nodes, num_nodes)).toarray()
    np.fill_diagonal(one_way, 0)
    return sp.csr_array(((one_way + one_way.T) > 0).astype(np.float32))


@pytest.mark.parametrize("maximum", [3, 40])
def test_distances_are_shortest_paths(maximum):
    adjacency = random_graph()
    expected = shortest_path(adjacency, unweighted=True)
    far, apart = (expected > maximum) & np.isfinite(expected), np.isinf(expected)
    assert apart.any()
    assert far.any() == (maximum == 3)
    distances = shortest_paths(adjacency, maximum)
    np.testing.assert_array_equal(distances[~apart], np.minimum(expected[~apart], maximum))
    assert (distances[apart] == maximum + 1).all()  # a kind of its own, whatever the distance of others
    assert distances.dtype == np.uint8


def test_distances_too_long_for_a_byte_are_refused():
    with pytest.raises(ValueError, match="at most 252, not 253"):
        shortest_paths(random_graph(), 253)


def test_the_virtual_node_has_pairs_of_its_own_kind():
    distances = shortest_paths(random_graph(), 4)
    pairs = pair_kinds(distances, 4)
    np.testing.assert_array_equal(pairs[:-1, :-1], distances)
    assert (pairs[-1] == 6).all()
    assert (pairs[:, -1] == 6).all()
    assert distances.max() == 5


@pytest.mark.parametrize("block", [1, 100, 10**6])
def test_the_bias_is_looked_up_in_blocks(monkeypatch, block):
    monkeypatch.setattr(graphormer, "BLOCK", block)
    torch.manual_seed(0)
    bias = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    pairs = torch.randint(0, 5, (30, 30), dtype=torch.uint8)
    expected, found = bias[pairs.long()].permute(2, 0, 1), pair_bias(bias, pairs)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    (got,) = torch.autograd.grad(found, bias, direction)
    torch.testing.assert_close(got, torch.autograd.grad(expected, bias, direction)[0])


def test_everything_reaches_every_node_in_one_layer():
    torch.manual_seed(0)
    task = small_task(inside=0.03, across=0.0)  # communities apart, some nodes isolated
    method = Graphormer(task, **SMALL | {"num_layers": 1}).double().eval()
    task.__dict__["features"] = task.features.double()
    before = method().detach().clone()
    task.features[0] += 5
    assert (method().detach() - before).abs().amax(dim=1).min() > 0


def test_the_virtual_node_attends_all_and_is_attended_by_all():
    torch.manual_seed(0)
    method = Graphormer(small_task(), **SMALL).eval()
    assert method.pairs.shape == (91, 91)
    hidden = torch.randn(91, 16)
    layer, bias = method.layers[0], pair_bias(method.bias.weight, method.pairs)
    before = layer(hidden, bias)
    moved = hidden.clone()
    moved[-1] += torch.randn(16)
    assert (layer(moved, bias) - before).abs().amax(dim=1).min() > 0
    moved = hidden.clone()
    moved[5] += torch.randn(16)
    assert (layer(moved, bias) - before)[-1].abs().max() > 0
    (grad,) = torch.autograd.grad(before.sum(), method.bias.weight)
    assert (grad[-1] != 0).all()


def test_degrees_are_embedded():
    torch.manual_seed(0)
    task = small_task()
    method = Graphormer(task, **SMALL, max_degree=4).eval()
    degrees = np.asarray(task.adjacency.sum(axis=1)).astype(int)
    np.testing.assert_array_equal(method.degrees.numpy(), np.minimum(degrees, 4))
    seen = []
    method.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    method()
    expected = method.embed(task.features) + method.embed_degree.weight[np.minimum(degrees, 4)]
    torch.testing.assert_close(seen[0][:-1], expected)
    torch.testing.assert_close(seen[0][-1:], method.virtual.weight)


def test_features_and_degrees_begin_at_the_same_size():
    torch.manual_seed(0)
    method = Graphormer(small_task(210), **SMALL)
    features, degrees = method.embed(method.task.features), method.embed_degree.weight
    assert 0.8 < features.std() / degrees.std() < 1.25


def test_the_learning_rate_warms_up():
    method = Graphormer(small_task(), **SMALL, lr=1.0, warmup=3)
    rates = []
    for _ in range(5):
        rates.append(method.optimizer.param_groups[0]["lr"])
        method.train_epoch()
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_distances_are_no_part_of_the_state():
    state = Graphormer(small_task(), **SMALL).state_dict()
    assert not any(tensor.dtype == torch.uint8 or tensor.shape[:1] in ((90,), (91,)) for tensor in state.values())


@pytest.mark.parametrize("candidate", range(len(settings("cora"))))
def test_each_setting_builds_a_model(candidate):
    method = Graphormer(small_task(), **settings("cora")[candidate])
    train(method, 1)
    assert torch.isfinite(method.eval()()).all()


def test_it_learns_communities():
    torch.manual_seed(0)
    method = Graphormer(small_task(210), **SMALL, lr=1e-2, warmup=5, dropout=0.3)
    train(method, 60)
    assert accuracy(method) > 0.9  # logistic regression on the features has 0.83


def test_a_layer_is_the_formula():
    torch.manual_seed(0)
    layer, hidden, bias = Layer(8, 2, dropout=0.5).eval(), torch.randn(5, 8), torch.randn(2, 5, 5)
    query, key, value = layer.project(F.layer_norm(hidden, (8,))).chunk(3, dim=1)
    heads = []
    for head, columns in enumerate((slice(0, 4), slice(4, 8))):
        weights = (query[:, columns] @ key[:, columns].T / 2 + bias[head]).softmax(dim=1)
        heads.append(weights @ value[:, columns])
    out, (_, first, _, _, second, _) = layer.after_attention[0], layer.feed_forward
    middle = hidden + out(torch.cat(heads, dim=1))
    expected = middle + second(F.gelu(first(F.layer_norm(middle, (8,)))))
    torch.testing.assert_close(layer(hidden, bias), expected)


def test_scores_are_read_from_normalized_states():
    method = Graphormer(small_task(), hidden_dim=16, num_layers=1, num_heads=2).eval()
    seen = []
    method.classify.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    method()
    assert seen[0].shape == (90, 16)
    torch.testing.assert_close(seen[0].std(dim=1, correction=0), torch.ones(90), rtol=0.1, atol=0)


def test_weights_begin_smaller_in_deep_models():
    torch.manual_seed(0)
    method = Graphormer(small_task(), hidden_dim=64, num_layers=4, num_heads=2)
    assert method.layers[0].project.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert method.embed_degree.weight.std().item() == pytest.approx(0.02, rel=0.05)
