"""Names and values as SQL text in DuckDB's dialect.

Names of columns come from users and may hold any character, so they are always quoted.
Numbers are cast from text: Spark reads a plain 0.4 as a decimal, and sums of decimals overflow.
"""

from collections.abc import Iterable

from sqlglot import exp


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
    """A join condition: the columns of these names are equal."""
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names)


def column_list(names: Iterable[str], table: str | None = None) -> str:
    """Names with commas between them, each from `table` if one is given."""
    return ", ".join(name if table is None else f"{table}.{name}" for name in names)
