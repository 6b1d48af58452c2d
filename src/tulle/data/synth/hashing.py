"""Fixed scrambling of integers: value names, effects and the values that go with an entity.

Everything here is a pure function of its arguments, so that a value means the same in
every log of a shape. It is not cryptographic and hides nothing.
"""

import zlib

import numpy as np
import numpy.typing as npt

WordArray = npt.NDArray[np.uint32]

_LEVELS = 1 << 12


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
