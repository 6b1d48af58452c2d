"""Whether a query means what it says for the unit that is protected.

Reach counts units. It is the number of users only where a user is one unit in every slice.
Bounds are for units with any number of rows; a unit of one row has none.
"""

from tulle.errors import ConfigError
from tulle.measure.queries.measure_config import MeasureConfig
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.slice_jobs import Bounds
from tulle.privacy.units import Owner, Unit

_DAY_SECONDS = 86_400


def check_reach_unit(config: MeasureConfig, query: Query) -> None:
    """Refuses reach where one user would count several times in a slice.

    Raises:
      ConfigError: The unit is a part of a user, and no slice holds that part apart.
    """
    unit, columns = config.unit, config.log.columns
    owner_columns = {
        Owner.USER_ADVERTISER: ("advertiser", columns.advertiser),
        Owner.USER_PUBLISHER: ("publisher", columns.publisher),
    }
    if unit.owner in owner_columns:
        what, column = owner_columns[unit.owner]
        if not any(part.column == column and not part.is_day for part in query.slices):
            raise ConfigError(
                f"query {query.name!r}: reach counts users, and with the unit '{unit}' a user "
                f"counts once for each {what}; add the {what} column {column!r} to its slices, "
                "or protect the unit user."
            )
    if unit.window_seconds is None:
        return
    # Windows and days both begin with 1970 UTC: a day is then within one window.
    has_whole_days = unit.window_seconds % _DAY_SECONDS == 0
    if not (has_whole_days and any(column.is_day for column in query.slices)):
        way_out = "" if has_whole_days else f" with the unit '{unit.owner.value} per day'"
        raise ConfigError(
            f"query {query.name!r}: reach counts users, and with the unit '{unit}' a user counts "
            f"once in each window; measure one window at a time with the unit "
            f"'{unit.owner.value}', or slice by day{way_out}."
        )


def check_bounds(query: Query, unit: Unit) -> None:
    """Refuses a query that lacks the bounds which the unit needs, or has some that it does not.

    Raises:
      ConfigError: It names the query and the settings.
    """
    if unit.owner is Owner.CONVERSION and query.quantity in {Quantity.IMPRESSIONS, Quantity.RATE}:
        raise ConfigError(
            f"query {query.name!r} counts impressions, which the unit 'conversion' does not "
            "protect; use the unit impression or user."
        )
    _check(query, query.bounds, unit, "", "max_per_slice and max_slices_per_unit or max_per_unit")
    if query.quantity is Quantity.RATE:
        example = "base = { max_per_slice = 10, max_slices_per_unit = 2 }"
        _check(query, query.base_bounds, unit, " on impressions", example)


def _check(query: Query, bounds: Bounds | None, unit: Unit, on: str, settings: str) -> None:
    if unit.owner.is_one_row and bounds is not None:
        raise ConfigError(
            f"query {query.name!r} has bounds{on}, which hold for the rows of a user; with the "
            f"unit '{unit}' the attribution rule bounds it: leave {settings.split(' =')[0]} out."
        )
    if bounds is None and not unit.owner.is_one_row:
        raise ConfigError(
            f"query {query.name!r} has no bounds{on}, and one '{unit}' may have any number of "
            f"rows; set {settings}."
        )
