"""Reach of a sketch with noise on the number of marks.

One user marks at most one register that was empty before, so the number of marks moves by 0 or 1.
The estimate does not: in a full sketch one more mark stands for thousands of users. Noise
therefore goes on the marks, and only the noisy number is turned into an estimate.
"""

import dataclasses
import math

from tulle.errors import ConfigError
from tulle.measure.noise_sums import SharedNoise, half_width_beside_normal
from tulle.measure.reach.liquid_legions import LiquidLegions, LiquidLegionsConfig
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event
from tulle.privacy.release import Interval, Release


@dataclasses.dataclass(frozen=True, kw_only=True)
class SketchReachConfig:
    """Noise on the number of marks. Every field is public information."""

    epsilon: float
    """Of one release, under add-or-remove and replace alike."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon={self.epsilon} must be > 0 and finite, e.g. 1.0.")
        self.event()

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise. A replaced user unmarks one register at most and marks one at most."""
        return DiscreteLaplaceConfig(scale=1 / self.epsilon * (1 + 2.0**-50), replace_factor=1.0)

    def event(self) -> Event:
        """What one release costs."""
        return self.noise.event()


def release_sketch_reach(
    sketch: LiquidLegions,
    config: SketchReachConfig,
    *,
    rng: NoiseSource,
    confidence: float = 0.95,
) -> Release:
    """Reach of a sketch, alone or merged, by a trusted party that sees it.

    The interval covers what noise and hashing together can do, and the noise is of both.

    Privacy:
      Unit: user, add-or-remove or replace. L1 sensitivity of the number of marks: 1.
      Event: `config.event()`. Relies on: the sketch was made by `of_users` and merged here;
      its key is not chosen after looking at the users.
    """
    noisy_marks = int(release_discrete_laplace(sketch.raw_num_marks, config.noise, rng=rng))
    return reach_from_marks(
        noisy_marks,
        sketch.config,
        SharedNoise(scale=config.noise.scale),
        config.event(),
        confidence=confidence,
    )


def reach_from_marks(
    noisy_marks: float,
    shape: LiquidLegionsConfig,
    noise: SharedNoise,
    event: Event,
    *,
    confidence: float,
) -> Release:
    """The estimate and interval that belong to a noisy number of marks. Post-processing."""
    value = shape.reach_of(noisy_marks)
    marks_stddev = shape.marks_stddev(value)
    half_width = half_width_beside_normal(noise, marks_stddev, confidence=confidence)
    slope = shape.marks_per_user(max(value, 1.0))
    return Release(
        value=value,
        noise_stddev=math.hypot(noise.noise_stddev, marks_stddev) / slope,
        interval=Interval(
            low=shape.reach_of(noisy_marks - half_width),
            high=shape.reach_of(noisy_marks + half_width),
            confidence=confidence,
        ),
        event=event,
    )
