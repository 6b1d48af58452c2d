"""The time window of a row as SQL: the same number for all rows of a window, in every engine.

The clock of a time zone is written out as the steps of `privacy.time_zones`, so that no engine's
own database of zones is asked and a row is in the window that a ledger charges for it.
"""

from tulle.privacy.time_zones import DAY_SECONDS, Offsets
from tulle.privacy.windows import MICROS, TimeWindows

_DAY_MICROS = DAY_SECONDS * MICROS


def window_sql(windows: TimeWindows, time: str) -> str:
    """What rows of one window share, and rows of two windows never.

    Args:
      windows: How time is cut.
      time: A column with microseconds since 1970, none of them before.
    """
    if windows.is_plain and windows.seconds is not None:
        length = windows.seconds * MICROS
        return f"{time} - {time} % {length}"
    local = _local(windows.offsets, time)
    if windows.seconds is None:
        # Counted from a day before: on the first day of 1970 a clock may show 1969, and remainders
        # are cut towards zero.
        date = date_sql(f"{local} + {_DAY_MICROS}", days_before=1)
        return (
            f"CAST(EXTRACT(YEAR FROM {date}) AS BIGINT) * 12 "
            f"+ CAST(EXTRACT(MONTH FROM {date}) AS BIGINT)"
        )
    length = windows.seconds * MICROS
    # Two windows more for the same reason: all numbers are above zero then, and a remainder is the
    # time since the window began.
    shift = 2 * length - windows.origin % windows.seconds * MICROS
    shifted = f"({local} + {shift})"
    return f"{shifted} - {shifted} % {length}"


def date_sql(micros: str, *, days_before: int = 0) -> str:
    """The date of so many microseconds, not below zero, since 1970 or some days before."""
    # Rounds a quotient that is whole, since engines divide whole numbers as floats.
    days = f"(({micros}) - ({micros}) % {_DAY_MICROS}) / {_DAY_MICROS}"
    days += f" - {days_before}" if days_before else ""
    return f"CAST('1970-01-01' AS DATE) + CAST(ROUND({days}) AS INTEGER)"


def _local(offsets: Offsets, time: str) -> str:
    """The clock of a zone at a time, found by halves: few comparisons for a row."""
    is_utc = len(offsets) == 1 and not offsets[0][1]
    return time if is_utc else f"({time} + {_offset(offsets, time)})"


def _offset(offsets: Offsets, time: str) -> str:
    if len(offsets) == 1:
        return str(offsets[0][1] * MICROS)
    middle = len(offsets) // 2
    before, after = _offset(offsets[:middle], time), _offset(offsets[middle:], time)
    return f"CASE WHEN {time} < {offsets[middle][0] * MICROS} THEN {before} ELSE {after} END"
