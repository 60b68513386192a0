import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import shortest_path
from torch.nn import functional as F

from experiments.baselines.gophormer import (
    QUICK,
    Gophormer,
    Layer,
    Proximity,
    ProximityAttention,
    consistency,
    join_global,
    sample_egos,
    settings,
)
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def draw(adjacency, centers, fanouts, seed=0):
    matrix = sp.csr_array(adjacency)
    starts, neighbors = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    rng = np.random.default_rng(seed)
    return sample_egos(starts, neighbors, np.asarray(centers), np.array(fanouts), rng)


def star(leaves):
    adjacency = np.zeros((leaves + 2, leaves + 2))  # node 0 is the hub, the last node is isolated
    adjacency[0, 1:-1] = adjacency[1:-1, 0] = 1
    return adjacency


@pytest.mark.parametrize("fanouts", [(3,), (4, 2), (2, 3, 2)])
def test_an_ego_graph_is_a_tree_of_edges_within_its_depth_and_fan_out(fanouts):
    adjacency = dense_adjacency(small_task())
    distance = shortest_path(adjacency, unweighted=True)
    nodes, parents = draw(adjacency, np.arange(90), fanouts)
    assert nodes.shape == parents.shape == (90, 1 + np.cumprod(fanouts).sum())
    assert (nodes[:, 0] == np.arange(90)).all()
    for row, origin in zip(nodes, parents, strict=True):
        size = (row >= 0).sum()
        assert (row[size:] == -1).all()
        assert len(set(row[:size])) == size
        depth = np.zeros(size, dtype=int)
        for place in range(1, size):
            assert origin[place] < place
            assert adjacency[row[origin[place]], row[place]] == 1
            depth[place] = depth[origin[place]] + 1
        assert depth.max() <= len(fanouts)
        assert (distance[row[0], row[:size]] <= depth).all()
        children = np.bincount(origin[1:size], minlength=size)
        assert children[0] == min(fanouts[0], adjacency[row[0]].sum())
        assert all(children[place] <= fanouts[depth[place]] for place in range(size) if depth[place] < len(fanouts))


def test_a_large_fan_out_takes_all_neighbors_and_an_isolated_node_is_alone():
    nodes, _ = draw(star(6), [0, 7], [10])
    assert set(nodes[0]) == {-1, 0, 1, 2, 3, 4, 5, 6}
    assert nodes[1].tolist() == [7] + [-1] * 10


def test_neighbors_are_equally_likely():
    nodes, _ = draw(star(6), np.zeros(6000, dtype=int), [2])
    counts = np.bincount(nodes[:, 1:].ravel(), minlength=7)[1:]
    assert counts.sum() == 12000
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(6000 * (1 / 3) * (2 / 3))


@pytest.mark.parametrize("num_powers", [0, 1, 3])
def test_proximities_are_entries_of_dense_powers(num_powers):
    task = small_task(inside=0.05)
    looped = dense_adjacency(task) + np.eye(90)
    scale = looped.sum(axis=1) ** -0.5
    propagate = scale[:, None] * looped * scale
    egos = torch.from_numpy(np.random.default_rng(0).integers(0, 90, (40, 7)))
    found = Proximity(task.adjacency, num_powers, "cpu").between(egos).numpy()
    for order in range(num_powers + 1):
        power = np.linalg.matrix_power(propagate, order)
        expected = power[egos.numpy()[:, :, None], egos.numpy()[:, None, :]]
        np.testing.assert_allclose(found[..., order], expected, atol=1e-6)
    assert (found == 0).any()


def test_pairs_with_a_global_node_have_their_own_proximity():
    joined = join_global(torch.full((2, 3, 3, 2), 0.5), 2)
    assert joined.shape == (2, 5, 5, 3)
    assert (joined[:, :3, :3] == torch.tensor([0.5, 0.5, 0.0])).all()
    assert (joined[:, 3:] == torch.tensor([0.0, 0.0, 1.0])).all()
    assert (joined[:, :, 3:] == torch.tensor([0.0, 0.0, 1.0])).all()


def test_attention_is_the_formula():
    torch.manual_seed(0)
    layer = ProximityAttention(8, 2, 3, dropout=0.5).eval()
    torch.nn.init.normal_(layer.bias.weight)
    tokens, proximity = 3 * torch.randn(1, 5, 8), torch.rand(1, 5, 5, 3)
    mask = torch.tensor([[True, True, False, True, True]])
    projected = (tokens[0] @ layer.project.weight.T).detach().numpy().reshape(5, 3, 2, 4)
    heads, clamped = [], 0
    for head in range(2):
        queries, keys, values = projected[:, :, head].transpose(1, 0, 2)
        scores = queries @ keys.T / 2 + proximity[0].numpy() @ layer.bias.weight.detach().numpy()[head]
        clamped += (np.abs(scores) > 5).sum()
        weights = np.exp(np.clip(scores, -5, 5)) * mask.numpy()
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ values)
    expected = layer.output(torch.from_numpy(np.concatenate(heads, axis=1)))
    assert clamped > 0
    torch.testing.assert_close(layer(tokens, proximity, mask)[0], expected)


