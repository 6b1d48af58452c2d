"""Which role each column plays: what is protected and what is public.

The adjacency follows from the roles: one unit's label and sensitive columns
are replaced, its public columns stay. A column without a role is not used.
"""

import dataclasses
from collections.abc import Collection, Iterator

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_fields, check_text, did_you_mean
from tulle.privacy.units import Scope

_LISTED_ROLES = ("public", "sensitive", "ignored")
_MOST_NAMES_SHOWN = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnRoles:
    """The role of every column that is used. Names of columns are public information."""

    label: str | None
    """What is predicted or measured, protected; None if there is no such column."""
    public: tuple[str, ...] = ()
    """Known to everybody for every row, and not protected."""
    sensitive: tuple[str, ...] = ()
    unit: str | None = None
    """Says which rows belong to one unit; None if each row is its own."""
    time: str | None = None
    ignored: tuple[str, ...] = ()
    """In the data and never read."""

    def __post_init__(self) -> None:
        for role in _LISTED_ROLES:
            object.__setattr__(self, role, _checked_names(role, getattr(self, role)))
        seen: dict[str, str] = {}
        for role, column in self.items():
            check_text(f"the column of role {role}", column)
            if column in seen:
                raise ConfigError(
                    f"column {column!r} has the roles {seen[column]} and {role}; every column "
                    f"has exactly one: take it out of {role} or of {seen[column]}."
                )
            seen[column] = role
        if self.label is None and not self.sensitive:
            raise ConfigError(
                "label=None and sensitive=() leave nothing to protect; "
                "name the label or the sensitive columns."
            )

    @property
    def scope(self) -> Scope:
        """What the replace adjacency protects; public columns and time stay as they are."""
        if not self.sensitive:
            return Scope.LABELS
        if not self.public and self.time is None:
            return Scope.WHOLE_ROWS
        return Scope.SENSITIVE_COLUMNS if self.label is None else Scope.LABELS_AND_SENSITIVE_COLUMNS

    def items(self) -> Iterator[tuple[str, str]]:
        """Role and column, one pair a column, in a fixed order."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _LISTED_ROLES:
                yield from ((field.name, column) for column in value)
            elif value is not None:
                yield field.name, value

    def check_against(self, columns_present: Collection[str]) -> None:
        """Refuses data that lack a column with a role. Only names are looked at."""
        for role, column in self.items():
            if column not in columns_present:
                names = sorted(columns_present)
                more = "" if len(names) <= _MOST_NAMES_SHOWN else ", …"
                raise DataError(
                    f"column {column!r} of role {role} is not in the data"
                    f"{did_you_mean(column, names)}; present are "
                    f"{', '.join(names[:_MOST_NAMES_SHOWN])}{more}."
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data with every role, used or not."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {role: list(v) if isinstance(v, tuple) else v for role, v in data.items()}

    @classmethod
    def from_dict(cls, data: object) -> "ColumnRoles":
        """Reads what `to_dict` wrote. Only the label must be there."""
        return cls(**check_fields("columns", data, ("label",), (*_LISTED_ROLES, "unit", "time")))


def _checked_names(role: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, (list, tuple)):
        raise ConfigError(f"{role}={names!r} must be a list of columns; write {role}=[{names!r}].")
    return tuple(names)
