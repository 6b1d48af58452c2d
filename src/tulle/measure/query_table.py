"""One [[query]] table of a measurement's settings."""

import contextlib
import dataclasses
import datetime
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import LogColumns, Side
from tulle.measure.queries.query import MAX_SLICES, Levels, LevelSplit, Quantity, Query
from tulle.measure.slice_jobs import Amount, Bounds, SliceColumn
from tulle.measure.small_tables import read_rows, texts_of
from tulle.privacy.fields import did_you_mean

_PRIVATE = "private"
"""What stands for keys that are to be found privately."""
_MOST_DAYS = 10_000
"""Most days of a list, 27 years: a longer one is a mistyped year."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaysTable:
    """Days from a first to a last one, both with."""

    first: datetime.date | str
    last: datetime.date | str

    def days(self) -> list[str]:
        """Returns every day, as 2026-01-14."""
        first, last = _date("first", self.first), _date("last", self.last)
        num_days = (last - first).days + 1
        if not 1 <= num_days <= _MOST_DAYS:
            raise ConfigError(
                f"first={first} and last={last} must go from a first day to a later one, at most "
                f"{_MOST_DAYS:,} days."
            )
        return [str(first + datetime.timedelta(days=day)) for day in range(num_days)]


KeyTable = Mapping[str, tuple[bool | str | int | datetime.date, ...] | DaysTable]
"""Values of each slice column, which are crossed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundsTable:
    """What one unit may add; all left out where each row is a unit of its own."""

    max_per_slice: float | None = None
    max_slices_per_unit: int | None = None
    max_per_unit: float | None = None

    def bounds(self) -> Bounds | None:
        """Returns the bounds, None if there are none.

        Raises:
          ConfigError: Some are given and not the one that the others need.
        """
        names = ("max_slices_per_unit", "max_per_unit")
        given = [name for name in names if getattr(self, name) is not None]
        if self.max_per_slice is None:
            if given:
                raise ConfigError(f"max_per_slice is needed beside {', '.join(given)}; add it.")
            return None
        return Bounds(
            max_per_slice=self.max_per_slice,
            max_slices_per_unit=self.max_slices_per_unit,
            max_per_unit=self.max_per_unit,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AmountTable:
    """A column of the conversions that is added up, with its clip and share of a contribution."""

    column: str
    clip: float
    share: float
    name: str | None = None

    def amount(self) -> Amount:
        """Returns the amount that the table describes."""
        name = self.column if self.name is None else self.name
        return Amount(name=name, column=self.column, clip=self.clip, share=self.share)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryTable(BoundsTable):
    """A question about a campaign: what is counted, by which slices, within which bounds."""

    name: str
    measure: Quantity
    slices: tuple[str, ...] = ()
    keys: str | KeyTable | None = None
    share: float = 1.0
    clip: float | None = None
    values: tuple[AmountTable, ...] | None = None
    kinds: tuple[str, ...] = ()
    base: BoundsTable | None = None
    levels: tuple[tuple[str, ...], ...] | None = None
    split: LevelSplit | tuple[float, ...] | None = None
    tau: float | None = None
    history: str | None = None
    running_totals: bool = False
    max_frequency: int | None = None
    unattributed: bool = False

    def query(self, *, columns: LogColumns, folder: Path, keys: object = None) -> Query:
        """Returns the query that the table describes.

        Args:
          columns: Names of the log's columns.
          folder: The folder that relative paths start from.
          keys: A table in memory with the slices that are wanted, in place of its own keys.
        """
        is_reach = self.measure is Quantity.REACH
        with _naming(f"query {self.name!r}"):
            for name in ("max_per_slice", "max_per_unit") if is_reach else ("max_frequency",):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name} does not bound {self.measure.value}; leave it out.")
            slices = tuple(_slice(name, self.measure, columns) for name in self.slices)
            names = [column.name for column in slices]
            wanted = self._keys(names, folder)
            if keys is not None:
                wanted = read_keys(keys, names) if names else pl.DataFrame()
            return Query(
                name=self.name,
                quantity=self.measure,
                slices=slices,
                keys=_plain_flags(wanted, slices, columns),
                bounds=None if is_reach else self.bounds(),
                share=self.share,
                values=self._values(columns),
                base_kinds=self.kinds,
                base_bounds=self._base_bounds(),
                counts_unattributed=self.unattributed,
                levels=self._levels(),
                has_running_totals=self.running_totals,
                max_frequency=10 if self.max_frequency is None else self.max_frequency,
                max_slices_per_unit=self.max_slices_per_unit if is_reach else None,
            )

    def _base_bounds(self) -> Bounds | None:
        with _naming("base"):
            return None if self.base is None else self.base.bounds()

    def _keys(self, names: list[str], folder: Path) -> pl.DataFrame | None:
        if self.keys is None and names:
            raise ConfigError(
                "keys are needed: the slices that are wanted as a file or a table, or "
                '"private" to find those that occur, which costs a part of epsilon and needs a '
                "delta."
            )
        if self.keys is None:
            return None
        if not names:
            return pl.DataFrame()  # which a query without slices refuses
        if isinstance(self.keys, str):
            return None if self.keys == _PRIVATE else read_keys(folder / self.keys, names)
        return _crossed(self.keys, names)

    def _values(self, columns: LogColumns) -> tuple[Amount, ...]:
        if self.clip is not None and self.values is not None:
            raise ConfigError(
                "values is a list of tables with column, clip and share, and stands in place of "
                "clip; leave one out."
            )
        if self.values is not None:
            return tuple(table.amount() for table in self.values)
        if self.clip is None:
            return ()
        return (Amount(name="value", column=columns.value, clip=self.clip),)

    def _levels(self) -> Levels | None:
        if self.levels is None:
            for name in ("split", "tau", "history"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name} is for levels; name them too.")
            return None
        split = LevelSplit.UNIFORM if self.split is None else self.split
        needs_history = isinstance(split, LevelSplit) and split.needs_history
        if needs_history != (self.history is not None):
            raise ConfigError(
                "history goes with split cube-root and optimised, which need it: counts of an "
                "earlier measurement.json, or of a table that is public."
            )
        if self.tau is not None and not needs_history:
            raise ConfigError("tau goes with split cube-root and optimised; leave it out.")
        tau = Levels.tau if self.tau is None else self.tau
        return Levels(columns=self.levels, split=split, tau=tau)


