"""What is in the folder of a prepared dataset.

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

Public and sensitive features are kept apart so that who trains on public ones
alone need not even open the others. Where both are used, public ones come first.
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError
from tulle.privacy.events import Event, event_from_dict, event_to_dict
from tulle.privacy.fields import canonical_json, check_fields, check_list, check_text

FORMAT = "tulle prepared dataset"
VERSION = 2
HEAD_FILE = "schema.json"
ENCODER_FILE = "encoder.json"

_FILES = {
    "public_features": ("public_features.i32", "<i4"),
    "sensitive_features": ("sensitive_features.i32", "<i4"),
    "labels": ("labels.f32", "<f4"),
    "units": ("units.i64", "<i8"),
    "times": ("times.i64", "<i8"),
    "days": ("days.i32", "<i4"),
}
_FEATURE_ROLES = ("public", "sensitive")
_LARGEST_ID = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedFeature:
    """One column of feature ids. Everything here is public information."""

    name: str
    role: str
    """`public` or `sensitive`."""
    num_ids: int
    """Ids are 0 to num_ids - 1."""
    table: str
    """Features of one table share their embeddings."""

    def __post_init__(self) -> None:
        check_text("name of a feature", self.name)
        check_text(f"table of feature {self.name!r}", self.table)
        if self.role not in _FEATURE_ROLES:
            raise ConfigError(
                f"role={self.role!r} of feature {self.name!r} must be public or sensitive."
            )
        check_whole(f"num_ids of feature {self.name!r}", self.num_ids, 1, _LARGEST_ID)

    @classmethod
    def from_dict(cls, data: object) -> "PreparedFeature":
        """Reads what `dataclasses.asdict` gave."""
        return cls(**check_fields("feature", data, _names(cls)))


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
    num_classes: int
    """Labels are the whole numbers from 0 to num_classes - 1."""
    encoder_fingerprint: str
    """Fingerprint of the settings and vocabularies that made the ids."""
    vocabulary_event: Event | None = None
    """What the vocabularies of sensitive columns cost; None if nothing was charged."""

    def __post_init__(self) -> None:
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
            "features": [dataclasses.asdict(feature) for feature in self.contents.features],
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


def check_whole(name: str, value: object, least: int, most: int) -> int:
    """Returns a whole number within limits; True and False are refused.

    Args:
      name: Name of the setting, for the error message.
      value: Value to check.
      least: Least value that is accepted.
      most: Largest value that is accepted.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name}={value!r} must be a whole number from {least} to {most}.")
    return value


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
