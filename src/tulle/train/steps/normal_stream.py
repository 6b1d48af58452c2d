"""Normals from a counter-based generator, in arrays, so that vector instructions make them.

The state of such a generator is secret: `SecretNoise` guards it.

Box and Muller (1958): for uniform u and angle a, sqrt(-2 log u) times cos a and sin a are two
independent normals. One word of 64 bits makes a pair. 32 bits alone would end the tails at
6.7 deviations, and a float near 1 has lost its distance from 1, so both ends of u get 64 more
bits and double precision. Every normal is then right to the precision of a float, up to 11.6
deviations; what lies beyond has a probability of 1e-29.
"""

import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import NoiseSource

Floats = NDArray[Any]
"""float32 or float64, of one dimension and contiguous."""
Halves = NDArray[np.uint32]
MoreWords = Callable[[int], NDArray[np.uint64]]

# Measured: fewer pay for the calls, more leave the cache.
PAIRS_AT_A_TIME = 1 << 16

_NEAR_ZERO = 1 << 24
"""Number of 32 bits below which it has fewer digits than a float: such u get 64 more bits."""
_NEAR_ONE = 1 << 23
"""Distance from 2^32 at which a float has half of the digits of 1 - u or less: such u get 64 more
bits, too."""


class SecretNoise:
    """State that noise is made of, for one process alone.

    It is as secret as what the noise protects: it cannot be printed, copied, pickled or used in
    a forked process, which would add the same noise again.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def check_own_process(self) -> None:
        """Refuses noise that came over by a fork. To be called before anything is drawn."""
        if os.getpid() != self._process:
            raise RunStateError(
                "training noise was made in another process, which would add the same noise. "
                "Make a new one from release_rng() in each process."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> NoReturn:
        raise RunStateError(
            "training noise must not be copied or saved: whoever has it can take the noise off. "
            "Make a new one from release_rng() in each process."
        )


class NormalStream:
    """One endless sequence of independent normals, for one thread at a time.

    Its state is as secret as what it protects.
    """

    def __init__(
        self,
        generator: np.random.Philox,
        *,
        words: MoreWords | None = None,
        make_pairs: "PairMaker | None" = None,
    ) -> None:
        """Starts the sequence.

        Args:
          generator: Draws all bits.
          words: Draws those of floats instead, from a counter of its own.
          make_pairs: What makes floats of words, if not `fill_pairs`.
        """
        self._words = words or generator.random_raw
        self._doubles = np.random.Generator(generator)
        self._make_pairs = make_pairs or fill_pairs

    def fill(self, values: Floats, stddev: float) -> None:
        """Overwrites `values` with stddev * N(0, 1)."""
        size = 2 * PAIRS_AT_A_TIME
        for first in range(0, values.size, size):
            piece = values[first : first + size]
            if piece.dtype == np.float64:
                self._doubles.standard_normal(out=piece)
            else:
                words = self._words((piece.size + 1) // 2).view(np.uint32)
                self._make_pairs(piece, words, self._words)
            if stddev != 1:
                piece *= stddev

    def add_to(self, values: Floats, stddev: float) -> None:
        """Adds stddev * N(0, 1) to `values`."""
        size = 2 * PAIRS_AT_A_TIME
        noise = np.empty(min(size, values.size), values.dtype)
        for first in range(0, values.size, size):
            piece = values[first : first + size]
            self.fill(noise[: piece.size], stddev)
            piece += noise[: piece.size]


def expanded_description(rng: NoiseSource) -> str:
    """What a card says of noise that Philox makes from the words of a source.

    Privacy:
      Draws nothing, and tells nothing of the state of `rng`.
    """
    return f"{rng.description}, expanded by Philox (fast, not cryptographic)"


PairMaker = Callable[[Floats, Halves, MoreWords], None]


def fill_pairs(values: Floats, words: Halves, more_words: MoreWords) -> None:
    """Makes normals of random bits.

    Args:
      values: Array of float32 that is overwritten; the pair of an entry is half an array away.
      words: Random words, as many as entries, or one more if their number is odd.
      more_words: Source of 64 more random bits for each uniform that needs them.
    """
    num_pairs = len(words) // 2
    radii = _radii(words[:num_pairs], more_words)
    # From -pi to pi, where a float has one digit more than up to 2 pi.
    angles = words[num_pairs:].view(np.int32).astype(np.float32)
    angles *= math.pi * 2.0**-31
    first, second = values[:num_pairs], values[num_pairs:]
    np.cos(angles, out=first)
    np.sin(angles[: second.size], out=second)
    first *= radii
    second *= radii[: second.size]


def _radii(words: Halves, more_words: MoreWords) -> Floats:
    """sqrt(-2 log u) for u = words / 2^32, with more digits of u where they count."""
    squares = words.astype(np.float32)
    squares *= 2.0**-32
    # Whole numbers of 32 bits wrap around: one comparison sees both ends.
    is_end = words + np.uint32(_NEAR_ONE) < np.uint32(_NEAR_ONE + _NEAR_ZERO)
    ends = is_end.nonzero()[0]
    # Any number whose logarithm is finite: the ends are overwritten below.
    squares[ends] = 1
    np.log(squares, out=squares)
    squares *= -2
    squares[ends] = _end_squares(words[ends], more_words(len(ends)))
    return np.sqrt(squares, out=squares)


def _end_squares(words: Halves, more: NDArray[np.uint64]) -> NDArray[np.float64]:
    """-2 log u in double precision, from 96 bits of u."""
    # Half a unit keeps u off 0. At 1 it may round to 1, whose radius of 0 is right.
    fractions = (more.astype(np.float64) + 0.5) * 2.0**-64
    is_low = words < _NEAR_ZERO
    low = (words + fractions) * 2.0**-32
    distance = (2.0**32 - words.astype(np.float64) - fractions) * 2.0**-32
    # Each side is computed for all: a number that is safe for the other side takes its place.
    return -2 * np.where(
        is_low,
        np.log(np.where(is_low, low, 1.0)),
        np.log1p(-np.where(is_low, 0.0, distance)),
    )
