"""The time that data are from: moments, days of a time zone, and the span between two of them.

What `at` and `until` mean is decided here. Too short a span would leave a window uncharged, so text
that can be read in two ways is refused.
"""

import contextlib
import dataclasses
import zoneinfo
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from tulle.errors import ConfigError
from tulle.privacy.time_zones import DAY_SECONDS, UTC_ZONE, day_offsets, first_second_at
from tulle.privacy.units import Unit

Moment = datetime | date | str
"""A time, or a day that stands for all of its hours in the time zone of the budgets that are
charged (UTC where they name none); text is read as ISO 8601."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Zero of the stored microseconds, from which all windows are computed, so that two programs that
share a ledger agree on them."""


@dataclasses.dataclass(frozen=True)
class Span:
    """The time that data are from, both ends included, in microseconds since 1970 UTC."""

    first_micros: int
    last_micros: int

    @classmethod
    def of(cls, at: Moment | None, until: Moment | None, *, zone: str = UTC_ZONE) -> "Span | None":
        """The span from `at` to `until`, or the single moment or day `at`.

        Args:
          at: Begin of the data.
          until: End of the data; None: the end of `at`.
          zone: The time zone whose days are meant.
        """
        if isinstance(at, str | date) and not isinstance(at, datetime):
            at, until = span_of(at, until, zone=zone)
        if isinstance(until, str | date) and not isinstance(until, datetime):
            until = span_of(until, None, zone=zone)[1]
        if at is None:
            if until is not None:
                raise ConfigError(f"until={until} needs at=…, the time that the data begin.")
            return None
        span = cls(_micros("at", at), _micros("until", at if until is None else until))
        if span.last_micros < span.first_micros:
            raise ConfigError(f"until={until} must not be before at={at}; swap them.")
        return span


def span_of(
    at: Moment | None, until: Moment | None, *, zone: str = UTC_ZONE
) -> tuple[datetime | None, datetime | None]:
    """First and last moment of data; a day without a time stands for the whole day.

    Args:
      at: Begin of the data.
      until: End of the data; None: the end of `at`.
      zone: The time zone whose days are meant.

    Raises:
      ConfigError: A text is no date or time in ISO 8601, or a time says no zone although days are
        those of another zone than UTC.
    """
    if at is None:
        return None, None if until is None else _moments("until", until, zone)[1]
    first, last_of_day = _moments("at", at, zone)
    return first, last_of_day if until is None else _moments("until", until, zone)[1]


def zone_of_days(
    charged: Iterable[Unit], unit: Unit | None, *, at: Moment | None, until: Moment | None
) -> str:
    """The time zone whose days `at` and `until` mean: that of the budgets that are charged.

    Args:
      charged: The units of the budgets that are charged.
      unit: The unit of the release, which decides where no budget renews.
      at: Begin of the data.
      until: End of the data.

    Raises:
      ConfigError: The budgets have days of several zones, and a day is given.
    """
    zones = {other.windows.zone for other in charged if other.windows is not None}
    if not zones and unit is not None and unit.windows is not None:
        zones = {unit.windows.zone}
    if len(zones) < 2:
        return zones.pop() if zones else UTC_ZONE
    for name, moment in (("at", at), ("until", until)):
        if not says_zone(moment):
            raise ConfigError(
                f"{name}={moment} is a day or time of no zone, and the budgets that are charged "
                f"have days of {', '.join(sorted(zones))}; write a time with its offset, such as "
                "2026-03-02T00:00+01:00."
            )
    return UTC_ZONE


def says_zone(moment: Moment | None) -> bool:
    """True for a time with its offset, or none at all: no zone is needed to read it."""
    if moment is None:
        return True
    with contextlib.suppress(ValueError):
        moment = _parsed(moment) if isinstance(moment, str) else moment
    return isinstance(moment, datetime) and moment.tzinfo is not None


def datetime_of(micros: int) -> datetime:
    """The time so many microseconds after 1970 UTC, or the nearest that there is."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def _moments(name: str, given: Moment, zone: str) -> tuple[datetime, datetime]:
    try:
        moment = _parsed(given) if isinstance(given, str) else given
    except ValueError:
        moment = None
    if isinstance(moment, datetime):
        if moment.tzinfo is None and zone != UTC_ZONE:
            raise ConfigError(
                f"{name}={given} says no time zone, and the budgets have days of {zone}; write a "
                f"day, such as {moment:%Y-%m-%d}, or a time with its offset, such as "
                f"{moment:%Y-%m-%dT%H:%M}Z."
            )
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return moment, moment
    if isinstance(moment, date):
        return _day(moment, zone)
    raise ConfigError(
        f"{name}={given!r} must be a date or a time, e.g. 2026-01-14 or 2026-01-14T09:30Z."
    )


def _day(day: date, zone: str) -> tuple[datetime, datetime]:
    """First and last moment of a day, as its windows begin and end."""
    if zone == UTC_ZONE:
        return datetime.combine(day, time.min, UTC), datetime.combine(day, time.max, UTC)
    midnight = int(datetime.combine(day, time.min, UTC).timestamp())
    clock, offsets = zoneinfo.ZoneInfo(zone), day_offsets(zone)
    first, end = (
        datetime.fromtimestamp(first_second_at(offsets, second), clock)
        for second in (midnight, midnight + DAY_SECONDS)
    )
    return first, (end.astimezone(UTC) - timedelta(microseconds=1)).astimezone(clock)


def _parsed(text: str) -> datetime | date:
    if len(text) == len("2026-01-14"):
        return date.fromisoformat(text)
    # "2026-W03" and "20260114" would be read as one midnight and charge too little.
    if text[10:11] not in {"T", " "}:
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _micros(name: str, moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ConfigError(f"{name}={moment} must have a time zone, e.g. tzinfo=datetime.UTC.")
    return (moment - _EPOCH) // timedelta(microseconds=1)
