import math

import pytest
import torch
from formulas import randomized

from nagphormer.model.readout import AttentionReadout, DynamicReadout, SelfReadout, SumReadout


def some_tokens(num_nodes=4, hops=3, dim=6, dtype=torch.float64):
    return torch.randn(num_nodes, hops + 1, dim, dtype=dtype, generator=torch.Generator().manual_seed(1))


def readout_with(weight, bias=0.0):
    readout = AttentionReadout(len(weight) // 2).double()
    with torch.no_grad():
        readout.score.weight.copy_(torch.tensor([weight]))
        readout.score.bias.fill_(bias)
    return readout


def test_attention_by_hand():
    readout = readout_with([0, 0, math.log(2), 0])
    tokens = torch.tensor([[[5, 7], [1, 0], [0, 3]]], dtype=torch.float64)  # scores ln 2 and 0
    torch.testing.assert_close(readout.attention(tokens), torch.tensor([[2 / 3, 1 / 3]]).double())
    torch.testing.assert_close(readout(tokens), torch.tensor([[5 + 2 / 3, 8]]).double())


def test_equal_scores_add_the_mean_of_the_hops():
    tokens = some_tokens()
    torch.testing.assert_close(readout_with([0.0] * 12)(tokens), tokens[:, 0] + tokens[:, 1:].mean(dim=1))


def test_self_is_hop_0_and_sum_adds_all_by_hand():
    tokens = torch.tensor([[[5, 7], [1, 0], [0, 3]]])
    assert SelfReadout(2)(tokens).tolist() == [[5, 7]]
    assert SumReadout(2)(tokens).tolist() == [[6, 10]]


@pytest.mark.parametrize(
    "readout", [AttentionReadout(6).double(), DynamicReadout(6).double(), SelfReadout(6), SumReadout(6)]
)
def test_without_hops_every_readout_is_the_token_itself(readout):
    tokens = some_tokens(hops=0)
    assert torch.equal(readout(tokens), tokens[:, 0])


@pytest.mark.parametrize("kind", [AttentionReadout, DynamicReadout])
def test_one_hop_has_all_the_attention(kind):
    readout, tokens = randomized(kind(6)), some_tokens(hops=1)
    assert readout.attention(tokens).tolist() == [[1]] * 4
    torch.testing.assert_close(readout(tokens), tokens.sum(dim=1))


def test_large_scores_do_not_overflow():
    alpha = readout_with([0, 1e4]).attention(torch.tensor([[[0.0], [1.0], [2.0]]]).double())
    assert alpha.tolist() == [[0, 1]]


def test_attention_as_published_does_not_depend_on_hop_0():
    readout, tokens = randomized(AttentionReadout(6)), some_tokens()
    changed = tokens.clone()
    changed[:, 0] = 10 * torch.randn(4, 6)
    torch.testing.assert_close(readout.attention(changed), readout.attention(tokens), rtol=1e-12, atol=0)
    changed[:, 1] += 1  # a hop does count
    assert not torch.allclose(readout.attention(changed), readout.attention(tokens))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_what_hop_0_scores_has_no_gradient(dtype, tolerance):
    readout = randomized(AttentionReadout(6)).to(dtype)
    tokens = some_tokens(num_nodes=20, dtype=dtype).requires_grad_()
    torch.manual_seed(0)
    alpha = readout.attention(tokens)
    (alpha * torch.randn_like(alpha)).sum().backward()
    own, hops = readout.score.weight.grad.split(6, dim=1)
    assert hops.abs().max() > 0.1
    assert own.abs().max() < tolerance * hops.abs().max()
    assert readout.score.bias.grad.abs() < tolerance * hops.abs().max()
    assert tokens.grad[:, 0].abs().max() < tolerance * tokens.grad[:, 1:].abs().max()


@pytest.mark.parametrize("kind", [AttentionReadout, DynamicReadout])
def test_weights_of_bf16_tokens_are_float32_and_sum_to_one(kind):
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        weights = kind(8).attention(torch.randn(50, 12, 8).bfloat16())
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(50), rtol=0, atol=1e-6)


def test_dynamic_attention_by_hand():
    readout = DynamicReadout(1)
    with torch.no_grad():
        readout.mix.weight.copy_(torch.tensor([[1.0, 1.0]]))
        readout.mix.bias.fill_(0)
        readout.score.weight.fill_(math.log(2))
    tokens = torch.tensor([[[1.0], [0.0], [-6.0]]])  # Z_0 + Z_k are 1 and -5, of which LeakyReLU makes 1 and -1
    torch.testing.assert_close(readout.attention(tokens), torch.tensor([[0.8, 0.2]]))
    torch.testing.assert_close(readout(tokens), torch.tensor([[1 - 0.2 * 6]]))


def test_dynamic_attention_depends_on_hop_0():
    readout, tokens = randomized(DynamicReadout(6)), some_tokens()
    changed = tokens.clone()
    changed[:, 0] *= -3
    assert not torch.allclose(readout.attention(changed), readout.attention(tokens), atol=0.01)


def test_every_weight_of_the_dynamic_readout_learns():
    readout = randomized(DynamicReadout(6)).train()
    readout(some_tokens(num_nodes=20)).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-3 for weight in readout.parameters())
