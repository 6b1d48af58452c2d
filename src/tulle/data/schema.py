"""What each column of a log is: its role and its kind.

The roles decide what is protected; the kinds decide how a value becomes a
feature. A column without a role is not read, and a model never sees it.

A schema is read from TOML or JSON and written as JSON. A key that is dropped
silently can leave a column unprotected, so reading is strict: unknown keys,
unknown kinds and a column with two roles are errors.
"""

import dataclasses
import enum
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tulle.atomic_files import stage_text, sync_folder
from tulle.data.known_values import KnownValues, known_values_of
from tulle.errors import ConfigError, DataError
from tulle.privacy.codec import settings_from
from tulle.privacy.fields import check_choice, check_finite, did_you_mean, parse_json, parse_toml
from tulle.privacy.plan import ColumnRoles


class Kind(enum.Enum):
    """What the values of a column are."""

    CATEGORICAL = "categorical"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    """True and false, also written as yes and no, t and f, or 1 and 0."""
    TIMESTAMP = "timestamp"
    """A number of seconds since some start, or a date and time, which counts from 1970 UTC."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a log by role, and the kinds of those that are not categorical.

    Names are public information. `ignored` columns are in the data and never read.
    """

    label: str | None
    public: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    unit: str | None = None
    time: str | None = None
    weight: str | None = None
    """Public column of numbers from 0 that say how much each row counts in training, against the
    largest of them; None if all rows count alike. Only method mosaic uses them."""
    ignored: tuple[str, ...] = ()
    kinds: Mapping[str, Kind | str] = dataclasses.field(default_factory=dict)
    """Kind of each column that is not categorical, also as its word, e.g. "real"; the label is an
    integer, the time a timestamp and the weight real unless it is said otherwise. Where nothing is
    said, a time that is a small number and may count days as well as seconds is refused."""
    bounds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Least and largest value to expect in a column of numbers, e.g. {"age": (18, 99)}. They are
    public and must be known without a look at the data; values beyond them count as the end."""
    known_values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Public table of all values of a sensitive column, by column: a path, a table or a list, e.g.
    {"audience": "audiences.csv"}. Its other columns are public facts about the values. It must not
    be made from the log; a value that it lacks counts as other."""

    def __post_init__(self) -> None:
        # Two roles for one column and other mistakes are found by ColumnRoles.
        roles = self.roles
        for role in ("public", "sensitive", "ignored"):
            object.__setattr__(self, role, getattr(roles, role))
        names = [name for _, name in roles.items()]
        kinds: dict[str, Kind] = {}
        for name, kind in sorted(self.kinds.items()):
            if name not in names:
                raise ConfigError(
                    f"kinds names column {name!r}, which has no role"
                    f"{did_you_mean(name, names)}; give it a role or drop it from kinds."
                )
            given = kind.value if isinstance(kind, Kind) else kind
            kinds[name] = check_choice(f"kind of {name!r}", given, Kind)
        object.__setattr__(self, "kinds", MappingProxyType(kinds))
        bounds = {name: self._ends(name) for name in sorted(self.bounds)}
        object.__setattr__(self, "bounds", MappingProxyType(bounds))
        known = {name: self._known(name) for name in sorted(self.known_values)}
        object.__setattr__(self, "known_values", MappingProxyType(known))

    def _ends(self, column: str) -> tuple[float, float]:
        """The bounds of a column, which must be a public or sensitive one of numbers."""
        if column not in self.features:
            raise ConfigError(
                f"bounds names column {column!r}, which is no public or sensitive one"
                f"{did_you_mean(column, self.features)}; give it one of these roles."
            )
        if self.kind(column) not in (Kind.INTEGER, Kind.REAL):
            raise ConfigError(
                f"bounds are given for column {column!r}, which is {self.kind(column).value}; say "
                'in kinds that it is "integer" or "real".'
            )
        ends = tuple(self.bounds[column])
        if len(ends) != 2:
            raise ConfigError(f"bounds of column {column!r} must be two numbers, e.g. (18, 99).")
        low, high = (check_finite(f"bounds of {column!r}", end) for end in ends)
        if not low < high:
            raise ConfigError(
                f"bounds of column {column!r} are {low:g} and {high:g}; the first must be the "
                "lower one."
            )
        return low, high

    def _known(self, column: str) -> KnownValues:
        """The known values of a column, which must be a sensitive one of categories."""
        if column not in self.sensitive:
            raise ConfigError(
                f"known_values names column {column!r}, which is no sensitive one"
                f"{did_you_mean(column, self.sensitive)}; facts about public values can be public "
                "columns of the rows themselves."
            )
        if self.kind(column) is not Kind.CATEGORICAL:
            raise ConfigError(
                f"known_values are given for column {column!r}, which is "
                f"{self.kind(column).value}; only categories have a set of values. Leave its kind "
                "out, or its known_values."
            )
        refused = [name for name in (self.label, self.unit) if name is not None]
        return known_values_of(self.known_values[column], column, refused)

    @property
    def roles(self) -> ColumnRoles:
        """The roles alone, as plans and cards have them."""
        return ColumnRoles(
            label=self.label,
            public=self.public,
            sensitive=self.sensitive,
            unit=self.unit,
            time=self.time,
            weight=self.weight,
            ignored=self.ignored,
        )

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read, in a fixed order."""
        return tuple(name for role, name in self.roles.items() if role != "ignored")

    @property
    def features(self) -> tuple[str, ...]:
        """The columns a model may see, public ones first."""
        return (*self.public, *self.sensitive)

    def without_weight(self) -> "Schema":
        """The same schema for rows that all count once."""
        if self.weight is None:
            return self
        kinds = {name: kind for name, kind in self.kinds.items() if name != self.weight}
        return dataclasses.replace(self, weight=None, kinds=kinds)

    def to_read(self, columns: Collection[str]) -> "Schema":
        """A schema to read some columns of new rows by, of which the label is not known.

        Kinds are the same. All of these columns count as sensitive: nothing is released of them.
        """
        kept = tuple(name for name in self.features if name in columns)
        time = self.time if self.time in columns else None
        kinds = {name: kind for name, kind in self.kinds.items() if name in (*kept, time)}
        bounds = {name: ends for name, ends in self.bounds.items() if name in kept}
        return Schema(label=None, sensitive=kept, time=time, kinds=kinds, bounds=bounds)

    def kind(self, column: str) -> Kind:
        """The kind of a column with a role."""
        if column not in {name for _, name in self.roles.items()}:
            raise ConfigError(
                f"column {column!r} has no role{did_you_mean(column, self.used)}; give it one."
            )
        if column in self.kinds:
            return Kind(self.kinds[column])
        if column == self.time:
            return Kind.TIMESTAMP
        if column == self.weight:
            return Kind.REAL
        return Kind.INTEGER if column == self.label else Kind.CATEGORICAL

    def __reduce__(self) -> tuple[Any, ...]:
        # The view of the kinds cannot be pickled.
        return type(self).from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, object]:
        """Plain data with every role."""
        kinds = {name: Kind(kind).value for name, kind in self.kinds.items()}
        # Left out where there are none, so that a schema is written as it was before it had them.
        bounds = {name: list(ends) for name, ends in self.bounds.items()}
        known = {name: values.to_dict() for name, values in self.known_values.items()}
        return (
            self.roles.to_dict()
            | {"kinds": kinds}
            | ({"bounds": bounds} if bounds else {})
            | ({"known_values": known} if known else {})
        )

    @classmethod
    def from_dict(cls, data: object) -> "Schema":
        """Reads what `to_dict` wrote. Only the label must be there; unknown keys are errors."""
        schema: Schema = settings_from(cls, data, what="schema")
        return schema


_SUFFIXES = (".toml", ".json")


def read_schema(path: Path) -> Schema:
    """Reads a schema from a .toml or .json file, strictly.

    Raises:
      DataError: The file cannot be read as text.
      ConfigError: Its content is not a schema; the message says where and why.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(f"schema file {path.name} must end in {' or '.join(_SUFFIXES)}; rename.")
    text = _read_text(path)
    try:
        data = _parse_toml(text) if suffix == ".toml" else parse_json("schema", text)
        return Schema.from_dict(_with_paths_from(path.parent, data))
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from error


