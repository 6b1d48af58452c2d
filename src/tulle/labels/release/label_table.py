"""A table of public columns and one sensitive label, read in blocks.

Columns that decide whose a row is are read apart from the label, so a plan can be
made before a label is. Messages name the column and the first wrong row, never a
value.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.formats.archives import FileForm, detect_form
from tulle.data.formats.layout import Layout
from tulle.data.formats.parquet import parquet_columns
from tulle.data.formats.tables import read_blocks
from tulle.data.row_arrays import LABEL_WORDS, Place, RowArrays, label_numbers
from tulle.data.schema import Schema
from tulle.data.source_files import SourceFile, content_sha256, inspect_sources, refuse_copies
from tulle.errors import ConfigError, DataError
from tulle.labels.units.unit_rows import UnitRows, group_rows
from tulle.privacy.units import Owner, Unit

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROWS_PER_BLOCK = 1 << 19
_SECONDS_PER_DAY = 86_400
_SALT = b"unit ids of one table"
# No secret: ids are public. Equal hashes of two owners make one unit of them.
_PARTNERS = {Owner.USER_ADVERTISER: "advertiser", Owner.USER_PUBLISHER: "publisher"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Files with one label a row. Names and roles are public, labels are not."""

    paths: tuple[Path, ...]
    layout: Layout
    unit: Unit
    partner: str | None = None
    """Public column with the advertiser or the publisher, where the unit names one."""
    rows_per_block: int = _ROWS_PER_BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", tuple(map(Path, self.paths)))
        if self.schema.label is None:
            raise ConfigError("the schema has no label; name the column to protect as label.")
        owner = self.unit.owner
        if owner is Owner.EXAMPLE:
            if self.partner is not None:
                raise ConfigError(f"partner={self.partner!r} is for units of pairs; leave it out.")
            return
        if owner.is_one_row:
            raise ConfigError(f"unit='{self.unit}' is for measurement; a row here is an 'example'.")
        if self.schema.unit is None:
            raise ConfigError(
                f"unit='{self.unit}' needs a unit column in the schema that says whose each row "
                "is; name it, or protect each example."
            )
        if self.unit.window_seconds is not None and self.schema.time is None:
            raise ConfigError(
                f"unit='{self.unit}' has a window and the schema no time column; name it, or "
                f"protect '{owner.value}'."
            )
        self._check_partner(_PARTNERS.get(owner))

    @property
    def schema(self) -> Schema:
        """The roles of the columns."""
        return self.layout.schema

    @property
    def label(self) -> str:
        """The column that is protected."""
        if self.schema.label is None:
            raise ConfigError("the schema has no label; name the column to protect as label.")
        return self.schema.label

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """What goes into the released table as it is."""
        others = (self.schema.unit, self.schema.time)
        return (*self.schema.public, *(name for name in others if name is not None))

    def check_columns(self) -> None:
        """Looks at the names and types of columns in every file, and at no label.

        Raises:
          DataError: A file or a column is missing, or the files differ in a column's type.
        """
        types: pl.Schema | None = None
        for path in self.paths:
            found = self._first_rows(path).schema
            if types is not None and found != types:
                column = next(name for name in types if types[name] != found[name])
                raise DataError(
                    f"column {column!r} is {types[column]} in {self.paths[0].name} and "
                    f"{found[column]} in {path.name}; store it with one type in all files."
                )
            types = found

    def label_blocks(
        self, check: Callable[[FloatArray], object] | None = None
    ) -> Iterator[FloatArray]:
        """The labels in order, as numbers.

        Args:
          check: Refuses labels that a mechanism cannot take.

        Raises:
          DataError: A label is missing, no number, or refused.
        """
        for table, place in self._blocks((self.label,)):
            labels = _numbers(table[self.label], place)
            if check is not None:
                _check_with_place(check, labels, self.label, place)
            yield labels

    def blocks(self) -> Iterator[tuple[pl.DataFrame, FloatArray]]:
        """What is kept of each row, and its label."""
        for table, place in self._blocks((*self.kept_columns, self.label)):
            yield table.select(self.kept_columns), _numbers(table[self.label], place)

    def unit_rows(self) -> UnitRows:
        """The rows of each unit. Reads public columns alone.

        Raises:
          DataError: A row names no owner, time or partner.
        """
        owner, time = self.schema.unit, self.schema.time
        if owner is None:
            raise ConfigError("the schema has no unit column; name it, or protect each example.")
        arrays = RowArrays(schema=self.schema, num_classes=2, salt=_SALT)
        names = [name for name in (owner, time, self.partner) if name is not None]
        parts: dict[str, list[IntArray]] = {name: [] for name in names}
        for table, place in self._blocks(tuple(names)):
            for name in names:
                if name == time:
                    parts[name].append(_seconds(arrays.times(table[name], place)))
                else:
                    reason = "every row needs a unit"
                    parts[name].append(arrays.ids(table[name], place, reason=reason))
        columns = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        return group_rows(
            self.unit,
            owner_ids=columns[owner],
            times=None if time is None else columns[time],
            partner_ids=None if self.partner is None else columns[self.partner],
        )

    def time_span(self) -> tuple[int, int]:
        """First and last second of the rows since the zero of their times, which are public."""
        time = self.schema.time
        if time is None:
            raise ConfigError("the schema has no time column; name it.")
        first, last = np.inf, -np.inf
        arrays = RowArrays(schema=self.schema, num_classes=2, salt=_SALT)
        for table, place in self._blocks((time,)):
            found = arrays.times(table[time], place)
            seconds = _seconds(found)
            # A day lasts until its last second.
            end = 0 if "times" in found else _SECONDS_PER_DAY - 1
            first, last = min(first, seconds.min()), max(last, seconds.max() + end)
        return int(first), int(last)

    def inspect_files(self) -> tuple[SourceFile, ...]:
        """What tells the files from changed ones. Refuses a file that is there twice.

        Raises:
          DataError: A file is named twice, also by another name, or is a copy of another: its
            labels would be noised twice for one price.
        """
        sources = inspect_sources(self.paths)
        refuse_copies(self.paths)
        return sources

    def digest(self) -> bytes:
        """A hash of all bytes of the files and of the roles. As sensitive as raw data."""
        digest = hashlib.blake2b(repr(self.schema.to_dict()).encode(), digest_size=32)
        for path in self.paths:
            digest.update(content_sha256(path).encode())
        return digest.digest()

    def _first_rows(self, path: Path) -> pl.DataFrame:
        """One row of what is kept, after a check that the label is there too."""
        columns = self.kept_columns
        if detect_form(path) is FileForm.PARQUET:
            roles = dataclasses.replace(self.schema.roles, sensitive=(), ignored=())
            roles.check_against(parquet_columns(path))
        else:
            columns = (*columns, self.label)
        first = next(read_blocks([path], self.layout, rows_per_block=1, columns=columns), None)
        return pl.DataFrame() if first is None else first.table.select(self.kept_columns)

    def _blocks(self, columns: tuple[str, ...]) -> Iterator[tuple[pl.DataFrame, Place]]:
        blocks = read_blocks(
            self.paths, self.layout, rows_per_block=self.rows_per_block, columns=columns
        )
        file_index = num_before = 0
        first = next(blocks, None)
        if first is None or not len(first.table):
            raise DataError(f"{self.paths[0].name} has no rows; there is no label to release.")
        for block in itertools.chain([first], blocks):
            if block.next.file_index != file_index:
                file_index, num_before = block.next.file_index, 0
            yield block.table, _Place(self.paths[file_index].name, num_before)
            num_before = block.next.row

    def _check_partner(self, needed: str | None) -> None:
        if needed is None and self.partner is not None:
            raise ConfigError(
                f"partner={self.partner!r} is for units of pairs, not for '{self.unit}'; "
                "leave it out."
            )
        if needed is not None and self.partner not in self.schema.public:
            raise ConfigError(
                f"unit='{self.unit}' needs the public column with the {needed}: partner "
                f"(--partner) is {self.partner!r}; name a column of role public."
            )


