"""Writing a prepared dataset block by block.

After each block the arrays are on disk first and the record of progress second.
A process that dies in between leaves surplus bytes, which are cut off when the
writing is taken up again; the result has the same bytes either way.
"""

import contextlib
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.dataset import (
    HEAD_FILE,
    ArrayFile,
    Contents,
    Head,
    PreparedDataset,
    hash_file,
)
from tulle.data.prepared.partial import PartialFolder, WriteProgress
from tulle.errors import ConfigError, DataError, RunStateError

if TYPE_CHECKING:
    from hashlib import _Hash


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
