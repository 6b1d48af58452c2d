"""Looking up hashes in a sorted list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tulle.data.features.encoder import ValueLookup

HASHES = st.integers(min_value=0, max_value=2**64 - 1)
CLOSE = st.integers(min_value=2**63, max_value=2**63 + 20)


@given(st.sets(HASHES | CLOSE, max_size=40), st.lists(HASHES | CLOSE, max_size=20))
def test_every_entry_has_its_rank_and_no_other_hash_has_one(
    entries: set[int], others: list[int]
) -> None:
    ordered = sorted(entries)
    asked = [*ordered, *others, 0, 2**64 - 1]
    expected = [ordered.index(value) + 1 if value in entries else 0 for value in asked]
    lookup = ValueLookup(np.array(ordered, dtype=np.uint64))
    assert lookup.ranks(np.array(asked, dtype=np.uint64)).tolist() == expected
    assert lookup.num_entries == len(entries)


def test_a_large_list_is_searched_as_numpy_would() -> None:
    generator = np.random.default_rng(3)
    entries = np.unique(generator.integers(0, 2**64, 50_000, dtype=np.uint64))
    asked = np.concatenate([entries[::3], generator.integers(0, 2**64, 50_000, dtype=np.uint64)])
    places = np.searchsorted(entries, asked)
    places[places == len(entries)] = 0
    expected = np.where(entries[places] == asked, places + 1, 0)
    assert np.array_equal(ValueLookup(entries).ranks(asked), expected)
