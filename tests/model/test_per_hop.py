"""Networks with a map for each hop: their formulas by hand, every weight in use, and what they cannot tell."""

import math

import numpy as np
import pytest
import torch
from formulas import layer_norm, linear, randomized, weights_of
from scipy.special import erf

from nagphormer import ModelConfig, UserError
from nagphormer.model.network import build
from nagphormer.model.per_hop import NARROWEST, HopMLP, LinearMap

KINDS = {"mlp": HopMLP, "linear": LinearMap}


def untrained(network="mlp", hops=2, labels=0, **settings):
    shape = {"input_dim": 7, "num_classes": 3, "hidden_dim": 24, "num_heads": 2, "dropout": 0.0}
    model = build(ModelConfig(network=network, num_tokens=hops + 1, label_tokens=labels, **shape | settings))
    assert isinstance(model, KINDS[network])
    return model


def some_tokens(num_nodes=5, hops=2, width=7, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, hops + 1, width, dtype=torch.float64, generator=generator)


def some_labels(num_nodes=5, count=2):
    return some_tokens(num_nodes, count - 1, 3, seed=2).abs()


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def embedded(tokens, weights, name="embed"):
    """Each token through its own map, in NumPy, (B, T, W)."""
    parts = [
        tokens[:, hop] @ weight.T + bias
        for hop, (weight, bias) in enumerate(zip(weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True))
    ]
    return np.stack(parts, axis=1)


def hidden_of(tokens, labels, weights):
    hidden = embedded(tokens.numpy(), weights)
    if labels is None:
        return hidden
    return np.concatenate([hidden, embedded(labels.numpy(), weights, "embed.labels")], axis=1)


LABELS = [None, some_labels()]


