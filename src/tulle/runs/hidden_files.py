"""Files of a release that are hidden until the books say that it is out."""

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tulle.errors import RunStateError


def hidden_path(path: Path, tag: str) -> Path:
    """Where a file is before its release with this tag is out."""
    return path.with_name(f".{path.name}.{tag}.unreleased")


def discard_hidden(path: Path) -> None:
    """Removes what any try for this file left hidden, whatever its tag."""
    for hidden in path.parent.glob(f".{glob.escape(path.name)}.*.unreleased"):
        with contextlib.suppress(OSError):
            hidden.unlink()


def link_in_place(hidden: Path, path: Path) -> None:
    """Gives a hidden file its name, and refuses one that came meanwhile."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        if os.path.samefile(hidden, path):
            return  # a try that was killed right after this got so far
        raise RunStateError(f"{path.name} exists already; name another file.") from None


def copy_hidden(source: Path, hidden: Path) -> None:
    """Copies a file to a hidden name, safely on disk."""
    shutil.copyfile(source, hidden)
    with hidden.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def reporting_full_disk(path: Path) -> Iterator[None]:
    """Says which file the disk refused, and what to do."""
    try:
        yield
    except OSError as error:
        raise RunStateError(
            f"{path.name} cannot be written: {error.strerror or error}; make room, or choose "
            "another folder."
        ) from None
