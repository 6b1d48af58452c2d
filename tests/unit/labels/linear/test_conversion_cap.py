import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.labels.linear.conversion_cap import ConversionCap


def first_conversions(labels: list[bool], units: list[int], most: int) -> list[bool]:
    counts: dict[int, int] = {}
    kept = []
    for label, unit in zip(labels, units, strict=True):
        counts[unit] = counts.get(unit, 0) + label
        kept.append(label and counts[unit] <= most)
    return kept


rows = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=40)


@given(rows, st.integers(1, 3), st.lists(st.integers(0, 40), max_size=4))
def test_the_first_conversions_are_kept_over_any_blocks(
    table: list[tuple[bool, int]], most: int, cuts: list[int]
) -> None:
    labels, units = [row[0] for row in table], [row[1] for row in table]
    ends = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    cap = ConversionCap(most)
    kept = [
        cap.keep(np.array(labels[a:b], bool), np.array(units[a:b], np.int64)).tolist()
        for a, b in itertools.pairwise(ends)
    ]
    assert list(itertools.chain.from_iterable(kept)) == first_conversions(labels, units, most)


def test_labels_of_one_unit_change_nothing_of_another() -> None:
    units = np.array([0, 1, 0, 1, 0, 1])
    others = [
        ConversionCap(1).keep(np.array([a, 1, b, 1, a, 0], bool), units)[1::2].tolist()
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert others == [[True, False, False]] * 4


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_conversions_per_unit=0"):
        ConversionCap(0)


def test_numbers_of_units_beyond_all_floats_are_told_apart() -> None:
    cap = ConversionCap(1)
    units = np.array([2**63 + 1, 2**63 + 2], np.uint64)
    assert cap.keep(np.ones(2, bool), units).tolist() == [True, True]
    assert cap.keep(np.ones(2, bool), units).tolist() == [False, False]
