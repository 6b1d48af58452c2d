"""What tells a source file from a changed one, and from a copy of itself."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from tulle.data.tables.archives import LineSource, detect_form
from tulle.data.tables.columnar import count_rows
from tulle.errors import DataError

_EDGE_BYTES = 1 << 20
"""Head and tail of a file that are hashed: logs are too large to hash whole at every start, and
what was appended or cut shows in its length and its tail."""
_BYTES_PER_READ = 1 << 20
"""Pieces in which a whole file is hashed, so that memory stays flat."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file as it was found. Its digest is as sensitive as a hash of raw data."""

    name: str
    """Name of the file without its folder."""
    num_bytes: int
    modified_ns: int
    edges_sha256: str
    """Digest of the first and the last mebibyte of the file."""

    def to_dict(self) -> dict[str, object]:
        """Plain data that must stay the same while a dataset is being written."""
        return dataclasses.asdict(self)


def inspect_sources(paths: Sequence[Path]) -> tuple[SourceFile, ...]:
    """Looks at every file, in the order given.

    Raises:
      DataError: There is none, or one cannot be read.
    """
    if not paths:
        raise DataError("there is no input file; name at least one.")
    return tuple(_inspect(path) for path in paths)


def refuse_copies(paths: Sequence[Path], *, has_header: bool = False) -> None:
    """Refuses files of one table of which two are the same file, or equal byte by byte.

    A row that is there twice counts twice in sums, is trained on twice, and has its label noised
    twice for one price. Files without a row may be equal. Files that hold the same rows in other
    bytes are not found. Only files of equal size are opened, and only those with equal ends are
    read whole.

    Args:
      paths: All files of one table.
      has_header: Whether the first line of text files names the columns and is no row.

    Raises:
      DataError: A file is named twice, also by a link, or is a copy of another; or one cannot
        be read.
    """
    places: dict[tuple[int, int], Path] = {}
    sizes: dict[int, list[Path]] = {}
    for path in paths:
        try:
            found = path.stat()
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            raise _unreadable(path, error) from None
        place = (found.st_dev, found.st_ino)
        if place in places:
            raise DataError(
                f"{path.name} is named twice: it is the same file as {places[place].name}, and its "
                "rows would count twice. Name it once."
            )
        places[place] = path
        sizes.setdefault(found.st_size, []).append(path)
    for alike in sizes.values():
        if len(alike) > 1:
            _refuse_equal(alike, has_header=has_header)


def _refuse_equal(paths: Sequence[Path], *, has_header: bool) -> None:
    """Refuses two equal files among different ones of one size."""
    ends: dict[str, list[Path]] = {}
    for path in paths:
        ends.setdefault(_inspect(path).edges_sha256, []).append(path)
    for alike in ends.values():
        contents: dict[str, Path] = {}
        for path in alike if len(alike) > 1 else ():
            other = contents.setdefault(content_sha256(path), path)
            if other is not path and _has_rows(path, has_header=has_header):
                raise DataError(
                    f"{path.name} is a copy of {other.name}, equal byte by byte, and its rows "
                    "would count twice. Leave one of them out; if these really are other rows, "
                    "put them into one file."
                )


def _has_rows(path: Path, *, has_header: bool) -> bool:
    """Whether a file has a row. One that cannot be read is taken to have some."""
    try:
        form = detect_form(path)
        if form.is_columnar:
            return count_rows(path, form) > 0
        with LineSource(path, form) as source:
            header = source.take(1) if has_header else None
            return (header is not None or not has_header) and source.take(1) is not None
    except DataError:
        return path.stat().st_size > 0


def content_sha256(path: Path) -> str:
    """SHA-256 of all bytes of a file, in hexadecimal. Of raw data it is as sensitive as they are.

    Raises:
      DataError: The file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_BYTES_PER_READ):
                digest.update(piece)
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise _unreadable(path, error) from None
    return digest.hexdigest()


def has_sha256(path: Path, sha256: str) -> bool:
    """Whether it is a file with exactly this content."""
    return path.is_file() and content_sha256(path) == sha256


def _inspect(path: Path) -> SourceFile:
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256(file.read(_EDGE_BYTES))
            num_bytes = file.seek(0, 2)
            file.seek(max(0, num_bytes - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
        modified_ns = path.stat().st_mtime_ns
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise _unreadable(path, error) from None
    return SourceFile(
        name=path.name,
        num_bytes=num_bytes,
        modified_ns=modified_ns,
        edges_sha256=digest.hexdigest(),
    )


def _unreadable(path: Path, error: OSError | ValueError) -> DataError:
    reason = getattr(error, "strerror", None) or error
    # Paths such as "." have no name.
    return DataError(f"{path.name or path} cannot be read: {reason}; name files that are there.")
