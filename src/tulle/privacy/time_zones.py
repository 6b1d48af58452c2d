"""The clocks of time zones, as steps that every engine can follow.

A zone is a list of offsets from UTC and of the moments from which they hold. It comes from the
database of time zones, is the same in Python and in SQL, and never lets a day begin twice.
"""

import bisect
import functools
import zoneinfo
from datetime import UTC, datetime

from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

UTC_ZONE = "UTC"
"""The zone whose clock all stored times are in."""
FIRST_YEAR, LAST_YEAR = 2000, 2049
"""Years in which changes of the clock are followed. Before them the first offset holds and after
them the last: nobody knows the rules of later years, and advertising logs are not older."""
DAY_SECONDS = 86_400
"""Seconds of a day without a change of the clock."""
Offsets = tuple[tuple[int, int], ...]
"""Pairs of a second since 1970 UTC and the offset from UTC, in seconds, that holds from then on;
the first offset also holds before."""

_STEP_SECONDS = 6 * 3600
"""Zones are asked for their offset so often: no zone changes its clock twice within this time."""
_ALIASES = {"utc": UTC_ZONE, "etc/utc": UTC_ZONE}
_OF_THIS_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
"""Entries of some databases that mean another zone on each machine."""


def zone_name(text: str) -> str:
    """Returns the name of a zone as the database of time zones spells it.

    Raises:
      ConfigError: There is no such zone, or no database.
    """
    if (alias := _ALIASES.get(text.casefold())) is not None:
        return alias
    known = _known_zones()
    if not known:
        raise ConfigError(
            f"time zone {text!r} cannot be looked up: this machine has no database of time zones. "
            "Install it with pip install tzdata, or leave the zone out for UTC."
        )
    if text.casefold() not in known:
        raise ConfigError(
            f"time zone {text!r} is unknown{did_you_mean(text, sorted(known.values()))}; write the "
            "name of a place in the database of time zones, e.g. 'Europe/Berlin', or leave it out "
            "for UTC."
        )
    return known[text.casefold()]


@functools.lru_cache(maxsize=32)
def day_offsets(zone: str) -> Offsets:
    """Returns the steps of a zone's clock, such that the date of a moment never goes back.

    Where a clock is set back over midnight, the day has begun by then and goes on: the offset
    changes when the clock reaches midnight again.

    Args:
      zone: A name as `zone_name` gives it.
    """
    if zone == UTC_ZONE:
        return ((0, 0),)
    changes = _changes(zone)
    steps = [changes[0]]
    for second, offset in changes[1:]:
        before = steps[-1][1]
        # The last midnight that the clock passed and would come to again.
        midnight = (second + before - 1) // DAY_SECONDS * DAY_SECONDS
        is_repeated = offset < before and midnight > second + offset
        steps.append((midnight - offset if is_repeated else second, offset))
    return tuple(steps)


def offset_at(offsets: Offsets, second: int) -> int:
    """Returns the offset from UTC that holds at a second."""
    return offsets[max(0, bisect.bisect_right(offsets, second, key=lambda step: step[0]) - 1)][1]


def first_second_at(offsets: Offsets, local_second: int) -> int:
    """Returns the first second at which the clock of a zone shows a midnight, or has passed it.

    Args:
      offsets: Steps of the clock.
      local_second: The midnight, in seconds of that clock since 1970.
    """
    for index, (begin, offset) in enumerate(offsets):
        is_last = index + 1 == len(offsets)
        if is_last or offsets[index + 1][0] + offset > local_second:
            second = local_second - offset
            # A clock that is set forward over midnight never shows it: the day begins then.
            return second if index == 0 else max(second, begin)
    raise ConfigError("a time zone needs at least one offset.")


def _changes(zone: str) -> list[tuple[int, int]]:
    clock = zoneinfo.ZoneInfo(zone)
    first, last = (
        int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (FIRST_YEAR, LAST_YEAR + 1)
    )

    def offset_of(second: int) -> int:
        found = datetime.fromtimestamp(second, clock).utcoffset()
        return 0 if found is None else int(found.total_seconds())

    changes = [(first, offset_of(first))]
    for second in range(first, last, _STEP_SECONDS):
        if offset_of(second) == changes[-1][1]:
            continue
        low, high = second - _STEP_SECONDS, second
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset_of(middle) == changes[-1][1] else (low, middle)
        changes.append((high, offset_of(high)))
    return changes


@functools.cache
def _known_zones() -> dict[str, str]:
    names = zoneinfo.available_timezones() - _OF_THIS_MACHINE
    return {name.casefold(): name for name in sorted(names)}
