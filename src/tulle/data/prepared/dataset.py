"""A prepared dataset: its head, its arrays, and how they are read.

Numpy and the standard library are enough. The arrays are mapped into memory, not loaded: a dataset
may be larger than the machine's memory, and opening one takes no time.

`schema.json` says what the arrays are; each array is one file of little-endian
numbers without a header, row after row:

| array | file | numbers | there if |
|---|---|---|---|
| public_features | public_features.i32 | int32 [rows, public features] | there is one |
| sensitive_features | sensitive_features.i32 | int32 [rows, sensitive features] | there is one |
| labels | labels.f32 | float32 [rows] | the schema has a label |
| units | units.i64 | int64 [rows] | the schema has a unit |
| times | times.i64 | int64 [rows], seconds | the time is a timestamp |
| days | days.i32 | int32 [rows] | the schema has a time |
| weights | weights.f32 | float32 [rows], from 0 | the schema has a weight |

Public and sensitive features are kept apart so that who trains on public ones
alone need not even open the others. Where both are used, public ones come first.
"""

import dataclasses
import hashlib
import math
import mmap
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.feature import PreparedFeature, check_whole
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError, reason_of
from tulle.privacy.events import Event, event_from_dict, event_to_dict
from tulle.privacy.fields import canonical_json, check_fields, check_list, check_text, parse_json

if TYPE_CHECKING:
    from hashlib import _Hash

FORMAT = "tulle prepared dataset"
VERSION = 2
"""Version of the folder's layout; another one is refused, and the folder can be made again."""
HEAD_FILE = "schema.json"
ENCODER_FILE = "encoder.json"