def test_padding_has_no_influence():
    torch.manual_seed(0)
    method = Gophormer(small_task(), num_layers=2, num_global=2).eval()
    for layer in method.layers:
        torch.nn.init.normal_(layer.attention.bias.weight)
    egos = torch.tensor([[4, 7, 1, 10], [5, 8, -1, -1]])
    longer = torch.nn.functional.pad(egos, (0, 3), value=-1)
    torch.testing.assert_close(method(egos), method(longer), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(method(egos)[1:], method(egos[1:, :2]), atol=1e-5, rtol=1e-5)
    mask = torch.tensor([[True, False, True]])
    weights = method.layers[0].attention.weights(
        torch.randn(1, 8, 3, 8), torch.randn(1, 8, 3, 8), torch.rand(1, 3, 3, 3), mask
    )
    assert (weights[..., 1] == 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 8, 3))


def test_only_the_center_has_a_place_and_global_nodes_matter():
    torch.manual_seed(0)
    method = Gophormer(small_task(), num_layers=2, num_global=2).eval()
    torch.nn.init.normal_(method.layers[0].attention.bias.weight)
    before = method(torch.tensor([[4, 7, 1, 10]]))
    torch.testing.assert_close(before, method(torch.tensor([[4, 10, 7, 1]])), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before, method(torch.tensor([[7, 4, 1, 10]])), atol=1e-3)
    torch.nn.init.zeros_(method.global_nodes)
    assert not torch.allclose(before, method(torch.tensor([[4, 7, 1, 10]])), atol=1e-3)


def test_consistency_is_zero_when_samples_agree():
    agreed = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).expand(4, 2, 3)
    assert consistency(agreed, 1.0).item() == pytest.approx(0, abs=1e-12)
    certain = torch.eye(3).expand(4, 3, 3)
    assert consistency(certain, 0.2).item() == 0
    # two samples at (1, 0) and (0, 1): each is √½ from the mean, whatever the temperature
    assert consistency(torch.eye(2)[:, None], 0.3).item() == pytest.approx(0.5)
    # agreed but not certain: what is left is the way to the sharpened prediction
    expected = np.square(np.array([25, 9, 4]) / 38 - [0.5, 0.3, 0.2]).sum()
    assert consistency(agreed[:, :1], 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_the_target_of_consistency_is_not_trained():
    probabilities = torch.rand(3, 2, 4).softmax(dim=-1).requires_grad_()
    consistency(probabilities, 0.5).backward()
    squares = probabilities.detach().mean(dim=0) ** 2
    expected = 2 * (probabilities.detach() - squares / squares.sum(dim=-1, keepdim=True)) / 6
    torch.testing.assert_close(probabilities.grad, expected)


def test_prediction_is_the_mean_probability_of_the_samples():
    task = small_task()
    nodes = torch.tensor([3, 50, 8])
    torch.manual_seed(0)
    method = Gophormer(task, fanouts=(2, 1), num_test_samples=4).eval()
    with torch.no_grad():
        found = method.logits(nodes)
        egos = method.sample(nodes.numpy(), 4, np.random.default_rng([task.seed, 1]))
        each = torch.stack([method(sample).softmax(dim=1) for sample in egos])
        assert torch.equal(found, method.logits(nodes))
    assert each.std(dim=0).max() > 1e-4
    torch.testing.assert_close(found.exp(), each.mean(dim=0))


def test_it_learns_communities():
    torch.manual_seed(0)
    method = Gophormer(small_task(), **QUICK)
    train(method, 30)
    assert accuracy(method) > 0.8
    assert method.infer().shape == (90, 3)


@pytest.mark.parametrize("dataset", ["cora", "computers", "flickr"])
def test_settings_are_arguments(dataset):
    for chosen in settings(dataset):
        assert Gophormer(small_task(), **chosen).logits(torch.arange(4)).shape == (4, 3)


def test_the_loss_is_cross_entropy_and_weighted_consistency_of_all_samples():
    task = small_task()
    torch.manual_seed(0)
    method = Gophormer(task, consistency_weight=0.3, temperature=0.4, num_samples=3).eval()
    nodes = task.splits["train"][:6]
    egos = method.sample(nodes.numpy(), 3, np.random.default_rng(0))
    scores = torch.stack([method(sample) for sample in egos])
    supervised = sum(F.cross_entropy(each, task.labels[nodes]) for each in scores) / 3
    expected = supervised + 0.3 * consistency(scores.softmax(dim=-1), 0.4)
    torch.testing.assert_close(method.loss(egos, task.labels[nodes]), expected)


def test_an_epoch_draws_several_samples_of_every_training_node(monkeypatch):
    method = Gophormer(small_task(), num_samples=3, batch_size=20)
    seen = []
    plain = method.loss
    monkeypatch.setattr(method, "loss", lambda egos, labels: seen.append(egos[..., 0]) or plain(egos, labels))
    train(method, 1)
    assert [len(centers) for centers in seen] == [3, 3, 3]
    for sample in torch.cat(seen, dim=1):
        assert sorted(sample.tolist()) == sorted(method.task.splits["train"].tolist())


def test_a_layer_normalizes_before_each_part():
    torch.manual_seed(0)
    layer = Layer(8, 2, 3, dropout=0.5).eval()
    tokens, proximity, mask = 3 * torch.randn(1, 5, 8), torch.rand(1, 5, 5, 3), torch.ones(1, 5, dtype=torch.bool)
    middle = tokens + layer.attention(F.layer_norm(tokens, (8,)), proximity, mask)
    torch.testing.assert_close(layer(tokens, proximity, mask), middle + layer.feed(F.layer_norm(middle, (8,))))
    features = Gophormer(small_task()).features
    torch.testing.assert_close(features.std(dim=1, correction=0), torch.ones(90), rtol=1e-3, atol=0)
