"""Columns of numbers as text, fast: a matrix of bytes for each column.

Every row of a matrix is one field, padded with NUL bytes. Fields are laid side by side
and the padding is dropped at the end, so that no Python object is made for a field.
"""

import functools

import numpy as np
import numpy.typing as npt

TextMatrix = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.integer]

_GROUP = 10_000


def hex_text(words: npt.NDArray[np.uint32], *, upper: bool = False) -> TextMatrix:
    """Words as 8 hexadecimal digits each."""
    digits = _hex_pairs(upper)
    text = np.empty((len(words), 2), np.uint32)
    text[:, 0] = digits.take(words >> np.uint32(16))
    text[:, 1] = digits.take(words & np.uint32(0xFFFF))
    return text.view(np.uint8)


def integer_text(numbers: IntArray) -> TextMatrix:
    """Integers in decimal, with a sign if negative."""
    values = numbers.astype(np.int64)
    signs = np.where(values < 0, np.uint8(ord("-")), np.uint8(0))[:, None]
    rest = np.abs(values)
    groups = []
    while True:
        higher, group = np.divmod(rest, _GROUP) if rest.max(initial=0) >= _GROUP else (None, rest)
        if higher is None:
            groups.append(_plain_groups().take(group))
            break
        groups.append(
            np.where(higher > 0, _padded_groups().take(group), _plain_groups().take(group))
        )
        rest = higher
    # The highest group is NUL where a lower one is the first of its number.
    for place in range(1, len(groups)):
        groups[place][np.abs(values) < _GROUP**place] = 0
    text = np.stack(groups[::-1], axis=1)
    digits = np.ascontiguousarray(text).view(np.uint8)
    return np.hstack([signs, digits]) if signs.any() else digits


def decimal_text(numbers: IntArray, places: int) -> TextMatrix:
    """Non-negative fixed-point numbers, e.g. 1234 with 2 places as 12.34."""
    whole, part = np.divmod(numbers.astype(np.int64), 10**places)
    shown = integer_text(part + 10**places)[:, -places:]
    point = np.full((len(numbers), 1), ord("."), np.uint8)
    return np.hstack([integer_text(whole), point, shown])


def constant_text(text: str, num_rows: int) -> TextMatrix:
    """The same field in every row."""
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (num_rows, len(text)))


def blank_where(empty: npt.NDArray[np.bool_], text: TextMatrix) -> TextMatrix:
    """The same matrix with the fields made empty where the mark is set."""
    text[empty] = 0
    return text


def choose_text(
    use_first: npt.NDArray[np.bool_], first: TextMatrix, second: TextMatrix
) -> TextMatrix:
    """Fields of the first column where the mark is set, and of the second elsewhere.

    Args:
      use_first: Mark of each row.
      first: Fields of rows whose mark is set.
      second: Fields of the other rows.
    """
    width = max(first.shape[1], second.shape[1])
    chosen = np.zeros((len(use_first), width), np.uint8)
    chosen[:, : first.shape[1]] = first
    others = np.flatnonzero(~use_first)
    chosen[others] = 0
    chosen[others, : second.shape[1]] = second[others]
    return chosen


def join_lines(columns: list[TextMatrix], separator: str) -> bytes:
    """One line for each row."""
    widths = [column.shape[1] + 1 for column in columns]
    lines = np.empty((len(columns[0]), sum(widths)), np.uint8)
    start = 0
    for column, width in zip(columns, widths, strict=True):
        lines[:, start : start + width - 1] = column
        lines[:, start + width - 1] = ord(separator)
        start += width
    lines[:, -1] = ord("\n")
    return lines.tobytes().translate(None, b"\0")


@functools.cache
def _hex_pairs(upper: bool) -> npt.NDArray[np.uint32]:
    text = "".join(f"{n:04X}" if upper else f"{n:04x}" for n in range(1 << 16))
    return np.frombuffer(text.encode(), np.uint32)


@functools.cache
def _plain_groups() -> npt.NDArray[np.uint32]:
    text = "".join(f"{n}".rjust(4, "\0") for n in range(_GROUP))
    return np.frombuffer(text.encode(), np.uint32)


@functools.cache
def _padded_groups() -> npt.NDArray[np.uint32]:
    text = "".join(f"{n:04d}" for n in range(_GROUP))
    return np.frombuffer(text.encode(), np.uint32)
