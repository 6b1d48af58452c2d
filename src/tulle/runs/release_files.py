"""The files of one draw: hidden until the ledger says that it is out.

What is released and its record are written under hidden names that carry the release's tag. Only
then is the spend marked, with the hash of what is released; and only then do they get their names.
So a draw that is found under a name is the one that was paid.

A release that stays in memory is drawn as any other, in a scratch folder, and kept as bytes. One
that a ledger pays for must be found again by a repeated call, so it needs a file.
"""

import contextlib
import dataclasses
import glob
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from tulle.atomic_files import (
    read_whole,
    reporting_disk_errors,
    short_name,
    stage_text,
    sync_folder,
)
from tulle.data.source_files import content_sha256, has_sha256
from tulle.data.tables.memory import read_parquet_bytes
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.runs.card import write_card
from tulle.runs.charging import ReleaseCharge
from tulle.runs.record import PlanType, RecordType, Result, TableRecord
from tulle.scratch_folders import scratch_folder

if TYPE_CHECKING:
    import polars as pl


_SCRATCH = "tulle-release-"


@dataclasses.dataclass(frozen=True)
class ReleaseFiles(Generic[RecordType]):
    """Paths of a draw before and after it is out.

    A table has its record beside it. Any other record holds what is released itself, and its file
    is the only one.
    """

    table: Path
    """What is released."""
    tag: str
    """Name of the release among the hidden files; a random one without a ledger."""
    record_type: type[RecordType]
    """The kind of record that the release has."""

    @property
    def record(self) -> Path:
        """The record in its place."""
        return record_path(self.table) if self._is_beside else self.table

    @property
    def hidden_table(self) -> Path:
        """What is released, before it is out."""
        return self._hidden(self.table)

    @property
    def hidden_record(self) -> Path:
        """The record before it is out."""
        return self._hidden(self.record)

    def refuse_existing(self) -> None:
        """Refuses names that are taken."""
        paths = self._paths
        for path in paths:
            if path.exists() or path.is_symlink():
                raise RunStateError(
                    f"{short_name(path)} exists and is not this release; name another output, or "
                    f"move {' and '.join(path.name for path in reversed(paths))} away."
                )

    def try_writing(self) -> None:
        """Finds out whether the folder takes files, before anything is spent."""
        with _reporting_full_disk(self.table):
            descriptor = os.open(self.hidden_table, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.close(descriptor)
            self.hidden_table.unlink()

    def discard(self) -> None:
        """Removes what an earlier try left hidden."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._hidden(path).unlink()

    def discard_all(self) -> None:
        """Removes what any try for this output left hidden, whatever its tag."""
        for path in self._paths:
            for hidden in path.parent.glob(f".{glob.escape(path.name)}.*.unreleased"):
                with contextlib.suppress(OSError):
                    hidden.unlink()

    def hide_record(self, record: RecordType) -> None:
        """Writes the record under its hidden name, safely on disk."""
        with _reporting_full_disk(self.record):
            os.replace(stage_text(self.hidden_record, record.to_json()), self.hidden_record)
            # The ledger is told next; what it then speaks of must survive a loss of power.
            sync_folder(self.record.parent)

    def hidden_sha256(self, record: RecordType) -> str:
        """Hash of what is hidden here and is to be released, for the ledger."""
        if isinstance(record, TableRecord):
            return record.table_sha256
        return content_sha256(self.hidden_table)

    def put_in_place(self) -> None:
        """Gives record and table their names, and refuses files that came meanwhile."""
        with _reporting_full_disk(self.table):
            # The record first: a table that is seen without one could not be told from any other.
            if self.hidden_record.exists():
                _link_in_place(self.hidden_record, self.record)
            _link_in_place(self.hidden_table, self.table)
            sync_folder(self.table.parent)
        self.discard()

    def found(self, sha256: str) -> RecordType | None:
        """The record of the draw with this hash, in place or put there now; None if none is."""
        for path in dict.fromkeys((self.record, self.hidden_record)):
            with contextlib.suppress(DataError):
                record = _read_record_file(path, self.record_type.from_json)
                if isinstance(record, TableRecord) and record.table_sha256 != sha256:
                    continue
                if not self.table.exists() and has_sha256(self.hidden_table, sha256):
                    self.put_in_place()
                if has_sha256(self.table, sha256):
                    self.discard()  # of a try that was killed right after its files had their names
                    return record
        return None

    def take_copy(self, source: Path, record: RecordType) -> RecordType:
        """Puts a copy of an earlier release under these names, and gives its record.

        Args:
          source: The file that was released.
          record: The record of that release.
        """
        with _reporting_full_disk(self.table):
            shutil.copyfile(source, self.hidden_table)
            with self.hidden_table.open("rb") as file:
                os.fsync(file.fileno())
        if isinstance(record, TableRecord):
            changes: dict[str, Any] = {"table": self.table.name}
            record = dataclasses.replace(record, **changes)
            self.hide_record(record)
        self.put_in_place()
        return record

    @property
    def _is_beside(self) -> bool:
        return issubclass(self.record_type, TableRecord)

    @property
    def _paths(self) -> list[Path]:
        return list(dict.fromkeys((self.record, self.table)))

    def _hidden(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.{self.tag}.unreleased")


def record_path(table: Path) -> Path:
    """Path of the record of a released table."""
    return table.with_name(f"{table.stem}.release.json")


def read_record(table: Path, parse: Callable[[str], RecordType]) -> RecordType:
    """The record of a released table.

    Raises:
      DataError: There is none, or it cannot be read.
    """
    return _read_record_file(record_path(table), parse)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ResultInMemory(Result[RecordType, PlanType], Generic[RecordType, PlanType]):
    """A release that is in no file. It is public as any other, and gone with the process."""

    content: bytes
    """The released file, as the hash in the record knows it."""
    name: str
    """The name that the file had in its scratch folder."""

    def to_polars(self, name: str | None = None) -> "pl.DataFrame":
        """The released table as a polars frame.

        Args:
          name: Name of a table; it must be left out, since there is one table.
        """
        if name is not None:
            raise ConfigError(f"name={name!r} is for releases of several tables; leave it out.")
        if not self.name.endswith(".parquet"):
            raise ConfigError("this release is no table; its numbers came with it.")
        return read_parquet_bytes(self.content)


@dataclasses.dataclass(frozen=True)
class ReleasePlace:
    """Place of a release: a file that stays, or one that is read back into memory."""

    path: Path
    """The file that is released."""
    is_kept: bool
    """False if the file is gone in the end, and the release is in memory."""
    has_folder: bool = False
    """Whether the release has a folder of its own, in which its card is called card.json."""

    def finished(self, result: Result[RecordType, PlanType]) -> Result[RecordType, PlanType]:
        """Writes the card of the release, or takes its content into memory.

        Args:
          result: What the release protocol gave.

        Returns:
          The result as the caller of the verb gets it.
        """
        if self.is_kept:
            card = self.path.with_name("card.json") if self.has_folder else card_path(self.path)
            with reporting_disk_errors(card):
                write_card(card.parent, result.card, name=card.stem)
            return result
        if not isinstance(result.record, TableRecord):
            # The record holds what is released, so nothing is lost with the file.
            return dataclasses.replace(result, path=None)
        return ResultInMemory(
            plan=result.plan,
            record=result.record,
            path=None,
            is_stored=result.is_stored,
            content=self.path.read_bytes(),
            name=self.path.name,
        )


@contextlib.contextmanager
def releasing_to(
    output: str | os.PathLike[str] | None,
    *,
    name: str,
    charge: ReleaseCharge | None,
    has_folder: bool = False,
) -> Iterator[ReleasePlace]:
    """The place of a release, made where it is missing and removed if nothing came into it.

    Args:
      output: The file to write, or the folder; None: the release stays in memory.
      name: Name of the file in its folder, or in the scratch folder.
      charge: What the ledger is charged.
      has_folder: Whether `output` is a folder that holds the release, its card and more.

    Raises:
      ConfigError: A ledger pays and no output is named.
    """
    if output is None:
        if charge is not None:
            raise ConfigError(
                "output is missing: what a ledger pays for is found again where it was written, "
                "so that the same call spends nothing; name an output, or leave the ledger out."
            )
        with scratch_folder(_SCRATCH) as folder:
            yield ReleasePlace(folder / name, is_kept=False, has_folder=has_folder)
    elif has_folder:
        with _made_folder(Path(output)) as folder:
            yield ReleasePlace(folder / name, is_kept=True, has_folder=True)
    else:
        yield ReleasePlace(Path(output), is_kept=True)


def check_output(output: Path, *, endings: Sequence[str] = (), inputs: Iterable[Path] = ()) -> None:
    """Refuses a file that cannot be written, before anything is read or spent.

    Args:
      output: The file that is to be written.
      endings: Endings that its name may have, such as ".parquet"; none: any.
      inputs: Files that are read, none of which it may be.

    Raises:
      ConfigError: The message names the setting `output`.
    """
    if endings and output.suffix not in endings:
        raise ConfigError(f"output={str(output)!r} must end in {' or '.join(endings)}; rename it.")
    if not output.parent.is_dir():
        raise ConfigError(f"output={str(output)!r} is in no folder that exists; make it first.")
    if output.absolute() in {path.absolute() for path in inputs}:
        raise ConfigError(f"output={str(output)!r} is a file that is read; name another one.")


@contextlib.contextmanager
def released_file(result: Result[Any, Any]) -> Iterator[Path]:
    """The file of a release with its record beside it, also of one that is in memory.

    Args:
      result: The release of a table.
    """
    if result.path is not None:
        yield result.path
        return
    if not isinstance(result, ResultInMemory):
        raise ConfigError("the release has neither a file nor content; give the file of it.")
    with scratch_folder(_SCRATCH) as folder:
        path = folder / result.name
        path.write_bytes(result.content)
        record_path(path).write_text(result.record.to_json(), encoding="utf-8")
        yield path


def card_path(released: Path) -> Path:
    """Path of the card of a released file."""
    return released.with_name(f"{released.stem}.card.json")


@contextlib.contextmanager
def _made_folder(output: Path) -> Iterator[Path]:
    """Makes the folder, and takes away what it made if nothing came into it."""
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    with reporting_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    try:
        yield output
    except BaseException:
        with contextlib.suppress(OSError):  # not empty, or in use by now
            for folder in made:
                folder.rmdir()
        raise


def _read_record_file(path: Path, parse: Callable[[str], RecordType]) -> RecordType:
    return read_whole(
        path,
        parse,
        what="the record of a release",
        way_out="keep it beside its table, as the release wrote them",
    )


def _link_in_place(hidden: Path, path: Path) -> None:
    """Gives a hidden file its name, and refuses one that came meanwhile."""
    try:
        # A link refuses a name that is taken, where a rename would replace somebody's file.
        os.link(hidden, path)
    except FileExistsError:
        if os.path.samefile(hidden, path):
            return  # a try that was killed right after this got so far
        raise RunStateError(f"{path.name} exists already; name another file.") from None


@contextlib.contextmanager
def _reporting_full_disk(path: Path) -> Iterator[None]:
    """Says which file the disk refused, and what to do."""
    try:
        yield
    except OSError as error:
        raise RunStateError(
            f"{path.name} cannot be written: {error.strerror or error}; make room, or choose "
            "another folder."
        ) from None
