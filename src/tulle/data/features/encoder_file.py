"""An encoder on disk: encoder.json with the settings, vocabularies.npz with what was learnt.

The latter holds sorted hashes of kept values and edges of bins.
Both are plain data (no pickle). The JSON is written last and names the
fingerprint of both, so half an encoder or a mix of two is never read.
"""

import io
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.atomic_files import stage_text, sync_folder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.vocabulary import Vocabularies
from tulle.errors import DataError
from tulle.privacy.events import event_from_dict, event_to_dict
from tulle.privacy.fields import check_fields, check_list, check_text, parse_json

SETTINGS_FILE = "encoder.json"
VOCABULARY_FILE = "vocabularies.npz"

_FORMAT = 2
"""Version of the file; another one is refused, since ids read in a wrong way would look right."""
_KEYS = ("format", "fingerprint", "plan", "vocabulary_columns", "vocabulary_event")


def write_encoder_files(
    folder: Path, plan: FeaturePlan, vocabularies: Vocabularies, *, fingerprint: str
) -> None:
    """Writes both files, each as a whole; the folder is made if need be.

    Args:
      folder: Folder that gets the files.
      plan: Feature plan of the encoder.
      vocabularies: Kept values of its vocabulary columns.
      fingerprint: Fingerprint of plan and vocabularies, by which a reader notices a mix-up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    columns = sorted(vocabularies.hashes)
    event = vocabularies.event
    settings = {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "plan": plan.to_dict(),
        "vocabulary_columns": columns,
        "vocabulary_event": None if event is None else event_to_dict(event),
    }
    buffer = io.BytesIO()
    # Numbered, because a column may have any name and a file in an archive may not.
    arrays: dict[str, NDArray[Any]] = {
        f"vocabulary_{number}": vocabularies.hashes[column].astype("<u8")
        for number, column in enumerate(columns)
    }
    for number, column in enumerate(sorted(vocabularies.edges)):
        arrays[f"edges_{number}"] = vocabularies.edges[column].astype("<f8")
    np.savez(buffer, allow_pickle=False, **arrays)
    _write_whole(folder / VOCABULARY_FILE, buffer.getvalue())
    staged = stage_text(
        folder / SETTINGS_FILE, json.dumps(settings, indent=2, allow_nan=False) + "\n"
    )
    os.replace(staged, folder / SETTINGS_FILE)
    sync_folder(folder)


def read_encoder_files(folder: Path) -> tuple[FeaturePlan, Vocabularies, str]:
    """The plan, the vocabularies and the fingerprint that they must have."""
    try:
        text = (folder / SETTINGS_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"no encoder can be read from {folder}: {type(error).__name__} at {SETTINGS_FILE}; "
            "write one with Encoder.to_files()."
        ) from None
    stored = parse_json(SETTINGS_FILE, text)
    if isinstance(stored, dict) and stored.get("format", _FORMAT) != _FORMAT:
        raise DataError(
            f"the encoder in {folder} has format={stored['format']!r}, this tulle reads "
            f"{_FORMAT}; use the version that wrote it."
        )
    fields = check_fields("encoder", stored, _KEYS)
    plan = FeaturePlan.from_dict(fields["plan"])
    columns = check_list("vocabulary_columns", fields["vocabulary_columns"])
    event = fields["vocabulary_event"]
    vocabularies = Vocabularies(
        hashes=_read_arrays(folder / VOCABULARY_FILE, "vocabulary", columns, np.uint64),
        edges=_read_arrays(folder / VOCABULARY_FILE, "edges", _binned(plan), np.float64),
        salt=plan.salt,
        event=None if event is None else event_from_dict(event),
    )
    return plan, vocabularies, check_text("fingerprint", fields["fingerprint"])


def _binned(plan: FeaturePlan) -> list[str]:
    """Columns whose bins have learnt edges, in the order of their arrays."""
    return sorted(feature.column for feature in (*plan.quantiles, *plan.private_quantiles))


def _read_arrays(
    path: Path, name: str, columns: list[str], dtype: type[np.generic]
) -> dict[str, NDArray[Any]]:
    try:
        # From memory: numpy leaves a damaged file open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return {
                column: arrays[f"{name}_{number}"].astype(dtype)
                for number, column in enumerate(columns)
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}); it is damaged or of another "
            "encoder. Write it again with Encoder.to_files()."
        ) from None


def _write_whole(path: Path, content: bytes) -> None:
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staged.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
