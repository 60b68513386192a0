import pytest
import torch
from torch.nn import functional

from nagphormer.model.embedding import Embedding

TOKENS = torch.randn(5, 4, 30, generator=torch.Generator().manual_seed(1))


def drawn(embedding, seed):
    torch.manual_seed(seed)
    return embedding.drawn_weight()


def test_evaluating_it_is_the_plain_linear_map():
    embedding = Embedding(30, 8, feature_dropout=0.5).eval()
    assert embedding.drawn_weight() is embedding.weight
    assert torch.equal(embedding(TOKENS), functional.linear(TOKENS, embedding.weight, embedding.bias))


def test_without_dropout_training_is_the_plain_linear_map():
    embedding = Embedding(30, 8, feature_dropout=0.0).train()
    assert embedding.drawn_weight() is embedding.weight
    assert torch.equal(embedding(TOKENS), functional.linear(TOKENS, embedding.weight, embedding.bias))


def test_every_hop_has_the_same_map():
    embedding = Embedding(30, 8)
    hops = torch.stack([embedding(TOKENS[:, [hop]])[:, 0] for hop in range(4)], dim=1)
    torch.testing.assert_close(embedding(TOKENS), hops)


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.8])
def test_columns_are_hidden_as_a_whole_and_the_rest_is_scaled_up(rate):
    embedding = Embedding(2000, 3, rate).train()
    weight = drawn(embedding, seed=0)
    hidden = (weight == 0).all(dim=0)
    assert hidden.float().mean() == pytest.approx(rate, abs=5 * (rate * (1 - rate) / 2000) ** 0.5)
    torch.testing.assert_close(weight[:, ~hidden], embedding.weight[:, ~hidden] / (1 - rate))


def test_the_output_is_exactly_that_of_the_drawn_weight():
    embedding = Embedding(30, 8, 0.5).train()
    weight = drawn(embedding, seed=7)
    torch.manual_seed(7)
    assert torch.equal(embedding(TOKENS), functional.linear(TOKENS, weight, embedding.bias))


def test_hiding_weights_is_hiding_columns_of_the_tokens_at_every_hop():
    embedding = Embedding(30, 8, 0.5).train()
    kept = (drawn(embedding, seed=7) != 0).any(dim=0)
    assert 0 < kept.sum() < 30
    torch.manual_seed(7)
    expected = functional.linear(TOKENS * kept * 2, embedding.weight, embedding.bias)
    torch.testing.assert_close(embedding(TOKENS), expected)


def test_hidden_columns_get_no_gradient_and_others_the_scaled_one():
    embedding = Embedding(30, 8, 0.5).train()
    kept = (drawn(embedding, seed=7) != 0).any(dim=0)
    torch.manual_seed(7)
    embedding(TOKENS).sum().backward()
    torch.testing.assert_close(embedding.weight.grad, (TOKENS.sum(dim=(0, 1)) * kept * 2).expand(8, 30))


def test_every_batch_hides_other_columns_and_a_seed_repeats_them():
    embedding = Embedding(30, 8, 0.5).train()
    assert torch.equal(drawn(embedding, seed=1), drawn(embedding, seed=1))
    torch.manual_seed(1)
    assert not torch.equal(embedding.drawn_weight(), embedding.drawn_weight())
