"""Files that are on disk as a whole or not at all."""

import os
import secrets
from pathlib import Path


def stage_text(path: Path, text: str) -> Path:
    """Writes a text, safely on disk, into a hidden file beside `path` and returns its path.

    `os.replace` then puts it in place in one step; a reader never sees half of it.
    """
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staged.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


def sync_folder(folder: Path) -> None:
    """Makes new and renamed entries of a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
