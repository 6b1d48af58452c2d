"""The two things a browser draws at random: when its weeks start, and how credit is rounded."""

import dataclasses
from fractions import Fraction
from typing import Protocol

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import WORD_BITS, sample_bernoulli
from tulle.privacy.fields import check_finite


class Draws(Protocol):
    """Uniform numbers in [0, 1), asked for one decision at a time."""

    def is_below(self, numerator: int, denominator: int) -> bool:
        """Whether a fresh uniform number is below numerator / denominator."""

    def epoch_start(self) -> float:
        """How far into an epoch the browser is when it first needs one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedDraws:
    """The same number every time, as conformance cases want it."""

    credit_fraction: float = 0.5
    epoch_fraction: float = 0.5

    def __post_init__(self) -> None:
        for name in ("credit_fraction", "epoch_fraction"):
            if not 0 <= check_finite(name, getattr(self, name)) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be in [0, 1).")

    def is_below(self, numerator: int, denominator: int) -> bool:
        """Compares the fixed number."""
        return Fraction(self.credit_fraction) * denominator < numerator

    def epoch_start(self) -> float:
        """The fixed number."""
        return self.epoch_fraction


@dataclasses.dataclass(frozen=True)
class RandomDraws:
    """Exact draws from a source of random words."""

    rng: NoiseSource

    def is_below(self, numerator: int, denominator: int) -> bool:
        """True with chance numerator / denominator, exactly."""
        return bool(sample_bernoulli(Fraction(numerator, denominator), 1, rng=self.rng)[0])

    def epoch_start(self) -> float:
        """A multiple of 2^-53."""
        return (int(self.rng.words(1)[0]) >> (WORD_BITS - 53)) * 2.0**-53