_FILES = {
    "public_features": ("public_features.i32", "<i4"),
    "sensitive_features": ("sensitive_features.i32", "<i4"),
    "labels": ("labels.f32", "<f4"),
    "units": ("units.i64", "<i8"),
    "times": ("times.i64", "<i8"),
    "days": ("days.i32", "<i4"),
    "weights": ("weights.f32", "<f4"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayFile:
    """One array on disk."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """SHA-256 digest of the file's bytes."""

    @property
    def num_bytes(self) -> int:
        """The exact size of the file."""
        return math.prod(self.shape) * int(self.dtype[-1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents:
    """What a prepared dataset holds, known before its first row is written."""

    schema: Schema
    features: tuple[PreparedFeature, ...]
    """Features, public ones first."""
    num_classes: int | None
    """Labels are the whole numbers from 0 to num_classes - 1; None: any values from 0 on."""
    encoder_fingerprint: str
    """Fingerprint of the settings and vocabularies that made the ids."""
    vocabulary_event: Event | None = None
    """What the vocabularies of sensitive columns cost; None if nothing was charged."""

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            check_whole("num_classes", self.num_classes, 2, 2**24)
        if not self.features:
            raise ConfigError("there is no feature; name public or sensitive columns.")
        roles = [feature.role for feature in self.features]
        if roles != sorted(roles):
            raise ConfigError("a sensitive feature comes before a public one; sort them by role.")

    def with_role(self, role: str) -> tuple[PreparedFeature, ...]:
        """The public or the sensitive features, in the order of their array's columns."""
        return tuple(feature for feature in self.features if feature.role == role)

    def layout(self, num_rows: int) -> dict[str, tuple[str, str, tuple[int, ...]]]:
        """File, type and shape of every array that is there."""
        widths = {
            "public_features": len(self.with_role("public")),
            "sensitive_features": len(self.with_role("sensitive")),
        }
        time = self.schema.time
        is_there = {name: width > 0 for name, width in widths.items()} | {
            "labels": self.schema.label is not None,
            "units": self.schema.unit is not None,
            "times": time is not None and self.schema.kind(time) is Kind.TIMESTAMP,
            "days": time is not None,
            "weights": self.schema.weight is not None,
        }
        return {
            name: (*_FILES[name], (num_rows, widths[name]) if name in widths else (num_rows,))
            for name in _FILES
            if is_there[name]
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """All of `schema.json`."""

    contents: Contents
    num_rows: int
    arrays: Mapping[str, ArrayFile]
    provenance: Mapping[str, object]
    """Sources, versions and settings of the writer; no times, no folders."""

    def __post_init__(self) -> None:
        check_whole("num_rows", self.num_rows, 1, 2**62)
        expected = self.contents.layout(self.num_rows)
        found = {name: (a.file, a.dtype, a.shape) for name, a in self.arrays.items()}
        if found != expected:
            wrong = [n for n in (*expected, *found) if expected.get(n) != found.get(n)]
            raise ConfigError(
                f"array {wrong[0]!r} is {found.get(wrong[0], 'missing')}, must be "
                f"{expected.get(wrong[0], 'left out')} by schema and features."
            )
        object.__setattr__(self, "arrays", MappingProxyType(dict(self.arrays)))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the digests of all arrays and what they mean, not over provenance.

        It belongs beside the data only. On a public card it would confirm a guess
        of them: put `keyed_fingerprint()` of it there.
        """
        text = canonical_json({k: v for k, v in self._data().items() if k != "provenance"})
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, object]:
        """Plain data with the fingerprint."""
        return self._data() | {"fingerprint": self.fingerprint}

    def _data(self) -> dict[str, object]:
        event = self.contents.vocabulary_event
        return {
            "format": FORMAT,
            "version": VERSION,
            "schema": self.contents.schema.to_dict(),
            "features": [feature.to_dict() for feature in self.contents.features],
            "num_classes": self.contents.num_classes,
            "encoder_fingerprint": self.contents.encoder_fingerprint,
            "vocabulary_event": None if event is None else event_to_dict(event),
            "num_rows": self.num_rows,
            "arrays": {
                name: dataclasses.asdict(array) | {"shape": list(array.shape)}
                for name, array in self.arrays.items()
            },
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: object) -> "Head":
        """Reads what `to_dict` wrote, strictly.

        Raises:
          ConfigError: A key is unknown or missing, an entry contradicts another, or
            the fingerprint is not that of the entries.
        """
        _check_version(data)
        keys = ("format", "version", *_names(Contents), "num_rows", "arrays", "provenance")
        fields = check_fields("schema.json", data, (*keys, "fingerprint"))
        features = check_list("features", fields["features"])
        event = fields["vocabulary_event"]
        contents = Contents(
            schema=Schema.from_dict(_object("schema", fields)),
            features=tuple(PreparedFeature.from_dict(feature) for feature in features),
            num_classes=fields["num_classes"],
            encoder_fingerprint=check_text("encoder_fingerprint", fields["encoder_fingerprint"]),
            vocabulary_event=None if event is None else event_from_dict(event),
        )
        head = cls(
            contents=contents,
            num_rows=fields["num_rows"],
            arrays={n: _array_from_dict(n, a) for n, a in _object("arrays", fields).items()},
            provenance=_object("provenance", fields),
        )
        if head.fingerprint != fields["fingerprint"]:
            raise ConfigError("its entries were changed after it was written")
        return head


def _check_version(data: object) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(f"its format is not {FORMAT!r}")
    if data.get("version") != VERSION:
        raise ConfigError(
            f"it has version {data.get('version')!r}, this tulle reads version {VERSION}"
        )


def _array_from_dict(name: str, data: object) -> ArrayFile:
    fields = check_fields(f"array {name!r}", data, _names(ArrayFile))
    for side in check_list("shape", fields["shape"]):
        check_whole(f"shape of array {name!r}", side, 1, 2**62)
    if not re.fullmatch("[0-9a-f]{64}", str(fields["sha256"])):
        raise ConfigError(f"sha256={fields['sha256']!r} of array {name!r} is not a SHA-256.")
    return ArrayFile(**fields | {"shape": tuple(fields["shape"])})


def _object(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    value = fields[name]
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must be an object, not {type(value).__name__}.")
    return dict(value)


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


_PREPARE_AGAIN = "prepare it again with `tulle data prepare`"
_HASHED_AT_ONCE = 1 << 24
"""Pieces of 16 MiB, so that a check of a large file needs no memory of its size."""


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
    num_classes: int | None
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
    """Whole numbers from 0 to num_classes - 1, or values; None if the schema has no label."""
    units: NDArray[np.int64] | None
    """Equal for rows of one unit; None if each row is its own."""
    times: NDArray[np.int64] | None
    """Seconds; None if the time is known to the day only, or not at all."""
    days: NDArray[np.int32] | None
    weights: NDArray[np.float32] | None = None
    """How much each row counts, from 0; None if all count alike."""

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
            weights=arrays.get("weights"),
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
    def num_classes(self) -> int | None:
        """Number of classes of the labels; None if they are values."""
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
