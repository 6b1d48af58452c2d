"""Windows of time: what a unit or a budget that renews is cut into.

Windows are half-open intervals of moments, one after the other without a gap. They have equal
lengths, or are the days, weeks and months of a calendar, as the clock of a time zone shows them: a
day in Berlin has 23 or 25 hours twice a year. Everything that cuts time (ledgers, engines, the rows
of a table) asks this type, so that all agree on the window of every moment.
"""

import dataclasses
import datetime
import re

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import did_you_mean
from tulle.privacy.time_zones import (
    DAY_SECONDS,
    UTC_ZONE,
    Offsets,
    day_offsets,
    first_second_at,
    offset_at,
    zone_name,
)

MICROS = 1_000_000
"""Microseconds of a second, in which moments are counted."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
"""Days that a week can begin with; Monday is the default."""

_WEEK_SECONDS = 7 * DAY_SECONDS
"""Seconds of a week, on a clock that does not change."""
_FIRST_MONDAY = 4 * DAY_SECONDS
"""1970-01-05, the first Monday after the zero of all times, which was a Thursday."""
_LENGTHS = {"second": 1, "minute": 60, "hour": 3600, "day": DAY_SECONDS, "week": _WEEK_SECONDS}
"""Seconds of the words for a length of time."""
_CALENDAR_WORDS = ("day", "week", "month")
_FORM = re.compile(
    r"(?P<length>\S.*?)(?:\s+from\s+(?P<origin>\S+))?(?:\s+in\s+(?P<zone>\S+))?", re.IGNORECASE
)
_ADVICE = (
    "write e.g. 'per day', 'per week from monday', 'per month in Europe/Berlin', 'per 7 days', "
    "'per 7 days from 2026-01-05' or 'per 12 hours'"
)


@dataclasses.dataclass(frozen=True)
class TimeWindows:
    """A way to cut time into windows, by the clock of a time zone."""

    seconds: int | None
    """Length of a window on that clock; None: a month of the calendar."""
    origin: int = 0
    """Second of that clock, counted from 1970-01-01 00:00, at which one of the windows begins."""
    zone: str = UTC_ZONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "zone", zone_name(self.zone))
        for name, value in (("seconds", self.seconds), ("origin", self.origin)):
            is_none = name == "seconds" and value is None
            if not is_none and (isinstance(value, bool) or not isinstance(value, int)):
                raise ConfigError(f"{name}={value!r} of a window must be a whole number.")
        if self.seconds is not None and self.seconds < 1:
            raise ConfigError(
                f"seconds={self.seconds} of a window must be >= 1; leave the window out for none."
            )
        has_days = self.seconds is None or self.seconds % DAY_SECONDS == 0
        if self.zone != UTC_ZONE and not has_days:
            raise ConfigError(
                f"zone={self.zone!r} is for windows of whole days, and not of {self.seconds} "
                "seconds; leave the zone out."
            )
        if self.origin:
            _check_origin(self.seconds, self.origin)

    @classmethod
    def parse(cls, text: str) -> "TimeWindows":
        """Reads what follows "per" in a unit, e.g. "week from monday in Europe/Berlin".

        Raises:
          ConfigError: It is no window; the message names the part that is wrong.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ConfigError(f"window {text!r} is unknown; {_ADVICE}.")
        length, origin = found["length"].lower(), found["origin"]
        zone = UTC_ZONE if found["zone"] is None else zone_name(found["zone"])
        if length not in _CALENDAR_WORDS:
            return cls(*_counted(text, length, origin), zone)
        if length == "week":
            return cls(_WEEK_SECONDS, _week_origin("monday" if origin is None else origin), zone)
        if origin is not None:
            raise ConfigError(
                f"window {text!r} has an origin, and a {length} begins at midnight of its first "
                f"day; leave 'from {origin}' out. Origins are for weeks ('week from monday') and "
                "numbers of days ('7 days from 2026-01-05')."
            )
        return cls(None if length == "month" else DAY_SECONDS, 0, zone)

    @property
    def is_plain(self) -> bool:
        """True for windows of one length that are counted from 1970-01-01 UTC."""
        return self.seconds is not None and self.origin == 0 and self.zone == UTC_ZONE

    @property
    def has_utc_days(self) -> bool:
        """True if every day of UTC lies in one window."""
        return self.zone == UTC_ZONE and (self.seconds is None or self.seconds % DAY_SECONDS == 0)

    @property
    def shortest_seconds(self) -> int:
        """Length of the shortest window, but for changes of the clock: February has 28 days."""
        return 28 * DAY_SECONDS if self.seconds is None else self.seconds

    @property
    def offsets(self) -> Offsets:
        """The steps of the zone's clock."""
        return day_offsets(self.zone)

    def number(self, micros: int) -> int:
        """Returns the number of the window that a moment lies in.

        Args:
          micros: Microseconds since 1970 UTC.
        """
        second = micros // MICROS
        local = second + offset_at(self.offsets, second)
        if self.seconds is None:
            return _month_of_day(local // DAY_SECONDS)
        return (local - self.origin) // self.seconds

    def begin(self, number: int) -> int:
        """Returns the first microsecond of a window; the window before ends there.

        Args:
          number: Number of the window.
        """
        if self.seconds is None:
            local = _first_day_of_month(number) * DAY_SECONDS
        else:
            local = self.origin + number * self.seconds
        return first_second_at(self.offsets, local) * MICROS

    def check_days(self, what: str) -> None:
        """Refuses times that are days without a time of day, where days are not those of UTC.

        Args:
          what: What has such times, e.g. "time column 'day'".

        Raises:
          DataError: A day would begin at midnight UTC, and be cut as a part of two days.
        """
        if self.zone != UTC_ZONE:
            raise DataError(
                f"{what} has days without a time of day, which begin at midnight UTC, and windows "
                f"are of {self.zone}; leave the zone out of the unit, or give times."
            )

    def holds(self, other: "TimeWindows") -> bool:
        """True if every window of `other` lies inside one of these."""
        if self.zone != other.zone:
            return False
        if self.seconds is None:
            # Months hold whole days, and whatever cuts each day alike.
            return other.seconds is None or (
                DAY_SECONDS % other.seconds == 0 and other.origin % other.seconds == 0
            )
        if other.seconds is None or self.seconds % other.seconds:
            return False
        # Of another length or another begin, some window of these would cut one of the others.
        return (self.origin - other.origin) % other.seconds == 0

    def __str__(self) -> str:
        words = "month" if self.seconds is None else self._length_words(self.seconds)
        return words if self.zone == UTC_ZONE else f"{words} in {self.zone}"

    def _length_words(self, seconds: int) -> str:
        is_week = seconds == _WEEK_SECONDS and 0 <= self.origin < _WEEK_SECONDS
        if is_week and not self.is_plain:
            # 1970-01-01, day 0, was a Thursday.
            first_day = WEEKDAYS[(self.origin // DAY_SECONDS + 3) % 7]
            return "week" if first_day == WEEKDAYS[0] else f"week from {first_day}"
        name = next(
            name for name in ("day", "hour", "minute", "second") if seconds % _LENGTHS[name] == 0
        )
        count = seconds // _LENGTHS[name]
        length = name if count == 1 else f"{count} {name}s"
        if not self.origin:
            return length
        return f"{length} from {_date_of(self.origin // DAY_SECONDS).isoformat()}"


def parse_seconds(text: str) -> int:
    """Returns the seconds of a length of time such as "7 days", "12 hours" or "day"."""
    match = re.fullmatch(r"(\d+)?\s*(second|minute|hour|day|week)s?", text.strip().lower())
    count = 0 if match is None else int(match.group(1) or 1)
    if match is None or not count:
        raise ConfigError(f"{text!r} is no length of time; write e.g. '7 days' or '12 hours'.")
    return count * _LENGTHS[match.group(2)]


def _counted(text: str, length: str, origin: str | None) -> tuple[int, int]:
    """Seconds and origin of windows that are a number of days or of something shorter."""
    if re.fullmatch(r"0+\s*\w+", length):
        raise ConfigError(f"window {text!r} has no length; {_ADVICE}, or leave it out for none.")
    if re.fullmatch(r"\d+\s*(month|year)s?|years?|quarters?", length):
        raise ConfigError(
            f"window {text!r} is not known: of the calendar there are 'day', 'week' and 'month'; "
            "for longer windows write a number of days, e.g. 'per 90 days from 2026-01-01'."
        )
    if re.fullmatch(r"1\s*weeks?", length) and origin is None:
        raise ConfigError(
            f"window {text!r} may mean two things; write 'per week' for weeks from Monday to "
            "Sunday, or 'per 7 days' for windows that are counted from 1970-01-01, a Thursday."
        )
    try:
        seconds = parse_seconds(length)
    except ConfigError:
        near = did_you_mean(length, _CALENDAR_WORDS)
        raise ConfigError(f"window {text!r} is unknown{near}; {_ADVICE}.") from None
    if origin is None:
        return seconds, 0
    try:
        first_day = datetime.date.fromisoformat(origin)
    except ValueError:
        near = " A day of the week is for 'per week'." if origin.lower() in WEEKDAYS else ""
        raise ConfigError(
            f"window {text!r} begins at {origin!r}, which is no date; write one such as "
            f"'{length} from 2026-01-05'.{near}"
        ) from None
    second = (first_day - _date_of(0)).days * DAY_SECONDS
    _check_origin(seconds, second or DAY_SECONDS)
    return seconds, second


def _check_origin(seconds: int | None, origin: int) -> None:
    if seconds is None or seconds % DAY_SECONDS or seconds == DAY_SECONDS:
        what = "a month" if seconds is None else f"windows of {seconds} seconds"
        raise ConfigError(
            f"origin={origin} is for windows of several days, and not for {what}; leave it out."
        )
    if origin % DAY_SECONDS:
        raise ConfigError(f"origin={origin} must be a midnight, i.e. a multiple of 86400 seconds.")
    _date_of(origin // DAY_SECONDS)


def _week_origin(first_day: str) -> int:
    if first_day.lower() not in WEEKDAYS:
        raise ConfigError(
            f"'week from {first_day}' names no day of the week"
            f"{did_you_mean(first_day.lower(), WEEKDAYS)}; write one of {', '.join(WEEKDAYS)}. A "
            "date is for a number of days: '7 days from 2026-01-05'."
        )
    days = _FIRST_MONDAY + WEEKDAYS.index(first_day.lower()) * DAY_SECONDS
    return days % _WEEK_SECONDS


def _date_of(day: int) -> datetime.date:
    try:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    except OverflowError:
        raise ConfigError(f"day {day} since 1970 is beyond the calendar.") from None


def _month_of_day(day: int) -> int:
    """Months from January 1970 to the month of a day, for any year.

    H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: years begin with
    March there, so that the leap day is the last, and repeat every 400 years.
    """
    era, of_era = divmod(day + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    months_from_march = (5 * day_of_year + 2) // 153
    return (year_of_era + era * 400 - 1970) * 12 + months_from_march + 2


def _first_day_of_month(number: int) -> int:
    """The first day of a month, by the inverse of the same algorithm."""
    year, month_from_march = divmod(number + 1970 * 12 - 2, 12)
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * month_from_march + 2) // 5
    days = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + days - 719_468
