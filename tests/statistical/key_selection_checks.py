"""Exact checks of a rule that keeps a key with a chance that depends on its count."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath

from tulle.mechanisms.key_thresholds import LaplaceKeyThresholdConfig


def assert_keep_chances_private(chances: Sequence[Fraction], epsilon: float, delta: float) -> None:
    """All four inequalities of (epsilon, delta) between n and n + 1 units, with 80 digits.

    Args:
      chances: Exact chance to keep a key with 0, 1, 2, ... units.
      epsilon: For each key.
      delta: For each key.
    """
    assert chances[0] == 0, "a key that no unit has must never show"
    with mpmath.workdps(80):
        factor, slack = mpmath.exp(epsilon), mpmath.mpf(delta)
        for fewer, more in itertools.pairwise(chances):
            kept, kept_more = (mpmath.mpf(c.numerator) / c.denominator for c in (fewer, more))
            dropped, dropped_more = (
                mpmath.mpf((1 - c).numerator) / (1 - c).denominator for c in (fewer, more)
            )
            assert kept_more <= factor * kept + slack
            assert kept <= factor * kept_more + slack
            assert dropped <= factor * dropped_more + slack
            assert dropped_more <= factor * dropped + slack


def lone_key_prob(config: Any, threshold: int) -> mpmath.mpf:
    """Chance that a key with one unit reaches the threshold, with 50 digits."""
    with mpmath.workdps(50):
        noise = threshold - 1
        if isinstance(config, LaplaceKeyThresholdConfig):
            odds = mpmath.exp(-1 / mpmath.mpf(config.noise_scale))
            return odds**noise / (1 + odds)
        return mpmath.ncdf(-(mpmath.mpf(noise) - 0.5) / mpmath.mpf(config.noise_stddev))


def assert_least_safe_threshold(config: Any, threshold: int) -> None:
    """Any of k lone keys shows with chance at most delta, and one step lower it would not hold."""
    union = config.max_keys_per_unit * lone_key_prob(config, threshold)
    assert union <= config.delta
    lower = config.max_keys_per_unit * lone_key_prob(config, threshold - 1)
    assert threshold == 1 or lower > config.delta * (1 - 1e-8)
