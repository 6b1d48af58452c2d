"""Columns whose values tell one protected unit from another."""

from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog
from tulle.measure.engines.log_tables import MICROS
from tulle.measure.slice_jobs import Subject
from tulle.privacy.units import Owner, Unit


def check_unit(unit: Unit, log: AdLog, subjects: Sequence[Subject]) -> None:
    """Refuses a unit that the log cannot tell apart, or whose bounds could not hold."""
    if unit.owner is Owner.EXAMPLE:
        raise ConfigError(
            f"unit={unit} is not one of a log; use Unit.user(), Unit.impression() or another."
        )
    if unit.owner.is_one_row and unit.window_seconds is not None:
        raise ConfigError(f"unit={unit} has a window; a single row needs none.")
    if unit.owner is Owner.USER_ADVERTISER and log.columns.advertiser is None:
        raise ConfigError(f"unit={unit} needs the log's advertiser column; set advertiser=….")
    if unit.owner is Owner.USER_PUBLISHER:
        if log.columns.publisher is None:
            raise ConfigError(f"unit={unit} needs the log's publisher column; set publisher=….")
        if Subject.CONVERSIONS in subjects:
            raise ConfigError(
                f"unit={unit} does not bound conversions: their credit depends on impressions "
                "of other publishers. Use Unit.user()."
            )
    if unit.owner is Owner.CONVERSION and Subject.IMPRESSIONS in subjects:
        raise ConfigError(f"unit={unit} does not protect impressions; use Unit.impression().")


def unit_columns(unit: Unit) -> tuple[str, ...]:
    """Names of the unit's columns in a job's rows; none if each row is a unit."""
    owner = {
        Owner.USER: ("u",),
        Owner.USER_ADVERTISER: ("u", "a"),
        Owner.USER_PUBLISHER: ("u", "publisher"),
    }.get(unit.owner, ())
    return owner if unit.window_seconds is None else (*owner, "w")


def unit_select(unit: Unit, *, table: str, time: str) -> list[str]:
    """The unit's columns from a table whose time column is `time`."""
    if not unit_columns(unit):
        return []
    selected = [f"{table}.{name} AS {name}" for name in unit_columns(unit) if name != "w"]
    if unit.window_seconds is not None:
        window = unit.window_seconds * MICROS
        selected.append(f"{table}.{time} - {table}.{time} % {window} AS w")
    return selected


def has_unit(unit: Unit, *, table: str) -> str:
    """That a row belongs to a unit at all: one without could escape every bound."""
    names = [name for name in unit_columns(unit) if name != "w"]
    return " AND ".join(f"{table}.{name} IS NOT NULL" for name in names) or "1 = 1"
