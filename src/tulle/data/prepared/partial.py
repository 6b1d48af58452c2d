"""A dataset that is being written: hidden from readers, held by one process, resumable.

Everything is in `NAME.partial` beside the final folder: the arrays so far, the
settings they were begun with and how far they got. The final name appears in one
step when all is on disk, so half a dataset is never taken for a whole one.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tulle.atomic_files import stage_text, sync_folder
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import canonical_json, check_fields, parse_json

_LOCK, _DATA, _SETTINGS, _PROGRESS = "lock", "data", "settings.json", "progress.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteProgress:
    """How much is safely on disk. What lies behind it in the files is to be cut off."""

    num_rows: int = 0
    num_bad_lines: int = 0
    position: Mapping[str, object] | None = None
    """Position at which the sources continue; None at their start."""
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of each array so far."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialFolder:
    """The folder of a dataset that is not whole yet. Made by `hold_partial`."""

    final: Path
    folder: Path

    @property
    def data(self) -> Path:
        """Holds what will be the dataset."""
        return self.folder / _DATA

    def read_progress(self) -> WriteProgress:
        """Position at which the last block ended that is whole on disk."""
        stored = _read_json(self.folder / _PROGRESS)
        if stored is None:
            return WriteProgress()
        names = [field.name for field in dataclasses.fields(WriteProgress)]
        return WriteProgress(**check_fields(_PROGRESS, stored, names))

    def write_progress(self, progress: WriteProgress) -> None:
        """Replaces the record in one step."""
        _write_json(self.folder / _PROGRESS, dataclasses.asdict(progress))

    def write_data_json(self, name: str, data: object) -> None:
        """Writes a JSON file of the dataset, on disk as a whole or not at all."""
        _write_json(self.data / name, data, indent=1)

    def clear(self) -> None:
        """Throws everything away, the data first: what is left is never taken for somebody's."""
        shutil.rmtree(self.data)
        shutil.rmtree(self.folder)

    def publish(self) -> None:
        """Puts the dataset into place in one step and clears the rest away."""
        sync_folder(self.data)
        try:
            os.rename(self.data, self.final)
        except OSError as error:
            raise RunStateError(
                f"{self.final.name} cannot be put in place: {error.strerror}; move away what is "
                "there and run the same again: it continues."
            ) from None
        sync_folder(self.final.parent)
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def hold_partial(
    final: Path, settings: Mapping[str, object], *, resume: bool
) -> Iterator[PartialFolder]:
    """Holds the folder of an unfinished dataset; nobody else can write it meanwhile.

    Args:
      final: Where the dataset will be. Must not exist.
      settings: All that decides the content, as plain data.
      resume: Continue what was begun with equal settings. False: begin anew.

    Raises:
      RunStateError: The dataset exists, another process writes it, it was begun with
        other settings, or something else has the name of the unfinished folder.
    """
    partial = _partial_of(final.absolute())
    if not partial.folder.exists():
        _refuse_existing(partial.final)
    with _reporting_disk_errors(partial.folder.name):
        partial.folder.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(partial.folder)
        with (partial.folder / _LOCK).open("ab") as lock:
            _take(lock.fileno(), partial)
            _begin(partial, settings, resume=resume)
            yield partial


def begun_settings(final: Path) -> Mapping[str, object] | None:
    """The settings of what was begun and can be continued; None if nothing was."""
    stored = _read_json(_partial_of(final.absolute()).folder / _SETTINGS)
    return stored if isinstance(stored, dict) else None


def _partial_of(final: Path) -> PartialFolder:
    return PartialFolder(final=final, folder=final.with_name(f"{final.name}.partial"))


def _take(lock: int, partial: PartialFolder) -> None:
    refusal = RunStateError(
        f"{partial.final.name} is being written by another process; wait for it, or choose "
        "another output folder."
    )
    try:
        # Freed by the system when the process ends, however it ends.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise refusal from None
    path = partial.folder / _LOCK
    if not path.exists() or not os.path.samestat(os.fstat(lock), path.stat()):
        raise refusal  # The other process finished, and cleared the lock away, just now.
    if partial.final.exists() and not partial.data.exists():
        shutil.rmtree(partial.folder)  # Its process was killed after it put the data in place.
    _refuse_existing(partial.final)


def _begin(partial: PartialFolder, settings: Mapping[str, object], *, resume: bool) -> None:
    """Leaves what was begun with equal settings, or nothing but the settings."""
    path = partial.folder / _SETTINGS
    # Without data, a process was killed after it put them in place: nothing is left to continue.
    stored = _read_json(path) if resume and partial.data.exists() else None
    if isinstance(stored, dict):
        changed = [k for k in {**stored, **settings} if not _same(stored, settings, k)]
        if changed:
            raise RunStateError(
                f"{partial.folder.name} was begun with another {changed[0]}, so it cannot be "
                "continued; give the inputs and settings of then, or begin anew without resuming "
                "(--no-resume)."
            )
    else:
        for name in (_SETTINGS, _PROGRESS):
            (partial.folder / name).unlink(missing_ok=True)
        if partial.data.exists():
            shutil.rmtree(partial.data)
        _write_json(path, dict(settings))
    partial.data.mkdir(exist_ok=True)
    for staged in partial.data.glob(".*.tmp"):
        staged.unlink()  # Left behind by a process that was killed while it wrote.


def _same(stored: Mapping[str, object], settings: Mapping[str, object], key: str) -> bool:
    if key not in stored or key not in settings:
        return False
    return canonical_json(stored[key]) == canonical_json(settings[key])


def _refuse_foreign(folder: Path) -> None:
    """Refuses a folder of somebody else, which would be cleared away at the end."""
    names = {path.name for path in folder.iterdir() if not _is_staged(path)}
    # The lock is there before the data, and goes after them.
    has_data_of_others = _DATA in names and _LOCK not in names
    if has_data_of_others or names - {_LOCK, _DATA, _SETTINGS, _PROGRESS}:
        raise RunStateError(
            f"{folder.name} exists and is not an unfinished dataset; "
            "choose another output folder, or move it away."
        )


def _is_staged(path: Path) -> bool:
    return path.name.startswith((f".{_SETTINGS}.", f".{_PROGRESS}.")) and path.suffix == ".tmp"


def _refuse_existing(final: Path) -> None:
    if final.exists():
        raise RunStateError(
            f"{final.name} exists already and is never written over; "
            "choose another output folder, or delete it first."
        )


@contextlib.contextmanager
def _reporting_disk_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunStateError(
            f"{name} cannot be written: {error.strerror or error}; put it right and run the same "
            "again: it continues."
        ) from error


def _read_json(path: Path) -> object | None:
    try:
        return parse_json(path.name, path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ConfigError, UnicodeDecodeError) as error:
        raise RunStateError(
            f"{path.name} in {path.parent.name} is damaged: {error} Begin anew without resuming "
            "(--no-resume)."
        ) from None


def _write_json(path: Path, data: object, *, indent: int | None = None) -> None:
    staged = stage_text(path, json.dumps(data, indent=indent, allow_nan=False) + "\n")
    try:
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(path.parent)
