"""Tables of a measurement as Parquet or CSV files, made from its record."""

import os
import secrets
from pathlib import Path

from tulle.errors import ConfigError
from tulle.measure.queries.measure_record import MeasureRecord
from tulle.measure.small_tables import file_stem
from tulle.runs.whole_files import reporting_disk_errors

FORMS = ("parquet", "csv")


def write_tables(record: MeasureRecord, folder: Path, *, form: str = "parquet") -> list[Path]:
    """Writes one file for each table and returns their paths, each there as a whole or not.

    Args:
      record: What was released.
      folder: Where to.
      form: "parquet" or "csv".
    """
    if form not in FORMS:
        raise ConfigError(f"form={form!r} is unknown; use one of {', '.join(FORMS)}.")
    paths = []
    for name, table in zip(_file_names(record), record.tables, strict=True):
        path = folder / f"{name}.{form}"
        staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with reporting_disk_errors(path):
            try:
                if form == "parquet":
                    table.frame.write_parquet(staged)
                else:
                    table.frame.write_csv(staged)
                os.replace(staged, path)
            finally:
                staged.unlink(missing_ok=True)
        paths.append(path)
    return paths


def _file_names(record: MeasureRecord) -> list[str]:
    names: list[str] = []
    for table in record.tables:
        name = file_stem(table.name)
        # Two names may differ only in what a file name cannot hold.
        taken = sum(other == name or other.startswith(f"{name}-") for other in names)
        names.append(name if name not in names else f"{name}-{taken + 1}")
    return names
