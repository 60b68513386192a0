import formulas
import numpy as np
import pytest
import torch
from torch import nn

from nagphormer import from_scipy, hop_tokens
from nagphormer.model.encoder import EncoderLayer, SelfAttention
from nagphormer.model.ops import mix_values
from nagphormer.model.readout import SumReadout


def some_hidden(num_nodes=4, num_tokens=5, dim=12):
    shape = (num_nodes, num_tokens, dim)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def through(layer, hidden):
    """Tokens after a layer, with the sum that ours leaves to the next one."""
    if not isinstance(layer, EncoderLayer):
        return layer(hidden)
    hidden, update = layer(hidden)
    return hidden + layer.dropout(update)


def torchs_own(layer, dim, num_heads):
    """PyTorch's pre-norm encoder layer with the same weights."""
    own = nn.TransformerEncoderLayer(dim, num_heads, 2 * dim, 0.0, "gelu", norm_first=True, batch_first=True).double()
    names = {
        "self_attn.in_proj_": "attention.project.",
        "self_attn.out_proj.": "attention.out.",
        "linear1.": "ffn.0.",
        "linear2.": "ffn.2.",
        "norm1.": "attention_norm.",
        "norm2.": "ffn_norm.",
    }
    state = layer.state_dict()
    own.load_state_dict({f"{a}{end}": state[f"{b}{end}"] for a, b in names.items() for end in ("weight", "bias")})
    return own


@pytest.mark.parametrize("num_heads", [1, 3, 12])
@pytest.mark.parametrize("num_tokens", [1, 5])
def test_a_layer_is_pytorchs_pre_norm_layer(num_heads, num_tokens):
    layer = formulas.randomized(EncoderLayer(12, num_heads, dropout=0.0, attention_dropout=0.0))
    hidden = some_hidden(num_tokens=num_tokens)
    torch.testing.assert_close(through(layer, hidden), torchs_own(layer, 12, num_heads).train()(hidden))


def test_a_layers_gradient_is_pytorchs():
    layer, hidden = formulas.randomized(EncoderLayer(12, 3, 0.0, 0.0)), some_hidden()
    grads = []
    for module in (layer, torchs_own(layer, 12, 3).train()):
        leaf = hidden.clone().requires_grad_()
        through(module, leaf).square().sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def test_attention_is_eq_4_in_every_head():
    attention = formulas.randomized(SelfAttention(12, 4, dropout=0.0))
    hidden = some_hidden()
    weights = {f"it.{name}": array for name, array in formulas.weights_of(attention).items()}
    expected = [formulas.self_attention(node, weights, "it", 4) for node in hidden.numpy()]
    np.testing.assert_allclose(attention(hidden).detach(), expected, rtol=1e-10, atol=1e-10)


def transparent_attention(dim, num_heads, dropout):
    """Queries and keys are zero, values and output the identity: every token becomes the mean of all."""
    attention = SelfAttention(dim, num_heads, dropout).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.project.weight[2 * dim :] = torch.eye(dim)
        attention.out.weight.copy_(torch.eye(dim))
    return attention


def test_equal_scores_average_the_tokens():
    hidden = some_hidden()
    mixed = transparent_attention(12, 3, dropout=0.0)(hidden)
    torch.testing.assert_close(mixed, hidden.mean(dim=1, keepdim=True).expand_as(hidden))


def test_attention_dropout_takes_a_head_from_a_token_as_a_whole():
    torch.manual_seed(0)
    hidden = some_hidden(num_nodes=50, num_tokens=1)
    heads = (transparent_attention(12, 3, dropout=0.5).train()(hidden) / hidden).view(50, 3, 4)
    torch.testing.assert_close(heads, heads[:, :, :1].expand_as(heads))
    torch.testing.assert_close(heads.unique().round(decimals=9).unique(), torch.tensor([0.0, 2.0]).double())


def test_layer_dropout_leaves_the_residual_path_alone():
    torch.manual_seed(0)
    layer = EncoderLayer(12, 3, dropout=0.5, attention_dropout=0.0).double()
    with torch.no_grad():
        for linear in (layer.attention.out, layer.ffn[2]):
            linear.weight.zero_()
            linear.bias.zero_()
    hidden = some_hidden()
    assert torch.equal(through(layer.train(), hidden), hidden)


def test_mixing_weighs_values_by_hand():
    attention = torch.tensor([[[[1.0, 0.0], [0.25, 0.75]]]])
    values = torch.tensor([[[[4.0, 0.0], [8.0, 4.0]]]])
    assert mix_values(attention, values).tolist() == [[[[4, 0], [7, 3]]]]


@pytest.mark.parametrize("hops", [0, 1, 3, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_fact_1_a_decoupled_gcn_is_a_fixed_attention_matrix(hops, seed):
    rng = np.random.default_rng(seed)
    directed = np.triu(rng.random((40, 40)) < 0.1, 1)
    directed[7] = directed[:, 7] = False  # an isolated node
    adjacency = (directed | directed.T).astype(np.float64)
    features, beta = rng.standard_normal((40, 6)), rng.standard_normal(hops + 1)

    looped = adjacency + np.eye(40)
    root = np.diag(looped.sum(axis=1) ** -0.5)
    a_hat, power, decoupled = root @ looped @ root, features, beta[0] * features
    for k in range(1, hops + 1):
        power = a_hat @ power
        decoupled = decoupled + beta[k] * power

    store = hop_tokens(from_scipy(adjacency, features), hops, dtype="float32", device="cpu")
    tokens = torch.from_numpy(np.asarray(store))
    fixed = torch.zeros(hops + 1, hops + 1)
    fixed[hops] = torch.from_numpy(beta)
    mixed = mix_values(fixed.expand(40, 1, -1, -1), tokens.unsqueeze(1)).squeeze(1)  # (N, K+1, F)
    np.testing.assert_allclose(SumReadout(6)(mixed), decoupled, rtol=1e-5, atol=1e-5)


def test_layer_dropout_takes_from_what_attention_adds():
    torch.manual_seed(0)
    layer = formulas.randomized(EncoderLayer(12, 3, dropout=0.5, attention_dropout=0.0))
    hidden = some_hidden()
    calm, dropped = layer.eval()(hidden)[0] - hidden, layer.train()(hidden)[0] - hidden
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    torch.testing.assert_close(dropped[dropped != 0], 2 * calm[dropped != 0])
