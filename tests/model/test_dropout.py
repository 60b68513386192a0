import pytest
import torch

from nagphormer.model.dropout import Dropout

SHAPES = [(), (0,), (1,), (3,), (4,), (5, 7), (2, 3, 5)]


def dropped(x, rate, seed=0):
    torch.manual_seed(seed)
    return Dropout(rate).train()(x)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_the_rate_is_kept_and_the_rest_scaled(rate):
    count = 300_003
    out = dropped(torch.ones(count), rate)
    zeros = out == 0
    spread = (rate * (1 - rate) / count) ** 0.5
    assert zeros.float().mean() == pytest.approx(rate, abs=5 * spread + 2**-17)
    torch.testing.assert_close(out[~zeros], torch.full_like(out[~zeros], 1 / (1 - rate)))


def test_entries_that_share_a_random_word_are_dropped_independently():
    zeros = (dropped(torch.ones(200_000), 0.3) == 0).view(-1, 4).double()
    expected = torch.full((4, 4), 0.09).double().fill_diagonal_(0.3)
    torch.testing.assert_close(zeros.T @ zeros / len(zeros), expected, rtol=0, atol=0.005)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shape_and_type_are_kept_and_entries_are_zero_or_scaled(shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = dropped(x, 0.5)
    assert (out.shape, out.dtype) == (x.shape, dtype)
    assert ((out == 0) | (out == 2 * x)).all()


def test_a_transposed_tensor_is_dropped_in_its_own_order():
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(dropped(x.T, 0.5), dropped(x.T.contiguous(), 0.5))


@pytest.mark.parametrize("module", [Dropout(0.5).eval(), Dropout(0.0).train()])
def test_evaluating_or_at_rate_0_the_input_itself_comes_back_and_no_number_is_drawn(module):
    x, state = torch.randn(5), torch.get_rng_state()
    assert module(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_repeats_the_mask_and_the_next_draw_differs():
    x = torch.ones(999)
    assert torch.equal(dropped(x, 0.5, seed=3), dropped(x, 0.5, seed=3))
    assert not torch.equal(dropped(x, 0.5, seed=3), dropped(x, 0.5, seed=4))
    assert not torch.equal(dropped(x, 0.5, seed=3), Dropout(0.5).train()(x))


def test_a_short_tensor_gets_the_first_part_of_a_longer_ones_mask():
    long, short = dropped(torch.ones(1000), 0.5), dropped(torch.ones(13), 0.5)
    assert torch.equal(short, long[:13])


def test_the_gradient_is_the_mask_times_the_scale():
    x = torch.randn(501, generator=torch.Generator().manual_seed(1)).requires_grad_()
    out, upstream = dropped(x, 0.2), torch.randn(501)
    out.backward(upstream)
    torch.testing.assert_close(x.grad, upstream * (out != 0) / 0.8)


def test_a_dropped_infinity_is_zero():
    out = dropped(torch.full((99,), torch.inf), 0.5)
    assert set(out.tolist()) == {0, torch.inf}


def test_the_input_is_left_as_it_was():
    x = torch.ones(99)
    dropped(x, 0.5)
    assert (x == 1).all()


def test_a_rate_next_to_one_drops_nearly_everything():
    torch.manual_seed(0)
    assert (Dropout(0.999995)(torch.ones(100_000)) == 0).float().mean() > 0.999
