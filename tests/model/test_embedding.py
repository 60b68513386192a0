import pytest
import torch
from torch.nn import functional

from nagphormer.model.embedding import Embedding, HopMaps

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


# a map for each hop


def test_each_hop_goes_through_its_own_map_by_hand():
    maps = HopMaps(2, 2, 1)
    with torch.no_grad():
        maps.weight.copy_(torch.tensor([[[1.0, 10]], [[100, 1000]]]))
        maps.bias.copy_(torch.tensor([[0.5], [0.25]]))
        assert maps(torch.tensor([[[1.0, 2], [3, 4]], [[0, 0], [0, 1]]])).tolist() == [
            [[21.5], [4300.25]],
            [[0.5], [1000.25]],
        ]


def test_maps_are_those_of_linear_layers_one_by_one():
    maps = HopMaps(4, 30, 8)
    found = [functional.linear(TOKENS[:, hop], maps.weight[hop], maps.bias[hop]) for hop in range(4)]
    torch.testing.assert_close(maps(TOKENS), torch.stack(found, dim=1))


def test_maps_start_as_torch_starts_linear_layers():
    maps = HopMaps(3, 400, 50)
    for part in (maps.weight, maps.bias):
        assert part.abs().max() <= 400**-0.5
        assert part.abs().max() > 0.95 * 400**-0.5
        assert len({tuple(hop.flatten()[:3].tolist()) for hop in part}) == 3  # not alike


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_columns_are_hidden_from_all_maps_together(rate):
    maps = HopMaps(4, 30, 8, rate).train()
    kept = (drawn(maps, seed=7) != 0).any(dim=1)  # (T, F)
    assert (kept == kept[0]).all()
    assert kept[0].all() == (rate == 0)
    torch.manual_seed(7)
    expected = maps.multiply(TOKENS * kept[0] / (1 - rate), maps.weight, maps.bias)
    torch.testing.assert_close(maps(TOKENS), expected)
    assert maps.eval().drawn_weight() is maps.weight
