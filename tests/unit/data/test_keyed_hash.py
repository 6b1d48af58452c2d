"""The keyed hash is SipHash-2-4 and keeps keys and purposes apart."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tulle.data.keyed_hash import hash_columns, siphash
from tulle.errors import ConfigError

KEY = bytes(range(16))
MASK = 2**64 - 1


def reference_siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 as in the paper, for any message, one number at a time."""
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & MASK

    def sip_round() -> None:
        for a, b, turn in ((0, 1, 13), (2, 3, 16)):
            v[a] = (v[a] + v[b]) & MASK
            v[b] = rotate(v[b], turn) ^ v[a]
        v[0] = rotate(v[0], 32)
        for a, b, turn in ((2, 1, 17), (0, 3, 21)):
            v[a] = (v[a] + v[b]) & MASK
            v[b] = rotate(v[b], turn) ^ v[a]
        v[2] = rotate(v[2], 32)

    rest = len(message) % 8
    padded = message + bytes(7 - rest) + bytes([len(message) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        sip_round()
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_reference_gives_the_example_of_the_paper() -> None:
    # Aumasson, Bernstein 2012, appendix A: the bytes 00 … 0e under the key 00 … 0f.
    assert reference_siphash(KEY, bytes(range(15))) == 0xA129CA6149BE45E5


@pytest.mark.parametrize("num_columns", [1, 2, 3])
def test_columns_hash_as_the_reference_does(num_columns: int) -> None:
    generator = np.random.default_rng(num_columns)
    columns = [generator.integers(0, 2**64, 50, dtype=np.uint64) for _ in range(num_columns)]
    low, high = (int.from_bytes(KEY[i : i + 8], "little") for i in (0, 8))
    expected = [
        reference_siphash(KEY, b"".join(int(c[row]).to_bytes(8, "little") for c in columns))
        for row in range(50)
    ]
    assert siphash(low, high, columns).tolist() == expected


def test_blocks_do_not_show() -> None:
    values = np.arange(20_001)
    whole = hash_columns(KEY, "test", values)
    assert np.array_equal(whole[12_345:], hash_columns(KEY, "test", values[12_345:]))
    assert np.unique(whole).size == whole.size


def test_keys_and_purposes_give_unrelated_values() -> None:
    values = np.arange(1000)
    hashes = [
        hash_columns(key, purpose, values)
        for key, purpose in ((KEY, "a"), (KEY, "b"), (KEY[::-1], "a"), (KEY * 5, "a"))
    ]
    for first, second in itertools.combinations(range(4), 2):
        assert not np.intersect1d(hashes[first], hashes[second]).size


def test_the_same_key_gives_the_same_values_in_every_version() -> None:
    assert hash_columns(KEY, "test", np.array([0, -1, 7])).tolist() == [
        17919508851999188070,
        4361882852458992151,
        10924996192697010717,
    ]


def test_hashes_of_numbers_in_a_row_are_uniform() -> None:
    hashes = hash_columns(KEY, "test", np.arange(64_000))
    for shift in (58, 29, 0):
        counts = np.bincount((hashes >> np.uint64(shift)).astype(np.int64) & 63, minlength=64)
        assert stats.chi2.sf(float(((counts - 1000) ** 2 / 1000).sum()), 63) > 1e-9


@pytest.mark.parametrize("key", [b"", bytes(15), "a" * 16, None])
def test_short_keys_are_refused(key: object) -> None:
    with pytest.raises(ConfigError, match=r"at least 16 bytes; make one with secrets\.token_bytes"):
        hash_columns(key, "test", np.arange(3))  # type: ignore[arg-type]
