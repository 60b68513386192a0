import numpy as np
import scipy.sparse as sp
import torch

from experiments.baselines.gat import GAT, settings
from experiments.baselines.method import Task
from nagphormer import from_scipy
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def path_task(features):
    """A path 0 – 1 – … – 6."""
    steps = sp.diags_array([np.ones(6)], offsets=[1], shape=(7, 7))
    return Task(from_scipy(sp.csr_array(steps + steps.T, dtype=np.float32), features, np.arange(7) % 2))


def dense_layer(layer, x, adjacency, concat):
    """The paper's Eq. 3 and 4, a head at a time."""
    near = adjacency + np.eye(len(adjacency)) > 0
    weight = layer.lin.weight.detach().numpy().reshape(layer.heads, layer.out_channels, -1)
    outputs = []
    for head in range(layer.heads):
        mapped = x @ weight[head].T
        left = mapped @ layer.att_dst[0, head].detach().numpy()
        right = mapped @ layer.att_src[0, head].detach().numpy()
        scores = left[:, None] + right
        scores = np.exp(np.where(scores > 0, scores, 0.2 * scores)) * near
        outputs.append(scores / scores.sum(axis=1, keepdims=True) @ mapped)
    joined = np.concatenate(outputs, axis=1) if concat else np.mean(outputs, axis=0)
    return joined + layer.bias.detach().numpy()


def test_two_layers_are_the_formula():
    task = small_task()
    method = GAT(task, hidden_dim=4, heads=3, output_heads=2).eval()
    adjacency = dense_adjacency(task)
    hidden = dense_layer(method.first, task.features.numpy().astype(np.float64), adjacency, concat=True)
    hidden = np.where(hidden > 0, hidden, np.expm1(hidden))
    expected = dense_layer(method.second, hidden, adjacency, concat=False)
    np.testing.assert_allclose(method().detach().numpy(), expected, atol=1e-5)


def test_attention_of_a_node_sums_to_one():
    method = GAT(small_task()).eval()
    _, (edges, weights) = method.first(method.task.features, method.edges, return_attention_weights=True)
    sums = torch.zeros(method.task.num_nodes, 8).index_add_(0, edges[1], weights)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert edges.shape[1] == method.task.edge_index.shape[1] + method.task.num_nodes


def test_a_node_three_hops_away_has_no_say():
    features = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    method = GAT(path_task(features)).eval()
    other = features.copy()
    other[6] += 10
    changed = GAT(path_task(other)).eval()
    changed.load_state_dict(method.state_dict())
    same = (method() == changed()).all(dim=1)
    assert same.tolist() == [True] * 4 + [False] * 3


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GAT(small_task())
    train(method, 100)
    assert accuracy(method) > 0.8


def test_settings_build():
    assert settings("pubmed")[0]["output_heads"] == 8
    for setting in [*settings("pubmed"), *settings("cora")]:
        GAT(small_task(), **setting)
