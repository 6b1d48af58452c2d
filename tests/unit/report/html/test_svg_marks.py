"""Axes hold their values, in order, with numbers at round places."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.report.html.charts import (
    NOTHING,
    Axis,
    common_decimals,
    short_number,
    shown,
    shown_column,
)
from tulle.report.html.svg_marks import scale_of, tick_text, ticks

_VALUES = st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=8)


@given(values=_VALUES, is_log=st.booleans())
def test_values_keep_their_order_inside_the_frame(values: list[float], is_log: bool) -> None:
    scale = scale_of(Axis(name="x", is_log=is_log), values, start=10, end=110)
    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(10 <= place <= 110 + 1e-9 for place in places)


@given(values=_VALUES, is_log=st.booleans())
def test_an_axis_has_two_to_a_few_numbers(values: list[float], is_log: bool) -> None:
    scale = scale_of(Axis(name="x", is_log=is_log), values, start=0, end=1)
    found = ticks(scale, most=6)
    assert 1 <= len(found) <= 10
    assert found == sorted(set(found))
    assert all(-1e-6 <= scale.place(value) <= 1 + 1e-6 for value in found)


def test_a_linear_axis_is_linear_and_a_log_axis_is_not() -> None:
    linear = scale_of(Axis(name="x"), [0.0, 100.0], start=0, end=1)
    assert linear.place(50) - linear.place(25) == pytest.approx(linear.place(25) - linear.place(0))
    log = scale_of(Axis(name="x", is_log=True), [1.0, 100.0], start=0, end=1)
    assert log.place(10) == pytest.approx(0.5)
    assert ticks(log, most=6) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]


def test_limits_of_an_axis_cut_values_off() -> None:
    scale = scale_of(Axis(name="x", low=-1.0, high=2.0), [-9.0, 0.0, 9.0], start=0, end=1)
    assert -1.2 < scale.low < -1
    assert 2 < scale.high < 2.2
    assert scale.place(-9.0) == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (0.18101541, "0.18102"),
        (1234567.0, "1,234,567"),
        (1e-7, "1e-07"),
        (math.inf, "none"),
    ],
)
def test_numbers_are_short(value: float, words: str) -> None:
    assert short_number(value) == words


@given(values=st.lists(st.floats(min_value=1e-3, max_value=9.0), min_size=1, max_size=8))
def test_columns_keep_digits_of_every_number_and_align_them(values: list[float]) -> None:
    words = shown_column([*values, None])
    assert words.pop() == NOTHING
    assert len({len(text.partition(".")[2]) for text in words}) == 1
    for value, text in zip(values, words, strict=True):
        assert float(text) == pytest.approx(value, rel=0.051)


def test_columns_that_cannot_be_aligned_show_each_number_by_itself() -> None:
    assert shown_column([1e-7, 3.0]) == ["1e-07", "3"]
    assert shown_column([1, 2000]) == ["1", "2,000"]
    assert shown_column([2**53 + 1, None]) == ["9,007,199,254,740,993", "–"]
    assert shown_column(["a", 1.5, None]) == ["a", "1.5", "none"]
    assert shown_column([0.0, 0.0]) == ["0", "0"]
    assert common_decimals([1.5, 2.25]) == 2


def test_values_are_shown_in_words_of_the_house() -> None:
    assert [shown(value) for value in (None, True, False, "a", 1200, [1])] == [
        *("none", "yes", "no", "a", "1,200", "[1]"),
    ]
    assert tick_text(0.25, is_percent=True) == "25%"
    assert tick_text(2_000_000.0, is_percent=False) == "2e6"
