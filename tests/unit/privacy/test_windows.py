"""Windows of time against the calendar of `datetime`, at moments around every kind of edge."""

import zoneinfo
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy.windows import MICROS, WEEKDAYS, TimeWindows, parse_seconds

DAY = 86_400
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
CALENDARS = ["day", "week", "week from sunday", "month", "7 days from 2026-01-05", "10 days"]
MOMENTS = st.one_of(
    st.integers(946_771_200 * MICROS, 2_524_600_000 * MICROS),
    # Around changes of the clock of Berlin, New York and Lord Howe, and the end of a year.
    st.builds(
        lambda edge, minutes, micros: edge * MICROS + minutes * 60 * MICROS + micros,
        st.sampled_from([1_774_746_000, 1_772_953_200, 1_775_314_800, 1_798_761_600]),
        st.integers(-2000, 2000),
        st.integers(-1, 1),
    ),
)


def cut(text: str, zone: str) -> TimeWindows:
    return TimeWindows.parse(text if zone == "UTC" else f"{text} in {zone}")


def name_of(micros: int, text: str, zone: str) -> object:
    """The window of a moment as a person would name it, by nothing but the date."""
    seconds, rest = divmod(micros, MICROS)
    shown = datetime.fromtimestamp(seconds, zoneinfo.ZoneInfo(zone)) + timedelta(microseconds=rest)
    day = shown.date()
    match text:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "week from sunday":
            return day - timedelta(days=(day.weekday() + 1) % 7)
        case "month":
            return day.year, day.month
        case "7 days from 2026-01-05":
            return (day - date(2026, 1, 5)).days // 7
        case _:
            return (day - date(1970, 1, 1)).days // 10


@given(st.sampled_from(CALENDARS), st.sampled_from(ZONES), MOMENTS, MOMENTS)
@example("day", "Europe/Berlin", 1_774_738_800 * MICROS, 1_774_821_600 * MICROS - 1)
@example("day", "Europe/Berlin", 1_774_738_800 * MICROS - 1, 1_774_738_800 * MICROS)
def test_two_moments_share_a_window_if_the_calendar_says_so(
    text: str, zone: str, first: int, second: int
) -> None:
    windows = cut(text, zone)
    is_same = windows.number(first) == windows.number(second)
    assert is_same == (name_of(first, text, zone) == name_of(second, text, zone))


@given(st.sampled_from(CALENDARS), st.sampled_from([*ZONES, "Pacific/Apia"]), MOMENTS)
def test_windows_are_half_open_and_leave_no_gap(text: str, zone: str, moment: int) -> None:
    windows = cut(text, zone)
    number = windows.number(moment)
    assert windows.begin(number) <= moment < windows.begin(number + 1)
    assert windows.number(windows.begin(number)) == number
    assert windows.number(windows.begin(number) - 1) < number


@given(st.integers(-(10**17), 10**17))
def test_months_follow_the_calendar_in_every_year(micros: int) -> None:
    months = TimeWindows.parse("month")
    number = months.number(micros)
    assert months.begin(number) <= micros < months.begin(number + 1)
    if abs(micros) < 6 * 10**16:
        shown = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        assert number == (shown.year - 1970) * 12 + shown.month - 1


def test_a_week_begins_on_the_day_that_is_named() -> None:
    for place, first_day in enumerate(WEEKDAYS):
        windows = TimeWindows.parse(f"week from {first_day}")
        begin = datetime.fromtimestamp(windows.begin(2900) / MICROS, UTC)
        assert (begin.weekday(), begin.hour) == (place, 0)
    assert TimeWindows.parse("week") == TimeWindows.parse("week from Monday")


