import numpy as np
import pytest
import torch
from torch_geometric.nn.models import SGFormer as Layers

from experiments.baselines.sgformer import SGFormer, SimpleAttention, settings
from tests.experiments.small import accuracy, dense_adjacency, small_task, train


def dense_attention(queries, keys, values):
    """The paper's formula with all N x N weights."""
    weights = np.eye(len(queries)) + queries @ keys.T / len(queries)
    return weights @ values / weights.sum(axis=1, keepdims=True)


def linear(layer, hidden):
    offset = 0 if layer.bias is None else layer.bias.detach().numpy()
    return hidden @ layer.weight.detach().numpy().T + offset


def test_attention_is_the_dense_formula():
    torch.manual_seed(0)
    attention = SimpleAttention(6)
    hidden = torch.randn(1, 9, 6)
    x = hidden[0].numpy()
    queries, keys, values = (linear(layer, x) for layer in (attention.query, attention.key, attention.value))
    expected = dense_attention(queries / np.sqrt((queries**2).sum()), keys / np.sqrt((keys**2).sum()), values)
    np.testing.assert_allclose(attention(hidden)[0].detach().numpy(), expected, atol=1e-6)


def test_by_rows_attention_is_the_dense_formula_with_directions():
    method = SGFormer(small_task(), hidden_dim=6, by_rows=True)
    attention = method.layers.trans_conv.attns[0]
    hidden = torch.randn(1, 9, 6)
    x = hidden[0].numpy()
    queries, keys, values = (linear(layer, x) for layer in (attention.q, attention.k, attention.v))
    queries, keys = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (queries, keys))
    expected = dense_attention(queries, keys, values)
    np.testing.assert_allclose(attention(hidden)[0].detach().numpy(), expected, atol=1e-5)


def test_graph_weight_one_is_the_gcn_alone():
    torch.manual_seed(0)
    task = small_task()
    method = SGFormer(task, hidden_dim=5, num_graph_layers=3, graph_weight=1.0).eval()
    branch = method.layers.graph_conv
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    propagate = scale[:, None] * looped * scale
    running = 1 / np.sqrt(1 + 1e-5)  # BatchNorm before training: mean 0, variance 1
    first = hidden = np.maximum(linear(method.read_convolving, task.features.numpy()) * running, 0)
    for layer in branch.convs:
        hidden = propagate @ hidden @ layer.lin.weight.detach().numpy().T + layer.bias.detach().numpy()
        hidden = np.maximum(hidden * running, 0) + first
    scores = torch.from_numpy(linear(method.layers.fc, hidden))
    np.testing.assert_allclose(method().detach().numpy(), scores.log_softmax(dim=1).numpy(), atol=1e-5)


def test_branches_are_added_by_weight():
    torch.manual_seed(0)
    task = small_task()
    method = SGFormer(task, graph_weight=0.3).eval()
    attended = method.layers.trans_conv(method.read_attending(task.features), method.one_graph)
    convolved = method.layers.graph_conv(method.read_convolving(task.features), task.edge_index)
    expected = method.layers.fc(0.3 * convolved + 0.7 * attended).log_softmax(dim=1)
    torch.testing.assert_close(method(), expected)


def test_it_is_what_torch_geometrics_own_layers_give():
    """The first maps taken out of the branches and the sparse products change no more than the order of sums."""
    task = small_task()
    method = SGFormer(task, hidden_dim=6, num_graph_layers=3, graph_weight=0.3, by_rows=True).eval()
    torch.manual_seed(0)
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter)
    twin = Layers(12, 6, 3, trans_num_layers=1, gnn_num_layers=3, graph_weight=0.3).eval()
    state = {name.removeprefix("layers."): value for name, value in method.state_dict().items()}
    for branch, name in (("trans_conv", "read_attending"), ("graph_conv", "read_convolving")):
        for part in ("weight", "bias"):
            state[f"{branch}.fcs.0.{part}"] = state.pop(f"{name}.{part}")
    twin.load_state_dict(state)
    torch.testing.assert_close(method(), twin(task.features, task.edge_index, method.one_graph), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("by_rows", [False, True])
def test_every_parameter_is_trained_once(by_rows):
    method = SGFormer(small_task(), by_rows=by_rows)
    groups = [parameter for group in method.optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in groups} == {id(parameter) for parameter in method.parameters()}
    before = [parameter.detach().clone() for parameter in method.parameters()]
    train(method, 1)
    assert all((old != new).any() for old, new in zip(before, method.parameters(), strict=True))


@pytest.mark.parametrize("chosen", settings("cora"))
def test_it_learns_communities(chosen):
    torch.manual_seed(0)
    method = SGFormer(small_task(), **chosen)
    train(method, 60)
    assert accuracy(method) > 0.8
