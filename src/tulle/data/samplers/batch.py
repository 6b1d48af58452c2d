"""What a sampler takes, what it draws from, and what it hands to one training step.

Amplification by sampling holds only while nobody knows who was sampled, so the
words that decide it are as secret as the noise. A batch needs one word a row; a
counter-based generator gives them several times faster than the operating system,
which only draws the key, once a run.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.exact import MAX_SCALE
from tulle.privacy import events
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]
WeightArray = NDArray[np.float32]

PADDING_INDEX = 0
"""Row that padding points at: it can always be gathered, and its weight is zero."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """The rows of one step. Who is in it is secret: never log, save or release it."""

    indices: IntArray
    """Rows in ascending order, then padding, which points at row 0."""
    weights: WeightArray
    """1 for a row of the batch, 0 for padding. A gradient that is not finite stays so
    when it is multiplied by 0: select by weight instead."""
    expected_size: float
    """Expected number of rows, public and the same in every step: divide by this."""

    def __post_init__(self) -> None:
        if self.indices.shape != self.weights.shape or self.indices.ndim != 1:
            raise ConfigError(
                f"indices of shape {self.indices.shape} and weights of shape "
                f"{self.weights.shape} must be two vectors of the same length."
            )

    @property
    def num_sampled(self) -> int:
        """Rows in the batch without padding. Secret, and never a divisor.

        Given its size, a Poisson batch is a uniform batch of fixed size, which
        costs several times more: a mean over the drawn size gives that away.
        """
        return int(np.count_nonzero(self.weights))

    def __repr__(self) -> str:
        return f"Batch(expected_size={self.expected_size})"


def padded_batch(rows: IntArray, physical_size: int, expected_size: float) -> Batch:
    """A batch of fixed length: the rows, then padding of weight zero.

    Args:
      rows: Rows that were drawn, at most `physical_size`.
      physical_size: Length of the batch with its padding.
      expected_size: Public divisor of sums over the batch, the same in every step.
    """
    indices = np.full(physical_size, PADDING_INDEX, np.int64)
    indices[: rows.size] = rows
    weights = np.zeros(physical_size, np.float32)
    weights[: rows.size] = 1
    return Batch(indices=indices, weights=weights, expected_size=expected_size)


def unpadded_batch(rows: IntArray, expected_size: float) -> Batch:
    """A batch that is as long as it has rows."""
    return Batch(indices=rows, weights=np.ones(rows.size, np.float32), expected_size=expected_size)


_LEAST_SAMPLING_PROB = 2 / MAX_SCALE
"""Least sampling probability: the mean gap between rows, about one over it, is a scale of the exact
sampler, which takes scales up to MAX_SCALE."""


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


# Philox4x64 has a key of 128 bits and a counter of 256.
_NUM_KEY_WORDS = 2
_NUM_COUNTER_WORDS = 4


def sampling_generator(rng: NoiseSource) -> np.random.Generator:
    """A Philox generator with a 128-bit key and a 256-bit start drawn from `rng`.

    Philox4x64-10 (Salmon et al. 2011). It has no proof of security: it is the
    same trade as for training noise, and rests on its key being secret.

    Args:
      rng: Where key and start come from. Sensitive: never log or save its state,
        nor that of the generator.
    """
    words = rng.words(_NUM_KEY_WORDS + _NUM_COUNTER_WORDS)
    key, counter = words[:_NUM_KEY_WORDS], words[_NUM_KEY_WORDS:]
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class SamplingStream:
    """Uniform words and uniform subsets for the batches of one run; a `NoiseSource`.

    It can be neither copied nor pickled: a copy in another process would draw the
    same batches again, and a file with it would tell who was sampled.
    """

    def __init__(self, rng: NoiseSource) -> None:
        self._generator = sampling_generator(rng)
        self.is_secure = rng.is_secure
        self.description = f"Philox keyed from {rng.description}"

    def words(self, num_words: int) -> Words:
        """The next words of the stream."""
        return np.asarray(self._generator.bit_generator.random_raw(num_words), np.uint64)

    def subset(self, num_items: int, subset_size: int) -> IntArray:
        """A uniform subset of `subset_size` of the numbers 0 … num_items - 1, sorted.

        numpy draws it from bounded integers with rejection, without float error.
        """
        chosen = self._generator.choice(num_items, subset_size, replace=False, shuffle=False)
        return np.sort(chosen.astype(np.int64, copy=False))

    def __repr__(self) -> str:
        return f"SamplingStream({self.description})"

    def __reduce__(self) -> NoReturn:
        raise RunStateError(
            "a sampling stream must not be copied or saved: it tells who was sampled. "
            "Make a new one from release_rng() in each process."
        )
