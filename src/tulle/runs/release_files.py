"""The files of one draw: hidden until the books say that it is out.

Table and record of a draw are written under hidden names that carry the release's
tag. Only then is the spend marked, with the hash of the table; and only then do they
get their names. So a draw that is found under a name is the one that was paid.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tulle.data.source_files import has_sha256
from tulle.durable_files import stage_text, sync_folder
from tulle.errors import DataError, RunStateError
from tulle.privacy.plan import Plan
from tulle.runs.hidden_files import (
    copy_hidden,
    discard_hidden,
    hidden_path,
    link_in_place,
    reporting_full_disk,
)
from tulle.runs.whole_files import read_whole


class TableRecord(Protocol):
    """What lies beside a released table: a frozen dataclass that is public."""

    @property
    def plan(self) -> Plan:
        """What was promised."""

    @property
    def table(self) -> str:
        """Name of the table's file, without its folder."""

    @property
    def table_sha256(self) -> str:
        """Hash of the table, so that it is never taken for that of another release."""

    def to_json(self) -> str:
        """The record as text."""


Record = TypeVar("Record", bound=TableRecord)


def record_path(table: Path) -> Path:
    """Where the record of a released table is."""
    return table.with_name(f"{table.stem}.release.json")


def read_record(table: Path, parse: Callable[[str], Record]) -> Record:
    """The record of a released table.

    Raises:
      DataError: There is none, or it cannot be read.
    """
    return _read_record_file(record_path(table), parse)


@dataclasses.dataclass(frozen=True)
class ReleaseFiles(Generic[Record]):
    """Where a draw is before and after it is out."""

    table: Path
    tag: str
    """Of the release; a random one without a ledger."""
    parse: Callable[[str], Record]
    """Reads the text of a record."""

    @property
    def record(self) -> Path:
        """The record in its place."""
        return record_path(self.table)

    @property
    def hidden_table(self) -> Path:
        """The table before it is out."""
        return hidden_path(self.table, self.tag)

    @property
    def hidden_record(self) -> Path:
        """The record before it is out."""
        return hidden_path(self.record, self.tag)

    def refuse_existing(self) -> None:
        """Refuses names that are taken."""
        for path in (self.table, self.record):
            if path.exists() or path.is_symlink():
                raise RunStateError(
                    f"{path.name} exists and is not this release; name another file, or move "
                    f"{self.table.name} and {self.record.name} away."
                )

    def try_writing(self) -> None:
        """Finds out whether the folder takes files, before anything is spent."""
        with reporting_full_disk(self.table):
            descriptor = os.open(self.hidden_table, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.close(descriptor)
            self.hidden_table.unlink()

    def discard(self) -> None:
        """Removes what an earlier try left hidden."""
        for path in (self.hidden_table, self.hidden_record):
            with contextlib.suppress(OSError):
                path.unlink()

    def discard_all(self) -> None:
        """Removes what any try for this table left hidden, whatever its tag."""
        for path in (self.table, self.record):
            discard_hidden(path)

    def hide_record(self, record: Record) -> None:
        """Writes the record beside the hidden table, safely on disk."""
        with reporting_full_disk(self.record):
            os.replace(stage_text(self.hidden_record, record.to_json()), self.hidden_record)
            sync_folder(self.record.parent)

    def put_in_place(self) -> None:
        """Gives record and table their names, and refuses files that came meanwhile."""
        with reporting_full_disk(self.table):
            if self.hidden_record.exists():
                link_in_place(self.hidden_record, self.record)
            link_in_place(self.hidden_table, self.table)
            sync_folder(self.table.parent)
        self.discard()

    def found(self, table_sha256: str) -> Record | None:
        """The record of the draw with this table, in place or put there now; None if none is."""
        for path in (self.record, self.hidden_record):
            with contextlib.suppress(DataError):
                record = _read_record_file(path, self.parse)
                if record.table_sha256 != table_sha256:
                    continue
                if not self.table.exists() and has_sha256(self.hidden_table, table_sha256):
                    self.put_in_place()
                if has_sha256(self.table, table_sha256):
                    return record
        return None

    def take_copy(self, table: Path, record: Record) -> None:
        """Puts a copy of another table and its record under these names."""
        with reporting_full_disk(self.table):
            copy_hidden(table, self.hidden_table)
        self.hide_record(record)
        self.put_in_place()


def _read_record_file(path: Path, parse: Callable[[str], Record]) -> Record:
    return read_whole(
        path,
        parse,
        what="the record of a release",
        way_out="keep it beside its table, as the release wrote them",
    )
