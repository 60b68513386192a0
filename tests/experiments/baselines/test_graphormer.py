import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path

from experiments.baselines import graphormer
from experiments.baselines.graphormer import Graphormer, attend, pair_kinds, settings, shortest_paths
from tests.experiments.small import accuracy, small_task, train

SMALL = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "max_distance": 6}


def random_graph(num_nodes=60, num_edges=50, seed=0):
    """A sparse graph of several components and some isolated nodes."""
    ends = np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))
    one_way = sp.coo_array((np.ones(num_edges), ends), shape=(num_nodes, num_nodes)).toarray()
    np.fill_diagonal(one_way, 0)
    return sp.csr_array(((one_way + one_way.T) > 0).astype(np.float32))


def random_inputs(num_nodes=30, num_heads=2, num_kinds=5):
    torch.manual_seed(0)
    states = torch.randn(3, num_heads, num_nodes, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(num_kinds, num_heads, dtype=torch.float64, requires_grad=True)
    return states, bias, torch.randint(0, num_kinds, (num_nodes, num_nodes), dtype=torch.uint8)


def dense_attention(query, key, value, bias, pairs):
    scores = torch.einsum("hid,hjd->hij", query, key) / query.shape[-1] ** 0.5
    return (scores + bias[pairs.long()].permute(2, 0, 1)).softmax(dim=2) @ value


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
def test_attention_in_blocks_is_attention(monkeypatch, block):
    monkeypatch.setitem(graphormer.BLOCK, "cpu", block)
    states, bias, pairs = random_inputs()
    expected = dense_attention(*states, bias, pairs)
    found = attend(*states, bias, pairs)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    for got, wanted in zip(
        torch.autograd.grad(found, (states, bias), direction),
        torch.autograd.grad(expected, (states, bias), direction),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


def test_the_bias_depends_on_the_kind_of_pair_only():
    states, bias, pairs = random_inputs()
    one_hot = torch.eye(30, dtype=torch.float64).expand(2, -1, -1)
    same = torch.zeros_like(states[0])  # all scores are 0: weights come from the bias alone
    weights = attend(same, same, one_hot, bias, pairs)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(2, 30, dtype=torch.float64))
    logs = weights.log() - weights.log()[:, :, :1]
    for head in range(2):
        expected = bias[pairs.long(), head] - bias[pairs[:, :1].long(), head]
        torch.testing.assert_close(logs[head], expected)


def test_dropout_is_the_same_in_the_second_computation(monkeypatch):
    monkeypatch.setitem(graphormer.BLOCK, "cpu", 200)
    states, bias, pairs = random_inputs()
    one_hot = torch.eye(30, dtype=torch.float64).expand(2, -1, -1).clone().requires_grad_()
    weights = attend(states[0], states[1], one_hot, bias, pairs, dropout=0.5)
    assert 0.3 < (weights == 0).double().mean() < 0.7
    grad = torch.autograd.grad(weights[0, 4, 7], one_hot)[0]  # d out[4, 7] / d value[j, 7] is the weight of j
    torch.testing.assert_close(grad[0, :, 7], weights[0, 4].detach())


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
    layer = method.layers[0]
    before = layer(hidden, method.bias.weight, method.pairs)
    moved = hidden.clone()
    moved[-1] += torch.randn(16)
    assert (layer(moved, method.bias.weight, method.pairs) - before).abs().amax(dim=1).min() > 0
    moved = hidden.clone()
    moved[5] += torch.randn(16)
    assert (layer(moved, method.bias.weight, method.pairs) - before)[-1].abs().max() > 0
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


def test_the_learning_rate_warms_up():
    method = Graphormer(small_task(), **SMALL, lr=1.0, warmup=3)
    rates = []
    for _ in range(5):
        rates.append(method.optimizer.param_groups[0]["lr"])
        method.train_epoch()
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_distances_are_no_part_of_the_state():
    state = Graphormer(small_task(), **SMALL).state_dict()
    assert not any(tensor.dtype == torch.uint8 or len(tensor) in (90, 91) for tensor in state.values())


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
