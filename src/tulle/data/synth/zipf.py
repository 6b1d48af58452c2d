"""Zipf-Mandelbrot laws with missing values, drawn at a few nanoseconds a value, and scrambles.

Code 0 means missing, codes 1, 2, … are the values from the most frequent one on, and
P(code r) is proportional to (r + shift) ** -exponent. A 32-bit word becomes a code by
inverting the cumulative law with a table: its high bits name one of 4,096 equal
buckets, its low bits place it inside. A bucket that holds one border between two
codes is exact to 2**-32; one that holds more treats its inner codes as equally
likely, which moves the probability of a code by a fraction of a per cent at most.

Scrambles give names and effects to values. They are pure functions of their arguments,
so that a value means the same in every log of a shape. They are not cryptographic and
hide nothing.
"""

import dataclasses
import functools
import zlib

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError

WordArray = npt.NDArray[np.uint32]

_LEVELS = 1 << 12
"""Deviates end at 3.7 standard deviations and take 12 bits of a word."""


def salt_of(name: str) -> int:
    """A fixed 32-bit number for a name."""
    return zlib.crc32(name.encode())


def scramble(numbers: npt.NDArray[np.integer], salt: int) -> WordArray:
    """Maps 32-bit integers one-to-one to words that look random."""
    words = numbers.astype(np.uint32)
    # The finaliser of MurmurHash3 (public domain), a bijection of 32-bit words.
    words ^= np.uint32(salt & 0xFFFFFFFF)
    words ^= words >> np.uint32(16)
    words *= np.uint32(0x85EBCA6B)
    words ^= words >> np.uint32(13)
    words *= np.uint32(0xC2B2AE35)
    words ^= words >> np.uint32(16)
    return words


def normal_deviates(numbers: npt.NDArray[np.integer], salt: int) -> npt.NDArray[np.float64]:
    """One normal deviate for each integer, from 4,096 equally likely levels."""
    from scipy.special import ndtri

    levels = ndtri((np.arange(_LEVELS) + 0.5) / _LEVELS)
    return np.asarray(levels[scramble(numbers, salt) >> np.uint32(20)], dtype=np.float64)


