"""Prices are rounded down once, and sums are whole numbers."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.select.billing.money import (
    MAX_PRICE,
    MICROS_PER_UNIT,
    from_micros,
    money_text,
    sum_by_group,
    to_micros,
)

LARGEST = MAX_PRICE * MICROS_PER_UNIT


@settings(max_examples=300)
@given(micros=st.integers(0, LARGEST))
def test_whole_micros_come_back(micros: int) -> None:
    assert to_micros(from_micros(np.array([micros]))).tolist() == [micros]
    # The same from decimal text, whose nearest float may be a little less.
    assert to_micros(np.array([float(money_text(micros))])).tolist() == [micros]


@settings(max_examples=300)
@given(amount=st.floats(0, 1e5))
def test_a_price_is_rounded_down(amount: float) -> None:
    exact = Fraction(amount) * MICROS_PER_UNIT
    rounded = to_micros(np.array([amount])).tolist()[0]
    assert exact - 1 < rounded <= exact * (1 + Fraction(1, 10**15))


@settings(max_examples=300)
@given(micros=st.integers(1, LARGEST - 1), steps=st.integers(-6, 6), more=st.integers(0, 6))
def test_a_lower_price_is_never_more(micros: int, steps: int, more: int) -> None:
    spacing = np.spacing(micros / MICROS_PER_UNIT)
    low = micros / MICROS_PER_UNIT + steps * spacing
    rounded = to_micros(np.array([low, low + more * spacing]))
    assert rounded[0] <= rounded[1]


def test_a_plain_floor_would_lose_a_micro() -> None:
    amounts = np.array([0.29, 8.2, 1.001, 0.000249])
    assert to_micros(amounts).tolist() == [290_000, 8_200_000, 1_001_000, 249]
    floors = np.floor(amounts * MICROS_PER_UNIT).tolist()
    assert floors == [290_000, 8_199_999, 1_000_999, 248]


def test_sums_are_exact_beyond_64_bits() -> None:
    rng = np.random.default_rng(2)
    micros = rng.integers(LARGEST - 1000, LARGEST, 200_000)
    groups = rng.integers(0, 3, len(micros))
    exact = [sum(micros[groups == group].tolist()) for group in range(3)]
    assert max(exact) > 2**62
    assert sum_by_group(micros, groups, 3) == exact
    # What a sum in floats would have given.
    assert [int(s) for s in np.bincount(groups, weights=micros)] != exact


def test_a_group_without_rows_is_zero() -> None:
    assert sum_by_group(np.array([5, 6]), np.array([2, 2]), 4) == [0, 0, 11, 0]


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "0.000000"), (7, "0.000007"), (12_345_678, "12.345678")]
)
def test_text_has_all_digits(micros: int, text: str) -> None:
    assert money_text(micros) == text


def test_text_of_a_large_amount_has_all_digits() -> None:
    assert money_text(10**40 + 1) == "1" + "0" * 34 + ".000001"


@pytest.mark.parametrize("amount", [-1e-9, MAX_PRICE * 1.01, float("nan"), float("inf")])
def test_what_is_no_price_is_refused(amount: float) -> None:
    with pytest.raises(DataError, match="prices must be in"):
        to_micros(np.array([1.0, amount]))
