"""From DuckDB's dialect to another engine's.

sqlglot translates all but three things that our steps need: microseconds since 1970 of a
timestamp, the date of a number of days, and the order of nulls, of which no step has any.
"""

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

DIALECTS = ("duckdb", "spark", "bigquery", "snowflake", "trino")

_MICROS = {
    "duckdb": "EPOCH_US(x)",
    "spark": "UNIX_MICROS(CAST(x AS TIMESTAMP))",
    "bigquery": "UNIX_MICROS(CAST(x AS TIMESTAMP))",
    "snowflake": "DATE_PART(EPOCH_MICROSECOND, CAST(x AS TIMESTAMP_NTZ))",
    "trino": "CAST(ROUND(TO_UNIXTIME(CAST(x AS TIMESTAMP)) * 1000000) AS BIGINT)",
}


def translate(sql: str, dialect: str, *, is_pretty: bool = False) -> str:
    """The same statement in another dialect, with every name quoted."""
    check_dialect(dialect)
    tree = sqlglot.parse_one(sql, read="duckdb")
    tree = tree.transform(lambda node: _own_words(node, dialect), copy=False)
    return tree.sql(dialect, identify=True, pretty=is_pretty)


def check_dialect(dialect: str) -> None:
    """Refuses a dialect that nothing is known about."""
    if dialect not in DIALECTS:
        raise ConfigError(
            f"dialect={dialect!r} is unknown{did_you_mean(dialect, DIALECTS)}; "
            f"use one of {', '.join(DIALECTS)}."
        )


def _own_words(node: exp.Expression, dialect: str) -> exp.Expression:
    if isinstance(node, exp.UnixMicros):
        return _own_micros(node.this, dialect)
    if isinstance(node, exp.Anonymous) and node.name.upper() == "EPOCH_US":
        return _own_micros(node.expressions[0], dialect)
    if isinstance(node, exp.Add) and dialect != "duckdb" and _is_first_day(node.left):
        return exp.DateFromUnixDate(this=node.right)
    if isinstance(node, exp.Ordered):
        node.set(
            "nulls_first", _has_nulls_first(dialect, is_descending=bool(node.args.get("desc")))
        )
    return node


def _own_micros(argument: exp.Expression, dialect: str) -> exp.Expression:
    template = sqlglot.parse_one(_MICROS[dialect], read=dialect)
    own: exp.Expression = template.transform(
        lambda part: argument if isinstance(part, exp.Column) and part.name == "x" else part
    )
    return own


def _is_first_day(node: object) -> bool:
    return isinstance(node, exp.Cast) and node.is_type("date") and node.this.name == "1970-01-01"


def _has_nulls_first(dialect: str, *, is_descending: bool) -> bool:
    ordering = Dialect.get_or_raise(dialect).NULL_ORDERING
    return {"nulls_are_small": not is_descending, "nulls_are_large": is_descending}.get(
        ordering, False
    )
