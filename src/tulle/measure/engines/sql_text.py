"""SQL text: names and values in DuckDB's dialect, fair orders by md5, and other engines' dialects.

Names of columns come from users and may hold any character, so they are always quoted. Numbers are
cast from text: Spark reads a plain 0.4 as a decimal, and sums of decimals overflow.

Random choices are orders of a keyed md5, which is the same on every engine; with a secret salt in
front of the text nobody outside can tell which slices of a user are kept. An arithmetic key would
be faster but not fair: its order follows the values. Each part is written with its length, so that
no two rows have one text.

sqlglot translates all but three things that our steps need: microseconds since 1970 of a timestamp,
the date of a number of days, and the order of nulls, of which no step has any.
"""

# ruff: noqa: S608 (names are quoted, values travel as tables or literals)
import functools
from collections.abc import Iterable, Sequence

import polars as pl
import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean

SALT = "tulle_salt"
"""Name of the table, or variable, that holds the salt."""
MIN_SALT_BYTES = 16
"""128 bits: nobody guesses them."""
SALT_VALUE = f"(SELECT salt FROM {SALT})"
"""How steps read the salt."""
_DRAW_DIGITS = 12
"""Hexadecimal digits of a draw, 48 bits: two of a unit tie once in 2^48 pairs."""
DIALECTS = ("duckdb", "spark", "bigquery", "snowflake", "trino")
"""Dialects that scripts are written in."""
_MICROS = {
    "duckdb": "EPOCH_US(x)",
    "spark": "UNIX_MICROS(CAST(x AS TIMESTAMP))",
    "bigquery": "UNIX_MICROS(CAST(x AS TIMESTAMP))",
    "snowflake": "DATE_PART(EPOCH_MICROSECOND, CAST(x AS TIMESTAMP_NTZ))",
    "trino": "CAST(ROUND(TO_UNIXTIME(CAST(x AS TIMESTAMP)) * 1000000) AS BIGINT)",
}
"""Microseconds since 1970 of a timestamp x, by dialect."""


def identifier(name: str) -> str:
    """A quoted column or table name."""
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def text_literal(text: str) -> str:
    """A quoted text value."""
    return exp.Literal.string(text).sql("duckdb")


def float_literal(value: float) -> str:
    """A double with all its digits."""
    return f"CAST('{value!r}' AS DOUBLE)"


def equal_columns(left: str, right: str, names: Iterable[str]) -> str:
    """A join condition: the columns of these names are equal.

    Args:
      left: One table.
      right: The other.
      names: Columns that both have.
    """
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names)


def column_list(names: Iterable[str], table: str | None = None) -> str:
    """Names with commas between them, each from `table` if one is given."""
    return ", ".join(name if table is None else f"{table}.{name}" for name in names)


def salt_frame(salt: bytes) -> pl.DataFrame:
    """The salt as a table of one row, so that it stands in no SQL text, log or plan."""
    if len(salt) < MIN_SALT_BYTES:
        raise ConfigError(
            f"salt has {len(salt)} bytes; it needs at least {MIN_SALT_BYTES} random ones, e.g. "
            "secrets.token_bytes(16)."
        )
    return pl.DataFrame({"salt": [salt.hex()]})


def keyed_md5(expressions: Sequence[str]) -> str:
    """The order of a secret choice, as text of 32 hexadecimal digits."""
    return f"MD5({SALT_VALUE} || {_encoded(expressions)})"


def keyed_draw(expressions: Sequence[str]) -> str:
    """The first 48 bits of `keyed_md5`, which sort faster; equal draws need another order too."""
    return f"SUBSTRING({keyed_md5(expressions)}, 1, {_DRAW_DIGITS})"


def plain_md5(expressions: Sequence[str]) -> str:
    """An order that is the same in every run, for ties between rows."""
    return f"MD5({_encoded(expressions)})"


# Scripts, and measurements on Spark, have most statements in common with those before.
@functools.lru_cache(maxsize=1024)
def translate(sql: str, dialect: str, *, is_pretty: bool = False) -> str:
    """Translates a statement to another dialect, with every name quoted.

    Args:
      sql: One statement in DuckDB's dialect.
      dialect: One of `DIALECTS`.
      is_pretty: Whether it is printed for people, one part a line.
    """
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


def _encoded(expressions: Sequence[str]) -> str:
    return " || ".join(_with_length(expression) for expression in expressions)


def _with_length(expression: str) -> str:
    text = f"CAST({expression} AS VARCHAR)"
    return f"COALESCE(CAST(LENGTH({text}) AS VARCHAR) || ':' || {text}, '-')"


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
