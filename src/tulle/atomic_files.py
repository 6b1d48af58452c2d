"""Files that are on disk as a whole or not at all.

A file is written under a hidden name beside its place, brought safely to the disk, and put in
place in one step. A reader never sees half of it, and a process that is killed leaves the old file
and perhaps a hidden one, which `clear_staged` removes.
"""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tulle.errors import ConfigError, DataError, RunStateError, reason_of

_Read = TypeVar("_Read")


def write_text(path: Path, text: str) -> None:
    """Replaces a file by this text in one step, safely on disk."""
    with reporting_disk_errors(path):
        _put_in_place(stage_text(path, text), path)


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file by these bytes in one step, safely on disk."""
    with reporting_disk_errors(path):
        _put_in_place(_stage(path, content), path)


def stage_text(path: Path, text: str) -> Path:
    """Writes a text, safely on disk, into a hidden file beside `path` and returns its path.

    `os.replace` then puts it in place in one step; a reader never sees half of it.
    """
    return _stage(path, text.encode())


def sync_folder(folder: Path) -> None:
    """Makes new and renamed entries of a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(folder: Path, num_bytes: int) -> None:
    """Refuses to begin what a folder has no room for.

    To be called before the first byte of something that was drawn at random: what was written
    in part may have been seen, and must not be drawn again.

    Raises:
      RunStateError: The disk is full, or the folder cannot be written.
    """
    with reporting_disk_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            except OSError as error:
                # Other errors say that this disk cannot reserve, not that it is full.
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise


def clear_staged(folder: Path) -> None:
    """Removes what processes that were killed had not put in place yet."""
    with reporting_disk_errors(folder):
        for staged in folder.glob(".*.tmp"):
            staged.unlink()


def read_whole(path: Path, parse: Callable[[str], _Read], *, what: str, way_out: str) -> _Read:
    """Reads a text file and returns what it says.

    Args:
      path: The file.
      parse: Takes its text, and refuses with ConfigError what it cannot be.
      what: What it should be, for messages, e.g. "a card".
      way_out: What to do if it is not there.

    Raises:
      DataError: There is none, or it cannot be read.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path.name} does not exist; {way_out}.") from None
    except ConfigError as error:
        raise DataError(f"{path.name} cannot be read as {what}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} cannot be read as {what}: {reason_of(error)}.") from error


def short_name(path: Path) -> str:
    """How messages call a file: by its name and that of its folder, if the path says it."""
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


@contextlib.contextmanager
def reporting_disk_errors(path: Path) -> Iterator[None]:
    """Says which file of which folder the disk refused."""
    try:
        yield
    except OSError as error:
        raise RunStateError(
            f"{short_name(path)} cannot be used: {error.strerror or error}; "
            "put that right and try again."
        ) from error


def _stage(path: Path, content: bytes) -> Path:
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staged.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


def _put_in_place(staged: Path, path: Path) -> None:
    try:
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    # Without this the new name may be lost in a power failure, and with it what was written.
    sync_folder(path.parent)
