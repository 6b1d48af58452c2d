"""Sources of random bits.

A released number is noised with bits of the operating system. Nothing is kept
between two calls: a buffer would be copied by fork, and two processes would
then add the same noise.
"""

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError

Words = NDArray[np.uint64]


class NoiseSource(Protocol):
    """A stream of uniform 64-bit words. Sensitive: never log or save its state."""

    @property
    def is_secure(self) -> bool:
        """True if nobody can predict or repeat the words."""

    @property
    def description(self) -> str:
        """The source in words, for the card."""

    def words(self, num_words: int) -> Words:
        """Fresh uniform words."""


class OperatingSystemNoise:
    """Bits of the operating system's cryptographic generator."""

    is_secure = True
    description = "operating-system entropy"

    def words(self, num_words: int) -> Words:
        """Fresh uniform words, drawn by one system call sequence."""
        return np.frombuffer(os.urandom(8 * num_words), dtype=np.uint64)


class SeededNoise:
    """Repeatable bits for tests and experiments. What it noises is not private."""

    # What cards read: nothing drawn from here may call itself a private release.
    is_secure = False

    def __init__(self, seed: int) -> None:
        self.description = f"fixed seed {seed}"
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, num_words: int) -> Words:
        """The next words of the seeded stream."""
        return self._generator.integers(0, 2**64, size=num_words, dtype=np.uint64)


def release_rng() -> NoiseSource:
    """The source for everything that is released."""
    return OperatingSystemNoise()


def noise_source(seed: int | None) -> NoiseSource:
    """The operating system's entropy, or a repeatable source, whose release is not private.

    Args:
      seed: A number >= 0 for tests and experiments; None for every release.
    """
    if seed is None:
        return release_rng()
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed={seed!r} must be a whole number >= 0, or None for a release.")
    return SeededNoise(seed)
