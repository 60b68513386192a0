import numpy as np
import pytest
import torch

from experiments.baselines.method import Task
from experiments.baselines.san import SAN, PairAttention, SpectralEncoding, attend_edges, settings, split_pairs
from nagphormer import from_scipy, random_split
from tests.experiments.small import accuracy, dense_adjacency, small_task, train

SMALL = {"hidden_dim": 32, "num_layers": 2, "num_heads": 2}


def weights_of(attention, hidden, pairs):
    """Attention weights of a single head, (N, N): values are made one-hot."""
    num_nodes = len(hidden)
    attention.project.maps[0] = OneHot(num_nodes)
    return attention(hidden, pairs)


class OneHot(torch.nn.Module):
    def __init__(self, num_nodes):
        super().__init__()
        self.num_nodes = num_nodes

    def forward(self, hidden):
        return torch.eye(self.num_nodes)


def test_weights_are_a_softmax_over_edges_and_one_over_non_edges():
    torch.manual_seed(0)
    task, gamma = small_task(), 0.25
    attention, hidden = PairAttention(6, 1, gamma), torch.randn(task.num_nodes, 6)
    maps = [project.weight.detach().numpy().astype(np.float64) for project in attention.project.maps]
    kinds = [(kind.project.weight @ kind.embedding).detach().numpy() for kind in attention.kinds]
    weights = weights_of(attention, hidden, split_pairs(task.edge_index, task.num_nodes)).detach().numpy()

    adjacency, states = dense_adjacency(task), hidden.numpy()
    others = 1 - adjacency - np.eye(task.num_nodes)
    expected = 0
    for mask, query, key, kind, share in (
        (adjacency, maps[1], maps[2], kinds[0], 1 / (1 + gamma)),
        (others, maps[3], maps[4], kinds[1], gamma / (1 + gamma)),
    ):
        products = np.einsum("ic,jc,c->ij", states @ query.T, states @ key.T, kind)  # Q h_i ∘ K h_j ∘ E e, summed
        part = np.exp(products / np.sqrt(6)) * mask
        expected = expected + share * part / part.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    np.testing.assert_allclose((weights * adjacency).sum(axis=1), 1 / (1 + gamma), atol=1e-5)
    np.testing.assert_allclose((weights * others).sum(axis=1), gamma / (1 + gamma), atol=1e-5)


def test_without_gamma_attention_is_sparse():
    torch.manual_seed(0)
    task = small_task()
    pairs = split_pairs(task.edge_index, task.num_nodes)
    weights = weights_of(PairAttention(6, 1, 0.0), torch.randn(task.num_nodes, 6), pairs).detach().numpy()
    assert (weights[dense_adjacency(task) == 0] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)


def test_nodes_with_all_neighbors_or_none():
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])  # node 0 neighbors all but 3, which has none
    pairs = split_pairs(edges, 4)
    attention = PairAttention(6, 1, 1.0)
    weights = weights_of(attention, torch.randn(4, 6), pairs)
    torch.testing.assert_close(weights.sum(dim=1), torch.tensor([1.0, 1.0, 1.0, 0.5]))
    torch.testing.assert_close(weights[0, 3].item(), 0.5)
    star = split_pairs(edges, 3)  # now 0 has no non-edge
    weights = weights_of(attention, torch.randn(3, 6), star)
    weights.sum().backward()
    torch.testing.assert_close(weights.sum(dim=1).detach(), torch.tensor([0.5, 1.0, 1.0]))
    assert all(
        torch.isfinite(parameter.grad).all() for parameter in attention.parameters() if parameter.grad is not None
    )


def test_large_scores_do_not_overflow():
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    out = attend_edges(*(1e4 * torch.randn(3, 3, 1, 2)), split_pairs(edges, 3))
    assert torch.isfinite(out).all()


def test_permuting_nodes_permutes_scores():
    task = small_task()
    order = np.random.default_rng(0).permutation(task.num_nodes)
    graph = from_scipy(task.adjacency[order][:, order], task.features.numpy()[order], task.labels.numpy()[order])
    permuted = Task(random_split(graph, seed=0))
    torch.manual_seed(0)
    method = SAN(task, **SMALL).eval()
    other = SAN(permuted, **SMALL).eval()
    other.load_state_dict(method.state_dict())
    signs = torch.sign((method.eigenvectors[order] * other.eigenvectors).sum(dim=0))
    other.eigenvectors = other.eigenvectors * signs
    torch.testing.assert_close(other(), method()[order], atol=2e-3, rtol=1e-3)


def test_positions_do_not_depend_on_the_order_of_eigenpairs():
    torch.manual_seed(0)
    encode = SpectralEncoding(16, 4).eval()
    vectors, values, order = torch.randn(7, 5), torch.rand(5), torch.tensor([3, 1, 4, 0, 2])
    positions = encode(vectors, values)
    torch.testing.assert_close(encode(vectors[:, order], values[order]), positions)
    torch.testing.assert_close(encode(vectors[2:3], values), positions[2:3])  # nor on other nodes
    assert (encode(vectors, values + 0.5) - positions).abs().min() > 0
    assert (encode(-vectors, values) - positions).abs().max() > 1e-3


def test_signs_flip_in_training_only():
    torch.manual_seed(0)
    method = SAN(small_task(), **SMALL)
    seen = []
    method.encode.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for mode in (True, False):
        method.train(mode)
        for _ in range(8):
            method()
    assert all(torch.equal(vectors.abs(), method.eigenvectors.abs()) for vectors in seen)
    assert any(not torch.equal(vectors, method.eigenvectors) for vectors in seen[:8])
    assert all(torch.equal(vectors, method.eigenvectors) for vectors in seen[8:])


def test_positions_stand_beside_the_features():
    method = SAN(small_task(), **SMALL)
    seen = []
    method.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    method.eval()()
    torch.testing.assert_close(seen[0][:, :16], method.embed(method.task.features))
    torch.testing.assert_close(seen[0][:, 16:], method.encode(method.eigenvectors, method.eigenvalues))
    assert {len(parameter) for parameter in method.state_dict().values() if parameter.dim()}.isdisjoint({90})


@pytest.mark.parametrize("candidate", range(len(settings("cora"))))
def test_each_setting_builds_a_model(candidate):
    method = SAN(small_task(), **settings("cora")[candidate])
    train(method, 1)
    assert torch.isfinite(method.eval()()).all()


def test_it_learns_communities():
    torch.manual_seed(0)
    method = SAN(small_task(), **SMALL, num_eigenpairs=3, lr=5e-3, dropout=0.3)
    train(method, 60)
    assert accuracy(method) > 0.8


def test_a_nodes_entries_are_scaled_to_unit_length_and_gamma_reaches_all_layers():
    method = SAN(small_task(), hidden_dim=32, num_heads=2, num_layers=2, gamma=0.3)
    torch.testing.assert_close(method.eigenvectors.norm(dim=1), torch.ones(90))
    assert [layer.attention.gamma for layer in method.layers] == [0.3, 0.3]
