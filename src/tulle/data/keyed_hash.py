"""A keyed hash of whole numbers, for choices that must be stable and unpredictable.

SipHash-2-4 (Aumasson, Bernstein 2012) over columns of 64-bit words: whoever does
not know the key cannot tell the values from random ones, and so can neither
predict nor steer which rows are kept.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import Words

IntArray = NDArray[np.int64]

LEAST_KEY_BYTES = 16
"""The 128 bits of security that SipHash is made for; a shorter key could be guessed, and with it
who is kept."""
_BLOCK = 1 << 13
"""Words of 64 KiB a column, so that the four state arrays stay in the processor's cache."""
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""The words of SipHash's start state (Aumasson, Bernstein 2012):
"somepseudorandomlygeneratedbytes"."""


def hash_columns(key: bytes, purpose: str, *columns: IntArray) -> Words:
    """One 64-bit value for each row of one or more columns of whole numbers.

    Args:
      key: Key of the hash, at least 16 bytes. The same key gives the same values in every version.
      purpose: What the values are for; other purposes get unrelated values.
      columns: Vectors of the same length.
    """
    if not isinstance(key, bytes) or len(key) < LEAST_KEY_BYTES:
        raise ConfigError(
            f"key must have at least {LEAST_KEY_BYTES} bytes; "
            "make one with secrets.token_bytes(16) and keep it."
        )
    # A long key is first brought to the 64 bytes that the inner hash takes.
    inner_key = hashlib.blake2b(key).digest()
    digest = hashlib.blake2b(purpose.encode(), key=inner_key, digest_size=16).digest()
    low, high = (int.from_bytes(digest[i : i + 8], "little") for i in (0, 8))
    hashes = np.empty(columns[0].size, np.uint64)
    for start in range(0, hashes.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        hashes[block] = siphash(low, high, [c[block].astype(np.uint64) for c in columns])
    return hashes


def siphash(key_low: int, key_high: int, columns: list[Words]) -> Words:
    """SipHash-2-4 of each row, the words of a row as its little-endian message.

    Args:
      key_low: First 64-bit word of the key.
      key_high: Second 64-bit word of the key.
      columns: Words of all rows, one array for each place in the message.
    """
    keys = (key_low, key_high, key_low, key_high)
    state = [
        np.full(columns[0].shape, key ^ start, np.uint64)
        for key, start in zip(keys, _START, strict=True)
    ]
    length = np.full(columns[0].shape, (8 * len(columns) % 256) << 56, np.uint64)
    for word in (*columns, length):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(state: list[Words], num_rounds: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(num_rounds):
        v0 += v1
        v2 += v3
        v1 = _rotated(v1, 13)
        v3 = _rotated(v3, 16)
        v1 ^= v0
        v3 ^= v2
        v0 = _rotated(v0, 32)
        v2 += v1
        v0 += v3
        v1 = _rotated(v1, 17)
        v3 = _rotated(v3, 21)
        v1 ^= v2
        v3 ^= v0
        v2 = _rotated(v2, 32)
    state[:] = v0, v1, v2, v3


def _rotated(words: Words, num_bits: int) -> Words:
    return (words << np.uint64(num_bits)) | (words >> np.uint64(64 - num_bits))
