import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tulle.data.synth.text import (
    blank_where,
    choose_text,
    constant_text,
    decimal_text,
    hex_text,
    integer_text,
    join_lines,
)

INTEGERS = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20)


def lines(*columns: np.ndarray) -> list[str]:
    return join_lines(list(columns), ",").decode().splitlines()


@given(INTEGERS)
def test_integers_are_written_as_python_writes_them(numbers: list[int]) -> None:
    assert lines(integer_text(np.array(numbers))) == [str(number) for number in numbers]


@given(INTEGERS)
def test_fixed_point_numbers_keep_all_their_places(numbers: list[int]) -> None:
    sizes = np.abs(np.array(numbers))
    expected = [f"{size // 10**6}.{size % 10**6:06d}" for size in sizes.tolist()]
    assert lines(decimal_text(sizes, 6)) == expected


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_words_are_eight_hexadecimal_digits(numbers: list[int]) -> None:
    words = np.array(numbers, dtype=np.uint32)
    assert lines(hex_text(words)) == [f"{number:08x}" for number in numbers]
    assert lines(hex_text(words, upper=True)) == [f"{number:08X}" for number in numbers]


def test_fields_of_any_width_are_put_side_by_side() -> None:
    numbers = np.array([5, 123_456, -7])
    chosen = choose_text(numbers > 0, integer_text(numbers), constant_text("none at all", 3))
    blanked = blank_where(numbers < 6, integer_text(numbers))
    assert lines(chosen, blanked) == ["5,", "123456,123456", "none at all,"]
