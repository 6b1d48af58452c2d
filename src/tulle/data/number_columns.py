"""Columns of numbers whose kind nobody has said: refused before each number becomes a category.

Hashed as text, a price of 12.99 has nothing to do with one of 13.00, and a column of reals has
about as many categories as rows. So a column that looks like numbers must say whether it is one.
Public columns are judged by the values of some first rows. Of sensitive ones nothing is looked at
but the type that a table stores them as: types are public, and an error that depended on values
would tell something of them.
"""

import polars as pl

from tulle.data.formats.public import LAYOUTS
from tulle.data.row_arrays import narrow_blocks
from tulle.data.schema import Schema
from tulle.data.tables.sources import Log
from tulle.errors import ConfigError

_FEW_VALUES = 64
"""Number of different values up to which fractions may be categories, such as ratings from 0.5 to
5: bins would be the same values."""
_MANY_VALUES = 1_000
"""Number of different whole numbers from which on it is asked whether they repeat at all."""
_ROWS_LOOKED_AT = 100_000
"""First rows that public columns are judged by, as a block of a file has them."""


def check_undeclared_numbers(log: Log) -> None:
    """Refuses a log with a column of numbers that would be hashed, by its first rows.

    Args:
      log: The rows, with roles and kinds.

    Privacy:
      As `refuse_undeclared_numbers`.

    Raises:
      ConfigError: A column holds numbers, and the schema does not say its kind.
    """
    schema = log.layout.schema
    known = LAYOUTS.get(log.layout.name)
    if known is not None and known.schema == schema:
        return  # its numbers are declared, and all other columns are categories
    columns = tuple(name for name in schema.features if name not in schema.kinds)
    for block, _ in narrow_blocks(log, columns) if columns else ():
        refuse_undeclared_numbers(block.table.head(_ROWS_LOOKED_AT), schema)
        return


def refuse_undeclared_numbers(table: pl.DataFrame, schema: Schema) -> None:
    """Refuses a column that holds numbers, is hashed, and whose kind nobody has said.

    Args:
      table: Rows of the log; some are enough.
      schema: Roles and kinds.

    Privacy:
      As `undeclared_numbers`.

    Raises:
      ConfigError: A column is such a one. The message says what to write.
    """
    for column, found in undeclared_numbers(table, schema).items():
        raise ConfigError(
            f"column {column!r} holds {found}, and each of them would become a category of its "
            f'own. Say its kind in the schema: kinds = {{{column} = "real"}} (or "integer") '
            f'makes bins that lie in order, kinds = {{{column} = "categorical"}} keeps each '
            "number a value of its own. A column that says nothing is better ignored."
        )


def undeclared_numbers(table: pl.DataFrame, schema: Schema) -> dict[str, str]:
    """What columns hold that look like numbers, are hashed, and whose kind nobody has said.

    A public column is one if it has fractions, or whole numbers that hardly repeat. Other whole
    numbers may be names of things, and stay categories. A sensitive column is one if a table
    stores it as fractions, whatever its values are: the type of a column is public.

    Args:
      table: Rows of the log; some are enough.
      schema: Roles and kinds.

    Privacy:
      No value of a sensitive column is looked at, only its type in the table.
    """
    found = {}
    for column in schema.features:
        # What has an id for each known value is not hashed, whatever it looks like.
        is_said = column in schema.kinds or column in schema.known_values
        if is_said or column not in table.columns:
            continue
        look = _found_numbers if column in schema.public else _type_of_numbers
        if words := look(table[column]):
            found[column] = words
    return found


def _type_of_numbers(values: pl.Series) -> str:
    is_real = values.dtype.is_float() or values.dtype.is_decimal()
    return f"numbers of type {values.dtype}" if is_real else ""


def _found_numbers(values: pl.Series) -> str:
    """What kind of numbers a public column has, in words; empty if they may well be categories."""
    if values.dtype == pl.String:
        numbers = values.cast(pl.Float64, strict=False)
        if numbers.null_count() > values.null_count():
            return ""
    elif values.dtype.is_numeric():
        numbers = values.cast(pl.Float64)
    else:
        return ""
    numbers = numbers.fill_nan(None).drop_nulls()
    numbers = numbers.filter(numbers.is_finite())
    num_different = numbers.n_unique()
    if num_different > _FEW_VALUES and bool((numbers != numbers.floor()).any()):
        return "numbers with fractions"
    if num_different > max(_MANY_VALUES, len(numbers) // 2):
        return "whole numbers that hardly repeat"
    return ""
