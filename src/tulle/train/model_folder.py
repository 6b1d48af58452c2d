"""The folder of an exported model, which is there as a whole or not at all.

It holds the parameters (model.safetensors), what they mean (model.json) and a
file that loads both without tulle (load_model.py). It is written under a hidden
name. model.json comes last and has the checksum of the parameters: a hidden
folder in which both agree is whole, whatever became of the process that wrote it.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from tulle.data.prepared.dataset import hash_file
from tulle.durable_files import sync_folder
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.runs.whole_files import check_room
from tulle.train import exported_model

_LOADER_FILE = "load_model.py"
_STAGED = "partial"
_MORE_BYTES = 1 << 20
"""Room for the loader, the head of the parameters and the indentation of what they mean."""


def write_model_folder(
    folder: Path,
    tensors: Mapping[str, Tensor],
    description: Mapping[str, object],
    *,
    keep_cut: bool = False,
) -> None:
    """Writes the parameters of a model and what they mean into a new folder.

    Args:
      folder: Must not exist.
      tensors: By the names that the loader knows them by.
      description: Plain data that the loader makes a model of them with; their format and
        checksum are added.
      keep_cut: Make sure of room before the first byte, and leave what was written under its
        hidden name if the export fails after that.

    Privacy:
      All of it becomes public as it is.

    Raises:
      ConfigError: The description is no plain data.
      DataError: A parameter is NaN or infinite.
      RunStateError: The folder exists or cannot be written.
    """
    description = {"format": exported_model.FORMAT, **description}
    _check_finite(tensors)
    _check_plain(description)
    staged = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.{_STAGED}")
    if folder.exists():
        raise _exists(folder)
    stays = False
    try:
        staged.mkdir()
        if keep_cut:
            num_bytes = sum(values.nbytes for values in tensors.values())
            check_room(staged, num_bytes + len(json.dumps(description)) + _MORE_BYTES)
            stays = True
        _write_files(staged, tensors, description)
        put_in_place(staged, folder)
    except OSError as error:
        if folder.exists() and staged.exists():
            raise _exists(folder) from None
        raise RunStateError(
            f"{folder.name} cannot be written: {error.strerror}; name a place in a folder that "
            "exists, has room and may be written to."
        ) from None
    finally:
        if not stays:
            shutil.rmtree(staged, ignore_errors=True)


def cut_exports(folder: Path) -> list[Path]:
    """Hidden folders that exports to this folder have left beside it when they were killed."""
    return sorted(folder.parent.glob(f".{folder.name}.*.{_STAGED}"))


def clear_cut_exports(folder: Path) -> None:
    """Removes what exports to this folder that were killed have left beside it."""
    for staged in cut_exports(folder):
        shutil.rmtree(staged, ignore_errors=True)


def has_content(staged: Path) -> bool:
    """Whether a byte of a model's parameters is in a hidden folder."""
    tensors = staged / exported_model.TENSORS_FILE
    return tensors.exists() and tensors.stat().st_size > 0


def put_in_place(staged: Path, folder: Path) -> None:
    """Gives a whole model its name in one step, after all of it is safely on disk."""
    for path in staged.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(staged)
    os.rename(staged, folder)
    sync_folder(folder.parent)


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, values in tensors.items():
        if not bool(values.isfinite().all()):
            raise DataError(
                f"parameter {name!r} has NaN or infinite values; such a model predicts nothing. "
                "Train again with other settings, such as a lower learning rate."
            )


def _check_plain(description: Mapping[str, object]) -> None:
    try:
        json.dumps(description, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"facts must be plain data that JSON can hold ({error}); convert them first."
        ) from None


def _write_files(
    folder: Path, tensors: Mapping[str, Tensor], description: Mapping[str, object]
) -> None:
    loader_path = folder / _LOADER_FILE
    shutil.copyfile(Path(exported_model.__file__), loader_path)
    tensors_path = folder / exported_model.TENSORS_FILE
    on_host = {name: values.detach().to("cpu").contiguous() for name, values in tensors.items()}
    save_file(on_host, tensors_path, {"format": "pt"})
    # safetensors lets only the owner read; the user's own mask decides, as for the others.
    tensors_path.chmod(loader_path.stat().st_mode)
    digest = hash_file(tensors_path, tensors_path.stat().st_size).hexdigest()
    text = json.dumps({**description, "sha256": digest}, indent=1, allow_nan=False) + "\n"
    (folder / exported_model.DESCRIPTION_FILE).write_text(text, encoding="utf-8")


def _exists(folder: Path) -> RunStateError:
    return RunStateError(f"{folder.name} exists already; name a new folder for the model.")
