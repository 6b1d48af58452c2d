"""One DuckDB engine for all tests of a file."""

from collections.abc import Iterator

import pytest

from tulle.measure.engines.duckdb_engine import DuckDBEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with DuckDBEngine(num_threads=1) as duckdb:
        yield duckdb
