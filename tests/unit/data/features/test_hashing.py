"""Hashes are the documented ones, forever, and spread evenly."""

import hashlib

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tulle.data.features.hashing import ValueHasher, bin_of, bins_of
from tulle.data.tables.split_lines import TextColumn
from tulle.errors import ConfigError

SALT = bytes(range(16))
MASK = 2**64 - 1

GOLDEN = {
    "68fd1e64": 0x34996DA9D5462A97,
    "": 0x37299E37DDB23FE8,
    "5": 0xF2EEA6D437DDFD9D,
    "05": 0xE029E0A8CE8FE2C5,
    "a,b c": 0xFDED64B2C0C3A3C8,
    "été": 0x09B62B5F31F79C25,
    "x" * 128: 0xE5D3BC4985BE8567,
    "y" * 129: 0xB068A3A99BA2E167,
    "0123456789": 0x223343AD589D25FC,
    None: 0xB48B96641F2D2B1D,
    "\0": 0xED4950F2834843B8,
}
"""Of column C1 under SALT, as the first version gave them; they may never change."""


def documented_hash(value: str | None, column: str, salt: bytes) -> int:
    """Algorithm 1 of the module's docstring, one value at a time."""
    person = b"tulle.values.1"
    key = hashlib.blake2b(column.encode(), digest_size=8, key=salt, person=person).digest()
    content = b"" if value is None else value.encode()
    length = -1 if value is None else len(content)
    if length > 128:
        content = hashlib.blake2b(content, digest_size=16, person=person).digest()
    content += bytes(-len(content) % 8 or (0 if content else 8))
    state = (int.from_bytes(key, "little") + length * 0x9E3779B97F4A7C15) & MASK
    for place in range(0, len(content), 8):
        state ^= int.from_bytes(content[place : place + 8], "little")
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state


def hashes_of(values: list[str | None], *, column: str = "C1", salt: bytes = SALT) -> list[int]:
    series = pl.Series("any name", values, dtype=pl.String)
    return [int(value) for value in ValueHasher(column=column, salt=salt).hashes(series)]


def test_hashes_are_those_of_the_first_version() -> None:
    assert hashes_of(list(GOLDEN)) == list(GOLDEN.values())
    assert hashes_of(["68fd1e64", None], column="C2") == [0x3FC225FDACF90F36, 0x6F0AB91364BE3CEB]


def test_bins_are_those_of_the_first_version() -> None:
    hashes = np.array(list(GOLDEN.values()), dtype=np.uint64)
    expected = [20546, 21547, 94895, 87563, 99190, 3793, 89776, 68909, 13359, 70525, 92689]
    assert bins_of(hashes, 100_000).tolist() == expected


TEXTS = st.one_of(
    st.none(),
    st.text(max_size=40).filter(lambda text: text.isprintable() or "\0" in text),
    st.text(alphabet="ab", min_size=120, max_size=140),
)


@settings(max_examples=60)
@given(values=st.lists(TEXTS, max_size=30), column=st.text(min_size=1, max_size=5))
def test_many_values_at_once_hash_as_documented_one_by_one(
    values: list[str | None], column: str
) -> None:
    expected = [documented_hash(value, column, SALT) for value in values]
    assert hashes_of(values, column=column) == expected


@settings(max_examples=40)
@given(data=st.data(), size=st.integers(0, 40), has_gaps=st.booleans())
def test_values_of_one_length_hash_as_documented(
    data: st.DataObject, size: int, has_gaps: bool
) -> None:
    text: st.SearchStrategy[str | None] = st.text(alphabet="abc", min_size=size, max_size=size)
    values = data.draw(st.lists(text | st.none() if has_gaps else text, max_size=12))
    assert hashes_of(values) == [documented_hash(value, "C1", SALT) for value in values]


