"""Words for the unit of training, with and without windows of time."""

import pytest

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.units import Unit
from tulle.train.settings.units import ExampleLevel, UserLevel, unit_level


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("user", UserLevel()),
        ("user per 30 days", UserLevel(window_seconds=30 * 86_400)),
        ("user per day", UserLevel(window_seconds=86_400)),
        ("user per week", UserLevel(calendar="week")),
        ("user per week from sunday", UserLevel(calendar="week from sunday")),
        ("user per month in europe/berlin", UserLevel(calendar="month in Europe/Berlin")),
        ("user_id per 7 days from 2026-01-05", UserLevel(calendar="7 days from 2026-01-05")),
        ("example", ExampleLevel()),
    ],
)
def test_a_word_means_the_unit_that_a_ledger_knows_by_it(
    word: str, level: ExampleLevel | UserLevel
) -> None:
    assert unit_level(word) == level
    if isinstance(level, UserLevel):
        assert level.unit == Unit.parse(word.replace("user_id", "user"))


def test_windows_have_one_spelling_in_the_settings() -> None:
    assert UserLevel(calendar="Week from MONDAY") == UserLevel(calendar="week")
    assert UserLevel(calendar="30 days") == UserLevel(window_seconds=30 * 86_400)
    assert UserLevel(calendar="week").bounds_of_rows == {}


def test_levels_are_stored_as_before_and_calendars_beside_them() -> None:
    old = plain_data(UserLevel(window_seconds=86_400))
    assert old["window_seconds"] == 86_400
    assert "calendar" not in old
    for level in (UserLevel(window_seconds=86_400), UserLevel(calendar="month in Asia/Tokyo")):
        assert settings_from(UserLevel, plain_data(level), what="unit") == level


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("user per 0 days", "unit='user per 0 days': .* has no length"),
        ("user per week in Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("user per month from 2026-01-01", "leave 'from 2026-01-01' out"),
        ("example per week", "one row is in one moment"),
    ],
)
def test_what_is_no_window_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        unit_level(word)


def test_two_ways_to_name_the_windows_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="leave one of them out"):
        UserLevel(window_seconds=86_400, calendar="month")
