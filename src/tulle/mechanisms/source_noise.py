"""The browser's noise on one source: with some chance its state is drawn at random.

The state is fixed when the source is registered. With the chance p = k / (k + e^epsilon - 1)
it is one of all k states, each alike, and what people do later is dropped. Else the
reports are true. This is k-ary randomized response, and costs epsilon for each source.

So any number g that is read off a state has the mean (1 - p) g + p m, with m its mean over
all states alike, and (g - p m) / (1 - p) has the mean g.
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.mechanisms import randomized_response
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.report_states import ReportSpec
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.fields import check_count, check_finite

IntArray = NDArray[np.int64]

MOST_EPSILON = 14.0
"""The browser's own limit; a registration may ask for less."""


def flip_prob(num_states: int, epsilon: float) -> float:
    """The chance that a source is noised; `randomized_trigger_rate` in its reports."""
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
        """The chance that a source is noised."""
        return flip_prob(self.spec.num_states, self.epsilon)

    @property
    def mean_fake_reports(self) -> float:
        """Fake reports of a source on average, noised or not."""
        return self.flip_prob * float(self.spec.mean_reports)

    @functools.cached_property
    def response(self) -> randomized_response.RandomizedResponseConfig:
        """The same noise on the place of a state, drawn exactly."""
        return randomized_response.RandomizedResponseConfig(
            epsilon=self.epsilon, num_values=self.spec.num_states
        )

    @property
    def realised_flip_prob(self) -> Fraction:
        """The exact chance of the sampler, equal to `flip_prob` up to rounding."""
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

    def describe(self) -> dict[str, Any]:
        """Settings and chances as plain data."""
        return {
            "num_states": self.spec.num_states,
            "epsilon": self.epsilon,
            "flip_prob": self.flip_prob,
            "mean_fake_reports": self.mean_fake_reports,
        }


def noise_sources(raw_states: ArrayLike, noise: SourceNoise, *, rng: NoiseSource) -> IntArray:
    """What browsers report for sources in these states: a simulator.

    Args:
      raw_states: True reports of each source, [sources, cells], as the browser would send.
      noise: Spec and epsilon.
      rng: Source of the noise. Sensitive: never log or save its state.

    Returns:
      The states after the noise, in the same shape.

    Privacy:
      Unit: one source, replace. Local: each source is noised on its own, once. Event: one
      RandomizedResponse over all states. Relies on: one row a source.
    """
    places = noise.spec.places_of(raw_states)
    return noise.spec.states_at(randomized_response.randomize(places, noise.response, rng=rng))


def debias(value: Any, mean_over_states: Any, flip_prob: Any) -> Any:
    """(g - p m) / (1 - p), for numbers, exact fractions or arrays alike."""
    return (value - flip_prob * mean_over_states) / (1 - flip_prob)


def debiased_variance(value: Any, state_mean: Any, state_mean_square: Any, flip_prob: Any) -> Any:
    """Variance over the noise of what `debias` makes of a source whose true number is `value`."""
    mean = (1 - flip_prob) * value + flip_prob * state_mean
    mean_square = (1 - flip_prob) * value**2 + flip_prob * state_mean_square
    return (mean_square - mean**2) / (1 - flip_prob) ** 2
