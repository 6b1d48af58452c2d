"""Reach and frequency from one noisy histogram a slice."""

from typing import TYPE_CHECKING

from tulle.lazy_names import lazy_names

if TYPE_CHECKING:
    from tulle.measure.reach.frequency_release import (
        FrequencyConfig,
        FrequencyRelease,
        release_frequencies,
    )
    from tulle.measure.reach.noisy_numbers import (
        isotonic_regression,
        monotone_counts,
    )

__all__ = [
    "FrequencyConfig",
    "FrequencyRelease",
    "isotonic_regression",
    "monotone_counts",
    "release_frequencies",
]

__getattr__, __dir__ = lazy_names(__name__, __file__)
