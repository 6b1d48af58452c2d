"""What happened in a run, one JSON line each, only ever appended to.

A process that dies while it writes leaves at most the beginning of one line. That
beginning counts for nothing and is cut off before the next line is written.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tulle.durable_files import sync_folder
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import check_finite, check_text, parse_json
from tulle.privacy.settings import Scalar
from tulle.runs.whole_files import reporting_disk_errors


class Records:
    """The records of one run. One process at a time may append; anybody may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Mapping[str, Scalar], *, durable: bool = False) -> None:
        """Writes one line at once.

        Args:
          record: Names with single values: finite numbers, text, true, false or null.
          durable: Return only when the line, and all before it, survive a power failure.
        """
        _check_record(record)
        line = json.dumps(dict(record), allow_nan=False).encode() + b"\n"
        with reporting_disk_errors(self._path):
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                end = _cut_torn_line(file)
                _write_all_or_nothing(file, line, end)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
            if durable and end == 0:
                sync_folder(self._path.parent)

    def read(self) -> list[dict[str, Scalar]]:
        """All whole lines, oldest first; none if nothing was ever written.

        Raises:
          RunStateError: A line that ends is not a record.
        """
        with reporting_disk_errors(self._path):
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                return []
        whole_lines = content.split(b"\n")[:-1]
        return [self._parse(line, number) for number, line in enumerate(whole_lines, start=1)]

    def _parse(self, line: bytes, number: int) -> dict[str, Scalar]:
        try:
            record = parse_json("the line", line.decode())
            _check_record(record)
        except (ConfigError, UnicodeDecodeError) as error:
            raise RunStateError(
                f"{self._path.parent.name}/{self._path.name} is damaged in line {number}: it is "
                "no record, so nobody knows which steps were taken; begin a run of another name."
            ) from error
        return dict(record)


def _check_record(record: object) -> None:
    if not isinstance(record, Mapping) or not record:
        raise ConfigError("a record must be names with values, and have at least one.")
    for name, value in record.items():
        check_text("name of an entry", name)
        if value is not None and not isinstance(value, (str, bool)):
            check_finite(name, value)


def _cut_torn_line(file: int) -> int:
    """Leaves whole lines only, and returns where they end."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n":
        return size
    end = os.pread(file, size, 0).rfind(b"\n") + 1
    os.ftruncate(file, end)
    return end


def _write_all_or_nothing(file: int, line: bytes, end: int) -> None:
    try:
        num_written = os.write(file, line)
        if num_written < len(line):
            raise OSError(f"only {num_written} of {len(line)} bytes could be written")
    except OSError:
        os.ftruncate(file, end)
        raise
