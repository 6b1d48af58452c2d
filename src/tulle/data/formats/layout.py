"""How a log is written, and the roles its columns have.

A layout is public: it says nothing about the rows of any one file.
"""

import dataclasses

from tulle.data.schema import Schema
from tulle.errors import ConfigError
from tulle.privacy.fields import check_text, did_you_mean

SEPARATORS = ("\t", ",")
QUOTE = '"'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextForm:
    """How rows are written as text: one row a line, values between separators.

    Parquet files have their own form; of this only `columns` and `missing` apply to them.
    """

    columns: tuple[str, ...]
    """In the order of the file; with a header any order and more columns are fine."""
    separator: str
    has_header: bool
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""
    quote: str | None = None
    """Around a value that has a separator in it, doubled inside; None if a quote is only text."""

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
            raise ConfigError(f"separator={self.separator!r} must be a tab or a comma.")
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
    """In the order of the file; with a header any order and more columns are fine."""
    separator: str
    has_header: bool
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""
    quote: str | None = None
    """Around a value that has a separator in it, doubled inside; None if a quote is only text."""
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


def _checked_tuple(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name}={value!r} must be a list of texts; write {name}=[{value!r}].")
    return tuple(value)
