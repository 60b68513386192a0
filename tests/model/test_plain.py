import numpy as np
import torch
from formulas import randomized, weights_of

from nagphormer.model.plain import MLP, LogisticRegression


def some_tokens(num_nodes=5, hops=3):
    return torch.randn(num_nodes, hops + 1, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def scores(model, tokens):
    return model.classify(model.embed(tokens)).detach()


def test_the_mlp_is_two_layers_on_the_nodes_own_token():
    model, tokens = randomized(MLP(7, 3, hidden_dim=10, dropout=0.5)), some_tokens()
    weights = weights_of(model)
    inner = np.maximum(tokens[:, 0].numpy() @ weights["embed.weight"].T + weights["embed.bias"], 0)
    expected = inner @ weights["head.2.weight"].T + weights["head.2.bias"]
    np.testing.assert_allclose(scores(model, tokens), expected, rtol=1e-12)


def test_the_mlp_sees_no_hop():
    model, tokens = randomized(MLP(7, 3, hidden_dim=10)), some_tokens()
    torch.testing.assert_close(scores(model, tokens[:, :1]), scores(model, tokens))


def test_the_mlp_drops_in_training_only():
    model, tokens = randomized(MLP(7, 3, hidden_dim=10, dropout=0.5)), some_tokens()
    assert torch.equal(scores(model, tokens), scores(model, tokens))
    model.train()
    assert not torch.allclose(scores(model, tokens), scores(model, tokens))


def test_logistic_regression_gives_every_hop_its_own_weights():
    model, tokens = randomized(LogisticRegression(7, 3, hops=2)), some_tokens(hops=2)
    weights = weights_of(model)
    expected = np.zeros((5, 3))
    for hop in range(3):
        own = slice(3 * hop, 3 * hop + 3)
        expected += tokens[:, hop].numpy() @ weights["embed.weight"][own].T + weights["embed.bias"][own]
    np.testing.assert_allclose(scores(model, tokens), expected, rtol=1e-10, atol=1e-12)


def test_logistic_regression_without_hops_and_for_one_node_is_one_linear_map():
    model, tokens = randomized(LogisticRegression(7, 3, hops=0)), some_tokens(num_nodes=1, hops=0)
    torch.testing.assert_close(scores(model, tokens), model.embed(tokens)[:, 0].detach())
