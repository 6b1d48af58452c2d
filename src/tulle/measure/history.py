"""Earlier counts of a query's slices, by which its levels share the budget."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from tulle.data.tables.rows import RowTable
from tulle.errors import ConfigError, DataError
from tulle.measure.config_file import ConfigFile
from tulle.measure.queries.measure_record import read_measurement
from tulle.measure.queries.query import Query
from tulle.measure.queries.tree_query import COUNT_COLUMN
from tulle.measure.small_tables import numbers_of, read_rows, texts_of

_PUBLIC_TABLE = "a table said to be public"
"""What the card says of counts that somebody vouches for."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Counts by slice, in the column "count"."""

    counts: pl.DataFrame
    is_public: bool
    """False if they were released by an earlier measurement: then nobody needs to vouch."""
    source: str
    """What the card says of it."""


def read_histories(
    file: ConfigFile, given: Mapping[str, object] | None = None
) -> dict[str, History]:
    """Reads the earlier counts of all queries whose levels share by them, by the query's name.

    Args:
      file: The measurement, which may name files of its own.
      given: Files, or tables in memory that somebody says are public, in place of those files.

    Raises:
      ConfigError: They are for a query that there is not.
      DataError: A file cannot be read.
    """
    queries = {query.name: query for query in file.config.queries}
    found = {}
    for name, counts in (file.history_paths if given is None else given).items():
        if name not in queries:
            raise ConfigError(
                f"history is for {name!r}, which is no query; there are "
                f"{', '.join(map(repr, queries))}."
            )
        found[name] = read_history(counts, queries[name])
    return found


def read_history(data: object, query: Query) -> History:
    """The counts in an earlier measurement.json, or in a table that somebody says is public.

    Args:
      data: A measurement with a table of the query's name and slices, or a file or a table in
        memory with the slice columns and "count".
      query: Query whose slices they are.
    """
    names = [column.name for column in query.slices]
    path = _measurement(data)
    if path is not None:
        record = read_measurement(path)
        frame = record.table(query.name).frame
        counts = frame.filter(*(pl.col(name).is_not_null() for name in names if name in frame))
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise DataError(f"{path.name}: table {query.name!r} has no slice {missing[0]!r}.")
        counts = counts.filter(pl.col("metric") == query.main_metric)
        return History(
            counts=counts.select(*names, pl.col("value").alias(COUNT_COLUMN)),
            # Noise that can be repeated protects nothing: somebody must vouch for the counts.
            is_public=not record.is_secure,
            source=f"plan {record.plan.fingerprint()[:16]}, epsilon "
            f"{record.plan.guarantee.epsilon:g}",
        )
    counts = _counts(read_rows(data, [*names, COUNT_COLUMN]), names)
    return History(counts=counts, is_public=True, source=_PUBLIC_TABLE)


def read_past(data: object, queries: Sequence[Query]) -> dict[str, pl.DataFrame]:
    """Earlier numbers for as many queries as a table has them, by the query's name.

    Args:
      data: A measurement.json; or a file or a table in memory with slice columns and "count",
        which is added up over the columns that a query does not slice by.
      queries: Queries whose slices they are.
    """
    path = _measurement(data)
    if path is not None:
        known = {table.name for table in read_measurement(path).tables}
        return {q.name: read_history(path, q).counts for q in queries if q.name in known}
    slices = [column.name for query in queries for column in query.slices]
    rows = read_rows(data, [COUNT_COLUMN], if_there=slices)
    found = {}
    for query in queries:
        names = [column.name for column in query.slices]
        if all(name in rows.table.columns for name in names):
            counts, total = _counts(rows, names), pl.col(COUNT_COLUMN).sum()
            found[query.name] = (
                counts.group_by(names, maintain_order=True).agg(total)
                if names
                else counts.select(total)
            )
    if not found:
        raise DataError(f"{rows.source_name} has the slice columns of no query.")
    return found


def _measurement(data: object) -> Path | None:
    """The path of a measurement; None for a table."""
    if isinstance(data, str | os.PathLike) and Path(data).suffix == ".json":
        return Path(data)
    return None


def _counts(rows: RowTable, names: list[str]) -> pl.DataFrame:
    texts = [texts_of(rows, name) for name in names]
    return pl.DataFrame([*texts, numbers_of(rows, COUNT_COLUMN)])
