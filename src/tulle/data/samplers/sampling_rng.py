"""The stream of random words that decides which rows enter a batch.

Amplification by sampling holds only while nobody knows who was sampled, so the
words are as secret as the noise. A batch needs one word a row; a counter-based
generator gives them several times faster than the operating system, which only
draws the key, once a run.
"""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tulle.errors import RunStateError
from tulle.mechanisms.entropy import NoiseSource, Words

IntArray = NDArray[np.int64]

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
