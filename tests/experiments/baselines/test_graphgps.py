import numpy as np
import pytest
import torch

from experiments.baselines.graphgps import Attention, EigenpairEncoding, GraphGPS, settings
from tests.experiments.small import accuracy, dense_adjacency, small_task, train

SMALL = {"hidden_dim": 32, "num_layers": 1, "num_heads": 2}


def layer_and_states(task):
    """A layer in evaluation mode with BatchNorms that do something, and an input."""
    torch.manual_seed(0)
    layer = GraphGPS(task, **SMALL).layers[0]
    layer.train()(torch.randn(task.num_nodes, 32), task.edge_index)
    return layer.eval(), torch.randn(task.num_nodes, 32)


def array(tensor):
    return tensor.detach().numpy().astype(np.float64)


def normalize(states, norm):
    norm = getattr(norm, "module", norm)  # PyG wraps torch's
    scale = array(norm.weight) / np.sqrt(array(norm.running_var) + norm.eps)
    return (states - array(norm.running_mean)) * scale + array(norm.bias)


def apply(states, linear):
    return states @ array(linear.weight).T + array(linear.bias)


def test_a_layer_adds_message_passing_and_attention():
    task = small_task()
    layer, hidden = layer_and_states(task)
    states = array(hidden)
    looped = dense_adjacency(task) + np.eye(task.num_nodes)
    scale = looped.sum(axis=1) ** -0.5
    passed = (scale[:, None] * looped * scale) @ states @ array(layer.conv.lin.weight).T + array(layer.conv.bias)
    local = normalize(passed + states, layer.norm1)

    projected = states @ array(layer.attn.in_proj_weight).T + array(layer.attn.in_proj_bias)
    heads = []
    for head in range(2):
        query, key, value = (projected[:, 32 * part + 16 * head :][:, :16] for part in range(3))
        weights = np.exp(query @ key.T / 4)
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ value)
    everywhere = normalize(apply(np.concatenate(heads, axis=1), layer.attn.out_proj) + states, layer.norm2)

    both = local + everywhere
    expected = normalize(both + apply(np.maximum(apply(both, layer.mlp[0]), 0), layer.mlp[3]), layer.norm3)
    np.testing.assert_allclose(array(layer(hidden, task.edge_index)), expected, atol=1e-4)


def test_attention_reaches_where_no_path_does():
    task = small_task(inside=0.1, across=0.0)  # classes are apart: node 1 never hears of node 0 along edges
    layer, hidden = layer_and_states(task)
    moved = hidden.clone()
    moved[0] += 3
    before, after = layer(hidden, task.edge_index), layer(moved, task.edge_index)
    assert (after - before)[1].abs().max() > 0
    torch.nn.init.zeros_(layer.attn.out_proj.weight)
    before, after = layer(hidden, task.edge_index), layer(moved, task.edge_index)
    change = (after - before).abs().amax(dim=1).detach().numpy()
    reached = dense_adjacency(task)[0] > 0
    reached[0] = True
    assert (change[reached] > 0).all()
    assert (change[~reached] == 0).all()


def test_attention_is_dropped_in_training_only():
    torch.manual_seed(0)
    attention, hidden = Attention(32, 2, dropout=0.5, batch_first=True), torch.randn(1, 20, 32)
    first, second = attention(hidden)[0], attention(hidden)[0]
    assert (first - second).abs().max() > 1e-3
    torch.testing.assert_close(attention.eval()(hidden)[0], attention(hidden)[0])


def test_positions_do_not_depend_on_the_order_of_eigenpairs():
    torch.manual_seed(0)
    encode = EigenpairEncoding(16).eval()
    vectors, values, order = torch.randn(7, 5), torch.rand(5), torch.tensor([3, 1, 4, 0, 2])
    positions = encode(vectors, values)
    assert positions.shape == (7, 16)
    torch.testing.assert_close(encode(vectors[:, order], values[order]), positions)
    assert (encode(vectors, values.flip(0)) - positions).abs().max() > 1e-4  # which value goes with which vector


def test_signs_flip_in_training_only():
    torch.manual_seed(0)
    method = GraphGPS(small_task(), **SMALL)
    seen = []
    method.encode.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for mode in (True, False):
        method.train(mode)
        for _ in range(8):
            method()
    assert any(not torch.equal(vectors, method.eigenvectors) for vectors in seen[:8])
    assert all(torch.equal(vectors.abs(), method.eigenvectors.abs()) for vectors in seen[:8])
    assert all(torch.equal(vectors, method.eigenvectors) for vectors in seen[8:])


@pytest.mark.parametrize("candidate", range(len(settings("cora"))))
def test_each_setting_builds_a_model(candidate):
    method = GraphGPS(small_task(), **settings("cora")[candidate])
    train(method, 1)
    assert torch.isfinite(method.eval()()).all()


def test_it_learns_communities():
    torch.manual_seed(0)
    method = GraphGPS(small_task(), **SMALL, lr=5e-3)
    train(method, 60)
    assert accuracy(method) > 0.8


def test_eigenpairs_are_normalized_before_the_encoding():
    """Entries of unit vectors shrink with the size of the graph: in training their scale must not matter."""
    torch.manual_seed(0)
    encode, vectors, values = EigenpairEncoding(16).train(), torch.randn(50, 5), torch.rand(5)
    torch.testing.assert_close(encode(10 * vectors, values), encode(vectors, values), atol=1e-4, rtol=1e-3)
