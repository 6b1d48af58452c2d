"""Every row belongs to a unit: rows that name none are refused or dropped."""

import polars as pl

from tulle.data.schema import Schema
from tulle.errors import DataError


def check_units(table: pl.DataFrame, schema: Schema) -> None:
    """Refuses a table in which a row names no unit.

    Without a unit column each row is its own unit and there is nothing to check.
    """
    if schema.unit is not None and _lacks_unit(table, schema.unit).any():
        raise DataError(
            f"column {schema.unit!r} has nulls; every row needs a unit. "
            "Drop them first with drop_rows_without_unit()."
        )


def drop_rows_without_unit(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The rows that name their unit, in their order.

    Privacy:
      Unit: that of the schema. Every row is kept or dropped by its own unit
      column alone, so what is kept of one unit does not depend on another.
      How many rows were dropped is exact and must not be released.
    """
    return table if schema.unit is None else table.filter(~_lacks_unit(table, schema.unit))


def _lacks_unit(table: pl.DataFrame, unit: str) -> pl.Series:
    if unit not in table.columns:
        raise DataError(f"column {unit!r} of role unit is not in the table; read it as well.")
    column = table[unit]
    if column.dtype.is_float():
        column = column.fill_nan(None)
    return column.is_null()
