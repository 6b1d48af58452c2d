"""Checkpoints of a run: the newest few, each whole, never with a generator's state.

Whoever knows the state of a noise generator can take the noise away again, so
nothing that looks like one is ever written.

The arrays are in safetensors files that tell when they were changed: the head of a file
carries a SHA-256 of names, types, shapes, bytes and of what is said about them. A file is
in place as a whole or not at all, so one that does not match was changed, or the disk failed.
"""

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tulle.atomic_files import (
    clear_staged,
    reporting_disk_errors,
    short_name,
    sync_folder,
    write_bytes,
)
from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import (
    Scalar,
    Settings,
    canonical_json,
    check_count,
    check_fields,
    check_text,
    parse_json,
)

_HEAD_KEYS = ("format", "run_id", "number", "phase", "step", "facts")
_FORMAT = "tulle checkpoint 1"
_TENSOR_FORMAT = "tulle tensors 1"
_PHASE = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_MAX_STEP = 999_999_999
"""Names of files have nine digits for a step, so that they sort by it."""
# A mistake in a caller would write the state quietly, so names are checked where files are made.
_FORBIDDEN = ("rng", "generator", "key")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """What one file holds."""

    phase: str
    step: int
    """Steps before this one are in the tensors."""
    tensors: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Scalar]
    path: Path


