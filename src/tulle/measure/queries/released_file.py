"""The file with the numbers of a measurement, hidden until the books say that it is out."""

import contextlib
import dataclasses
import os
from pathlib import Path

from tulle.data.source_files import content_sha256, has_sha256
from tulle.durable_files import stage_text, sync_folder
from tulle.errors import RunStateError
from tulle.runs.hidden_files import (
    copy_hidden,
    discard_hidden,
    hidden_path,
    link_in_place,
    reporting_full_disk,
)


@dataclasses.dataclass(frozen=True)
class ReleasedFile:
    """Where a draw is before and after it is out."""

    path: Path
    tag: str
    """Of the release; a random one without a ledger."""

    @property
    def hidden(self) -> Path:
        """The file before it is out."""
        return hidden_path(self.path, self.tag)

    def refuse_existing(self) -> None:
        """Refuses a name that is taken."""
        if self.path.exists() or self.path.is_symlink():
            raise RunStateError(
                f"{self.path.parent.name}/{self.path.name} exists and is not this measurement; "
                "name another folder, or move it away."
            )

    def hide(self, text: str) -> str:
        """Writes the file under its hidden name, safely on disk, and returns its SHA-256."""
        discard_hidden(self.path)
        with reporting_full_disk(self.path):
            os.replace(stage_text(self.hidden, text), self.hidden)
            sync_folder(self.path.parent)
        return content_sha256(self.hidden)

    def discard(self) -> None:
        """Removes what an earlier try left hidden."""
        with contextlib.suppress(OSError):
            self.hidden.unlink()

    def put_in_place(self) -> None:
        """Gives the file its name, and refuses one that came meanwhile."""
        with reporting_full_disk(self.path):
            link_in_place(self.hidden, self.path)
            sync_folder(self.path.parent)
        self.discard()

    def is_found(self, sha256: str) -> bool:
        """Whether the draw with this hash is in place, or could be put there now."""
        if not self.path.exists() and has_sha256(self.hidden, sha256):
            self.put_in_place()
        is_there = has_sha256(self.path, sha256)
        if is_there:
            self.discard()  # of a try that was killed right after its file had its name
        return is_there

    def take_copy(self, source: Path) -> None:
        """Puts a copy of another file under this name."""
        with reporting_full_disk(self.path):
            copy_hidden(source, self.hidden)
        self.put_in_place()
