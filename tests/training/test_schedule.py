from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagphormer import TrainConfig
from nagphormer.training.schedule import learning_rate


def rates(updates, lr, final_lr, warmup_updates, decay_updates):
    config = TrainConfig(lr=lr, final_lr=final_lr, warmup_updates=warmup_updates, decay_updates=decay_updates)
    return [learning_rate(config, update) for update in updates]


def test_a_line_up_a_line_down_then_level_by_hand():
    expected = [0.2, 0.4, 0.8, 0.6, 0.3, 0.2, 0.2]
    assert rates([1, 2, 4, 6, 9, 10, 1000], 0.8, 0.2, 4, 10) == pytest.approx(expected)


def test_without_warmup_the_rate_falls_from_the_first_update_on():
    assert rates([1, 2, 3, 4, 5], 1.0, 0.2, 0, 4) == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.2])


def test_without_warmup_and_decay_the_rate_is_the_final_one():
    assert rates([1, 2, 100], 1.0, 0.2, 0, 0) == [0.2, 0.2, 0.2]


def test_a_decay_that_ends_with_the_warmup_is_a_step():
    assert rates([1, 4, 5, 6], 0.8, 0.2, 4, 4) == pytest.approx([0.2, 0.8, 0.2, 0.2])


@pytest.mark.parametrize("final_lr", [0.8, 5.0])
def test_a_final_rate_at_or_above_the_peak_keeps_the_peak(final_lr):
    assert rates([1, 2, 3, 6, 10, 99], 0.8, final_lr, 2, 10) == pytest.approx([0.4, 0.8, 0.8, 0.8, 0.8, 0.8])


def test_the_rate_may_fall_to_zero():
    assert rates([1, 2, 3, 4], 1.0, 0.0, 1, 3) == [1, 0.5, 0, 0]


@settings(deadline=None)
@given(st.floats(1e-6, 1), st.floats(0, 1), st.integers(0, 50), st.integers(0, 50))
def test_the_rate_rises_to_its_peak_and_never_again(lr, final_lr, warmup, more):
    course = rates(range(1, 121), lr, final_lr, warmup, warmup + more)
    assert min(course) >= 0
    assert max(course) <= lr * (1 + 1e-15)
    assert all(a < b for a, b in pairwise(course[:warmup]))
    assert all(a >= b * (1 - 1e-14) for a, b in pairwise(course[max(warmup - 1, 0) :]))
    assert course[-1] == min(lr, final_lr)
