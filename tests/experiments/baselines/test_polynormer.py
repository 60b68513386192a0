import numpy as np
import pytest
import torch

from experiments.baselines.polynormer import QUICK, GlobalLayer, LocalLayer, Polynormer, settings
from tests.experiments.small import accuracy, dense_adjacency, small_task, train

LOCAL = ("embed", "local_layers", "classify_local")
SMALL = {"hidden_dim": 4, "num_heads": 2, "num_local_layers": 2, "num_global_layers": 2}


def linear(layer, hidden):
    return hidden @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def normalize(hidden):
    centered = hidden - hidden.mean(axis=1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def trained_names(method):
    return {name for name, parameter in method.named_parameters() if parameter.grad is not None}


def test_a_global_layer_is_the_dense_formula():
    torch.manual_seed(0)
    layer = GlobalLayer(3, 2)
    x = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    keys, values = sigmoid(linear(layer.key, x)), linear(layer.value, x)
    heads = []
    for channels in (slice(0, 3), slice(3, 6)):
        weights = keys[:, channels] @ keys[:, channels].T
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ values[:, channels])
    expected = normalize(np.concatenate(heads, axis=1)) * (
        linear(layer.factor, x) + sigmoid(layer.gate.detach().numpy())
    )
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach().numpy(), expected, atol=1e-4)


def test_a_local_layer_is_the_dense_formula():
    torch.manual_seed(0)
    task = small_task(num_nodes=30)
    edges = Polynormer(task, **SMALL).edges
    layer = LocalLayer(3, 2, dropout=0.5).eval()
    linked = dense_adjacency(task) + np.eye(30)
    x = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    projected = x @ layer.attention.lin.weight.detach().numpy().T
    heads = []
    for head in range(2):
        part = projected[:, 3 * head : 3 * head + 3]
        source, target = (
            part @ weight.detach().numpy()[0, head] for weight in (layer.attention.att_src, layer.attention.att_dst)
        )
        scores = target[:, None] + source
        weights = linked * np.exp(np.where(scores > 0, scores, 0.2 * scores))
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ part)
    hidden = np.maximum(np.concatenate(heads, axis=1) + linear(layer.residual, x), 0)
    beta = sigmoid(layer.gate.detach().numpy())
    expected = (1 - beta) * normalize(np.maximum(linear(layer.factor, x), 0) * hidden) + beta * hidden
    np.testing.assert_allclose(layer(torch.from_numpy(x), edges).detach().numpy(), expected, atol=1e-4)


def test_the_local_phase_leaves_global_parameters_alone():
    method = Polynormer(small_task(), local_epochs=2, **SMALL)
    names = {name for name, _ in method.named_parameters()}
    local = {name for name in names if name.startswith(LOCAL)}
    assert names > local
    for _ in range(2):
        train(method, 1)
        assert trained_names(method) == local
        assert not method.is_global
    method.optimizer.zero_grad()
    train(method, 1)
    assert method.is_global
    assert trained_names(method) == {name for name in names if not name.startswith("classify_local")}


def test_a_state_brings_its_phase_along():
    torch.manual_seed(0)
    method = Polynormer(small_task(), local_epochs=3, **SMALL)
    train(method, 3)
    local = {name: value.clone() for name, value in method.state_dict().items()}
    local_scores = method.eval()().detach()
    train(method, 3)
    joint = {name: value.clone() for name, value in method.state_dict().items()}
    joint_scores = method.eval()().detach()
    assert not torch.allclose(local_scores, joint_scores, atol=1e-3)
    method.load_state_dict(local)
    assert not method.is_global
    torch.testing.assert_close(method(), local_scores)
    other = Polynormer(small_task(), local_epochs=3, **SMALL).eval()
    other.load_state_dict(joint)
    assert other.is_global
    torch.testing.assert_close(other(), joint_scores)


@pytest.mark.parametrize("local_epochs", [10, 100])
def test_it_learns_communities_in_either_phase(local_epochs):
    torch.manual_seed(0)
    method = Polynormer(small_task(), **QUICK | {"local_epochs": local_epochs})
    train(method, 40)
    assert method.is_global == (local_epochs == 10)
    assert accuracy(method) > 0.8


@pytest.mark.parametrize("dataset", ["cora", "photo"])
def test_settings_are_arguments(dataset):
    for chosen in settings(dataset):
        assert Polynormer(small_task(), **chosen | {"hidden_dim": 4}).logits(torch.arange(4)).shape == (4, 3)


def test_local_layers_are_summed_and_patience_begins_after_them():
    torch.manual_seed(0)
    method = Polynormer(small_task(), hidden_dim=4, num_heads=2, num_local_layers=3, local_epochs=7).eval()
    hidden, total = method.embed(method.inputs), 0
    for layer in method.local_layers:
        hidden = layer(hidden, method.edges)
        total = total + hidden
    torch.testing.assert_close(method(), method.classify_local(total))
    method.num_epochs = 8
    hidden = method.norm(total)
    for layer in method.global_layers:
        hidden = method.global_output(layer(hidden))
    torch.testing.assert_close(method(), method.classify_global(hidden))
    assert method.patience_from == 7
