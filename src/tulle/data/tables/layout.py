"""How a log is written, which roles its columns have, and the blocks that it is read in.

A layout is public: it says nothing about the rows of any one file. A reader that
stopped after a block goes on at the block's `next` position and sees every later
row once.
"""

import dataclasses
import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.data.schema import Schema
from tulle.data.tables.archives import (
    DAMAGE,
    FileForm,
    detect_form,
    form_by_name,
    open_bytes,
)
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_fields, check_text, did_you_mean

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ("\t", ",", ";", "|")
QUOTE = '"'
_MOST_HEADER_BYTES = 1 << 20
"""Length of the longest line that is read; a longer header is refused by whoever reads the
file."""
_JSON_SUFFIXES = (".jsonl", ".ndjson")
_SEPARATOR_OF_SUFFIX = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextForm:
    """How rows are written as text: one row a line, values between separators.

    Parquet files have their own form; of this only `columns` and `missing` apply to them.
    """

    columns: tuple[str, ...]
    """Columns in the order of the file; with a header any order and more columns are fine."""
    separator: str
    has_header: bool
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""
    quote: str | None = None
    """Quote around a value that has a separator in it, doubled inside; None if a quote is only
    text."""

    def __post_init__(self) -> None:
        for name in ("columns", "missing"):
            object.__setattr__(self, name, _checked_tuple(name, getattr(self, name)))
        for column in self.columns:
            check_text("a column of the layout", column)
            if self.columns.count(column) > 1:
                raise ConfigError(f"column {column!r} is in the layout twice; name it once.")
        if not self.columns:
            raise ConfigError("columns=() must name at least one column.")
        if self.separator not in SEPARATORS:
            raise ConfigError(
                f"separator={self.separator!r} must be a tab, a comma, a semicolon or a bar."
            )
        if self.quote not in (None, QUOTE):
            raise ConfigError(f"quote={self.quote!r} must be {QUOTE!r} or None.")
        for marker in self.missing:
            if not isinstance(marker, str) or any(c in marker for c in f"{self.separator}\r\n"):
                raise ConfigError(f"missing has {marker!r}, but must be text that fits a value.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a log is written and the roles of its columns. Every field is public information."""

    name: str
    columns: tuple[str, ...]
    """Columns in the order of the file; with a header any order and more columns are fine."""
    separator: str
    has_header: bool
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""
    quote: str | None = None
    """Quote around a value that has a separator in it, doubled inside; None if a quote is only
    text."""
    schema: Schema
    outcomes: tuple[str, ...] = ()
    """Columns besides the label that are known only with it, or that give it away."""

    def __post_init__(self) -> None:
        check_text("name", self.name)
        form = self.text_form
        object.__setattr__(self, "columns", form.columns)
        object.__setattr__(self, "missing", form.missing)
        object.__setattr__(self, "outcomes", _checked_tuple("outcomes", self.outcomes))
        for column in self.outcomes:
            if column not in self.columns:
                raise ConfigError(
                    f"outcomes names column {column!r}, which layout {self.name!r} does not have; "
                    "add it to columns or drop it."
                )
        for role, column in self.schema.roles.items():
            if column not in self.columns:
                raise ConfigError(
                    f"layout {self.name!r} has no column {column!r}, to which its schema gives "
                    f"the role {role}{did_you_mean(column, self.columns)}; "
                    "add it to columns or drop its role."
                )

    @property
    def text_form(self) -> TextForm:
        """How the rows are written, without the roles."""
        return TextForm(
            columns=self.columns,
            separator=self.separator,
            has_header=self.has_header,
            missing=self.missing,
            quote=self.quote,
        )


def layout_for(path: Path, schema: Schema) -> Layout:
    """The layout of a file by its name, such as clicks.csv.gz, with the roles of a schema.

    An empty value is a missing one. For other markers, or a file without a
    header, build the `Layout` yourself.
    """
    columns = tuple(name for _, name in schema.roles.items())
    form = text_form(path, columns)
    return Layout(
        name=path.name,
        columns=columns,
        separator=form.separator,
        has_header=form.has_header,
        missing=form.missing,
        quote=form.quote,
        schema=schema,
    )


def text_form(path: Path, columns: tuple[str, ...], missing: tuple[str, ...] = ("",)) -> TextForm:
    """How the rows of a file with a header are written, by its name and its header.

    Only names decide, which are public, and never a row: .tsv has tabs and no quotes; .csv may
    have quotes, and commas unless its header has none and names its columns between semicolons,
    tabs or bars. JSON lines name their columns in every line.

    Args:
      path: The file. If it is not there, its name alone decides.
      columns: What is read.
      missing: Texts that mean that a value is missing.

    Raises:
      ConfigError: The name does not say how columns are separated.
    """
    separator, quote = ",", None
    if is_json_lines(path):
        return TextForm(columns=columns, separator=separator, has_header=False, missing=missing)
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files of a log that lie in it.")
    if not form_by_name(path).is_columnar:
        suffix = text_suffix(path)
        if suffix not in _SEPARATOR_OF_SUFFIX:
            raise ConfigError(
                f"the name {path.name} does not say how its columns are separated; end it in "
                ".csv, .tsv, .jsonl (each also with .gz or .zst), .parquet or .arrow, or build a "
                "Layout."
            )
        separator = _SEPARATOR_OF_SUFFIX[suffix]
        if separator == ",":
            separator, quote = header_separator(path), QUOTE
    return TextForm(
        columns=columns, separator=separator, has_header=True, missing=missing, quote=quote
    )


def header_separator(path: Path) -> str:
    """What separates the names in the header of a file with quotes: a comma, if it has any."""
    try:
        source = open_bytes(path, detect_form(path))
        try:
            first = source.read(_MOST_HEADER_BYTES).partition(b"\n")[0]
        finally:
            source.close()
    except (DataError, *DAMAGE):
        return ","  # whoever reads the file says what is wrong with it
    names = re.sub(f"{QUOTE}[^{QUOTE}]*{QUOTE}", "", first.decode(errors="replace"))
    found = [separator for separator in SEPARATORS if separator in names]
    return found[0] if len(found) == 1 else ","


def is_json_lines(path: Path) -> bool:
    """Whether the name says that a file holds JSON lines."""
    return not form_by_name(path).is_columnar and text_suffix(path) in _JSON_SUFFIXES


def text_suffix(path: Path) -> str:
    """The ending of a text file's name, without that of its compression."""
    is_plain = form_by_name(path) is FileForm.PLAIN
    return (path if is_plain else path.with_suffix("")).suffix.lower()


def _checked_tuple(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name}={value!r} must be a list of texts; write {name}=[{value!r}].")
    return tuple(value)


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

    table: "pl.DataFrame"
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