@pytest.mark.parametrize("labels", LABELS, ids=["no labels", "labels"])
def test_an_mlp_by_its_formula(labels):
    model = randomized(untrained(labels=0 if labels is None else 2))
    weights = weights_of(model)
    scores = []
    for hidden in hidden_of(some_tokens(), labels, weights):
        mean, variance = hidden.mean(axis=1, keepdims=True), hidden.var(axis=1, keepdims=True)
        normed = (hidden - mean) / np.sqrt(variance + 1e-5) * weights["scale"] + weights["shift"]
        mixed = linear(gelu(normed).reshape(1, -1), weights, "body")
        scores.append(linear(gelu(layer_norm(mixed, weights, "norm")), weights, "head")[0])
    with torch.no_grad():
        np.testing.assert_allclose(model(some_tokens(), labels), scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("labels", LABELS, ids=["no labels", "labels"])
def test_a_linear_map_is_the_sum_of_a_map_for_each_token(labels):
    model = untrained("linear", labels=0 if labels is None else 2)
    with torch.no_grad():
        found = model(some_tokens().float(), None if labels is None else labels.float())
    expected = hidden_of(some_tokens(), labels, weights_of(model)).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_linear_map_by_hand():
    model = untrained("linear", hops=1, input_dim=2, num_classes=2)
    with torch.no_grad():
        model.embed.weight.copy_(torch.tensor([[[1.0, 0], [0, 1]], [[0, 10], [10, 0]]]))
        model.embed.bias.copy_(torch.tensor([[0.5, 0], [0, -0.5]]))
        assert model(torch.tensor([[[1.0, 2], [3, 4]]])).tolist() == [[41.5, 31.5]]


@pytest.mark.parametrize("network", KINDS)
@pytest.mark.parametrize("labels", [0, 2])
@pytest.mark.parametrize("hops", [0, 3])
def test_every_weight_gets_a_gradient(network, labels, hops):
    model = randomized(untrained(network, hops, labels)).float().train()
    given = some_labels().float() if labels else None
    loss = model(some_tokens(hops=hops).float(), given).square().sum()
    loss.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize("network", KINDS)
@pytest.mark.parametrize("labels", [0, 2])
def test_bf16_products_come_close_to_exact_ones(network, labels):
    model = untrained(network, labels=labels).eval()
    given = (some_tokens().float(), some_labels().float() if labels else None)
    with torch.no_grad():
        exact = model(*given)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(*given)
    assert not torch.equal(rounded.float(), exact)
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("network", KINDS)
def test_one_node_scores_the_same_alone_and_in_a_batch(network):
    model, tokens = randomized(untrained(network)), some_tokens()
    with torch.no_grad():
        alone = torch.cat([model(tokens[[node]]) for node in range(5)])
        torch.testing.assert_close(alone, model(tokens), check_dtype=False)
        assert model(tokens[:0]).shape == (0, 3)


@pytest.mark.parametrize("network", KINDS)
def test_hops_have_maps_of_their_own(network):
    model, tokens = randomized(untrained(network)), some_tokens()
    with torch.no_grad():
        assert not torch.allclose(model(tokens[:, [0, 2, 1]]), model(tokens), atol=1e-3)


@pytest.mark.parametrize("network", KINDS)
def test_scores_are_what_classify_gives_for_embedded_tokens(network):
    model = randomized(untrained(network, labels=2))
    with torch.no_grad():
        hidden = model.embedded(some_tokens(), some_labels())
        assert hidden.shape == (5, 5, model.embed.out_features)
        assert torch.equal(model.classify(hidden), model(some_tokens(), some_labels()))


@pytest.mark.parametrize("network", KINDS)
def test_tokens_of_labels_that_are_not_given_are_asked_for(network):
    with pytest.raises(UserError, match="this model reads 2 tokens of labels, too: give labels="):
        untrained(network, labels=2)(some_tokens().float())


@pytest.mark.parametrize("network", KINDS)
def test_they_weigh_no_hops_and_say_what_does(network):
    model = untrained(network)
    assert not model.weighs_hops
    with pytest.raises(UserError, match=r"weighs no hops: .*network='transformer', readout='attention'"):
        model.hop_attention(torch.zeros(1, 3, 6))


def test_what_an_mlp_represents_is_what_its_head_reads():
    model = randomized(untrained())
    with torch.no_grad():
        found = model.represent(model.embed(some_tokens()))
        assert found.shape == (5, 24)
        torch.testing.assert_close(model.head(found), model(some_tokens()))


@pytest.mark.parametrize("layer", ["body", "head"])
def test_dropout_of_an_mlp_acts_before_both_its_layers_and_in_training_alone(layer):
    model, read = randomized(untrained(hidden_dim=400, dropout=0.5)), []
    getattr(model, layer).register_forward_pre_hook(lambda _, given: read.append(given[0]))
    with torch.no_grad():
        for training in (False, True):
            model.train(training)(some_tokens())
    kept, dropped = ((each == 0).double().mean() for each in read)
    assert kept < 0.01
    assert dropped == pytest.approx(0.5, abs=0.05)


def read_by_the_body(model, tokens, labels=None):
    """What the first layer of an mlp reads of each token, (B, T, W)."""
    read = []
    model.body.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    with torch.no_grad():
        model(tokens, labels)
    return read[0].unflatten(1, (-1, NARROWEST))


@pytest.mark.parametrize("rate", [0.2, 0.5])
@pytest.mark.parametrize("labels", [0, 2])
def test_training_hides_whole_tokens_behind_hop_0_and_the_rest_makes_up_for_them(rate, labels):
    model = randomized(untrained(hops=3, labels=labels, hidden_dim=8, token_dropout=rate)).train()
    tokens, given = some_tokens(3000, 3), some_labels(3000) if labels else None
    plain = read_by_the_body(model.eval(), tokens, given)
    torch.manual_seed(0)
    found = read_by_the_body(model.train(), tokens, given)
    torch.testing.assert_close(found[:, 0], plain[:, 0])
    hidden = (found[:, 1:] == 0).all(dim=2)
    assert hidden.double().mean() == pytest.approx(rate, abs=0.02)
    for token in range(3 + labels):
        assert hidden[:, token].double().mean() == pytest.approx(rate, abs=0.05)
    torch.testing.assert_close(found[:, 1:][~hidden], plain[:, 1:][~hidden] / (1 - rate))
    assert (hidden.any(dim=1) & ~hidden.all(dim=1)).sum() > 500  # each token of a node on its own


def test_without_hops_there_is_no_token_to_hide():
    model, tokens = randomized(untrained(hops=0, token_dropout=0.9)), some_tokens(hops=0)
    with torch.no_grad():
        assert torch.equal(model.train()(tokens), model.eval()(tokens))


@pytest.mark.parametrize("hidden_dim", [1, 4, 8])
def test_in_a_narrow_mlp_a_hop_still_tells_nodes_apart(hidden_dim):
    model = untrained(hidden_dim=hidden_dim, num_heads=1)
    assert model.embed.out_features == NARROWEST
    normed = torch.nn.functional.layer_norm(model.embed(some_tokens().float()), (NARROWEST,))
    assert len({round(value, 3) for value in normed.flatten().tolist()}) > 20  # not 0, 1 and -1 alone


def test_a_hop_gets_a_quarter_of_the_width():
    assert untrained(hidden_dim=64).embed.out_features == 16
    assert untrained("linear", hidden_dim=64).embed.out_features == 3
