"""What each column of a log is: its role and its kind.

The roles decide what is protected; the kinds decide how a value becomes a
feature. A column without a role is not read, and a model never sees it.
"""

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType

from tulle.errors import ConfigError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.fields import check_choice, check_fields, did_you_mean


class Kind(enum.Enum):
    """What the values of a column are."""

    CATEGORICAL = "categorical"
    INTEGER = "integer"
    REAL = "real"
    TIMESTAMP = "timestamp"
    """Seconds since some start, or since 1970 UTC."""


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
    ignored: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = dataclasses.field(default_factory=dict)
    """Kind of each column that is not categorical; the label is an integer and the time a
    timestamp unless it is said otherwise."""

    def __post_init__(self) -> None:
        # Two roles for one column and other mistakes are found by ColumnRoles.
        roles = self.roles
        for role in ("public", "sensitive", "ignored"):
            object.__setattr__(self, role, getattr(roles, role))
        names = [name for _, name in roles.items()]
        for name, kind in self.kinds.items():
            if name not in names:
                raise ConfigError(
                    f"kinds names column {name!r}, which has no role"
                    f"{did_you_mean(name, names)}; give it a role or drop it from kinds."
                )
            if not isinstance(kind, Kind):
                raise ConfigError(f"kind of column {name!r} is {kind!r}, must be a Kind.")
        object.__setattr__(self, "kinds", MappingProxyType(dict(sorted(self.kinds.items()))))

    @property
    def roles(self) -> ColumnRoles:
        """The roles alone, as plans and cards have them."""
        return ColumnRoles(
            label=self.label,
            public=self.public,
            sensitive=self.sensitive,
            unit=self.unit,
            time=self.time,
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

    def kind(self, column: str) -> Kind:
        """The kind of a column with a role."""
        if column not in {name for _, name in self.roles.items()}:
            raise ConfigError(
                f"column {column!r} has no role{did_you_mean(column, self.used)}; give it one."
            )
        if column in self.kinds:
            return self.kinds[column]
        if column == self.time:
            return Kind.TIMESTAMP
        return Kind.INTEGER if column == self.label else Kind.CATEGORICAL

    def to_dict(self) -> dict[str, object]:
        """Plain data with every role."""
        kinds = {name: kind.value for name, kind in self.kinds.items()}
        return self.roles.to_dict() | {"kinds": kinds}

    @classmethod
    def from_dict(cls, data: object) -> "Schema":
        """Reads what `to_dict` wrote. Only the label must be there; unknown keys are errors."""
        optional = ("public", "sensitive", "unit", "time", "ignored", "kinds")
        fields = dict(check_fields("schema", data, ("label",), optional))
        kinds = fields.pop("kinds", {})
        if not isinstance(kinds, dict):
            raise ConfigError(f"kinds={kinds!r} must map columns to kinds.")
        named = {name: check_choice(f"kind of {name!r}", k, Kind) for name, k in kinds.items()}
        return cls(**fields, kinds=named)
