"""Clocks of zones against `zoneinfo` itself, second by second where they change."""

import zoneinfo
from datetime import UTC, date, datetime

import pytest

from tulle.errors import ConfigError
from tulle.privacy import time_zones
from tulle.privacy.time_zones import day_offsets, first_second_at, offset_at, zone_name

DAY = 86_400
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Pacific/Apia",  # without 30 December 2011
    "America/St_Johns",  # set back from 00:01 to 23:01 until 2011
    "America/Sao_Paulo",  # days that begin at 01:00 until 2018
    "Africa/Casablanca",  # two changes within a month
]


def day_of(second: int, zone: str) -> int:
    """The date that a clock shows, as days since 1970."""
    shown = datetime.fromtimestamp(second, zoneinfo.ZoneInfo(zone)).date()
    return (shown - date(1970, 1, 1)).days


@pytest.mark.parametrize("zone", ZONES)
def test_the_day_of_a_moment_is_the_latest_that_the_clock_has_shown(zone: str) -> None:
    offsets = day_offsets(zone)
    for change, _ in offsets:
        latest = None
        for second in range(change - 2 * 3600 - 30, change + 2 * 3600, 30):
            if not 2000 <= datetime.fromtimestamp(second, UTC).year < 2050:
                continue
            shown = day_of(second, zone)
            latest = shown if latest is None else max(latest, shown)
            assert (second + offset_at(offsets, second)) // DAY == latest, (zone, second)


@pytest.mark.parametrize("zone", ZONES)
def test_no_change_of_a_clock_is_missed(zone: str) -> None:
    """At noon and at midnight of 50 years, by the database itself."""
    clock, offsets = zoneinfo.ZoneInfo(zone), day_offsets(zone)
    for second in range(946_684_800, 2_524_608_000, DAY // 2):
        shown = datetime.fromtimestamp(second, clock).utcoffset()
        assert shown is not None
        assert offset_at(offsets, second) == shown.total_seconds(), (zone, second)


@pytest.mark.parametrize("zone", ZONES)
def test_a_day_begins_at_the_first_moment_that_has_its_date_or_a_later_one(zone: str) -> None:
    offsets = day_offsets(zone)
    for change, _ in offsets[1:]:
        for day in range(change // DAY - 2, change // DAY + 3):
            begin = first_second_at(offsets, day * DAY)
            assert (begin + offset_at(offsets, begin)) // DAY >= day
            assert (begin - 1 + offset_at(offsets, begin - 1)) // DAY < day


def test_known_days_have_their_known_hours() -> None:
    def hours(zone: str, year: int, month: int, day: int) -> float:
        first = (date(year, month, day) - date(1970, 1, 1)).days
        begin, end = (first_second_at(day_offsets(zone), (first + n) * DAY) for n in (0, 1))
        return (end - begin) / 3600

    assert hours("Europe/Berlin", 2026, 3, 29) == 23
    assert hours("Europe/Berlin", 2026, 10, 25) == 25
    assert hours("Europe/Berlin", 2026, 3, 30) == 24
    assert hours("Australia/Lord_Howe", 2026, 4, 5) == 24.5
    assert (
        hours("Pacific/Apia", 2011, 12, 30) == 0
    )  # they went to bed on Thursday, rose on Saturday
    assert hours("Asia/Kolkata", 2026, 3, 29) == 24


def test_outside_of_the_years_that_are_followed_the_offset_stays() -> None:
    for zone in ZONES:
        offsets = day_offsets(zone)
        assert offset_at(offsets, -(10**11)) == offsets[0][1]
        assert offset_at(offsets, 10**12) == offsets[-1][1]


@pytest.mark.parametrize("text", ["europe/berlin", "EUROPE/BERLIN", "Europe/Berlin"])
def test_a_zone_has_one_spelling(text: str) -> None:
    assert zone_name(text) == "Europe/Berlin"


def test_utc_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_zones, "_known_zones", dict)
    assert [zone_name(text) for text in ("utc", "UTC", "Etc/UTC")] == ["UTC"] * 3
    with pytest.raises(ConfigError, match=r"no database of time zones.*pip install tzdata"):
        zone_name("Europe/Berlin")


@pytest.mark.parametrize("text", ["Europe/Berln", "CEST", "+01:00", "", "localtime", "../etc"])
def test_what_is_no_zone_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"time zone .* is unknown"):
        zone_name(text)
    if text == "Europe/Berln":
        with pytest.raises(ConfigError, match="did you mean 'Europe/Berlin'"):
            zone_name(text)
