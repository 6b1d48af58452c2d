"""Earlier counts of a query's slices, by which its levels share the budget."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tulle.errors import DataError
from tulle.measure.queries.level_shares import COUNT_COLUMN
from tulle.measure.queries.measure_record import read_measurement
from tulle.measure.queries.query import Query
from tulle.measure.small_tables import read_table


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Counts by slice, in the column "count"."""

    counts: pl.DataFrame
    is_public: bool
    """False if they were released by an earlier measurement: then nobody needs to vouch."""
    source: str
    """What the card says of it."""


def read_history(path: Path, query: Query) -> History:
    """The counts in an earlier measurement.json, or in a table that somebody says is public.

    Args:
      path: A measurement with a table of the query's name and slices, or a CSV or Parquet file
        with the slice columns and "count".
      query: Whose slices they are.
    """
    names = [column.name for column in query.slices]
    if path.suffix == ".json":
        record = read_measurement(path)
        frame = record.table(query.name).frame
        counts = frame.filter(*(pl.col(name).is_not_null() for name in names if name in frame))
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise DataError(f"{path.name}: table {query.name!r} has no slice {missing[0]!r}.")
        counts = counts.filter(pl.col("number") == query.main_number)
        return History(
            counts=counts.select(*names, pl.col("value").alias(COUNT_COLUMN)),
            # Noise that can be repeated protects nothing: somebody must vouch for the counts.
            is_public=not record.is_secure,
            source=f"plan {record.plan.fingerprint()[:16]}, epsilon "
            f"{record.plan.guarantee.epsilon:g}",
        )
    return History(counts=read_table(path), is_public=True, source="a table said to be public")


def read_past(path: Path, queries: Sequence[Query]) -> dict[str, pl.DataFrame]:
    """Earlier numbers for as many queries as a file has them, by the query's name.

    Args:
      path: A measurement.json, or a table with slice columns and "count", which is added up
        over the columns that a query does not slice by.
      queries: Whose slices they are.
    """
    if path.suffix == ".json":
        known = {table.name for table in read_measurement(path).tables}
        return {q.name: read_history(path, q).counts for q in queries if q.name in known}
    table = read_table(path)
    if COUNT_COLUMN not in table.columns:
        raise DataError(f"{path.name} has no column {COUNT_COLUMN!r}; add it.")
    if not table[COUNT_COLUMN].dtype.is_numeric():
        raise DataError(f"{path.name}: its column {COUNT_COLUMN!r} must be a number in every row.")
    found = {}
    for query in queries:
        names = [column.name for column in query.slices]
        if all(name in table.columns for name in names):
            text = table.with_columns(pl.col(name).cast(pl.String) for name in names)
            found[query.name] = (
                text.group_by(names, maintain_order=True).agg(pl.col(COUNT_COLUMN).sum())
                if names
                else table.select(pl.col(COUNT_COLUMN).sum())
            )
    if not found:
        raise DataError(f"{path.name} has the slice columns of no query.")
    return found
