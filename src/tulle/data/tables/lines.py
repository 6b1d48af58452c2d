"""Lines of a text file, a few megabytes at a time.

Memory stays bounded whatever the file holds: of a line that is too long only
the first part is kept, enough to see that it is too long.
"""

import dataclasses
import io
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from tulle.data.tables.archives import DAMAGE, ByteSource, FileForm, open_bytes
from tulle.errors import DataError

MAX_LINE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 22

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
