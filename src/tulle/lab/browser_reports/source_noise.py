"""The browser's noise on one source: with some probability its state is drawn at random.

The state is fixed when the source is registered. With the probability p = k / (k + e^epsilon - 1)
it is one of all k states, each alike, and what people do later is dropped. Else the
reports are true. This is k-ary randomized response, and costs epsilon for each source.

So any number g that is read off a state has the mean (1 - p) g + p m, with m its mean over
all states alike, and (g - p m) / (1 - p) has the mean g.

The browser also limits how much one source may tell, in bits, for each kind of source: the capacity
of randomized response over k states, log2 k - h(f) - f log2(k - 1) with f the probability of
another state.
"""

import dataclasses
import enum
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.lab.browser_reports.report_states import ReportSpec
from tulle.mechanisms import randomized_response
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.fields import check_count, check_finite

IntArray = NDArray[np.int64]

MOST_EPSILON = 14.0
"""The browser's own limit; a registration may ask for less."""


def flip_prob(num_states: int, epsilon: float) -> float:
    """Probability that a source is noised; `randomized_trigger_rate` in its reports."""
    check_count("num_states", num_states)
    if not 0 <= check_finite("epsilon", epsilon) <= MOST_EPSILON:
        raise ConfigError(
            f"epsilon={epsilon} must be from 0 to {MOST_EPSILON:g}, the browser's own limit."
        )
    return num_states / (num_states + math.expm1(epsilon))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceNoise:
    """The noise of one kind of source. Every field is public information."""

    spec: ReportSpec
    epsilon: float = MOST_EPSILON

    def __post_init__(self) -> None:
        flip_prob(self.spec.num_states, self.epsilon)
        self.event()

    @property
    def flip_prob(self) -> float:
        """Probability that a source is noised."""
        return flip_prob(self.spec.num_states, self.epsilon)

    @functools.cached_property
    def response(self) -> randomized_response.RandomizedResponseConfig:
        """The same noise on the place of a state, drawn exactly."""
        return randomized_response.RandomizedResponseConfig(
            epsilon=self.epsilon, num_values=self.spec.num_states
        )

    @property
    def realised_flip_prob(self) -> Fraction:
        """The exact probability of the sampler, equal to `flip_prob` up to rounding."""
        return Fraction(self.response.words_per_loser * self.spec.num_states, WORD_VALUES)

    def any_conversion_channel(self) -> BinaryChannel:
        """What "at least one report" says about "at least one conversion"."""
        silent = self.flip_prob / self.spec.num_states
        return BinaryChannel(
            prob_if_negative=np.asarray(self.flip_prob - silent),
            prob_if_positive=np.asarray(1 - silent),
        )

    def event(self) -> RandomizedResponse:
        """What the reports of one source cost."""
        return self.response.event()


def noise_sources(
    raw_states: ArrayLike, noise: SourceNoise, *, rng: NoiseSource | None = None
) -> IntArray:
    """What browsers report for sources in these states: a simulator.

    Args:
      raw_states: True reports of each source, [sources, cells], as the browser would send.
      noise: Spec and epsilon.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Returns:
      The states after the noise, in the same shape.

    Privacy:
      Unit: one source, replace. Local: each source is noised on its own, once. Event: one
      RandomizedResponse over all states. Relies on: one row a source.
    """
    places = noise.spec.places_of(raw_states)
    return noise.spec.states_at(
        randomized_response.release_randomized_response(places, noise.response, rng=rng)
    )


def debias(value: Any, mean_over_states: Any, flip_prob: Any) -> Any:
    """(g - p m) / (1 - p), for numbers, exact fractions or arrays alike.

    Args:
      value: What was read off the noisy state, g.
      mean_over_states: Mean of the number over all states alike, m.
      flip_prob: Probability that a source is noised, p.
    """
    return (value - flip_prob * mean_over_states) / (1 - flip_prob)


def debiased_variance(value: Any, state_mean: Any, state_mean_square: Any, flip_prob: Any) -> Any:
    """Variance over the noise of what `debias` makes of a source whose true number is `value`.

    Args:
      value: The number of the true state.
      state_mean: Mean of the number over all states alike.
      state_mean_square: Mean of its square.
      flip_prob: Probability that a source is noised.
    """
    mean = (1 - flip_prob) * value + flip_prob * state_mean
    mean_square = (1 - flip_prob) * value**2 + flip_prob * state_mean_square
    return (mean_square - mean**2) / (1 - flip_prob) ** 2


class SourceKind(enum.Enum):
    """What a source is: it sets how much it may tell."""

    NAVIGATION = "navigation"
    """A click."""
    EVENT = "event"
    """A view."""

    @property
    def most_bits(self) -> float:
        """Limit of the information gain."""
        return 11.5 if self is SourceKind.NAVIGATION else 6.5


def information_gain(num_states: int, epsilon: float) -> float:
    """Bits that the reports of one source tell about its true state, at most."""
    check_count("num_states", num_states)
    if num_states == 1:
        return 0.0
    other = flip_prob(num_states, epsilon) * (num_states - 1) / num_states
    entropy = -other * math.log2(other) - (1 - other) * math.log1p(-other) / math.log(2)
    return math.log2(num_states) - entropy - other * math.log2(num_states - 1)


def scopes_gain(num_states: int, *, max_event_states: int, scope_limit: int) -> float:
    """Bits of a source with attribution scopes, before noise.

    Args:
      num_states: States of the source.
      max_event_states: Most states of a view that shares its scopes.
      scope_limit: Most scopes that a browser keeps.
    """
    check_count("num_states", num_states)
    check_count("max_event_states", max_event_states)
    check_count("scope_limit", scope_limit)
    return math.log2(num_states + max_event_states * (scope_limit - 1))


def epsilon_for_gain(num_states: int, most_bits: float) -> float:
    """The largest epsilon, up to the browser's own limit, whose gain is within `most_bits`."""
    if not check_finite("most_bits", most_bits) > 0:
        raise ConfigError(f"most_bits={most_bits} must be > 0, e.g. 11.5.")
    if information_gain(num_states, MOST_EPSILON) <= most_bits:
        return MOST_EPSILON
    low, high = 0.0, MOST_EPSILON
    while low < (middle := (low + high) / 2) < high:
        if information_gain(num_states, middle) <= most_bits:
            low = middle
        else:
            high = middle
    return low


def check_gain(num_states: int, epsilon: float, kind: SourceKind) -> float:
    """The gain of a source, if a browser would accept it.

    Args:
      num_states: States of the source.
      epsilon: What its reports cost.
      kind: What it is, which sets the limit.

    Raises:
      ConfigError: It is above the limit of its kind; says the epsilon that fits.
    """
    gain = information_gain(num_states, epsilon)
    if gain > kind.most_bits:
        fitting = epsilon_for_gain(num_states, kind.most_bits)
        raise ConfigError(
            f"{num_states} states at epsilon={epsilon} tell {gain:.4g} bits, and {kind.value} "
            f"sources may tell {kind.most_bits}; use epsilon <= {fitting:.6g} or fewer states."
        )
    return gain
