"""An exact sampler for any randomizer with a few inputs and a few outputs.

The probability of each output for each input is a whole number of words out of 2^64.
Every row adds up to 2^64 exactly, and the largest ratio of two inputs' probabilities of
one output is proven to be at most e^epsilon with certified bounds, so no float
decides what is private.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words, release_rng
from tulle.mechanisms.noisy_reports import FloatArray, IntArray, check_held_values
from tulle.mechanisms.thresholds import WORD_VALUES, exponential_bounds, log_ratio
from tulle.privacy.fields import check_epsilon

_CHUNK = 1 << 16
"""Inputs that are drawn at once, so that the arrays stay in the processor's cache."""
_MAX_GUIDE_CELLS = 1 << 20
"""Most cells of the table that leads a word to its output, over all inputs."""
_MAX_GUIDE_BITS = 12
"""Most leading bits of a word that the table looks at; more find no output sooner."""
_MAX_ROW_ERROR = 1e-9
"""Most that cutting ratios at e^epsilon may take from a row: more than rounding is a mistake."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteChannel:
    """A finite randomizer as integers. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of an output between any two inputs."""
    outputs: tuple[float, ...]
    """The number that each output stands for."""
    words: tuple[tuple[int, ...], ...]
    """Words, of 2^64, that lead to each output (column) from each input (row)."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not all(math.isfinite(output) for output in self.outputs):
            raise ConfigError("outputs must be finite numbers.")
        if not self.words or any(len(row) != len(self.outputs) for row in self.words):
            raise ConfigError(
                f"words needs one row an input with {len(self.outputs)} entries, one an output."
            )
        if any(entry < 1 for row in self.words for entry in row):
            raise ConfigError(
                "words has entries below 1; an output that is possible for some inputs only "
                "breaks every epsilon. Leave out outputs of probability 0."
            )
        if any(sum(row) != WORD_VALUES for row in self.words):
            raise ConfigError("every row of words must add up to 2^64; use from_probs().")
        least_bound, _ = exponential_bounds(self.epsilon)
        if self.realised_ratio > least_bound:
            raise ConfigError(
                f"words has a likelihood ratio of e^{log_ratio(self.realised_ratio):.9g}, above "
                f"epsilon={self.epsilon}; use from_probs(), which rounds to the safe side."
            )

    @classmethod
    def from_probs(
        cls, probs: ArrayLike, *, outputs: Sequence[float], epsilon: float
    ) -> "FiniteChannel":
        """The nearest channel whose ratios are proven, from probabilities as floats.

        In each column the least probability is rounded up and larger ones are cut at
        e^epsilon times it, so the truth loses. What a row then lacks or has too much
        goes to entries that stay between these two.

        Args:
          probs: One row an input that adds up to 1, one column an output, all > 0.
          outputs: The number that each output stands for.
          epsilon: Largest log-likelihood ratio; the probabilities may exceed it by rounding only.
        """
        check_epsilon(epsilon)
        matrix = np.asarray(probs, np.float64)
        if matrix.ndim != 2 or not np.all(np.isfinite(matrix)) or not np.all(matrix > 0):
            raise ConfigError("probs must be a table of numbers > 0, one row an input.")
        least_bound, _ = exponential_bounds(epsilon)
        lowest = [math.ceil(_words(least)) for least in matrix.min(axis=0).tolist()]
        highest = [math.floor(least_bound * low) for low in lowest]
        words = [_rounded_row(row, lowest, highest) for row in matrix.tolist()]
        return cls(
            epsilon=epsilon, outputs=tuple(float(output) for output in outputs), words=tuple(words)
        )

    @property
    def num_inputs(self) -> int:
        """How many inputs there are, counted from 0."""
        return len(self.words)

    @functools.cached_property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of the sampler; at most e^epsilon."""
        columns = zip(*self.words, strict=True)
        return max(Fraction(max(column), min(column)) for column in columns)

    @property
    def realised_epsilon(self) -> float:
        """Logarithm of `realised_ratio`, at most epsilon."""
        return min(self.epsilon, log_ratio(self.realised_ratio))

    def channel_matrix(self) -> FloatArray:
        """Probability of each output (column) for each input (row), as the nearest floats."""
        return np.array([[entry / WORD_VALUES for entry in row] for row in self.words])

    def realised_channel(self) -> list[list[Fraction]]:
        """The channel of the sampler, as exact fractions."""
        return [[Fraction(entry, WORD_VALUES) for entry in row] for row in self.words]

    def mean(self) -> FloatArray:
        """Mean of the output for each input, of the sampler, as the nearest float."""
        return np.array([float(mean) for mean, _ in self._moments])

    def variance(self) -> FloatArray:
        """Variance of the output for each input, of the sampler, as the nearest float."""
        return np.array([float(square - mean**2) for mean, square in self._moments])

    def draw(self, raw_inputs: ArrayLike, *, rng: NoiseSource | None = None) -> IntArray:
        """Draws the place of one output for each input.

        Args:
          raw_inputs: What each unit holds, from 0 to num_inputs - 1.
          rng: Source of the noise; None: the operating system. Sensitive: never log its state.

        Privacy:
          Unit: one entry, replace. Local: each entry is noised on its own.
          Event: EpsilonDelta(epsilon). Relies on: one entry a unit, drawn once.
        """
        rng = rng or release_rng()
        inputs = check_held_values(raw_inputs, self.num_inputs)
        flat = inputs.reshape(-1)
        places = np.empty(flat.size, np.int64)
        for start in range(0, flat.size, _CHUNK):
            held = flat[start : start + _CHUNK]
            places[start : start + _CHUNK] = self._search.places(held, rng.words(held.size))
        return places.reshape(inputs.shape)

    @functools.cached_property
    def _moments(self) -> list[tuple[Fraction, Fraction]]:
        """Exact first and second moment for each input."""
        values = [Fraction(output) for output in self.outputs]
        squares = [value**2 for value in values]
        return [
            (
                sum(map(Fraction.__mul__, values, map(Fraction, row)), Fraction(0)) / WORD_VALUES,
                sum(map(Fraction.__mul__, squares, map(Fraction, row)), Fraction(0)) / WORD_VALUES,
            )
            for row in self.words
        ]

    @functools.cached_property
    def _search(self) -> "_GuidedSearch":
        return _GuidedSearch.of_words(self.words)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _GuidedSearch:
    """Finds the interval of a word from a table by its first bits, then step by step."""

    first_places: NDArray[np.int32]
    """Place of the output of the least word of each cell, one row an input, flat."""
    last_words: Words
    """Largest word of each output, one row an input, flat."""
    num_outputs: int
    num_bits: int

    @classmethod
    def of_words(cls, words: tuple[tuple[int, ...], ...]) -> "_GuidedSearch":
        """The tables of a channel. Rows add up to 2^64, so the last word is 2^64 - 1."""
        num_bits = (_MAX_GUIDE_CELLS // len(words)).bit_length() - 1
        num_bits = min(max(num_bits, 1), _MAX_GUIDE_BITS)
        last = [[end - 1 for end in itertools.accumulate(row)] for row in words]
        last_words = np.array(last, np.uint64)
        starts = np.arange(1 << num_bits, dtype=np.uint64) << np.uint64(64 - num_bits)
        first = [np.searchsorted(row, starts, side="left") for row in last_words]
        return cls(
            first_places=np.concatenate(first).astype(np.int32),
            last_words=last_words.reshape(-1),
            num_outputs=len(words[0]),
            num_bits=num_bits,
        )

    def places(self, inputs: IntArray, words: Words) -> IntArray:
        """The place of the output that each word leads to from its input."""
        cells = (words >> np.uint64(64 - self.num_bits)).astype(np.int64)
        cells += inputs << self.num_bits
        places = self.first_places[cells].astype(np.int64)
        offsets = inputs * self.num_outputs
        rows = np.flatnonzero(words > self.last_words[offsets + places])
        while rows.size:
            places[rows] += 1
            is_past = words[rows] > self.last_words[offsets[rows] + places[rows]]
            rows = rows[is_past]
        return places


def _words(prob: float) -> Fraction:
    return Fraction(prob) * WORD_VALUES


def _rounded_row(row: list[float], lowest: list[int], highest: list[int]) -> tuple[int, ...]:
    """Whole words within the bounds of each column that add up to 2^64."""
    words = [
        min(max(round(_words(prob)), low), high)
        for prob, low, high in zip(row, lowest, highest, strict=True)
    ]
    missing = WORD_VALUES - sum(words)
    if abs(missing) > _MAX_ROW_ERROR * WORD_VALUES:
        raise ConfigError(
            f"a row of probabilities is off by {missing / WORD_VALUES:.2g} once no ratio exceeds "
            "e^epsilon; every row must add up to 1 and every ratio stay below e^epsilon."
        )
    # The entry with most room first: the change is smallest relative to its probability.
    bounds, sign = (highest, 1) if missing > 0 else (lowest, -1)
    for place in sorted(range(len(words)), key=lambda p: -abs(bounds[p] - words[p])):
        change = sign * min(abs(missing), abs(bounds[place] - words[place]))
        words[place] += change
        missing -= change
    if missing:
        raise ConfigError(
            "a row of probabilities cannot be rounded within e^epsilon; lower the larger ones by a "
            "little, e.g. by solving for epsilon * (1 - 1e-9)."
        )
    return tuple(words)
