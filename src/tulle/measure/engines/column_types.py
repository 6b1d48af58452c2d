"""Families of column types, whatever words an engine has for them."""

import enum
import re
from collections.abc import Mapping

from tulle.errors import DataError
from tulle.measure.ad_log import DatabaseTable, FileTable, TableSource
from tulle.measure.engines.engine import Engine
from tulle.privacy.fields import did_you_mean


class Family(enum.Enum):
    """What the values of a column are."""

    WHOLE = "whole numbers"
    FRACTION = "fractions"
    TEXT = "text"
    TIME = "dates or timestamps"
    OTHER = "something else"


_FAMILIES = (
    (Family.WHOLE, r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|U?INTEGER|DECIMAL\(\d+, ?0\)"),
    (Family.FRACTION, r"FLOAT|DOUBLE|REAL|DECIMAL\(.*\)"),
    (Family.TEXT, r"VARCHAR.*|STRING|TEXT|ENUM\(.*\)|CHAR.*|UUID|BOOLEAN"),
    (Family.TIME, r"DATE|TIMESTAMP.*"),
)


def table_columns(engine: Engine, source: TableSource) -> Mapping[str, str]:
    """Names and types of a table's columns. Public: names are, values are not looked at."""
    return engine.column_types(source)


def family_of(type_text: str) -> Family:
    """The family of what an engine calls a type, e.g. "bigint" or "TIMESTAMP_NS"."""
    for family, pattern in _FAMILIES:
        if re.fullmatch(pattern, type_text.strip(), re.IGNORECASE | re.DOTALL):
            return family
    return Family.OTHER


def source_name(source: TableSource) -> str:
    """How messages call a table."""
    if isinstance(source, FileTable):
        return str(source.paths[0])
    return f"table {source.table!r}" if isinstance(source, DatabaseTable) else "the table in memory"


def require_column(types: Mapping[str, str], column: str, *, what: str) -> Family:
    """The family of a column that must be there.

    Args:
      types: Of one table.
      column: The name that is wanted.
      what: The table and the role, e.g. "impressions (user)".
    """
    if column not in types:
        listed = f"columns are {', '.join(types)}."
        if all(family_of(kind) is Family.TEXT for kind in types.values()):
            # CSV without a header: its first row, taken for names, must not be shown.
            listed = "if it is CSV, its first line must be a header with the names of columns."
        raise DataError(
            f"{what}: there is no column {column!r}{did_you_mean(column, types)}; {listed}"
        )
    return family_of(types[column])
