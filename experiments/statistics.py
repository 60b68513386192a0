"""Means over seeds, and differences between methods on the same splits, with their uncertainty.

Random splits of one graph share most of their training nodes, so results on them are not independent and the plain
standard error is too small. Nadeau and Bengio (2003) replace 1/n by 1/n + n_test/n_train, here 1/n + 1/3.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from scipy import stats

CONFIDENCE = 0.95
ENOUGH_SEEDS = 3
"""For an interval or a rank: two seeds may agree by chance."""
OVERLAP = 20 / 60
"""Test nodes by training nodes."""


@dataclass(frozen=True)
class Difference:
    """A mean difference with its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def is_one(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def spread(values: list[float]) -> str:
    """Mean and deviation over seeds, and how many they are."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "") + f" ×{len(values)}"


def paired_difference(ours: dict[int, float], theirs: dict[int, float]) -> Difference | None:
    """Ours minus theirs over the seeds both have, by Student's t; None where they are too few."""
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < ENOUGH_SEEDS:
        return None
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    half = _quantile(len(seeds) - 1) * stdev(differences) * sqrt(1 / len(seeds) + OVERLAP)
    middle = mean(differences)
    return Difference(middle, middle - half, middle + half)


def difference_to_published(values: list[float], published: tuple[float, float], runs: int = 10) -> Difference | None:
    """Ours minus a published mean and deviation over `runs` other splits, by Welch's t; None with too few of ours."""
    if len(values) < ENOUGH_SEEDS:
        return None
    ours, theirs = stdev(values) ** 2 * (1 / len(values) + OVERLAP), published[1] ** 2 * (1 / runs + OVERLAP)
    total = ours + theirs
    freedom = total**2 / (ours**2 / (len(values) - 1) + theirs**2 / (runs - 1)) if total else 1.0
    middle, half = mean(values) - published[0], _quantile(freedom) * sqrt(total)
    return Difference(middle, middle - half, middle + half)


def _quantile(freedom: float) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))