def test_a_week_with_a_change_of_the_clock_is_one_window_from_monday_to_sunday() -> None:
    windows = TimeWindows.parse("week in Europe/Berlin")
    number = windows.number(int(datetime(2026, 3, 25, tzinfo=UTC).timestamp()) * MICROS)
    begin, end = (datetime.fromtimestamp(windows.begin(number + n) / MICROS, UTC) for n in (0, 1))
    assert begin == datetime(2026, 3, 22, 23, tzinfo=UTC)
    assert end == datetime(2026, 3, 29, 22, tzinfo=UTC)
    assert end - begin == timedelta(hours=167)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("week from monday", "week"),
        ("Week From SUNDAY in europe/berlin", "week from sunday in Europe/Berlin"),
        ("week from thursday", "7 days"),
        ("7 days from 1970-01-05", "week"),
        ("2 weeks from 2026-01-05", "14 days from 2026-01-05"),
        ("month  in  America/New_York", "month in America/New_York"),
        ("day in UTC", "day"),
        ("1 day", "day"),
        ("24 hours", "day"),
        ("90 minutes", "90 minutes"),
        ("30 days from 2026-01-01 in Asia/Kolkata", "30 days from 2026-01-01 in Asia/Kolkata"),
    ],
)
def test_windows_print_as_they_are_read(text: str, printed: str) -> None:
    windows = TimeWindows.parse(text)
    assert str(windows) == printed
    assert TimeWindows.parse(printed) == windows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 days", "'0 days' has no length"),
        ("1 week", "'per week' for weeks from Monday.*'per 7 days'"),
        ("2 months", "'day', 'week' and 'month'"),
        ("year", "write a number of days"),
        ("mnth", "did you mean 'month'"),
        ("week from mondy", "no day of the week .*did you mean 'monday'"),
        ("week from 2026-01-05", "A date is for a number of days"),
        ("day from monday", "leave 'from monday' out"),
        ("month from 2026-01-05", "leave 'from 2026-01-05' out"),
        ("7 days from monday", "'monday', which is no date.*'per week'"),
        ("7 days from 2026-13-01", "which is no date"),
        ("12 hours from 2026-01-05", "windows of several days"),
        ("1 day from 2026-01-05", "windows of several days"),
        ("12 hours in Europe/Berlin", "whole days"),
        ("week in Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("week in", "unknown"),
        ("", "unknown"),
        ("day per day", "unknown"),
    ],
)
def test_what_is_no_window_is_refused_with_the_way_out(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimeWindows.parse(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": True}, "seconds=True"),
        ({"seconds": 7.0}, "seconds=7.0"),
        ({"seconds": "7"}, "seconds='7'"),
        ({"seconds": 7 * DAY, "origin": 1.5}, "origin=1.5"),
        ({"seconds": 7 * DAY, "origin": 3600}, "must be a midnight"),
        ({"seconds": None, "origin": DAY}, "not for a month"),
        ({"seconds": DAY, "origin": DAY}, "windows of several days"),
        ({"seconds": 3600, "zone": "Europe/Berlin"}, "whole days"),
        ({"seconds": 7 * DAY, "origin": 10**15 * DAY}, "beyond the calendar"),
    ],
)
def test_wrong_fields_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimeWindows(**settings)


@pytest.mark.parametrize(
    ("outer", "inner", "is_held"),
    [
        ("month", "day", True),
        ("month", "12 hours", True),
        ("month", "week", False),
        ("month in Europe/Berlin", "day in Europe/Berlin", True),
        ("month in Europe/Berlin", "day", False),
        ("month in Europe/Berlin", "month", False),
        ("week", "day", True),
        ("week", "7 days", False),
        ("week", "7 days from 2026-01-05", True),
        ("week", "week from sunday", False),
        ("14 days from 2026-01-05", "week", True),
        ("14 days from 2026-01-05", "14 days from 2026-01-12", False),
        ("14 days from 2026-01-05", "14 days from 2026-01-19", True),
        ("week in Europe/Berlin", "week in Europe/Paris", False),
        ("30 days", "month", False),
        ("day", "hour", True),
        ("day in Europe/Berlin", "hour", False),
    ],
)
def test_windows_hold_others_only_whole(outer: str, inner: str, is_held: bool) -> None:
    assert TimeWindows.parse(outer).holds(TimeWindows.parse(inner)) is is_held


def test_lengths_of_time_are_read_as_before() -> None:
    assert parse_seconds("week") == parse_seconds("7 days") == 7 * DAY
    assert parse_seconds("12 hours") == DAY // 2
