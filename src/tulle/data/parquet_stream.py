"""Parquet files from a stream of tables, in bounded memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source


def sink_tables(
    path: Path, types: Mapping[str, pl.DataType] | pl.Schema, tables: Iterator[pl.DataFrame]
) -> None:
    """Writes tables of one schema into one file, in their order.

    Args:
      path: Parquet file to write.
      types: Type of each column.
      tables: Tables, of which one at a time is held in memory.
    """

    def pieces(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        num_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        # A sink asks for everything: there is no projection and no filter to apply.
        del with_columns, predicate, num_rows, batch_size
        yield from tables

    register_io_source(pieces, schema=pl.Schema(types)).sink_parquet(path)
