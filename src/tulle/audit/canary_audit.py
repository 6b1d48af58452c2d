"""Holds one run with canaries against its claim.

How many coins to guess is chosen beforehand: few guesses are surer, many are more evidence.
Several numbers are tried, and the chance of a false alarm is shared among them.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from tulle.accounting.accountant import contains_non_private, privacy_curve
from tulle.accounting.curve import PrivacyCurve
from tulle.accounting.noise_scaling import with_noise_scaled
from tulle.audit.canary_guesses import Guesses, guess_surest
from tulle.audit.one_run import least_epsilon, least_epsilon_in_family, refutes_curve
from tulle.errors import ConfigError
from tulle.privacy.events import Event, Gaussian
from tulle.privacy.fields import check_finite
from tulle.privacy.units import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunConfig:
    """Settings of an audit of one run. Every field is public information."""

    delta: float = 1e-5
    """Where epsilon is compared."""
    false_alarm_prob: float = 0.05
    """Largest chance that a right run is called wrong, or a bound is above the truth."""
    guess_shares: tuple[float, ...] = (0.3, 0.1, 0.03)
    """Which shares of the coins are guessed; each is tried."""

    def __post_init__(self) -> None:
        if not 0 < check_finite("false_alarm_prob", self.false_alarm_prob) < 1:
            raise ConfigError(
                f"false_alarm_prob={self.false_alarm_prob} must be in (0, 1), e.g. 0.05."
            )
        if not 0 <= check_finite("delta", self.delta) < 1:
            raise ConfigError(f"delta={self.delta} must be in [0, 1); choose e.g. 1e-5.")
        if not self.guess_shares:
            raise ConfigError("guess_shares=() leaves nothing to guess; give e.g. (0.1,).")
        for share in self.guess_shares:
            if not 0 < check_finite("guess_shares", share) <= 1:
                raise ConfigError(f"guess_shares has {share}; each must be in (0, 1].")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRunResult:
    """What the guesses of one run say about its claim."""

    guesses: Guesses
    """Those that show most."""
    curve_lower_bound: float
    """Least epsilon at `delta` of a run of the claimed kind, with any noise."""
    epsilon_lower_bound: float
    """Least epsilon at `delta` of any run whatever."""
    claimed_epsilon: float
    """What the claim says at `delta`; math.inf for a run without privacy."""
    delta: float
    false_alarm_prob: float
    is_violated: bool
    """True if the claim is wrong, but for the chance of a false alarm."""


def audit_canaries(
    scores: ArrayLike,
    coins: ArrayLike,
    event: Event,
    adjacency: Adjacency,
    config: OneRunConfig | None = None,
) -> OneRunResult:
    """Compares right guesses with what an event allows.

    Args:
      scores: One for each canary, from what the run released; high where 1 is likelier.
      coins: What was drawn, 0 or 1, fair and independent.
      event: What the run is claimed to cost.
      adjacency: Under which two data sets that differ in one coin are neighbours.
      config: How sure to be, and how many coins to guess.

    Privacy:
      For canaries made up for the audit. The result tells nothing about other rows.
    """
    config = config or OneRunConfig()
    coins_guessed = [
        guess_surest(scores, coins, num_guesses=num_guesses)
        for num_guesses in _numbers_of_guesses(np.size(coins), config)
    ]
    alarm = config.false_alarm_prob / len(coins_guessed)
    family = _family(event, adjacency)
    claim = privacy_curve(event, adjacency)
    of_any = [least_epsilon(g, delta=config.delta, false_alarm_prob=alarm) for g in coins_guessed]
    of_kind = [
        least_epsilon_in_family(g, family, delta=config.delta, false_alarm_prob=alarm)
        for g in coins_guessed
    ]
    best = max(range(len(of_kind)), key=lambda place: (of_kind[place], of_any[place]))
    return OneRunResult(
        guesses=coins_guessed[best],
        curve_lower_bound=of_kind[best],
        epsilon_lower_bound=max(of_any),
        claimed_epsilon=claim.epsilon(config.delta),
        delta=config.delta,
        false_alarm_prob=config.false_alarm_prob,
        is_violated=any(refutes_curve(g, claim, false_alarm_prob=alarm) for g in coins_guessed),
    )


def _numbers_of_guesses(num_canaries: int, config: OneRunConfig) -> list[int]:
    return sorted({max(1, round(share * num_canaries)) for share in config.guess_shares})


def _family(event: Event, adjacency: Adjacency) -> Callable[[float], PrivacyCurve]:
    """The claimed event with any noise; Gaussian noise for a run that claims nothing."""
    start = Gaussian(noise_multiplier=1.0) if contains_non_private(event) else event

    @functools.cache
    def with_noise(factor: float) -> PrivacyCurve:
        return privacy_curve(with_noise_scaled(start, factor), adjacency)

    return with_noise
