import numpy as np
import pytest
from scipy import stats

from experiments.statistics import difference_to_published, paired_difference, spread


def test_spread_is_mean_and_sample_deviation():
    assert spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00 ×3"
    assert spread([1.5]) == "1.50 ×1"


def test_a_paired_difference_is_scipys_over_the_seeds_both_have():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1, 1, 6), rng.normal(size=6)
    found = paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)) | {17: 100.0})
    expected = stats.ttest_rel(ours, theirs).confidence_interval()
    wider = np.sqrt(1 + 6 / 3)  # Nadeau and Bengio: 1/6 + 1/3 instead of 1/6
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert found.high - found.low == pytest.approx(wider * (expected.high - expected.low))


def test_pairing_finds_a_difference_that_the_spread_between_splits_hides():
    splits = [70.0, 80.0, 90.0]
    found = paired_difference(
        dict(enumerate(splits)), {seed: value - 1 - seed / 10 for seed, value in enumerate(splits)}
    )
    assert found.is_one
    assert str(found).startswith("+1.10 [+")


def test_two_common_seeds_tell_nothing():
    assert paired_difference({0: 1.0, 1: 2.0, 2: 2.0}, {1: 2.0, 2: 3.0, 3: 3.0}) is None
    assert difference_to_published([88.0, 88.1], (86.5, 0.4)) is None


def test_equal_values_are_no_difference():
    same = {0: 1.0, 1: 2.0, 2: 4.0}
    assert not paired_difference(same, same).is_one


def test_the_difference_to_published_figures_is_welchs():
    values = [88.0, 89.0, 90.5, 88.5]
    found = difference_to_published(values, (86.5, 0.4), runs=10)
    mean, deviation = np.mean(values), np.std(values, ddof=1)
    assert found.mean == pytest.approx(mean - 86.5)
    plain = stats.ttest_ind(values, np.repeat([86.1, 86.9], 5), equal_var=False)
    assert plain.df == pytest.approx(_welch(deviation, 1 / 4, np.std([86.1, 86.9] * 5, ddof=1), 1 / 10, 4, 10))
    overlap = 1 / 3
    freedom = _welch(deviation, 1 / 4 + overlap, 0.4, 1 / 10 + overlap, 4, 10)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(deviation**2 * (1 / 4 + overlap) + 0.4**2 * (1 / 10 + overlap))
    assert found.low == pytest.approx(found.mean - half)


def _welch(first, share, second, other_share, n, m):
    a, b = first**2 * share, second**2 * other_share
    return (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))


def test_a_difference_may_go_either_way():
    higher, lower = {0: 2.0, 1: 2.1, 2: 2.2}, {0: 1.0, 1: 1.0, 2: 1.1}
    assert paired_difference(higher, lower).is_one
    assert paired_difference(lower, higher).is_one
    assert paired_difference(lower, higher).high < 0
