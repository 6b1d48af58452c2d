"""What is in a log or a prepared dataset: rows, label rate, cardinalities, rows per unit.

These are exact statistics of raw data. They help to set up a run, and most of
them must never be released: each says so itself. What may be published instead
is a noisy release that was charged to a ledger.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.number_columns import undeclared_numbers
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.source_files import refuse_copies
from tulle.data.tables.kinds import FLAG_WORDS, label_numbers, typed_columns
from tulle.data.tables.layout import BadLines
from tulle.data.tables.refusals import Place, refuse_values
from tulle.data.tables.sources import Log, block_place, placed_blocks
from tulle.errors import DataError

# Numbers of hashes held at once, so that memory stays bounded. Beyond them counts come from a
# sample, with relative errors of 1.2 / sqrt(2^21) = 8e-4, and of 3e-4 for units, whose rows per
# unit set a bound and so must be known better.
_MAX_VALUES_HELD = 1 << 21
_MAX_UNITS_HELD = 1 << 24
_QUANTILES = {"median": 0.5, "90%": 0.9, "99%": 0.99, "most": 1.0}
"""The quantiles of rows per unit that help to choose a bound on them."""
_ROWS_AT_ONCE = 500_000
"""A block of rows whose copies stay small beside the hashes that are held."""
_SENSITIVE_ROLES = ("label", "sensitive", "unit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawStatistic:
    """One statistic of raw data."""

    value: float
    must_not_be_released: bool
    """It depends on labels, sensitive columns or on which rows belong to one unit; or on which
    lines were left out as bad, because a sensitive value can make them so."""
    relative_error: float = 0.0
    """Standard error as a share of the value, where it is an estimate; 0: exact."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnDescription:
    """One column with a role."""

    name: str
    role: str
    num_distinct: RawStatistic
    """Different values, or different ids in a prepared dataset."""
    missing_share: RawStatistic | None
    """Share of missing values; None in a prepared dataset, where a missing value is an id like
    others."""
    kind: str = ""
    """What its values are taken for; empty in a prepared dataset, where all are ids."""
    hint: str = ""
    """What is odd about that, if the column looks like numbers and nobody said its kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """Statistics of raw data. Under add-or-remove not even the number of rows is public."""

    num_rows: RawStatistic
    num_bad_lines: RawStatistic
    """Lines that were left out because they cannot be read."""
    label_rate: RawStatistic | None
    """The mean of the label: the share of ones if it is 0 or 1."""
    columns: tuple[ColumnDescription, ...]
    rows_per_unit: Mapping[str, RawStatistic]
    """Quantiles and maximum; empty if each row is its own unit."""

    def to_dict(self) -> dict[str, object]:
        """Plain data, each figure with its mark."""
        return dataclasses.asdict(self)


def describe_log(log: Log, *, progress: Callable[[int], None] | None = None) -> Description:
    """Describes the columns of log files that have a role, in one streaming pass.

    The number of different values is exact up to two million values a column (16 million
    units), and an estimate with a standard error of 0.1% above.

    Args:
      log: The rows.
      progress: Function that is called with the number of rows done.

    Privacy:
      Reads raw data and adds no noise: whatever it returns is as sensitive as they are,
      except the figures that are marked otherwise.

    Raises:
      DataError: A file cannot be read or is there twice, a label is no number, or another value
        is none of its column's kind.
    """
    refuse_copies(log.paths, has_header=log.layout.has_header)
    schema = log.layout.schema
    leaves_out = log.bad_lines is BadLines.SKIP
    tallies = [
        _Tally(name, role, leaves_out=leaves_out)
        for role, name in schema.roles.items()
        if role != "ignored"
    ]
    others = [tally.name for tally in tallies if tally.role != "label"]
    num_bad_lines = 0
    hints: dict[str, str] = {}
    for block, start in placed_blocks(log):
        if not tallies[0].num_rows:
            hints = undeclared_numbers(block.table, schema)
        num_bad_lines += block.num_bad_lines
        place = block_place(log, block, start, len(block.table))
        table = typed_columns(block.table, schema, place, columns=others)
        for tally in tallies:
            tally.add(table[tally.name], place)
        if progress is not None:
            progress(tallies[0].num_rows)
    description = _description(tallies, num_bad_lines, is_raw=True)
    columns = tuple(
        dataclasses.replace(
            column, kind=schema.kind(column.name).value, hint=hints.get(column.name, "")
        )
        for column in description.columns
    )
    return dataclasses.replace(description, columns=columns)


def describe_prepared(dataset: PreparedDataset) -> Description:
    """Describes the arrays of a prepared dataset; see `describe_log`."""
    schema, provenance = dataset.schema, dataset.head.provenance
    leaves_out = provenance.get("bad_lines") == BadLines.SKIP.value
    times = dataset.days if dataset.times is None else dataset.times
    others = [
        (_Tally(name, role, leaves_out=leaves_out), array)
        for role, name, array in (
            ("label", schema.label, dataset.labels),
            ("unit", schema.unit, dataset.units),
            ("time", schema.time, times),
            ("weight", schema.weight, dataset.weights),
        )
        if name is not None and array is not None
    ]
    features = [_Tally(f.name, f.role, leaves_out=leaves_out) for f in dataset.features]
    for start in range(0, dataset.num_rows, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        place = functools.partial(_place, dataset.folder.name, start)
        ids = dataset.gather(rows)
        for column, tally in enumerate(features):
            tally.add(pl.Series(tally.name, ids[:, column]), place)
        for tally, array in others:
            tally.add(pl.Series(tally.name, array[rows]), place)
    num_bad_lines = provenance.get("num_bad_lines")
    return _description(
        [*features, *(tally for tally, _ in others)],
        num_bad_lines if isinstance(num_bad_lines, int) else 0,
        is_raw=False,
    )


def _place(name: str, start: int, index: int) -> str:
    return f"{name}, row {start + index + 1}"


class _Tally:
    """What is counted of one column."""

    def __init__(self, name: str, role: str, *, leaves_out: bool) -> None:
        self.name, self.role = name, role
        self.leaves_out = leaves_out
        self.num_rows = self.num_missing = 0
        self.sum = 0.0
        self.distinct = DistinctValues(_MAX_UNITS_HELD if role == "unit" else _MAX_VALUES_HELD)

    def add(self, values: pl.Series, place: Place) -> None:
        self.num_rows += len(values)
        self.num_missing += values.null_count()
        self.distinct.add(values)
        if self.role == "label":
            self.sum += _sum_of_labels(values, place)

    def figure(self, value: float, relative_error: float = 0.0) -> RawStatistic:
        return RawStatistic(
            value=value,
            must_not_be_released=self.leaves_out or self.role in _SENSITIVE_ROLES,
            relative_error=relative_error,
        )

    def describe(self, *, is_raw: bool) -> ColumnDescription:
        distinct = self.distinct
        missing = self.figure(self.num_missing / self.num_rows) if is_raw else None
        return ColumnDescription(
            name=self.name,
            role=self.role,
            num_distinct=self.figure(distinct.num_distinct, distinct.relative_error),
            missing_share=missing,
        )

    def label_rate(self) -> RawStatistic:
        return self.figure(self.sum / max(1, self.num_rows - self.num_missing))

    def rows_per_unit(self) -> dict[str, RawStatistic]:
        times = self.distinct.times
        found = {
            name: np.quantile(times, share, method="inverted_cdf")
            for name, share in _QUANTILES.items()
        }
        error = self.distinct.relative_error
        return {name: self.figure(int(value), error) for name, value in found.items()}


def _sum_of_labels(values: pl.Series, place: Place) -> float:
    """The sum of labels, missing ones left out."""
    numbers = label_numbers(values)
    is_missing = values.fill_nan(None).is_null() if values.dtype.is_float() else values.is_null()
    refuse_values(
        values.name,
        (numbers.is_null() & ~is_missing) | numbers.is_infinite().fill_null(False),
        place,
        f"of role label is neither a finite number nor {FLAG_WORDS}",
        "store labels as 0 and 1, or name another column",
    )
    return float(numbers.sum())


def _description(tallies: list[_Tally], num_bad_lines: int, *, is_raw: bool) -> Description:
    num_rows = tallies[0].num_rows
    if num_rows == 0:
        raise DataError("the input has no row; there is nothing to describe.")
    by_role = {tally.role: tally for tally in tallies}
    label, unit = by_role.get("label"), by_role.get("unit")
    return Description(
        num_rows=RawStatistic(value=num_rows, must_not_be_released=tallies[0].leaves_out),
        num_bad_lines=RawStatistic(value=num_bad_lines, must_not_be_released=True),
        label_rate=None if label is None else label.label_rate(),
        columns=tuple(tally.describe(is_raw=is_raw) for tally in tallies),
        rows_per_unit={} if unit is None else unit.rows_per_unit(),
    )


_LEAST_TO_MERGE = 1 << 16
"""Small blocks wait until they hold as much as is held already, so that each value is merged only a
few times."""


class DistinctValues:
    """Counts values that come in blocks: exact up to a capacity, then from a sample of values.

    Wegman's adaptive sampling: once more values are held than the capacity, only those
    whose hash ends in one more zero bit are kept, with all their occurrences. The
    standard error of the number is 1.2 / sqrt(capacity) of it (Flajolet, On adaptive
    sampling, 1990); it is 0 as long as all values are held.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._num_zero_bits = 0
        self._held = _table([], [])
        self._waiting: list[pl.DataFrame] = []

    def add(self, values: pl.Series) -> None:
        """Counts the values of one block. Nulls are no values."""
        counted = values.drop_nulls().rename("value").value_counts(name="times")
        block = counted.select(pl.col("value").hash().alias("hash"), pl.col("times").cast(pl.Int64))
        self._waiting.append(self._kept(block))
        num_waiting = sum(table.height for table in self._waiting)
        if num_waiting > max(_LEAST_TO_MERGE, self._held.height):
            self._merge()

    @property
    def num_distinct(self) -> int:
        """The number of different values, exact or estimated."""
        self._merge()
        return self._held.height << self._num_zero_bits

    @property
    def relative_error(self) -> float:
        """Standard error of `num_distinct` as a share of it; 0 if it is exact."""
        self._merge()
        return 0.0 if self._num_zero_bits == 0 else 1.2 / math.sqrt(self._capacity)

    @property
    def times(self) -> NDArray[np.int64]:
        """How often each value occurs, for all values or for a sample of them, sorted."""
        self._merge()
        return self._held["times"].sort().to_numpy()

    def _merge(self) -> None:
        if not self._waiting:
            return
        tables = [self._held, *self._waiting]
        self._held = pl.concat(tables).group_by("hash").agg(pl.col("times").sum())
        self._waiting = []
        while self._held.height > self._capacity:
            self._num_zero_bits += 1
            self._held = self._kept(self._held)

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        mask = (1 << self._num_zero_bits) - 1
        return table.filter((pl.col("hash") & pl.lit(mask, pl.UInt64)) == 0) if mask else table


def _table(hashes: list[int], times: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {"hash": hashes, "times": times}, schema={"hash": pl.UInt64, "times": pl.Int64}
    )