class Checkpoints:
    """The checkpoints in a run's folder. One process at a time may save; anybody may read."""

    def __init__(self, folder: Path, *, run_id: str = "", keep: int = 2) -> None:
        """Names the folder; it is made when the first checkpoint is saved.

        Args:
          folder: Where the files are, e.g. `checkpoints` in a run's folder.
          run_id: The run they belong to; those of another run are refused.
          keep: How many of the newest stay.
        """
        self._folder = folder
        self._run_id = run_id
        self._keep = check_count("keep", keep)

    def save(
        self,
        step: int,
        phase: str,
        tensors: Mapping[str, NDArray[Any]],
        facts: Mapping[str, Scalar],
    ) -> Path:
        """Puts a checkpoint in place, safely on disk, and then removes those that are too old.

        Args:
          step: The first step that is not in the tensors.
          phase: Lowercase letters and digits, with single '-' or '_' between them.
          tensors: Weights and optimizer state.
          facts: Single values that a resumed run needs besides.

        Privacy:
          Writes what it is given: weights that no mechanism protected stay unprotected.
          Refuses names with 'rng', 'generator' or 'key'.
        """
        _check_position(step, phase)
        if not tensors:
            raise ConfigError("a checkpoint must have at least one tensor.")
        _check_names((*tensors, *facts))
        with reporting_disk_errors(self._folder):
            if not self._folder.exists():
                self._folder.mkdir(parents=True)
                sync_folder(self._folder.parent)
        clear_staged(self._folder)
        existing = self._by_age()
        head = {
            "format": _FORMAT,
            "run_id": self._run_id,
            "number": existing[-1][0] + 1 if existing else 0,
            "phase": phase,
            "step": step,
            "facts": dict(Settings(facts)),
        }
        path = self._folder / _file_name(phase, step)
        # The new one is safe before an old one goes: a crash leaves one too many, never none.
        write_tensors(path, tensors, head)
        others = [old for _, old in existing if old != path]
        with reporting_disk_errors(self._folder):
            for old in others[: max(len(others) + 1 - self._keep, 0)]:
                old.unlink()
        return path

    def latest(self) -> Checkpoint | None:
        """The checkpoint that was saved last, with every byte compared; None if there is none.

        Raises:
          RunStateError: It, or the head of another one, is not as it was written.
        """
        existing = self._by_age()
        if not existing:
            return None
        path = existing[-1][1]
        with _naming_the_way_out(path):
            stored = read_tensors(path)
            head = self._check_head(path, stored.head)
        return Checkpoint(
            phase=head["phase"],
            step=head["step"],
            tensors=stored.tensors,
            facts=Settings(head["facts"]),
            path=path,
        )

    def _by_age(self) -> list[tuple[int, Path]]:
        """Number and path of each, oldest first. Steps begin anew in each phase; numbers do not."""
        with reporting_disk_errors(self._folder):
            paths = sorted(self._folder.glob("[!.]*.safetensors"))
        numbered = []
        for path in paths:
            with _naming_the_way_out(path):
                numbered.append((int(self._check_head(path, read_head(path))["number"]), path))
        return sorted(numbered)

    def _check_head(self, path: Path, head: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = check_fields("checkpoint", dict(head), _HEAD_KEYS)
        check_count("number", fields["number"], least=0)
        step = check_count("step", fields["step"], least=0)
        Settings(fields["facts"])
        if fields["format"] != _FORMAT or path.name != _file_name(fields["phase"], step):
            raise ConfigError("the file is not the checkpoint that its name says.")
        if fields["run_id"] != self._run_id:
            raise ConfigError("the checkpoint is of another run.")
        return fields


class DamagedFileError(RunStateError):
    """A file is not as it was written."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TensorFile:
    """The whole content of a file."""

    head: Mapping[str, Any]
    """What was said about the arrays, as plain data."""
    tensors: Mapping[str, NDArray[Any]]


def write_tensors(
    path: Path, tensors: Mapping[str, NDArray[Any]], head: Mapping[str, object]
) -> None:
    """Replaces a file by these arrays in one step, safely on disk.

    Args:
      path: The file.
      tensors: Arrays of numbers by name.
      head: What is said about the arrays, as plain data.
    """
    ready = {name: _plain_array(name, array) for name, array in tensors.items()}
    text = canonical_json(dict(head))
    metadata = {"format": _TENSOR_FORMAT, "head": text, "sha256": _digest(text, ready)}
    write_bytes(path, save(ready, metadata))


def read_tensors(path: Path) -> TensorFile:
    """Reads all arrays and compares them with what was written.

    Raises:
      DamagedFileError: The file is cut, changed or something else.
      RunStateError: It cannot be read.
    """
    with reporting_disk_errors(path):
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        except SafetensorError as error:
            raise _damaged(path) from error
    text = metadata.get("head", "")
    if metadata.get("sha256") != _digest(text, tensors):
        raise _damaged(path)
    return TensorFile(head=_parse_head(path, metadata), tensors=tensors)


def read_head(path: Path) -> Mapping[str, Any]:
    """Reads what is said about the arrays, quickly: their bytes are not looked at."""
    with reporting_disk_errors(path):
        try:
            with safe_open(path, framework="numpy") as file:
                return _parse_head(path, file.metadata() or {})
        except SafetensorError as error:
            raise _damaged(path) from error


def _check_position(step: int, phase: str) -> None:
    if check_count("step", step, least=0) > _MAX_STEP:
        raise ConfigError(f"step={step} must be at most {_MAX_STEP}.")
    if not isinstance(phase, str) or not _PHASE.fullmatch(phase):
        raise ConfigError(
            f"phase={phase!r} must be lowercase letters and digits, with single '-' or '_' "
            "between them."
        )


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if any(part in str(name).lower() for part in _FORBIDDEN):
            raise ConfigError(
                f"{name!r} looks like the state of a noise generator, which is never saved "
                f"(names with {', '.join(_FORBIDDEN)}); leave it out, a resumed run takes fresh "
                "noise."
            )


@contextlib.contextmanager
def _naming_the_way_out(path: Path) -> Iterator[None]:
    try:
        yield
    except (DamagedFileError, ConfigError) as error:
        # It was whole when it was put in place, so going on silently would hide a fault.
        raise RunStateError(
            f"{short_name(path)} is not as this run wrote it: it was changed, or the "
            "disk failed. Restore it, or delete it to go on from the one before; the steps in "
            "between stay charged and are lost."
        ) from error


def _file_name(phase: str, step: int) -> str:
    return f"{phase}-{step:09d}.safetensors"


def _plain_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    check_text("name of a tensor", name)
    if name == "__metadata__":
        raise ConfigError("a tensor cannot be called '__metadata__'; safetensors uses that name.")
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise ConfigError(f"tensor {name!r} must be a numpy array of numbers, true or false.")
    # safetensors writes memory as it lies: it must be in order, lowest byte first.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _digest(head: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(f"{head}\n".encode())
    for name, array in sorted(tensors.items()):
        # Type and shape too: the same bytes cut in another way would be other weights.
        about = [name, array.dtype.newbyteorder("<").str, list(array.shape)]
        digest.update(f"{canonical_json(about)}\n".encode())
        if array.nbytes:
            digest.update(array.data)
    return digest.hexdigest()


def _parse_head(path: Path, metadata: Mapping[str, str]) -> Mapping[str, Any]:
    if metadata.get("format") != _TENSOR_FORMAT:
        raise _damaged(path)
    try:
        head = parse_json(path.name, metadata.get("head", ""))
    except ConfigError:
        raise _damaged(path) from None
    if not isinstance(head, dict):
        raise _damaged(path)
    return head


def _damaged(path: Path) -> DamagedFileError:
    return DamagedFileError(
        f"{short_name(path)} is not as it was written: it was changed, or the disk "
        "failed; restore it from a copy of this run."
    )
