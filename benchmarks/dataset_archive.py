"""A prepared dataset as one small file, to carry it to a machine that only trains.

Columns are stored as their distinct values and short codes, which compress to a tenth of
the arrays. Numpy and the standard library are enough to read it.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np

_SCHEMA = "schema.json"


def pack(folder: Path, archive: Path) -> None:
    """Writes the dataset in `folder` into one file."""
    head = json.loads((folder / _SCHEMA).read_text(encoding="utf-8"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as out:
        out.write(folder / _SCHEMA, _SCHEMA)
        for name, array in head["arrays"].items():
            values = np.fromfile(folder / array["file"], array["dtype"]).reshape(array["shape"])
            for number, column in enumerate(values.reshape(len(values), -1).T):
                distinct, codes = np.unique(column, return_inverse=True)
                width = np.min_scalar_type(len(distinct) - 1)
                _put(out, f"{name}.{number}.values", distinct)
                _put(out, f"{name}.{number}.codes", codes.astype(width))


def unpack(archive: Path, folder: Path) -> None:
    """Writes the dataset of an archive back into a new folder, byte for byte."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(archive) as packed:
        text = packed.read(_SCHEMA)
        for name, array in json.loads(text)["arrays"].items():
            shape = array["shape"]
            values = np.empty((shape[0], int(np.prod(shape[1:]))), array["dtype"])
            for number in range(values.shape[1]):
                distinct = _get(packed, f"{name}.{number}.values")
                values[:, number] = distinct[_get(packed, f"{name}.{number}.codes")]
            values.tofile(folder / array["file"])
        (folder / _SCHEMA).write_bytes(text)


def _put(out: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    out.writestr(f"{name}.npy", buffer.getvalue())


def _get(packed: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.load(io.BytesIO(packed.read(f"{name}.npy")), allow_pickle=False)
