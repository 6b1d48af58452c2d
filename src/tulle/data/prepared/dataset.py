"""Reading a prepared dataset: numpy and the standard library are enough.

The arrays are mapped into memory, not loaded: a dataset may be larger than the
machine's memory, and opening one takes no time.
"""

import dataclasses
import hashlib
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.format import HEAD_FILE, ArrayFile, Head, PreparedFeature
from tulle.data.schema import Schema
from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.events import Event
from tulle.privacy.fields import parse_json

if TYPE_CHECKING:
    from hashlib import _Hash

_PREPARE_AGAIN = "prepare it again with `tulle data prepare`"
_HASHED_AT_ONCE = 1 << 24


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PublicDataset:
    """A prepared dataset without its sensitive columns: they cannot be reached from here.

    Labels are still there, and still protected.
    """

    features: tuple[PreparedFeature, ...]
    """The public ones, one a column of `public_features`."""
    public_features: NDArray[np.int32]
    labels: NDArray[np.float32] | None
    units: NDArray[np.int64] | None
    times: NDArray[np.int64] | None
    days: NDArray[np.int32] | None
    num_classes: int
    fingerprint: str

    @property
    def num_rows(self) -> int:
        """Rows of every array."""
        return len(self.public_features)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PreparedDataset:
    """A prepared dataset on disk, read-only.

    The content is raw data. Ids, labels and units are sensitive; the names, roles
    and numbers of ids of the features are public.
    """

    head: Head
    folder: Path
    public_features: NDArray[np.int32]
    """[rows, public features]; no column if there is no public feature."""
    sensitive_features: NDArray[np.int32]
    """[rows, sensitive features]; no column if there is no sensitive feature."""
    labels: NDArray[np.float32] | None
    """Whole numbers from 0 to num_classes - 1; None if the schema has no label."""
    units: NDArray[np.int64] | None
    """Equal for rows of one unit; None if each row is its own."""
    times: NDArray[np.int64] | None
    """Seconds; None if the time is known to the day only, or not at all."""
    days: NDArray[np.int32] | None

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedDataset":
        """Opens a whole dataset. Sizes are checked here, bytes by `verify`.

        Raises:
          DataError: There is no prepared dataset, or a file is missing, cut or too long.
        """
        folder = Path(folder)
        head = read_head(folder)
        arrays = {name: _map_array(folder, array) for name, array in head.arrays.items()}
        no_column = np.empty((head.num_rows, 0), np.int32)
        return cls(
            head=head,
            folder=folder,
            public_features=arrays.get("public_features", no_column),
            sensitive_features=arrays.get("sensitive_features", no_column),
            labels=arrays.get("labels"),
            units=arrays.get("units"),
            times=arrays.get("times"),
            days=arrays.get("days"),
        )

    @property
    def num_rows(self) -> int:
        """Rows of every array."""
        return self.head.num_rows

    @property
    def schema(self) -> Schema:
        """The roles and kinds of the columns that were read."""
        return self.head.contents.schema

    @property
    def features(self) -> tuple[PreparedFeature, ...]:
        """All features: public ones first, then sensitive ones."""
        return self.head.contents.features

    @property
    def num_classes(self) -> int:
        """Labels are less than this."""
        return self.head.contents.num_classes

    @property
    def vocabulary_event(self) -> Event | None:
        """What the vocabularies of sensitive columns cost; None if nothing was charged.

        Whatever is trained on the ids costs this too.
        """
        return self.head.contents.vocabulary_event

    @property
    def fingerprint(self) -> str:
        """Fingerprint of arrays and schema. Not for a public card: see `Head.fingerprint`."""
        return self.head.fingerprint

    def gather(self, rows: "NDArray[np.int64] | slice") -> NDArray[np.int32]:
        """A copy of some rows with all features, public columns first."""
        return np.concatenate([self.public_features[rows], self.sensitive_features[rows]], axis=1)

    def without_sensitive(self) -> PublicDataset:
        """What may be handed to code that must not see a sensitive column."""
        return PublicDataset(
            features=self.head.contents.with_role("public"),
            public_features=self.public_features,
            labels=self.labels,
            units=self.units,
            times=self.times,
            days=self.days,
            num_classes=self.num_classes,
            fingerprint=self.fingerprint,
        )

    def verify(self) -> None:
        """Reads every byte of every array and compares it with what was written.

        Raises:
          DataError: An array was changed.
        """
        for array in self.head.arrays.values():
            digest = hash_file(self.folder / array.file, array.num_bytes)
            if digest.hexdigest() != array.sha256:
                raise DataError(
                    f"{self.folder.name}/{array.file} was changed after it was written; "
                    f"{_PREPARE_AGAIN}."
                )


def read_head(folder: Path) -> Head:
    """Reads and checks `schema.json` alone."""
    try:
        return Head.from_dict(_read_object(folder, HEAD_FILE))
    except ConfigError as error:
        reason = str(error).removesuffix(".")
        raise DataError(
            f"{folder.name}/{HEAD_FILE} cannot be used: {reason}; {_PREPARE_AGAIN}."
        ) from None


def hash_file(path: Path, num_bytes: int) -> "_Hash":
    """SHA-256 of a file's first bytes, in bounded memory, ready to take more."""
    digest, left = hashlib.sha256(), num_bytes
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, _HASHED_AT_ONCE))):
            digest.update(piece)
            left -= len(piece)
    return digest


def _read_object(folder: Path, name: str) -> dict[str, object]:
    try:
        text = (folder / name).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{folder.name} is not a prepared dataset: it has no {name}; {_PREPARE_AGAIN}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder.name}/{name} cannot be read: {reason_of(error)}.") from None
    data = parse_json(f"{folder.name}/{name}", text)
    if not isinstance(data, dict):
        raise ConfigError("it is not a JSON object")
    return data


def _map_array(folder: Path, array: ArrayFile) -> NDArray[Any]:
    """Maps one file, if its size is exactly that of the array."""
    try:
        with (folder / array.file).open("rb") as file:
            size = file.seek(0, 2)
            if size != array.num_bytes:
                fault = "is cut short" if size < array.num_bytes else "has bytes too many"
                raise DataError(
                    f"{folder.name}/{array.file} {fault}: {size} bytes where {HEAD_FILE} says "
                    f"{array.num_bytes}; {_PREPARE_AGAIN}."
                )
            # Not np.memmap: its arrays tell their file, and so the way to the others.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(
            f"{folder.name}/{array.file} cannot be read: {error.strerror}; {_PREPARE_AGAIN}."
        ) from None
    return np.frombuffer(mapped, dtype=array.dtype).reshape(array.shape)
