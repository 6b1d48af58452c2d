"""Blocks of rows, and the position after each of them.

A reader that stopped after a block goes on at the block's `next` position and
sees every later row once.
"""

import dataclasses
import enum

import polars as pl

from tulle.data.tables.layout import TextForm
from tulle.errors import ConfigError
from tulle.privacy.fields import check_fields


class BadLines(enum.Enum):
    """What happens to a line that cannot be read without guessing."""

    REFUSE = "refuse"
    """An error with file and line."""
    SKIP = "skip"
    """It is counted and left out."""


@dataclasses.dataclass(frozen=True)
class Position:
    """A place between two rows of a list of files."""

    file_index: int
    row: int
    """Data rows of that file read so far, bad ones included."""
    byte: int
    """Offset at which the next line starts, in decompressed bytes; 0 for Parquet."""
    line: int
    """Lines of that file read so far, header included; 0 for Parquet."""

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"position has {name}={value!r}, must be an integer >= 0.")

    def to_dict(self) -> dict[str, int]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> "Position":
        """Reads what `to_dict` wrote."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**check_fields("position", data, names))


@dataclasses.dataclass(frozen=True)
class Block:
    """Whole rows of one file, in its order. The table is as sensitive as the file."""

    table: pl.DataFrame
    next: Position
    """Position at which reading goes on after this block."""
    num_bad_lines: int
    """Lines left out of this block. Exact, so not to be released."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read and how: the same for every file of a log."""

    form: TextForm
    columns: tuple[str, ...]
    rows_per_block: int
    bad_lines: BadLines

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError("columns=() must name at least one column to read.")
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError(f"columns={self.columns} names a column twice; name it once.")
        if isinstance(self.rows_per_block, bool) or not isinstance(self.rows_per_block, int):
            raise ConfigError(f"rows_per_block={self.rows_per_block!r} must be an integer.")
        if self.rows_per_block < 1:
            raise ConfigError(f"rows_per_block={self.rows_per_block} must be >= 1.")
        if not isinstance(self.bad_lines, BadLines):
            raise ConfigError(f"bad_lines={self.bad_lines!r} must be a BadLines.")
