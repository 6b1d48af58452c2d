"""What the settings of every sampler must satisfy."""

import math
from collections.abc import Iterator

from tulle.errors import ConfigError
from tulle.mechanisms.exact import MAX_SCALE
from tulle.privacy import events
from tulle.privacy.fields import check_count

_LEAST_SAMPLING_PROB = 2 / MAX_SCALE
"""Least sampling probability: the mean gap between rows, about one over it, is a scale of the exact
sampler, which takes scales up to MAX_SCALE."""


def sampling_prob_for(expected_size: float, num_rows: int) -> float:
    """The probability of a row at which a batch has `expected_size` rows on average."""
    check_count("num_rows", num_rows)
    if not 0 < expected_size <= num_rows:
        raise ConfigError(
            f"expected_size={expected_size} must be in (0, num_rows={num_rows}]; "
            "lower it or give the right number of rows."
        )
    return expected_size / num_rows


def check_at_most(name: str, value: int, limit_name: str, limit: int) -> None:
    """Refuses a count that is larger than another.

    Args:
      name: Name of the count, for the error message.
      value: The count.
      limit_name: Name of its limit, for the error message.
      limit: Largest value that is accepted.
    """
    if value > limit:
        raise ConfigError(f"{name}={value} must be <= {limit_name}={limit}; lower it.")


def check_sampling_prob(name: str, value: object) -> None:
    """Refuses a probability that the exact sampler cannot draw with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name}={value!r} must be a number in (0, 1].")
    if not _LEAST_SAMPLING_PROB <= value <= 1:
        raise ConfigError(
            f"{name}={value} must be in [{_LEAST_SAMPLING_PROB:.2g}, 1]; "
            "sampling_prob_for() gives it for an expected batch size."
        )


def check_first_step(first_step: object, steps: int) -> None:
    """A step to go on from."""
    check_count("first_step", first_step, least=0)
    if not isinstance(first_step, int) or first_step > steps:
        raise ConfigError(
            f"first_step={first_step} must be <= steps={steps}; the event covers no more steps."
        )


def check_noise(noise: object) -> None:
    """The noise of one step, which the sampler has yet to amplify."""
    if not isinstance(noise, events.Event):
        raise ConfigError(
            f"noise={noise!r} must be the event of one step, e.g. Gaussian(noise_multiplier=1.0)."
        )
    sampled = (
        events.PoissonSampled,
        events.TruncatedPoissonSampled,
        events.FixedSizeSampled,
        events.Shuffled,
        events.Parallel,
        events.Grouped,
    )
    for part in _parts(noise):
        if isinstance(part, sampled):
            raise ConfigError(
                f"noise={noise!r} is sampled already or grouped; give the noise that one step adds "
                "to its sum, e.g. Gaussian(noise_multiplier=1.0). The sampler adds the rest."
            )


def _parts(event: events.Event) -> Iterator[events.Event]:
    if isinstance(event, events.Composed):
        for part in event.events:
            yield from _parts(part)
    elif isinstance(event, events.Repeated):
        yield from _parts(event.event)
    else:
        yield event
