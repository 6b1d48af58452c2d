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

from tulle.data.tables.split_lines import PADDING, TextColumn
from tulle.errors import ConfigError

IntArray = NDArray[np.int64]
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

    def hashes(self, values: pl.Series | TextColumn) -> Hashes:
        """One hash for each value of a String series or of a text; missing is a value, too."""
        if isinstance(values, pl.Series):
            lengths = values.str.len_bytes()
            if lengths.min() == lengths.max() == _WORD_BYTES:
                return self._hashes_of_words(values)
        column = values if isinstance(values, TextColumn) else TextColumn.of(values)
        result = np.full(len(column.sizes), self.hash_of(None), dtype=np.uint64)
        for block in _blocks(len(result)):
            starts, sizes = column.starts[block], column.sizes[block]
            if sizes.min() >= 0:
                result[block] = self._present_hashes(column.text, starts, sizes)
            else:
                present = np.flatnonzero(sizes >= 0)
                hashes = self._present_hashes(column.text, starts[present], sizes[present])
                result[block][present] = hashes
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

    def _hashes_of_words(self, values: pl.Series) -> Hashes:
        """The quick way for ids of 8 bytes, such as hashes in hexadecimal digits, and null."""
        words = values.cast(pl.Binary).bin.reinterpret(dtype=pl.UInt64, endianness="little")
        start = np.uint64((self.key + _WORD_BYTES * _LENGTH_STEP) & _MASK_64)
        result: Hashes = words.fill_null(0).to_numpy() ^ start
        for block in _blocks(len(result)):
            _mix(result[block])
        if values.null_count():
            result[values.is_null().to_numpy()] = self.hash_of(None)
        return result

    def _present_hashes(self, text: bytes, starts: IntArray, sizes: IntArray) -> Hashes:
        states = sizes.view(np.uint64) * np.uint64(_LENGTH_STEP) + np.uint64(self.key)
        is_long = sizes > _MAX_DIRECT_BYTES
        if not is_long.any():
            return _absorb(states, text, starts, sizes)
        is_short = ~is_long
        states[is_short] = _absorb(states[is_short], text, starts[is_short], sizes[is_short])
        digests = [
            hashlib.blake2b(text[start : start + size], digest_size=16, person=_PERSON).digest()
            for start, size in zip(starts[is_long], sizes[is_long], strict=True)
        ]
        joined = b"".join((*digests, bytes(PADDING)))
        places = 16 * np.arange(len(digests))
        states[is_long] = _absorb(states[is_long], joined, places, np.full(len(digests), 16))
        return states


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


def _absorb(states: Hashes, text: bytes, starts: IntArray, sizes: IntArray) -> Hashes:
    """Mixes the words of each value into its state, in place. A value without bytes has the word 0.

    Args:
      states: What is mixed into.
      text: Bytes with the values, and `PADDING` more behind them.
      starts: First byte of each value.
      sizes: Bytes of each value.
    """
    if not sizes.size:
        return states
    shortest, longest = sizes.min(), sizes.max()
    # Four words at every byte of the text, without a copy, so that a value is fetched at once.
    pieces = np.ndarray((len(text) - PADDING + 1,), f"V{PADDING}", buffer=text, strides=(1,))
    words: Hashes = pieces[starts].view("<u8").reshape(-1, PADDING // _WORD_BYTES)
    for position in range(0, min(max(longest, 1), PADDING), _WORD_BYTES):
        word = words[:, position // _WORD_BYTES]
        if shortest >= position + _WORD_BYTES:
            states ^= word
            _mix(states)
        elif shortest > position or not position:
            states ^= word & _FIRST_BYTES[np.minimum(sizes - position, _WORD_BYTES)]
            _mix(states)
        else:
            left = np.flatnonzero(sizes > position)
            used = np.minimum(sizes[left] - position, _WORD_BYTES)
            states[left] = _mix(states[left] ^ word[left] & _FIRST_BYTES[used])
    if longest > PADDING:
        left = np.flatnonzero(sizes > PADDING)
        states[left] = _absorb(states[left], text, starts[left] + PADDING, sizes[left] - PADDING)
    return states


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
