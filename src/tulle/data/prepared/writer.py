"""A dataset that is being written: hidden from readers, held by one process, resumable.

Everything is in `NAME.partial` beside the final folder: the arrays so far, the
settings they were begun with and how far they got. The final name appears in one
step when all is on disk, so half a dataset is never taken for a whole one.

After each block the arrays are on disk first and the record of progress second.
A process that dies in between leaves surplus bytes, which are cut off when the
writing is taken up again; the result has the same bytes either way.
"""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tulle.atomic_files import stage_text, sync_folder
from tulle.data.prepared.dataset import (
    HEAD_FILE,
    ArrayFile,
    Contents,
    Head,
    PreparedDataset,
    hash_file,
)
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import canonical_json, check_fields, parse_json

if TYPE_CHECKING:
    from hashlib import _Hash

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


class DatasetWriter:
    """Appends blocks to the arrays of a dataset, from where its progress stands.

    Use it in a `with` block; entering raises RunStateError if what is on disk is not
    what the record of progress says.
    """

    def __init__(self, partial: PartialFolder, contents: Contents) -> None:
        self._partial = partial
        self._contents = contents
        self._files: dict[str, BinaryIO] = {}
        self._digests: dict[str, _Hash] = {}
        self._stack = contextlib.ExitStack()
        self.progress = partial.read_progress()

    def __enter__(self) -> "DatasetWriter":
        with self._stack:
            self._open_files()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def append(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        position: Mapping[str, object],
        num_bad_lines: int,
    ) -> None:
        """Writes the rows of one block and makes them durable.

        Args:
          arrays: Every array of the format, all with the same number of rows.
          position: Where the sources continue behind this block, as plain data.
          num_bad_lines: Lines that were left out since the block before.
        """
        num_rows = len(next(iter(arrays.values())))
        layout = self._contents.layout(num_rows)
        if set(arrays) != set(layout):
            raise ConfigError(f"arrays {sorted(arrays)} must be {sorted(layout)}.")
        for name, (_, dtype, shape) in layout.items():
            array = np.ascontiguousarray(arrays[name], dtype=dtype)
            if array.shape != shape:
                raise ConfigError(f"array {name!r} has shape {array.shape}, must be {shape}.")
            if array.nbytes:
                self._files[name].write(array.data)
                self._digests[name].update(array.data)
        # Rows before the record of them: what lies behind the record is cut off when it goes on,
        # while a record of rows that are not there could only be refused.
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self.progress = WriteProgress(
            num_rows=self.progress.num_rows + num_rows,
            num_bad_lines=self.progress.num_bad_lines + num_bad_lines,
            position=position,
            digests={name: digest.hexdigest() for name, digest in self._digests.items()},
        )
        self._partial.write_progress(self.progress)

    def finish(self, provenance: Mapping[str, object]) -> PreparedDataset:
        """Writes `schema.json`, puts the folder in place and opens it."""
        num_rows = self.progress.num_rows
        if num_rows == 0:
            raise DataError("the input has no row; there is nothing to prepare.")
        arrays = {
            name: ArrayFile(
                file=file, dtype=dtype, shape=shape, sha256=self._digests[name].hexdigest()
            )
            for name, (file, dtype, shape) in self._contents.layout(num_rows).items()
        }
        head = Head(
            contents=self._contents, num_rows=num_rows, arrays=arrays, provenance=provenance
        )
        self._partial.write_data_json(HEAD_FILE, head.to_dict())
        self._partial.publish()
        return PreparedDataset.open(self._partial.final)

    def _open_files(self) -> None:
        """Opens every array where the last whole block ended, and cuts off the rest."""
        layout = self._contents.layout(self.progress.num_rows)
        for name, (file_name, dtype, shape) in layout.items():
            path = self._partial.data / file_name
            path.touch()
            size = math.prod(shape) * np.dtype(dtype).itemsize
            digest = hash_file(path, size)
            if size and digest.hexdigest() != self.progress.digests.get(name):
                raise RunStateError(
                    f"{path.name} in {self._partial.folder.name} is not as it was written; begin "
                    "anew without resuming (--no-resume)."
                )
            file = self._stack.enter_context(path.open("r+b"))
            file.truncate(size)
            file.seek(size)
            self._files[name], self._digests[name] = file, digest