def uniforms(words: WordArray) -> npt.NDArray[np.float64]:
    """Words as numbers strictly between 0 and 1."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32


FloatArray = npt.NDArray[np.float64]
CodeArray = npt.NDArray[np.int32]

MAX_VALUES = 2**31 - 2
"""Codes are signed 32-bit integers from 0, a missing value, to this; the one after it still
fits."""
_HEAD = 1 << 16
"""Ranks that are summed one by one; from here on the integral is within 1e-10 of the sum."""
# The high bits of a word choose a bucket of equal probability and the low ones a place inside: one
# lookup a row, in tables that stay in the processor's cache.
_BUCKET_BITS = 12
_NUM_BUCKETS = 1 << _BUCKET_BITS
_INSIDE_BITS = 32 - _BUCKET_BITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZipfLaw:
    """How often each value of a column occurs. Every field is public information."""

    num_values: int
    """Values there are to draw from; a log shows fewer when it is short."""
    exponent: float
    """How fast the frequency falls with the rank; 0 makes all values equally frequent."""
    shift: float = 0.0
    """Added to the rank: flattens the head of the law."""
    missing_prob: float = 0.0
    """Share of rows without a value."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_values <= MAX_VALUES:
            raise ConfigError(
                f"num_values={self.num_values} must be between 1 and {MAX_VALUES:,}: codes are "
                "32-bit integers."
            )
        if not 0 <= self.exponent <= 20:
            raise ConfigError(f"exponent={self.exponent} must be between 0 and 20.")
        if not self.shift >= 0:
            raise ConfigError(f"shift={self.shift} must be >= 0; use 0 for a pure Zipf law.")
        if not 0 <= self.missing_prob < 1:
            raise ConfigError(
                f"missing_prob={self.missing_prob} must be >= 0 and < 1; leave a column out "
                "that is always missing."
            )

    def prob(self, codes: npt.ArrayLike) -> FloatArray:
        """Probability of each code; code 0 is a missing value."""
        ranks = np.asarray(codes, dtype=np.float64)
        weights = (np.maximum(ranks, 1) + self.shift) ** -self.exponent
        probs = (1 - self.missing_prob) * weights / self._total_weight
        return np.where(ranks == 0, self.missing_prob, probs)

    def cdf(self, codes: npt.ArrayLike) -> FloatArray:
        """Probability of a code at most as large as each of these."""
        weights = self._weight_up_to(np.asarray(codes, dtype=np.float64))
        return self.missing_prob + (1 - self.missing_prob) * weights / self._total_weight

    def quantile(self, levels: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The smallest code with a cumulative probability above each level in [0, 1)."""
        levels = np.asarray(levels, dtype=np.float64)
        wanted = (levels - self.missing_prob) / (1 - self.missing_prob) * self._total_weight
        head = self._head_weights
        codes = np.searchsorted(head, wanted, side="right")
        in_tail = codes >= len(head)
        if self.num_values > _HEAD:
            codes[in_tail] = np.ceil(self._tail_rank(wanted[in_tail])).astype(np.int64)
        return np.clip(codes, 0, self.num_values) * (levels >= self.missing_prob)

    def expected_values(self, num_rows: int, min_rows: int = 1) -> float:
        """How many different values a log of this length has at least `min_rows` rows of."""
        from scipy.special import gammainc

        edges = np.unique(np.geomspace(_HEAD, max(self.num_values, _HEAD), 4000).astype(np.int64))
        tail = (edges[1:] + edges[:-1] + 1) / 2
        ranks = np.concatenate([np.arange(1, min(_HEAD, self.num_values) + 1), tail])
        widths = np.concatenate([np.ones(len(ranks) - len(tail)), np.diff(edges)])
        # Counts are Poisson to great accuracy; P(Poisson(m) >= k) is the lower gamma of k at m.
        return float(widths @ gammainc(min_rows, num_rows * self.prob(ranks)))

    @functools.cached_property
    def _head_weights(self) -> FloatArray:
        ranks = np.arange(1, min(_HEAD, self.num_values) + 1)
        return np.concatenate([[0.0], np.cumsum((ranks + self.shift) ** -self.exponent)])

    @functools.cached_property
    def _total_weight(self) -> float:
        return float(self._weight_up_to(np.array([self.num_values], dtype=np.float64))[0])

    def _weight_up_to(self, ranks: FloatArray) -> FloatArray:
        head = self._head_weights
        weights = head[np.minimum(ranks, len(head) - 1).astype(np.int64)]
        tail = np.maximum(ranks, _HEAD)
        # The midpoint rule is within 1e-10 of the sum from rank 65,536 on.
        return weights + self._integral(tail + 0.5) - self._integral(np.float64(_HEAD + 0.5))

    def _integral(self, rank: FloatArray | np.float64) -> FloatArray:
        shifted = np.asarray(rank + self.shift, dtype=np.float64)
        if self.exponent == 1:
            return np.log(shifted)
        return np.asarray(shifted ** (1 - self.exponent) / (1 - self.exponent))

    def _tail_rank(self, weights: FloatArray) -> FloatArray:
        start = self._integral(np.float64(_HEAD + 0.5))
        integral = weights - self._head_weights[-1] + start
        if self.exponent == 1:
            return np.asarray(np.exp(integral) - self.shift - 0.5)
        power = 1 - self.exponent
        # Beyond the last rank rounding may leave the domain; the caller clips.
        rank = np.maximum(integral * power, 1e-300) ** (1 / power)
        return np.asarray(rank - self.shift - 0.5)


class CodeTable:
    """Turns 32-bit words into codes of one law."""

    def __init__(self, law: ZipfLaw) -> None:
        edges = np.arange(_NUM_BUCKETS + 1) / _NUM_BUCKETS
        first = law.quantile(edges[:-1])
        last = np.concatenate([first[1:], [law.num_values]])
        # Where inside its bucket the first and the last border between two codes lie.
        low = (law.cdf(first) - edges[:-1]) * _NUM_BUCKETS
        high = (law.cdf(last - 1) - edges[:-1]) * _NUM_BUCKETS
        borders = last - first
        slope = np.where(borders >= 2, (borders - 1) / np.maximum(high - low, 1e-9), borders)
        offset = np.where(borders >= 1, 1 - low * slope, 0)
        self._first = first.astype(np.int32)
        self._most = borders.astype(np.float32)
        self._slope = (slope * 2.0**-_INSIDE_BITS).astype(np.float32)
        self._offset = offset.astype(np.float32)

    def codes(self, words: WordArray) -> CodeArray:
        """One code for each uniformly random word."""
        bucket = (words >> np.uint32(_INSIDE_BITS)).astype(np.intp)
        inside = (words & np.uint32((1 << _INSIDE_BITS) - 1)).view(np.int32).astype(np.float32)
        inside *= self._slope.take(bucket, mode="clip")
        inside += self._offset.take(bucket, mode="clip")
        np.maximum(inside, 0, out=inside)
        np.minimum(inside, self._most.take(bucket, mode="clip"), out=inside)
        codes = inside.astype(np.int32)
        codes += self._first.take(bucket, mode="clip")
        return codes