def _with_paths_from(folder: Path, data: object) -> object:
    """The same data with names of files of known values taken from the folder of the schema."""
    known = data.get("known_values") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(known, dict):
        return data
    found = {name: folder / one if isinstance(one, str) else one for name, one in known.items()}
    return {**data, "known_values": found}


def write_schema(path: Path, schema: Schema) -> None:
    """Writes a schema as JSON. The file is there as a whole or not at all."""
    if path.suffix.lower() != ".json":
        raise ConfigError(f"schema file {path.name} is written as JSON; name it {path.stem}.json.")
    text = json.dumps(schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        staged = stage_text(path, text)
    except OSError as error:
        raise DataError(
            f"{path.name} cannot be written ({error.strerror}); check that its folder exists."
        ) from error
    try:
        os.replace(staged, path)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise DataError(f"{path.name} cannot be replaced ({error.strerror}).") from error
    sync_folder(path.parent)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"schema file {path.name} does not exist; check the path.") from None
    except OSError as error:
        raise DataError(f"schema file {path.name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"schema file {path.name} is not UTF-8 at byte {error.start}; save it as UTF-8."
        ) from error


def _parse_toml(text: str) -> dict[str, Any]:
    data = parse_toml("schema", text)
    if "label" not in data:
        raise ConfigError(
            "schema needs the key 'label'; add it. TOML has no null: "
            "write a schema without a label as JSON, with label null."
        )
    return data
