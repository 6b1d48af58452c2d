"""A noisy number with the interval that its noise gives it."""

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.release import Interval, Release


def centred_release(
    noisy_value: float, half_width: float, *, confidence: float, noise_stddev: float, event: Event
) -> Release:
    """The noisy number and the interval of `half_width` to both of its sides."""
    interval = Interval(
        low=noisy_value - half_width, high=noisy_value + half_width, confidence=confidence
    )
    return Release(value=noisy_value, noise_stddev=noise_stddev, interval=interval, event=event)


def check_confidence(confidence: float) -> None:
    """Refuses confidences outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence} must be in (0, 1), e.g. 0.95.")
