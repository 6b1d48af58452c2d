"""Files of a run: each is in its place as a whole, or not there at all."""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tulle.durable_files import stage_text, sync_folder
from tulle.errors import ConfigError, DataError, RunStateError, reason_of

_Read = TypeVar("_Read")


def write_text(path: Path, text: str) -> None:
    """Replaces a file by this text in one step, safely on disk."""
    with reporting_disk_errors(path):
        _put_in_place(stage_text(path, text), path)


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file by these bytes in one step, safely on disk."""
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with reporting_disk_errors(path):
        try:
            with staged.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        _put_in_place(staged, path)


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
    """What a text file says.

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


@contextlib.contextmanager
def reporting_disk_errors(path: Path) -> Iterator[None]:
    """Says which file of which folder the disk refused."""
    try:
        yield
    except OSError as error:
        raise RunStateError(
            f"{path.parent.name}/{path.name} cannot be used: {error.strerror or error}; "
            "put that right and try again."
        ) from error


def _put_in_place(staged: Path, path: Path) -> None:
    try:
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(path.parent)
