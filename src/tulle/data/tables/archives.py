"""Bytes of a file, plain or compressed, without loading it whole.

Whether a file is compressed is said twice, by its name and by its first
bytes. They must agree: nothing is guessed. An archive that stops before its
end is an error, never a short file.
"""

import enum
import gzip
import zlib
from pathlib import Path
from typing import Protocol

import zstandard

from tulle.errors import DataError

DAMAGE = (EOFError, OSError, zlib.error, zstandard.ZstdError)
"""What reading an archive raises when it is cut off or damaged."""

_ZSTD_PIECE = 4096
# Compressed bytes fed at once. A block of 4 bytes can unfold to 128 KiB (RFC 8878 §3.1.1.2),
# so that one piece never gives more than 128 MiB.


class FileForm(enum.Enum):
    """How the bytes of a file are stored."""

    PLAIN = "plain text"
    GZIP = "gzip"
    ZSTD = "zstd"
    PARQUET = "Parquet"
    ARROW = "Arrow"
    """Arrow's file of record batches, which Feather is too."""

    @property
    def is_columnar(self) -> bool:
        """Whether columns are stored with their types, and no text has to be split."""
        return self in (FileForm.PARQUET, FileForm.ARROW)


_FORM_OF_SUFFIX = {
    ".gz": FileForm.GZIP,
    ".gzip": FileForm.GZIP,
    ".zst": FileForm.ZSTD,
    ".zstd": FileForm.ZSTD,
    ".parquet": FileForm.PARQUET,
    ".pq": FileForm.PARQUET,
    ".arrow": FileForm.ARROW,
    ".feather": FileForm.ARROW,
    ".ipc": FileForm.ARROW,
}


class ByteSource(Protocol):
    """What bytes are read from; an empty answer means the complete end."""

    def read(self, size: int, /) -> bytes:
        """Reads about this many bytes."""

    def close(self) -> None:
        """Lets go of the file."""


def form_by_name(path: Path) -> FileForm:
    """What the name of a file says about its form."""
    return _FORM_OF_SUFFIX.get(path.suffix.lower(), FileForm.PLAIN)


def detect_form(path: Path) -> FileForm:
    """The form of a file, on which its name and its content must agree."""
    if path.is_dir():
        raise DataError(f"{path.name} is a folder, not a file; name the files in it.")
    if not path.exists():
        raise DataError(f"{path.name} does not exist; check the path.")
    if not path.is_file():
        raise DataError(f"{path.name} is not a regular file; save what it gives to one first.")
    named = form_by_name(path)
    try:
        found = _form_by_content(path, named)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read: {error.strerror}.") from error
    if found is not named:
        content = found.value if found is not FileForm.PLAIN else _plain_content(path)
        raise DataError(
            f"{path.name} is {named.value} by its name and {content} by its content; "
            "rename it, or fetch it again if it was cut off."
        )
    return found


def open_bytes(path: Path, form: FileForm) -> ByteSource:
    """Opens a text file, plain or compressed, to be read from its start."""
    if form is FileForm.GZIP:
        return gzip.GzipFile(path, "rb")
    if form is FileForm.ZSTD:
        return _ZstdFile(path)
    return path.open("rb", buffering=0)


class _ZstdFile:
    # zstandard's own stream_reader takes a cut-off frame for the end of the data.

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        parts: list[bytes] = []
        num_bytes = 0
        while num_bytes < size:
            piece = self._rest or self._file.read(_ZSTD_PIECE)
            self._rest = b""
            if not piece:
                if self._frame is not None:
                    raise EOFError
                break
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            parts.append(self._frame.decompress(piece))
            num_bytes += len(parts[-1])
            if self._frame.eof:
                self._rest = self._frame.unused_data
                self._frame = None
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()


def _plain_content(path: Path) -> str:
    return FileForm.PLAIN.value if path.stat().st_size else "empty"


def _form_by_content(path: Path, named: FileForm) -> FileForm:
    with path.open("rb") as file:
        head = file.read(8)
        size = file.seek(0, 2)
        file.seek(max(0, size - 6))
        tail = file.read(6)
    if head.startswith(b"\x1f\x8b"):
        return FileForm.GZIP
    # A zstd file may start with a frame to be skipped, whose magic bytes are also plain text.
    skippable = head[1:4] == b"*M\x18" and head[0] >> 4 == 5
    if head.startswith(b"\x28\xb5\x2f\xfd") or (named is FileForm.ZSTD and skippable):
        return FileForm.ZSTD
    if head.startswith(b"ARROW1") and tail == b"ARROW1" and size > 16:
        return FileForm.ARROW
    is_parquet = head[:4] == tail[-4:] == b"PAR1" and size > 8
    return FileForm.PARQUET if is_parquet else FileForm.PLAIN
