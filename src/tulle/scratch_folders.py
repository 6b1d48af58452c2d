"""Temporary folders that are removed even after the process that made them was killed.

A scratch folder holds a lock file and, beside it, the folder that its maker writes to. The maker
holds the lock for as long as it lives, and the operating system frees the lock however the process
ends. Whoever makes the next folder of the same kind removes those whose lock is free. Unlike a
process id, a lock tells the living from the dead also across containers that share a temporary
folder.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK, _FILES = "lock", "files"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Makes an empty temporary folder that is removed at the end.

    First removes the folders that killed processes of the same user left behind.

    Args:
      prefix: Beginning of the names of all folders of this kind, such as `tulle-kernels-`.
    """
    _remove_abandoned(prefix)
    folder, lock = _make_held(prefix)
    try:
        yield folder / _FILES
    finally:
        # Held until all is gone: nobody else removes the same files meanwhile.
        _remove(folder)
        os.close(lock)


def _make_held(prefix: str) -> tuple[Path, int]:
    """Makes a folder and takes its lock; begins again if somebody swept it between the two."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                if _take(lock) is not False and _is_file(lock, folder / _LOCK):
                    (folder / _FILES).mkdir(mode=0o700)
                    return folder, lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def _remove_abandoned(prefix: str) -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        folders = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for folder in folders:
        # What cannot be looked at or removed is left to whoever can.
        with contextlib.suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Its maker did not get as far as the lock. Only an empty folder goes: one with files but
        # without a lock is of another program.
        folder.rmdir()
        return
    try:
        if _take(lock):
            _remove(folder)
    finally:
        os.close(lock)


def _take(lock: int) -> bool | None:
    """Whether the lock is now ours; None where the file system knows no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Then nobody can take it, and nobody will remove the folder of somebody else.
        return None
    return True


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """Removes the lock last: a process that is killed here leaves what the next one can remove."""
    shutil.rmtree(folder / _FILES, ignore_errors=True)
    with contextlib.suppress(OSError):
        if not (folder / _FILES).exists():
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()
