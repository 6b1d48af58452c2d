"""What runs SQL: DuckDB in this process, or a Spark cluster.

A program is a list of named steps, each one SELECT in DuckDB's dialect over earlier steps, and
the names of those whose rows are wanted. An engine bounds and adds up; it never sees noise. Types
of columns are told apart by families, whatever words an engine has for them.
"""

import collections
import dataclasses
import enum
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import polars as pl

from tulle.data.tables.refusals import meant_column
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import DatabaseTable, FileTable, TableSource
from tulle.privacy.fields import did_you_mean

Rows = Mapping[str, Any]
"""Columns by name: lists or arrays of one length."""
UNREADABLE = "unreadable "
"""Stands before the type of a column that no engine is given."""
_SPARK_MASTER = re.compile(r"local(\[([1-9]\d{0,3}|\*)\])?|yarn|(spark|k8s)://.+")
"""Addresses of Spark's own kind; everything else is a typing mistake."""

_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
"""The name of each table that a step reads, as often as it does."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One relational step: its name and the SELECT that makes it."""

    name: str
    sql: str = dataclasses.field(repr=False)
    is_cheap: bool = False
    """Reading it again costs less than keeping it."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Steps in order, what they read, and which of them are the result."""

    tables: Mapping[str, TableSource]
    """Tables of the log, by the name that steps use."""
    frames: Mapping[str, pl.DataFrame] = dataclasses.field(default_factory=dict, repr=False)
    """Small tables that travel to the engine: wanted keys, the salt. Sensitive: the salt."""
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    """Names of steps."""

    @property
    def shared_steps(self) -> frozenset[str]:
        """Steps that more than one later step reads: worth keeping instead of running twice."""
        reads = collections.Counter(name for step in self.steps for name in _READ.findall(step.sql))
        return frozenset(
            step.name for step in self.steps if not step.is_cheap and reads[step.name] > 1
        )


class Engine(Protocol):
    """Runs programs. A context manager: leaving it frees what it holds."""

    @property
    def name(self) -> str:
        """E.g. "duckdb" or "local[2]"."""
        ...

    @property
    def has_asof_join(self) -> bool:
        """Whether it joins each row with the latest before it in one pass."""
        ...

    def column_types(self, source: TableSource) -> Mapping[str, str]:
        """Columns of a table and the engine's words for their types."""
        ...

    def run(self, program: Program) -> list[Rows]:
        """Rows of each output. Sensitive: they are exact."""
        ...

    def write(self, program: Program, path: Path) -> None:
        """Writes the only output to a Parquet file. Sensitive: it is exact."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_engine(
    where: str = "duckdb",
    *,
    memory_limit: str | None = None,
    num_threads: int | None = None,
    spill_folder: Path | None = None,
) -> Engine:
    """DuckDB in this process, or Spark by its master.

    Args:
      where: "duckdb", "local[2]", or the URL of a Spark master (spark://…, yarn, k8s://…).
      memory_limit: E.g. "4GB"; DuckDB spills to disk above it. None: most of the machine's.
      num_threads: Number of threads of DuckDB. None: all cores.
      spill_folder: Where DuckDB spills; sensitive rows lie in it while a program runs. None:
        a private folder among the machine's temporary files.
    """
    if where == "duckdb":
        from tulle.measure.engines.duckdb_engine import DuckDBEngine

        return DuckDBEngine(
            memory_limit=memory_limit, num_threads=num_threads, spill_folder=spill_folder
        )
    if _SPARK_MASTER.fullmatch(where) is None:
        raise ConfigError(
            f"engine={where!r} is unknown{did_you_mean(where, ('duckdb', 'local[2]', 'yarn'))}; "
            "use 'duckdb', 'local[2]', 'local[*]' or a Spark master such as "
            "'spark://host:7077' or 'yarn'."
        )
    if memory_limit is not None or num_threads is not None or spill_folder is not None:
        raise ConfigError(
            f"memory_limit, num_threads and spill_folder are DuckDB's; engine={where!r} takes "
            "them from Spark's own settings (spark.driver.memory, spark.local.dir)."
        )
    from tulle.measure.engines.spark_engine import SparkEngine

    return SparkEngine(where)


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
      types: Types of the columns of one table.
      column: The name that is wanted.
      what: The table and the role, e.g. "impressions (user)".
    """
    if column not in types:
        meant, listed = did_you_mean(column, types), f"columns are {', '.join(types)}."
        if all(family_of(kind) is Family.TEXT for kind in types.values()):
            # CSV without a header: its first row, taken for names, must not be shown.
            meant = meant_column(column, types)
            listed = "if it is CSV, its first line must be a header with the names of columns."
        raise DataError(f"{what}: there is no column {column!r}{meant}; {listed}")
    if types[column].startswith(UNREADABLE):
        kind = types[column].removeprefix(UNREADABLE)
        raise DataError(
            f"{what}: column {column!r} has the type {kind}, but a value must be a number, a text "
            "or a time; unfold it into columns first."
        )
    return family_of(types[column])
