"""Bytes and lines of a file, plain or compressed, without loading it whole.

Whether a file is compressed is said twice, by its name and by its first
bytes. They must agree: nothing is guessed. An archive that stops before its
end is an error, never a short file.

Memory stays bounded whatever the file holds: of a line that is too long only
the first part is kept, enough to see that it is too long.
"""

import dataclasses
import enum
import gzip
import io
import zlib
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from tulle.errors import DataError

DAMAGE = (EOFError, OSError, zlib.error, zstandard.ZstdError)
"""What reading an archive raises when it is cut off or damaged."""

# Compressed bytes fed at once. A block of 4 bytes can unfold to 128 KiB (RFC 8878 §3.1.1.2),
# so that one piece never gives more than 128 MiB.
_ZSTD_PIECE = 4096


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


MAX_LINE_BYTES = 1 << 20
"""A longer line is damage, such as a quote that is never closed; it is refused before it fills the
memory."""
CHUNK_BYTES = 1 << 22
"""Bytes read at once: the memory of a reader does not grow with its file."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEPT_OF_LONG_LINE = MAX_LINE_BYTES + 2  # still too long without a carriage return at its end


@dataclasses.dataclass(frozen=True)
class Lines:
    """Whole lines. Each ends with a line feed, the last line of the file too."""

    data: bytes
    num_lines: int
    first_line: int
    """Number of the first of them in the file, from 1."""


class LineSource:
    """Hands out the lines of a text file in order, each once."""

    def __init__(self, path: Path, form: FileForm) -> None:
        self._path = path
        self._form = form
        self._open()

    def __enter__(self) -> "LineSource":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._source.close()

    def _open(self) -> None:
        self._source: ByteSource = open_bytes(self._path, self._form)
        self._at_end = False
        self._num_read = 0
        self._lines = b""  # whole lines, handed out up to _start, _num_left of them not yet
        self._start = 0
        self._num_left = 0
        self._unfinished = b""  # of a line that is too long only a part
        self._unfinished_size = 0
        self.num_lines = 0
        """Lines handed out so far."""

    @property
    def offset(self) -> int:
        """Decompressed bytes handed out so far."""
        return self._num_read - self._unfinished_size - (len(self._lines) - self._start)

    def take(self, max_lines: int) -> Lines | None:
        """The next lines, at most `max_lines` and a few megabytes; None at the end."""
        while not self._num_left:
            if self._at_end and not self._unfinished:
                return None
            self._add_chunk(self._read())
        if self._num_left <= max_lines:
            num_lines, end = self._num_left, len(self._lines)
        else:
            num_lines, end = max_lines, self._end_of_line(max_lines)
        lines = Lines(self._lines[self._start : end], num_lines, self.num_lines + 1)
        self._start = end
        self._num_left -= num_lines
        self.num_lines += num_lines
        return lines

    def resume(self, byte: int, line: int) -> None:
        """Goes to where an earlier source stood after handing out `line` lines."""
        self._source.close()
        self._open()
        left = byte - 1
        if isinstance(self._source, io.RawIOBase):  # plain: no need to read up to there
            self._source.seek(left)
            left = 0
        while (chunk := self._read()) and len(chunk) <= left:
            left -= len(chunk)
        if not chunk:
            raise self._changed("is shorter")
        if chunk[left : left + 1] != b"\n" and (len(chunk) > left + 1 or self._read()):
            raise self._changed("has other lines")
        self._num_read, self.num_lines = byte, line
        if rest := chunk[left + 1 :]:
            self._add_chunk(rest)

    def _add_chunk(self, chunk: bytes) -> None:
        if not chunk:
            self._end_last_line()
            return
        is_first = self._num_read == 0
        self._num_read += len(chunk)
        if is_first:
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        end = chunk.rfind(b"\n") + 1
        if end:
            self._set_lines(b"".join((self._unfinished, memoryview(chunk)[:end])))
            self._unfinished, self._unfinished_size = b"", 0
        self._unfinished_size += len(chunk) - end
        self._unfinished = (self._unfinished + chunk[end:])[:_KEPT_OF_LONG_LINE]

    def _end_last_line(self) -> None:
        self._at_end = True
        if self._unfinished:
            self._set_lines(self._unfinished + b"\n")
            self._unfinished, self._unfinished_size = b"", 0

    def _set_lines(self, lines: bytes) -> None:
        self._lines = lines
        self._start = 0
        self._num_left = int(np.count_nonzero(_line_feeds(lines)))
        self._ends: NDArray[np.int64] | None = None  # found when lines are handed out in parts

    def _end_of_line(self, num_lines: int) -> int:
        if self._ends is None:
            self._ends = np.flatnonzero(_line_feeds(self._lines)) + 1
        return int(self._ends[len(self._ends) - self._num_left + num_lines - 1])

    def _read(self) -> bytes:
        try:
            return self._source.read(CHUNK_BYTES)
        except DAMAGE as error:
            raise DataError(
                f"{self._path.name} is cut off or damaged somewhere after line {self.num_lines}; "
                "fetch or compress it again. Such a file is never read in part."
            ) from error

    def _changed(self, how: str) -> DataError:
        return DataError(
            f"{self._path.name} {how} than when reading stopped; the file has changed since. "
            "Start again from its beginning."
        )


def _line_feeds(data: bytes) -> NDArray[np.bool_]:
    return np.equal(np.frombuffer(data, dtype=np.uint8), ord("\n"), dtype=np.bool_)
