"""Whether choices were drawn by the settings that they are billed or evaluated with."""

import dataclasses
import tomllib
from pathlib import Path

from tulle.data.source_files import has_sha256
from tulle.errors import DataError
from tulle.runs.release_files import read_record, record_path
from tulle.select.deciding.selection_record import SelectionRecord
from tulle.select.selection_config import SelectionConfig
from tulle.select.settings_file import settings_of


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
    drawn = settings_of(tomllib.loads(record.settings), name=config.name)
    if dataclasses.replace(drawn, name=config.name) != config:
        raise DataError(
            f"{choices.name} was drawn by other settings than these, as its record says; give the "
            "settings that it was drawn by."
        )
