"""Arrays in a safetensors file that tells when it was changed.

The file's own head carries a SHA-256 of names, types, shapes, bytes and of what is
said about them. A file is in place as a whole or not at all, so one that does not
match was changed, or the disk failed.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tulle.errors import ConfigError, RunStateError
from tulle.privacy.fields import canonical_json, check_text, parse_json
from tulle.runs.whole_files import reporting_disk_errors, write_bytes

_FORMAT = "tulle tensors 1"


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
    """Replaces a file by these arrays in one step, safely on disk."""
    ready = {name: _plain_array(name, array) for name, array in tensors.items()}
    text = canonical_json(dict(head))
    metadata = {"format": _FORMAT, "head": text, "sha256": _digest(text, ready)}
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
        about = [name, array.dtype.newbyteorder("<").str, list(array.shape)]
        digest.update(f"{canonical_json(about)}\n".encode())
        if array.nbytes:
            digest.update(array.data)
    return digest.hexdigest()


def _parse_head(path: Path, metadata: Mapping[str, str]) -> Mapping[str, Any]:
    if metadata.get("format") != _FORMAT:
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
        f"{path.parent.name}/{path.name} is not as it was written: it was changed, or the disk "
        "failed; restore it from a copy of this run."
    )
