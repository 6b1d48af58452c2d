"""Released sums of a run on disk, so that a run that was killed goes on with them.

Every noisy sum is on disk before anything is made of it. A run that goes on asks for the same sums
in the same order, since what it asks for follows from public numbers and earlier releases, and gets
the ones that were released: nothing is drawn twice, and nothing is charged again. The sums are
noisy, so the guarantee of the run covers the file. It is removed once the model is kept.

A record is a line of JSON, which says what was asked for, and the numbers after it.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.atomic_files import check_room, reporting_disk_errors, sync_folder
from tulle.errors import RunStateError

IntArray = NDArray[np.int64]

_LONGEST_LINE = 1 << 12
"""Longest line of JSON in bytes; what is longer is none of ours."""
_NUMBERS = np.dtype("<i8")


class KeptReleases:
    """The releases of one run, those of earlier tries first. One process holds the run's folder."""

    def __init__(self, path: Path) -> None:
        """Looks at what earlier tries have left.

        Args:
          path: The file; it need not exist.

        Raises:
          RunStateError: A record was cut off or damaged. A part of it may have been seen, so that
            the sum must not be drawn again.
        """
        self._path = path
        self._waiting: list[tuple[dict[str, Any], int]] = []
        if path.exists():
            with reporting_disk_errors(path), path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                while file.tell() < size:
                    asked = self._read_line(file.readline(_LONGEST_LINE))
                    begin = file.tell()
                    end = file.seek(begin + _num_bytes(asked["shape"]))
                    if end > size:
                        raise self._lost("was cut off while it was written")
                    self._waiting.append((asked, begin))
        self._waiting.reverse()

    def taken_up(self, shape: tuple[int, ...], **asked: float) -> IntArray | None:
        """The next sums of an earlier try; None if all were given out, and a new one must be drawn.

        Args:
          shape: Shape of the sums that are asked for.
          asked: What else must be the same: sensitivity, and what is left of the budget.

        Raises:
          RunStateError: Another sum was released at this place, or the file is damaged.
        """
        if not self._waiting:
            return None
        then, begin = self._waiting.pop()
        if {name: value for name, value in then.items() if name != "sha256"} != _said(shape, asked):
            raise self._lost("has other sums than this run asks for: the code or machine differs")
        with reporting_disk_errors(self._path), self._path.open("rb") as file:
            file.seek(begin)
            content = file.read(_num_bytes(shape))
        if hashlib.sha256(content).hexdigest() != then["sha256"]:
            raise self._lost("is damaged")
        return np.frombuffer(content, _NUMBERS).astype(np.int64).reshape(shape)

    def keep(self, noisy: IntArray, **asked: float) -> None:
        """Puts sums on disk that were just drawn, before anything is made of them.

        Args:
          noisy: The noisy sums.
          asked: What they were asked for with; see `taken_up`.
        """
        content = np.ascontiguousarray(noisy, _NUMBERS).tobytes()
        said = _said(noisy.shape, asked) | {"sha256": hashlib.sha256(content).hexdigest()}
        line = json.dumps(said).encode() + b"\n"
        with reporting_disk_errors(self._path):
            # A full disk is noticed before the first byte, so that no half of a sum is ever there.
            check_room(self._path.parent, len(line) + len(content))
            is_new = not self._path.exists()
            with self._path.open("ab") as file:
                file.write(line + content)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self._path.parent)

    def _read_line(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            is_whole = line.endswith(b"\n") and all(size >= 0 for size in asked["shape"])
        except (ValueError, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            raise self._lost("was cut off while it was written")
        return dict(asked)

    def _lost(self, what: str) -> RunStateError:
        return RunStateError(
            f"{self._path.parent.name}/{self._path.name} {what}, and no sum is released twice for "
            "one price; restore it from a copy of this run, or begin a run of another name."
        )


def _num_bytes(shape: tuple[int, ...] | list[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * _NUMBERS.itemsize


def _said(shape: tuple[int, ...], asked: dict[str, float]) -> dict[str, Any]:
    return {"shape": list(shape), **asked}
