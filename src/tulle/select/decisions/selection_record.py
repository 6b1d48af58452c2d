"""What lies beside a file of choices and says how they came about.

`choices.parquet` comes with `choices.release.json`: the plan, the settings in plain data, counts
of decisions that public data gave, and a hash of the file. Everything in it is public.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tulle.data.source_files import has_sha256
from tulle.errors import ConfigError, DataError
from tulle.runs.record import TableRecord
from tulle.runs.release_files import read_record, record_path
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings import parse_settings

if TYPE_CHECKING:
    import polars as pl


_FIRST_FORMAT, _WITH_TYPES = "tulle selection 1", "tulle selection 2"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionRecord(TableRecord):
    """A release of choices. Every field is public information."""

    what: ClassVar[str] = "selection record"
    formats: ClassVar[tuple[str, ...]] = (_FIRST_FORMAT, _WITH_TYPES)
    keys: ClassVar[tuple[str, ...]] = (
        *("plan", "settings", "num_requests", "num_without_ad", "num_personalised", "columns"),
        *("types", "table", "table_sha256", "randomness", "is_secure", "format"),
    )

    settings: str
    """The settings file of the selection, as text."""
    num_requests: int
    """Auctions with an eligible ad."""
    num_without_ad: int
    """Auctions in which no ad reaches the reserve."""
    num_personalised: int
    """Number of auctions whose private scores were used."""
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What each column holds, "integer" or "text": a text file does not say whether 00 is a number.
    Empty in records of version 0.1, whose ids are then read as text."""

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, also one of an earlier version."""
        if isinstance(data, dict) and data.get("format") == _FIRST_FORMAT:
            data = data | {"types": {}}
        return super().read_fields(data)

    def frame(self, path: Path | None, name: str | None = None) -> "pl.DataFrame":
        """The released choices or counts, in the types that were written.

        Args:
          path: Where the release was written.
          name: Name of the table; may be left out.
        """
        from tulle.select.files.choice_files import read_released

        if name not in (None, self.table):
            raise ConfigError(f"there is no table {name!r}; there is {self.table!r}.")
        if path is None:
            raise ConfigError("the choices were not written to a file; decide with an output.")
        return read_released(path, {column: self.types.get(column) for column in self.columns})


def check_drawn_by(config: SelectionConfig, choices: Path) -> None:
    """Holds choices against the record beside them; without a record nothing is known.

    Raises:
      DataError: The record is of another file, or names other settings.
    """
    if not record_path(choices).exists():
        return
    record = read_record(choices, SelectionRecord.from_json)
    if not has_sha256(choices, record.table_sha256):
        raise DataError(
            f"{choices.name} is not the file of its record {record_path(choices).name}; keep both "
            "as they were written, or give another file another name."
        )
    drawn = parse_settings(record.settings, name=config.name)
    if dataclasses.replace(drawn, name=config.name) != config:
        raise DataError(
            f"{choices.name} was drawn by other settings than these, as its record says; give the "
            "settings that it was drawn by."
        )
