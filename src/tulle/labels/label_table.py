"""A table of public columns and one sensitive label, read in blocks.

It comes from files, or from a table in memory. Columns that decide whose a row is are read apart
from the label, so a plan can be made before a label is. Messages name the column and the first
wrong row, never a value.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tulle.data.formats.known_roles import check_known_roles
from tulle.data.formats.public import LAYOUTS
from tulle.data.named_logs import TAOBAO_TABLES, SchemaLike, schema_of
from tulle.data.row_arrays import RowArrays
from tulle.data.schema import Schema
from tulle.data.source_files import SourceFile, content_sha256, inspect_sources, refuse_copies
from tulle.data.tables.archives import detect_form
from tulle.data.tables.columnar import stored_columns
from tulle.data.tables.kinds import FLAG_WORDS, label_numbers
from tulle.data.tables.layout import Layout, layout_for
from tulle.data.tables.memory import as_file
from tulle.data.tables.refusals import Place, refuse_values
from tulle.data.tables.sources import LogFiles, block_place, placed_blocks
from tulle.errors import ConfigError, DataError
from tulle.labels.unit_rows import PARTNERS, UnitRows, group_rows
from tulle.privacy.fields import did_you_mean
from tulle.privacy.units import Owner, Unit

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROWS_PER_BLOCK = 1 << 19
"""Rows that are read at once, so that memory stays bounded."""
_SECONDS_PER_DAY = 86_400
_SALT = b"unit ids of one table"
"""Salt of the hashes of ids. No secret: ids are public, and two owners with one hash become one
unit, which protects both."""
_TABLE = "table.parquet"
"""What messages call a table in memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Files with one label a row. Names and roles are public, labels are not."""

    paths: tuple[Path, ...]
    """The files, in order."""
    layout: Layout
    """How they are written, and the roles of their columns."""
    unit: Unit
    """What is protected."""
    partner: str | None = None
    """Public column with the advertiser or the publisher, where the unit names one."""
    rows_per_block: int = _ROWS_PER_BLOCK
    """Most rows that are read at once."""

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
        if self.unit.windows is not None and self.schema.time is None:
            raise ConfigError(
                f"unit='{self.unit}' has a window and the schema no time column; name it, or "
                f"protect '{owner.value}'."
            )
        self._check_partner(PARTNERS.get(owner))

    @property
    def schema(self) -> Schema:
        """The roles of the columns."""
        return self.layout.schema

    @property
    def label(self) -> str:
        """The column that is protected."""
        return str(self.schema.label)

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """What goes into the released table as it is."""
        others = (self.schema.unit, self.schema.time, self.schema.weight)
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
                    found = arrays.times(table[name], place)
                    if "times" not in found and self.unit.windows is not None:
                        self.unit.windows.check_days(f"time column {time!r}")
                    parts[name].append(_seconds(found))
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
        refuse_copies(self.paths, has_header=self.layout.has_header)
        return sources

    def digest(self) -> bytes:
        """A hash of all bytes of the files and of the roles. As sensitive as raw data."""
        # Roles too: the same file with another label is another release and costs again.
        digest = hashlib.blake2b(repr(self.schema.to_dict()).encode(), digest_size=32)
        for path in self.paths:
            digest.update(content_sha256(path).encode())
        return digest.digest()

    def _first_rows(self, path: Path) -> pl.DataFrame:
        """One row of what is kept, after a check that the label is there too."""
        columns = self.kept_columns
        if (form := detect_form(path)).is_columnar:
            roles = dataclasses.replace(self.schema.roles, sensitive=(), ignored=())
            roles.check_against(stored_columns(path, form))
        else:
            columns = (*columns, self.label)
        one = LogFiles(paths=(path,), layout=self.layout, rows_per_block=1, columns=columns)
        first = next(one.blocks(), None)
        return pl.DataFrame() if first is None else first.table.select(self.kept_columns)

    def _blocks(self, columns: tuple[str, ...]) -> Iterator[tuple[pl.DataFrame, Place]]:
        log = LogFiles(
            paths=self.paths,
            layout=self.layout,
            rows_per_block=self.rows_per_block,
            columns=columns,
        )
        num_rows = 0
        for block, start in placed_blocks(log):
            num_rows += len(block.table)
            yield block.table, block_place(log, block, start, len(block.table))
        if not num_rows:
            raise DataError(f"{self.paths[0].name} has no rows; there is no label to release.")

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSource:
    """Data whose labels are released, with roles and unit, as a caller names them."""

    data: object
    """A path or several, or a table of polars, pandas or Arrow."""
    schema: SchemaLike | None = None
    """Roles of the columns; None: those of the layout."""
    layout: str | None = None
    """Name of a public log, which gives the form of the file and, without a schema, the roles."""
    unit: Unit | str = "example"
    """What is protected."""
    partner: str | None = None
    """Public column with the advertiser or publisher, for units of pairs."""
    allow_public: Sequence[str] = ()
    """Columns that are public deliberately, though a known log protects them."""

    @property
    def paths(self) -> tuple[Path, ...] | None:
        """The files, or None for a table in memory."""
        if isinstance(self.data, str | os.PathLike):
            return (Path(self.data),)
        if not isinstance(self.data, list | tuple):
            return None
        if not self.data or not all(isinstance(path, str | os.PathLike) for path in self.data):
            raise ConfigError("data is a list that holds no paths; name at least one file.")
        return tuple(Path(path) for path in self.data)

    @contextlib.contextmanager
    def opened(self) -> Iterator[LabelTable]:
        """The table. One in memory lies in a scratch folder of this user for as long as it is open.

        Raises:
          ConfigError: Roles are missing, or make a protected column of a known log public.
        """
        with contextlib.ExitStack() as stack:
            paths = self.paths
            if paths is None:
                columns = self._layout(Path(_TABLE)).schema.used
                paths = (stack.enter_context(as_file(self.data, name=_TABLE, columns=columns)),)
            layout = self._layout(paths[0])
            check_known_roles(
                layout.schema, allowed_public=self.allow_public, format_name=self.layout
            )
            unit = self.unit if isinstance(self.unit, Unit) else Unit.parse(self.unit)
            yield LabelTable(paths=paths, layout=layout, unit=unit, partner=self.partner)

    def _layout(self, first: Path) -> Layout:
        schema = None if self.schema is None else schema_of(self.schema)
        if self.layout is None:
            if schema is None:
                raise ConfigError(
                    "the roles of columns are missing: give a schema, which names the role of each "
                    "column, or the layout of a public log by its name."
                )
            return layout_for(first, schema)
        if self.layout == TAOBAO_TABLES:
            raise ConfigError(
                f"layout={TAOBAO_TABLES!r} joins files while reading; join them first, and use "
                "layout='taobao'."
            )
        if self.layout not in LAYOUTS:
            raise ConfigError(
                f"layout={self.layout!r} is unknown{did_you_mean(self.layout, LAYOUTS)}; use one "
                f"of {', '.join(LAYOUTS)}, or a schema."
            )
        layout = LAYOUTS[self.layout]
        return layout if schema is None else dataclasses.replace(layout, schema=schema)


def _check_with_place(
    check: Callable[[FloatArray], object], labels: FloatArray, column: str, place: Place
) -> None:
    try:
        check(labels)
    except DataError as error:
        # The check shows no label, so the place is found by asking it of halves.
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
    refuse_values(
        values.name,
        numbers.is_null(),
        place,
        f"of role label is missing or neither a number nor {FLAG_WORDS}",
        "mend or drop such rows first, by a rule that does not look at other labels",
    )
    return numbers.to_numpy()


def _seconds(arrays: dict[str, NDArray[Any]]) -> IntArray:
    name, size = ("times", 1) if "times" in arrays else ("days", _SECONDS_PER_DAY)
    return arrays[name].astype(np.int64) * size
