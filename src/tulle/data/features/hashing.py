"""A stable, salted 64-bit hash of a column name and a value, for many values at once.

The same value in the same column gets the same hash on every machine and in
every version; the names and values below are part of the file format. It is
not cryptographic: a salt is public, and who knows it can look for collisions.

Algorithm 1, all arithmetic modulo 2^64. The start is k = the first 8 bytes of
BLAKE2b(column name, key = salt, person = "tulle.values.1"). A value is its
UTF-8 bytes, zero-padded to at least one whole 8-byte little-endian word; of a
value over 128 bytes the words are those of its 16-byte BLAKE2b (same person,
no key). With the length in bytes, -1 for a missing value (which has the word 0):

    h = k + length * 0x9E3779B97F4A7C15
    for each word:  h = mix(h ^ word)

`mix` is the finalizer of SplitMix64 (Steele, Lea, Flood 2014; constants of
Stafford's variant 13). It is a bijection, so two values of the same length up
to 8 bytes never collide.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.errors import ConfigError

Hashes = NDArray[np.uint64]

MIN_SALT_BYTES = 16
"""128 bits: two data sets that each draw a salt do not meet by accident."""
MAX_SALT_BYTES = 64
"""The longest key of BLAKE2b."""
MAX_BINS = 2**31 - 1
"""Bins are stored as 32-bit integers, and the product of half a hash with their number must fit 64
bits."""

_PERSON = b"tulle.values.1"
# Parts of algorithm 1 above (constants of SplitMix64 and of Stafford's variant 13). They are in
# every stored encoder: with other ones, saved models would look up wrong rows.
_LENGTH_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MULTIPLIERS = tuple(map(np.uint64, _FACTORS))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_WORD_BYTES = 8
_MASK_64 = 2**64 - 1
_MAX_DIRECT_BYTES = 128
_MISSING_LENGTH = 2**32 - 1
_CACHE_BLOCK = 2**13
"""Arrays of 64 KiB, so that a block and its temporaries stay in the processor's cache."""
# A product of 64 by 31 bits overflows, so it is taken by halves of 32 bits.
_HALF_BITS = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)
# Masks that keep the first 0, 1, … 8 bytes of a little-endian word.
_FIRST_BYTES = np.array([2 ** (8 * size) - 1 for size in range(9)], dtype=np.uint64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueHasher:
    """Hashes the values of one column. Both fields are public information."""

    column: str
    salt: bytes

    def __post_init__(self) -> None:
        check_salt(self.salt)

    def hashes(self, values: pl.Series) -> Hashes:
        """One hash for each value of a String series; null is a value of its own."""
        lengths = values.str.len_bytes().fill_null(_MISSING_LENGTH).to_numpy()
        is_other = lengths != _WORD_BYTES
        result = np.empty(len(values), dtype=np.uint64)
        if not is_other.all():
            # A value of exactly 8 bytes is one word already; any other gives null.
            binary = values.cast(pl.Binary)
            words = binary.bin.reinterpret(dtype=pl.UInt64, endianness="little").fill_null(0)
            _absorb_word(result, words.to_numpy(), self._start(_WORD_BYTES))
        is_missing = lengths == _MISSING_LENGTH
        result[is_missing] = self.hash_of(None)
        others = np.flatnonzero(is_other & ~is_missing)
        if others.size:
            texts = values.gather(others) if others.size < len(values) else values
            result[others] = self._hashes_of_any_length(texts, lengths[others])
        return result

    def hash_of(self, value: str | None) -> int:
        """The hash of one value, as `hashes` gives it, in plain Python."""
        if value is None:
            return _mixed((self.key - _LENGTH_STEP) & _MASK_64)
        content = value.encode()
        state = (self.key + len(content) * _LENGTH_STEP) & _MASK_64
        if len(content) > _MAX_DIRECT_BYTES:
            content = hashlib.blake2b(content, digest_size=16, person=_PERSON).digest()
        for place in range(0, max(len(content), 1), _WORD_BYTES):
            word = int.from_bytes(content[place : place + _WORD_BYTES], "little")
            state = _mixed(state ^ word)
        return state

    @functools.cached_property
    def key(self) -> int:
        """What salt and column name come to: all that a hash needs beside the value."""
        digest = hashlib.blake2b(
            self.column.encode(), digest_size=_WORD_BYTES, key=self.salt, person=_PERSON
        )
        return int.from_bytes(digest.digest(), "little")

    def _start(self, num_bytes: int) -> np.uint64:
        return np.uint64((self.key + num_bytes * _LENGTH_STEP) & _MASK_64)

    def _hashes_of_any_length(self, texts: pl.Series, lengths: NDArray[np.uint32]) -> Hashes:
        size = int(lengths[0])
        if 0 < size <= _MAX_DIRECT_BYTES and (lengths == size).all():
            return self._hashes_of_one_length(texts, size)
        sizes = lengths.astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        result = sizes.view(np.uint64) * np.uint64(_LENGTH_STEP) + np.uint64(self.key)
        joined: bytes = texts.str.join("").cast(pl.Binary).item()
        digests: list[bytes] = []
        for index in np.flatnonzero(sizes > _MAX_DIRECT_BYTES):
            # The digest goes behind all values and is hashed in the place of this one.
            value = joined[starts[index] : starts[index] + sizes[index]]
            starts[index], sizes[index] = len(joined) + 16 * len(digests), 16
            digests.append(hashlib.blake2b(value, digest_size=16, person=_PERSON).digest())
        padded = b"".join((joined, *digests, bytes(_WORD_BYTES)))
        # A word at every byte of the text, without a copy.
        num_words = len(padded) - _WORD_BYTES + 1
        words: Hashes = np.ndarray((num_words,), dtype="<u8", buffer=padded, strides=(1,))
        for block in _blocks(len(result)):
            _absorb(result[block], words, starts[block], sizes[block])
        return result

    def _hashes_of_one_length(self, texts: pl.Series, size: int) -> Hashes:
        """The quick way for ids, which are often all equally long."""
        joined: bytes = texts.str.join("").cast(pl.Binary).item()
        padded = b"".join((joined, bytes(_WORD_BYTES)))
        result = np.full(len(texts), self._start(size), dtype=np.uint64)
        for block in _blocks(len(result)):
            state = result[block]
            for position in range(0, size, _WORD_BYTES):
                words: Hashes = np.ndarray(
                    state.shape,
                    dtype="<u8",
                    buffer=padded,
                    offset=block.start * size + position,
                    strides=(size,),
                )
                state ^= words & _FIRST_BYTES[min(size - position, _WORD_BYTES)]
                _mix(state)
        return result


def bin_of(value_hash: int, num_bins: int) -> int:
    """The bin of one hash, as `bins_of` gives it."""
    return value_hash * num_bins >> 64


def bins_of(hashes: Hashes, num_bins: int) -> NDArray[np.int32]:
    """The bin of each hash: floor(hash * num_bins / 2^64), so bins differ by one hash at most."""
    check_num_bins(num_bins)
    factor = np.uint64(num_bins)
    bins = np.empty(len(hashes), dtype=np.int32)
    for block in _blocks(len(hashes)):
        low = hashes[block] & _LOW_HALF
        low *= factor
        low >>= _HALF_BITS
        high = hashes[block] >> _HALF_BITS
        high *= factor
        high += low
        high >>= _HALF_BITS
        bins[block] = high
    return bins


def check_num_bins(num_bins: object) -> None:
    """Refuses a number of bins that is not in [2, 2^31)."""
    is_whole = isinstance(num_bins, int) and not isinstance(num_bins, bool)
    if not is_whole or not 2 <= num_bins <= MAX_BINS:  # type: ignore[operator]
        raise ConfigError(
            f"num_bins={num_bins!r} must be a whole number from 2 to {MAX_BINS}, e.g. 100_000."
        )


def check_salt(salt: object) -> None:
    """Refuses a salt of the wrong type or length."""
    if not isinstance(salt, bytes) or not MIN_SALT_BYTES <= len(salt) <= MAX_SALT_BYTES:
        size = f"{len(salt)} bytes" if isinstance(salt, bytes) else type(salt).__name__
        raise ConfigError(
            f"salt is {size} and must be {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes; "
            "draw one for each data set with secrets.token_bytes(16)."
        )


def _absorb_word(result: Hashes, words: Hashes, start: np.uint64) -> None:
    """Hashes of values of one word each."""
    for block in _blocks(len(result)):
        np.bitwise_xor(words[block], start, out=result[block])
        _mix(result[block])


def _absorb(
    state: Hashes, words: Hashes, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Mixes each value's words into its state, in place."""
    state ^= words[starts] & _FIRST_BYTES[np.minimum(sizes, _WORD_BYTES)]
    _mix(state)
    position = _WORD_BYTES
    left = np.flatnonzero(sizes > position)
    while left.size:
        used = np.minimum(sizes[left] - position, _WORD_BYTES)
        state[left] = _mix(state[left] ^ words[starts[left] + position] & _FIRST_BYTES[used])
        position += _WORD_BYTES
        left = left[sizes[left] > position]


def _mixed(state: int) -> int:
    """The finalizer of SplitMix64 of one number, which is below 2^64."""
    state = (state ^ state >> 30) * _FACTORS[0] & _MASK_64
    state = (state ^ state >> 27) * _FACTORS[1] & _MASK_64
    return state ^ state >> 31


def _mix(state: Hashes) -> Hashes:
    """The finalizer of SplitMix64, in place."""
    state ^= state >> _SHIFTS[0]
    state *= _MULTIPLIERS[0]
    state ^= state >> _SHIFTS[1]
    state *= _MULTIPLIERS[1]
    state ^= state >> _SHIFTS[2]
    return state


def _blocks(length: int) -> Iterator[slice]:
    """Pieces that fit the processor's cache with their temporaries."""
    for start in range(0, length, _CACHE_BLOCK):
        yield slice(start, start + _CACHE_BLOCK)
