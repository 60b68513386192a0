import numpy as np
import pytest
import scipy.sparse as sp
import torch

from experiments.baselines.gt import GT, Layer, attend_neighbors, readout, settings
from experiments.baselines.method import Task
from nagphormer import from_scipy, random_split
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def weights_of(query, key, task):
    """Attention weights, (N, H, N): one-hot values make the output the weights."""
    one_hot = torch.eye(task.num_nodes)[:, None].expand(-1, query.shape[1], -1)
    return attend_neighbors(query, key, one_hot, task.edge_index)


def path_task(num_nodes=12):
    path = sp.csr_array(np.eye(num_nodes, k=1) + np.eye(num_nodes, k=-1))
    features = np.random.default_rng(0).normal(size=(num_nodes, 4)).astype(np.float32)
    return Task(random_split(from_scipy(path, features, np.arange(num_nodes) % 2)))


def test_weights_are_a_clamped_softmax_over_neighbors():
    task = small_task()
    query, key = (3 * torch.randn(task.num_nodes, 2, 4, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    scores = np.einsum("ihd,jhd->ihj", query.numpy(), key.numpy()).astype(np.float64) / 2
    assert np.abs(scores).max() > 10  # far beyond the clamp
    expected = np.exp(np.clip(scores, -5, 5)) * dense_adjacency(task)[:, None]
    expected /= expected.sum(axis=2, keepdims=True)
    weights = weights_of(query, key, task)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(task.num_nodes, 2))


def test_beyond_the_clamp_scores_no_longer_matter():
    task = path_task(3)
    query, key = torch.ones(3, 1, 1), torch.tensor([6.0, 0.0, 900.0]).view(3, 1, 1)
    torch.testing.assert_close(weights_of(query, key, task)[1, 0], torch.tensor([0.5, 0.0, 0.5]))


def test_a_node_without_neighbors_receives_nothing():
    edges = torch.tensor([[0, 1], [1, 0]])
    out = attend_neighbors(*torch.randn(3, 4, 2, 3), edges)
    assert out[2:].abs().max() == 0
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("num_layers", [1, 3])
def test_nothing_comes_from_farther_than_the_layers_reach(num_layers):
    task = path_task()
    torch.manual_seed(0)
    method = GT(task, hidden_dim=16, num_layers=num_layers, num_heads=2, encoding_dim=3).eval()
    before = method().detach().clone()
    task.features[0] += 5
    moved = (method().detach() - before).abs().amax(dim=1)
    assert moved[: num_layers + 1].min() > 1e-6
    assert moved[num_layers + 1 :].max() == 0


def test_a_layer_is_the_formula():
    torch.manual_seed(0)
    task = small_task()
    layer = GT(task, hidden_dim=8, num_layers=1, num_heads=2).layers[0]
    assert isinstance(layer, Layer)
    hidden = torch.randn(task.num_nodes, 8, dtype=torch.float64)
    adjacency = torch.from_numpy(dense_adjacency(task))
    layer = layer.double().train()
    query, key, value = (hidden @ project.weight.T for project in layer.attention.project.maps)
    heads = []
    for columns in (slice(0, 4), slice(4, 8)):
        weights = torch.exp((query[:, columns] @ key[:, columns].T / 2).clamp(-5, 5)) * adjacency
        heads.append(weights / weights.sum(dim=1, keepdim=True) @ value[:, columns])
    out = layer.after_attention[1]
    middle = hidden + torch.cat(heads, dim=1) @ out.weight.T + out.bias
    middle = (middle - middle.mean(dim=0)) / (middle.var(dim=0, unbiased=False) + 1e-5).sqrt()
    first, second = layer.feed_forward[0], layer.feed_forward[3]
    assert first.weight.shape == (16, 8)
    last = middle + (middle @ first.weight.T + first.bias).relu() @ second.weight.T + second.bias
    last = (last - last.mean(dim=0)) / (last.var(dim=0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(layer(hidden, task.edge_index), last)


def test_signs_flip_in_training_only():
    torch.manual_seed(0)
    method = GT(small_task(), hidden_dim=16, num_layers=1, num_heads=2)  # without dropout
    seen = []
    method.embed_encoding.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for mode in (True, False):
        method.train(mode)
        for _ in range(8):
            method()
    assert all(torch.equal(encoding.abs(), method.encoding.abs()) for encoding in seen)
    assert any(not torch.equal(encoding, method.encoding) for encoding in seen[:8])
    assert all(torch.equal(encoding, method.encoding) for encoding in seen[8:])


def test_the_learning_rate_is_halved_where_validation_stands_still():
    method = GT(small_task(), num_layers=1, lr=0.8)
    for _ in range(22):
        method.validated(1.0)
    assert method.optimizer.param_groups[0]["lr"] == 0.4


@pytest.mark.parametrize(("num_classes", "widths"), [(3, [64, 32, 16, 3]), (15, [64, 32, 30, 15])])
def test_the_readout_halves_the_width_but_leaves_two_for_each_class(num_classes, widths):
    linears = [each for each in readout(64, num_classes) if isinstance(each, torch.nn.Linear)]
    assert [each.in_features for each in linears] + [linears[-1].out_features] == widths


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="width 10 cannot be divided among 4 heads"):
        GT(small_task(), hidden_dim=10, num_heads=4)


def test_the_encoding_is_no_part_of_the_state():
    assert "encoding" not in GT(small_task(), hidden_dim=16, num_layers=1).state_dict()


def test_what_drops_inputs_is_narrow_on_cs_alone():
    assert [settings(dataset)[3]["hidden_dim"] for dataset in ("cs", "physics")] == [128, 256]


@pytest.mark.parametrize("candidate", range(len(settings("cora"))))
def test_each_setting_builds_a_model(candidate):
    method = GT(small_task(), **settings("cora")[candidate])
    train(method, 1)
    assert torch.isfinite(method.eval()()).all()


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GT(small_task(150), hidden_dim=32, num_layers=2, num_heads=2, lr=5e-3, dropout=0.3)
    train(method, 40)
    assert accuracy(method) > 0.9


def test_entries_of_the_encoding_are_of_size_one():
    encoding = GT(small_task(), hidden_dim=16, num_layers=1).encoding
    torch.testing.assert_close(encoding.square().mean(dim=0), torch.ones(10))