@settings(max_examples=60)
@given(value=TEXTS, num_bins=st.integers(2, 2**31 - 1))
def test_one_value_in_plain_python_hashes_like_many(value: str | None, num_bins: int) -> None:
    found = ValueHasher(column="C1", salt=SALT).hash_of(value)
    assert [found] == hashes_of([value])
    assert bin_of(found, num_bins) == bins_of(np.array([found], np.uint64), num_bins)[0]


def test_a_value_hashes_alike_wherever_it_stands() -> None:
    values = [f"{number:x}" * (1 + number % 9) for number in range(20_000)]
    whole = hashes_of(values)
    assert whole[12_345:12_350] == hashes_of(values[12_345:12_350])
    assert hashes_of(values[::-1]) == whole[::-1]


@settings(max_examples=60)
@given(values=st.lists(TEXTS | st.text(alphabet="a", min_size=8, max_size=8), max_size=30))
def test_values_hash_alike_where_they_stand_in_a_text(values: list[str | None]) -> None:
    column = TextColumn.of(pl.Series(values, dtype=pl.String))
    found = ValueHasher(column="C1", salt=SALT).hashes(column)
    assert found.tolist() == [documented_hash(value, "C1", SALT) for value in values]


def test_missing_is_a_value_of_its_own() -> None:
    values = [None, "", "\0", "null", "None", "\0" * 8]
    assert len(set(hashes_of(values))) == len(values)


@pytest.mark.parametrize("num_bins", [7, 1000])
def test_values_spread_evenly_over_the_bins(num_bins: int) -> None:
    for values in (
        [str(number) for number in range(100_000)],
        [f"{number:08x}" for number in range(100_000)],
        [f"https://example.org/item/{number}" for number in range(100_000)],
    ):
        bins = bins_of(np.array(hashes_of(values), dtype=np.uint64), num_bins)
        observed = np.bincount(bins, minlength=num_bins)
        assert len(observed) == num_bins
        assert stats.chisquare(observed).pvalue > 1e-9


def test_a_hash_that_favours_some_bins_would_be_noticed() -> None:
    lazy = np.arange(100_000, dtype=np.uint64) << np.uint64(47)  # leading bits of a counter
    assert stats.chisquare(np.bincount(bins_of(lazy, 1000), minlength=1000)).pvalue < 1e-9


def test_equal_values_of_two_columns_have_independent_bins() -> None:
    values: list[str | None] = [f"{number:08x}" for number in range(50_000)]
    first, second = (np.array(hashes_of(values, column=name), np.uint64) for name in ("a", "b"))
    table = np.zeros((10, 10))
    np.add.at(table, (bins_of(first, 10), bins_of(second, 10)), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-9
    assert not np.intersect1d(first, second).size


def test_another_salt_gives_another_map() -> None:
    values: list[str | None] = [str(number) for number in range(20_000)]
    first, second = (
        bins_of(np.array(hashes_of(values, salt=salt), np.uint64), 100)
        for salt in (SALT, SALT[::-1])
    )
    share = np.mean(first == second)
    assert abs(share - 0.01) < 6.5 * np.sqrt(0.01 / 20_000)


def test_bins_cover_the_whole_range_of_hashes() -> None:
    ends = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    for num_bins in (2, 3, 100_000, 2**31 - 1):
        assert bins_of(ends, num_bins).tolist() == [0, num_bins // 2, num_bins - 1]


def test_no_values_have_no_hashes() -> None:
    assert hashes_of([]) == []
    assert bins_of(np.array([], dtype=np.uint64), 5).tolist() == []


@pytest.mark.parametrize("salt", [b"", b"short", bytes(65), "text that is long enough"])
def test_a_salt_of_wrong_length_is_refused(salt: bytes) -> None:
    with pytest.raises(ConfigError, match="16 to 64 bytes"):
        ValueHasher(column="a", salt=salt)


@pytest.mark.parametrize("num_bins", [0, 1, -5, 2.5, True, 2**31])
def test_a_number_of_bins_without_meaning_is_refused(num_bins: int) -> None:
    with pytest.raises(ConfigError, match="num_bins"):
        bins_of(np.array([1], dtype=np.uint64), num_bins)
