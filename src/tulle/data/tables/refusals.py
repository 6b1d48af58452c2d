"""What is wrong with a table: its columns, and the first row with a wrong value.

Messages name the column and the place of the first wrong row, never a value and never how many
there are: both can be sensitive, and messages end up in logs.
"""

import difflib
import re
from collections.abc import Callable, Iterable

import polars as pl

from tulle.errors import DataError
from tulle.privacy.fields import did_you_mean

Place = Callable[[int], str]
"""Says where a row of a block is, e.g. `clicks.csv, row 17`."""

MOST_NAMES_SHOWN = 10
"""Most names of columns that a message lists."""

_NOT_A_NUMBER = re.compile(r"[^\W\d]")
_WORD = re.compile(r"[^\W\d]+")
_NEARLY = 0.8
"""Least likeness of a suggestion: about one letter may be wrong, so that few values come near."""


def check_names(
    file_name: str, names: list[str], needed: tuple[str, ...], *, may_be_row: bool = False
) -> None:
    """Refuses a file that lacks a needed column or has one twice.

    Args:
      file_name: How the message calls it.
      names: The names that it has.
      needed: The names that it must have.
      may_be_row: Whether the names are the first line of text, which is data in a file without a
        header. Then they are shown only if at least one of them is known.
    """
    if may_be_row and not set(names) & set(needed):
        raise _none_known(file_name, names, needed)
    for column in needed:
        if column not in names:
            shown = sorted(names)[:MOST_NAMES_SHOWN]
            more = "" if len(names) <= MOST_NAMES_SHOWN else ", …"
            raise DataError(
                f"{file_name} has no column {column!r}{did_you_mean(column, names)}; "
                f"present are {', '.join(shown)}{more}."
            )
    if repeated := [column for column in names if names.count(column) > 1]:
        raise DataError(
            f"{file_name} has column {repeated[0]!r} more than once; keep one or rename the others."
        )


def _none_known(file_name: str, names: list[str], needed: tuple[str, ...]) -> DataError:
    """What is said of text whose first line has no known name, and so may be a row."""
    if len(needed) == 1 and (meant := meant_column(needed[0], names)):
        return DataError(
            f"{file_name} has no column {needed[0]!r}{meant}; call it as the header does."
        )
    wanted = [name + meant_column(name, names) for name in needed[:MOST_NAMES_SHOWN]]
    return DataError(
        f"{file_name} has none of the columns {', '.join(wanted)}; its first line must be a header "
        "that names them. Correct the names, add the header, or use the layout of the file."
    )


def meant_column(column: str, names: Iterable[str]) -> str:
    """Returns a suggestion from a line that may be a row, or "" if it could show a value of one.

    A line is taken for a header if no field of it is empty or begins as a number does, and only
    a name without digits is shown that is nearly the one asked for: ids and times never are.

    Args:
      column: The name that was asked for.
      names: The fields of the first line.
    """
    fields = list(names)
    if not all(_NOT_A_NUMBER.match(name) for name in fields):
        return ""
    words = [name for name in fields if _WORD.fullmatch(name)]
    close = difflib.get_close_matches(column, words, n=1, cutoff=_NEARLY)
    return f" (did you mean {close[0]!r}?)" if close else ""


def refuse_values(
    column: str, is_wrong: pl.Series, place: Place | None, problem: str, way_out: str
) -> None:
    """Refuses a column with a wrong value, and says where the first of them is.

    Args:
      column: Name of the column.
      is_wrong: Which of its rows are wrong.
      place: Says where a row is; None where the reader does not know it.
      problem: What is wrong with such a value, without the value.
      way_out: What to do.

    Raises:
      DataError: There is a wrong one.
    """
    if not is_wrong.any():
        return
    if place is None:
        raise DataError(f"column {column!r} {problem} in some row; {way_out}.")
    first = int(is_wrong.arg_true()[0])
    raise DataError(f"column {column!r} {problem} in {place(first)}; {way_out}.")


def refuse_missing(values: pl.Series, place: Place, reason: str) -> None:
    """Refuses a column in which a value is missing.

    Args:
      values: The column.
      place: Says where a row is.
      reason: Why no value may be missing.

    Raises:
      DataError: One is missing.
    """
    if values.null_count():
        first = int(values.is_null().arg_true()[0])
        raise DataError(
            f"column {values.name!r} has nulls, the first in {place(first)}; {reason}. "
            "Drop such rows first."
        )
