"""The files of a log: which kind they are, under which names, and the header of CSV.

Nothing about a file is guessed from its rows. An engine that looks at values to find separators,
quotes or types lets one row change how all others are read, and no bound on what one user adds
would hold.
"""

import csv
import enum
import gzip
from collections.abc import Sequence
from pathlib import Path

from tulle.data.source_files import refuse_copies
from tulle.errors import DataError
from tulle.measure.ad_log import FileTable

QUOTE = '"'
"""Around texts of CSV; within them it stands twice."""


class FileKind(enum.Enum):
    """What the files of a table are, by their names."""

    PARQUET = "Parquet"
    CSV = "CSV"
    TSV = "TSV"

    @property
    def separator(self) -> str:
        """Between the columns of a row."""
        return "\t" if self is FileKind.TSV else ","


_ENDINGS = {
    (".parquet", ".pq"): FileKind.PARQUET,
    (".csv", ".csv.gz"): FileKind.CSV,
    (".tsv", ".tsv.gz"): FileKind.TSV,
}


def file_kind(source: FileTable) -> FileKind:
    """The kind of all files of a table."""
    kinds = [_kind_of(path) for path in source.paths]
    if len(set(kinds)) > 1:
        raise DataError(
            f"{source.paths[0]} and other files of its table are of several kinds; use one kind "
            "of file per table."
        )
    return kinds[0]


def check_files(source: FileTable) -> None:
    """Refuses files that are missing, empty, named twice or copies of each other."""
    for path in source.paths:
        if not path.exists():
            raise DataError(f"{path} is not there; check the path.")
        if not path.is_file():
            raise DataError(f"{path} is no file; name the files themselves.")
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty; check how it was written.")
    refuse_copies(source.paths)


def csv_columns(paths: Sequence[Path], kind: FileKind) -> list[str]:
    """Names in the header line, which must be the same in all files."""
    headers = [_header(path, kind) for path in paths]
    for path, header in zip(paths, headers, strict=True):
        if header != headers[0]:
            raise DataError(
                f"{path} has another header line than {paths[0]}; all files of a table need the "
                "same columns in the same order."
            )
    folded = [name.casefold() for name in headers[0]]
    if not all(folded) or len(set(folded)) < len(folded):
        raise DataError(
            f"{paths[0]}: its first line has a name twice or an empty one; the first line of CSV "
            "names the columns."
        )
    return headers[0]


def _kind_of(path: Path) -> FileKind:
    for endings, kind in _ENDINGS.items():
        if path.name.lower().endswith(endings):
            return kind
    raise DataError(
        f"{path} is neither Parquet nor CSV by its name; files end in .parquet, .csv, .tsv, "
        ".csv.gz or .tsv.gz."
    )


def _header(path: Path, kind: FileKind) -> list[str]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            return next(csv.reader(lines, delimiter=kind.separator, quotechar=QUOTE, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error, StopIteration):
        # What cannot be read may be quoted in the cause.
        raise DataError(f"{path} has no readable header line; is it {kind.value}?") from None