def read_keys(data: object, names: list[str]) -> pl.DataFrame:
    """Reads the slices that a file or a table lists, one text column each, each once.

    Args:
      data: A path, or a table in memory.
      names: Columns of the table that are slices, in order.

    Raises:
      DataError: It cannot be read, or lacks a column.
    """
    rows = read_rows(data, names)
    return pl.DataFrame([texts_of(rows, name) for name in names]).unique(maintain_order=True)


def _plain_flags(
    keys: pl.DataFrame | None, slices: tuple[SliceColumn, ...], columns: LogColumns
) -> pl.DataFrame | None:
    """Keys whose truth values are written as the slices of their column are: true and false."""
    flags = [part.name for part in slices if columns.kind_of(part.column) is Kind.BOOLEAN]
    if keys is None or not keys.width:
        return keys
    return keys.with_columns(as_text(keys[name], Kind.BOOLEAN) for name in flags)


def _slice(name: str, quantity: Quantity, columns: LogColumns) -> SliceColumn:
    side_text, _, rest = name.rpartition(".")
    about_conversions = quantity.needs_conversions and quantity is not Quantity.RATE
    if side_text not in {"", "impression", "conversion"}:
        side_text, rest = "", name  # a column whose own name has a dot in it
    side = Side(side_text) if side_text else Side.IMPRESSION
    is_day = rest == "day"
    if is_day and not side_text and about_conversions:
        side = Side.CONVERSION
    column = columns.time(side) if is_day else rest
    if column is None:
        raise ConfigError("the slice day needs the column with the time of a row; name it.")
    return SliceColumn(name=rest, side=side, column=column, is_day=is_day)


def _crossed(keys: KeyTable, names: list[str]) -> pl.DataFrame:
    for name in keys:
        if name not in names:
            raise ConfigError(
                f"keys.{name} is for no slice{did_you_mean(name, names)}; name {name!r} in slices, "
                "or leave it out."
            )
    for name in names:
        if name not in keys:
            raise ConfigError(f"keys needs the values of the slice {name!r}; add them.")
    lists = [_key_values(name, keys[name]) for name in names]
    num_keys = math.prod(len(values) for values in lists)
    if num_keys > MAX_SLICES:
        raise ConfigError(f"keys has {num_keys:,} slices, must have at most {MAX_SLICES:,}.")
    return pl.DataFrame(
        list(itertools.product(*lists)), schema=dict.fromkeys(names, pl.String), orient="row"
    )


def _key_values(
    name: str, values: tuple[bool | str | int | datetime.date, ...] | DaysTable
) -> list[str]:
    if isinstance(values, DaysTable):
        with _naming(f"keys.{name}"):
            return values.days()
    if not values:
        raise ConfigError(f"keys.{name} must be a list of values that is not empty.")
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def _date(name: str, value: datetime.date | str) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    try:
        return datetime.date.fromisoformat(str(value))
    except ValueError:
        raise ConfigError(f"{name}={str(value)!r} must be a date, e.g. 2026-01-14.") from None


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Puts the name of a table before what is wrong with its settings, unless it is there."""
    try:
        yield
    except (ConfigError, DataError) as error:
        message = str(error)
        raise type(error)(message if what in message else f"{what}: {message}") from None
