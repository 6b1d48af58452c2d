"""What lies beside a file with an estimate and says how it came about.

`evaluation.json` comes with `evaluation.release.json`: the plan, the settings of the evaluated
selection, the meaning of each number, and a hash of the file. Everything in it is public.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tulle.errors import ConfigError, DataError
from tulle.runs.record import TableRecord

if TYPE_CHECKING:
    import polars as pl

_SHARED_FORMATS = ("tulle selection 1", "tulle selection 2")
"""Formats of version 0.1, in which an estimate had the record of choices."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationRecord(TableRecord):
    """A release of an estimate. Every field is public information."""

    what: ClassVar[str] = "evaluation record"
    formats: ClassVar[tuple[str, ...]] = (*_SHARED_FORMATS, "tulle selection evaluation 1")
    keys: ClassVar[tuple[str, ...]] = (
        *("plan", "target", "num_decisions", "columns", "table", "table_sha256"),
        *("randomness", "is_secure", "format"),
    )

    target: str
    """The settings file of the evaluated selection, as text."""
    num_decisions: int
    """Personalised decisions that the estimate was made from."""

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, also one of an earlier version."""
        if isinstance(data, dict) and data.get("format") in _SHARED_FORMATS:
            data = {key: data[key] for key in cls.keys if key in data} | {
                "target": data.get("settings"),
                "num_decisions": data.get("num_personalised"),
            }
        return super().read_fields(data)

    def frame(self, path: Path | None, name: str | None = None) -> "pl.DataFrame":
        """The released numbers as a frame of one row, the interval as low and high.

        Args:
          path: Where the release was written.
          name: Name of the file; may be left out.
        """
        if name not in (None, self.table):
            raise ConfigError(f"there is no table {name!r}; there is {self.table!r}.")
        if path is None:
            raise ConfigError("the estimate was not written to a file; its numbers came with it.")
        return estimate_frame(read_numbers(path))


def read_numbers(path: Path) -> dict[str, Any]:
    """Reads the numbers of a released estimate.

    Raises:
      DataError: The file is gone or cannot be read.
    """
    try:
        numbers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{path.name} cannot be read as an estimate; restore the file that was released."
        ) from None
    return numbers


def estimate_frame(numbers: Mapping[str, Any]) -> "pl.DataFrame":
    """The numbers of an estimate as a frame of one row, the interval as low and high."""
    import polars as pl

    low, high = numbers["interval"]
    row: dict[str, Any] = {}
    for name, value in numbers.items():
        row |= {"low": low, "high": high} if name == "interval" else {name: value}
    return pl.DataFrame([row])