def _check_with_place(
    check: Callable[[FloatArray], object], labels: FloatArray, column: str, place: Place
) -> None:
    try:
        check(labels)
    except DataError as error:
        first, last = 0, len(labels)  # the first wrong one is in [first, last)
        while last - first > 1:
            middle = (first + last) // 2
            try:
                check(labels[first:middle])
                first = middle
            except DataError:
                last = middle
        raise DataError(f"column {column!r}, {place(first)}: {error}") from None


def _numbers(values: pl.Series, place: Place) -> FloatArray:
    """Labels as floats; refuses one that is missing or no number."""
    numbers = label_numbers(values)
    if numbers.null_count():
        where = place(int(numbers.is_null().arg_true()[0]))
        raise DataError(
            f"column {values.name!r} of role label is missing or neither a number nor "
            f"{LABEL_WORDS} in {where}; mend or drop such rows first, by a rule that does not look "
            "at other labels."
        )
    return numbers.to_numpy()


@dataclasses.dataclass(frozen=True)
class _Place:
    file_name: str
    num_before: int

    def __call__(self, index: int) -> str:
        return f"{self.file_name}, row {self.num_before + index + 1}"


def _seconds(arrays: dict[str, NDArray[Any]]) -> IntArray:
    if "times" in arrays:
        return arrays["times"].astype(np.int64)
    return arrays["days"].astype(np.int64) * _SECONDS_PER_DAY
