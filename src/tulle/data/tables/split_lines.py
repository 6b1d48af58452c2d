"""Lines of text split where they stand: the places of their values, and no value copied.

Making a string of each value takes longer than finding out where it begins and ends. Whoever
needs nothing of a category but its hash reads its bytes where they are. Only plain lines are split
here; whatever needs a closer look, such as a quote inside a value, is left to `parse_lines`, and
both find the same values.
"""

import dataclasses
from collections.abc import Container, Iterable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.tables.archives import MAX_LINE_BYTES, Lines
from tulle.data.tables.layout import QUOTE, TextForm

IntArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]

PADDING = 32
"""Bytes behind a text, so that as many can be read from any place in it."""
_LINE_FEED = ord("\n")
_MOST_DIGITS = 15
"""Digits of numbers that are exact as floats too, so that no reader of text finds others."""
_POWERS_OF_TEN = 10 ** np.arange(9)
"""What digits before 0 to 8 others count; a second word has no more of them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TextColumn:
    """Values of one column where they stand in a text. Sensitive: it holds raw rows."""

    text: bytes
    """UTF-8, with `PADDING` more bytes behind."""
    starts: IntArray
    """First byte of each value."""
    sizes: IntArray
    """Bytes of each value; -1 for a missing one."""

    @classmethod
    def of(cls, values: pl.Series) -> "TextColumn":
        """The values of a String series, one behind the other."""
        is_missing = values.is_null().to_numpy()
        sizes = values.str.len_bytes().fill_null(0).to_numpy().astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        # With the padding as a last value, the text is made at once and not copied to be longer.
        padded = pl.concat([values.drop_nulls(), pl.Series(values.name, ["\0" * PADDING])])
        text: bytes = padded.str.join("").cast(pl.Binary).item()
        return cls(text=text, starts=starts, sizes=sizes - is_missing)

    def series(self, name: str) -> pl.Series:
        """The values as a String series, in which empty text is missing too.

        Args:
          name: What the series is called.
        """
        # Each value is copied with the byte behind it, which becomes a line feed.
        sizes = np.maximum(self.sizes, 0) + 1
        stops = np.cumsum(sizes)
        places = np.repeat(self.starts - stops + sizes, sizes)
        places += np.arange(len(places))
        copied = np.frombuffer(self.text, np.uint8)[places]
        copied[stops - 1] = _LINE_FEED
        joined = pl.Series(name, [copied[:-1].tobytes().decode()])
        values = joined.str.split("\n").explode()
        return values.set(values == "", None)

    def whole_numbers(self, name: str) -> pl.Series | None:
        """The values as Int64; None if a value is anything but 1 to 15 digits.

        Args:
          name: What the series is called.
        """
        if self.sizes.max(initial=0) > _MOST_DIGITS:
            return None
        pieces = np.ndarray((len(self.text) - 15,), "V16", buffer=self.text, strides=(1,))
        words = pieces[self.starts].view("<u8").reshape(-1, 2)
        first, second = np.clip(self.sizes, 0, 8), np.clip(self.sizes - 8, 0, 8)
        high, low = _number_of_digits(words[:, 0], first), _number_of_digits(words[:, 1], second)
        if high is None or low is None:
            return None
        numbers = pl.Series(name, high * _POWERS_OF_TEN[second] + low)
        return numbers.set(pl.Series(self.sizes < 0), None)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitLines:
    """Lines of the same number of values each. Sensitive: it holds raw rows."""

    text: bytes
    """The lines, with `PADDING` more bytes behind."""
    ends: IntArray
    """[values of a line, lines]: place of the separator or line feed behind each value."""
    places: Mapping[str, int]
    """Place of each column in a line, from 0."""
    has_quotes: bool
    """Whether some values stand in quotes."""

    def __len__(self) -> int:
        return len(self.ends[0])

    def column(self, name: str) -> TextColumn:
        """The values of a column; empty ones are missing."""
        place = self.places[name]
        ends = self.ends[place]
        before = self.ends[place - 1] if place else np.append(-1, self.ends[-1, :-1])
        starts = before + 1
        if self.has_quotes:
            is_quoted = np.frombuffer(self.text, np.uint8)[starts] == ord(QUOTE)
            starts, ends = starts + is_quoted, ends - is_quoted
        sizes = ends - starts
        sizes -= sizes == 0
        return TextColumn(text=self.text, starts=starts, sizes=sizes)

    def select(self, names: Iterable[str], *, whole: Container[str] = ()) -> pl.DataFrame:
        """A table of some columns, every value as text, missing ones null.

        Args:
          names: The columns.
          whole: Columns of whole numbers, which are given as such if all of them are plain digits.
        """
        found = []
        for name in names:
            values = self.column(name)
            numbers = values.whole_numbers(name) if name in whole else None
            found.append(values.series(name) if numbers is None else numbers)
        return pl.DataFrame(found)


def split_in_place(
    lines: Lines, form: TextForm, width: int, places: Mapping[str, int]
) -> SplitLines | None:
    """Splits plain lines; None if any of them is not plain, or is bad.

    Args:
      lines: Bytes of whole lines.
      form: Separator, quotes and texts that mean a missing value.
      width: Number of values that each line must have.
      places: Place of each column in a line, from 0.
    """
    data = clean_text(lines.data)
    if data is None or form.missing != ("",):
        return None
    characters: ByteArray = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(_are_ends(characters, form.separator))
    has_quotes = form.quote is not None and QUOTE.encode() in data
    if has_quotes:
        quotes = np.flatnonzero(characters == ord(QUOTE))
        if not _enclose_values(characters, quotes, form.separator):
            return None
        is_inside = np.searchsorted(quotes, ends) % 2 == 1
        ends = ends[~is_inside]
    if len(ends) != lines.num_lines * width:
        return None
    ends = np.ascontiguousarray(ends.reshape(-1, width).T)
    line_ends = ends[-1]
    line_sizes = np.diff(line_ends, prepend=-1) - 1
    if not (characters[line_ends] == _LINE_FEED).all():
        return None
    if line_sizes.min() < 1 or line_sizes.max() > MAX_LINE_BYTES:
        return None
    return SplitLines(text=data + bytes(PADDING), ends=ends, places=places, has_quotes=has_quotes)


def clean_text(data: bytes) -> bytes | None:
    """Lines without carriage returns at their ends; None if any byte makes a line bad."""
    if b"\0" in data:
        return None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\r" in data:
            return None
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        return None
    return data


def _are_ends(characters: ByteArray, separator: str) -> NDArray[np.bool_]:
    """Whether a value ends at each byte, unless it is inside quotes."""
    found: NDArray[np.bool_] = characters == ord(separator)
    found |= characters == _LINE_FEED
    return found


def _enclose_values(characters: ByteArray, quotes: IntArray, separator: str) -> bool:
    """Whether quotes stand around whole values and nowhere else."""
    if len(quotes) % 2:
        return False
    # Before a quote at the very beginning is, by its index of -1, the line feed at the end.
    around = np.concatenate((quotes[0::2] - 1, quotes[1::2] + 1))
    return bool(_are_ends(characters[around], separator).all())


def _number_of_digits(words: NDArray[np.uint64], num_digits: IntArray) -> IntArray | None:
    """Numbers of up to 8 digits, each at the beginning of a word; None if one is no digit."""
    digits = words ^ np.uint64(0x3030303030303030)  # "0" to "9" become 0 to 9
    digits <<= (64 - 8 * num_digits).view(np.uint64)  # zeros before the first digit
    # Adding 0x76 to a byte sets its highest bit if the byte is more than 9.
    if ((digits + np.uint64(0x7676767676767676) | digits) & np.uint64(0x8080808080808080)).any():
        return None
    # Neighbours are joined: digits to numbers below 100, these below 10^4 and these below 10^8.
    digits = digits * np.uint64(10 << 8 | 1) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    digits = digits * np.uint64(100 << 16 | 1) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return (digits * np.uint64(10_000 << 32 | 1) >> np.uint64(32)).view(np.int64)
