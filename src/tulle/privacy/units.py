"""Who is protected, against which change, and whom they must trust.

A guarantee means nothing without these three words. They are value types that
a user must choose: there is no default unit and no default adjacency.
"""

import dataclasses
import enum
import re

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, did_you_mean
from tulle.privacy.windows import TimeWindows, parse_seconds

_DAY_SECONDS = 86_400
_PER = re.compile(r"\s+per\s+", re.IGNORECASE)
"""What stands between the owner and the windows of a unit."""


class Owner(enum.Enum):
    """Owner of the rows that form one unit."""

    EXAMPLE = "example"
    USER = "user"
    USER_ADVERTISER = "user x advertiser"
    USER_PUBLISHER = "user x publisher"
    IMPRESSION = "impression"
    CONVERSION = "conversion"

    @property
    def is_one_row(self) -> bool:
        """True if a unit is a single row, of any table or of one."""
        return self in {Owner.EXAMPLE, Owner.IMPRESSION, Owner.CONVERSION}

    @property
    def keys(self) -> frozenset[str]:
        """The identifiers that rows of one unit share."""
        return frozenset(self.value.split(" x "))


@dataclasses.dataclass(frozen=True)
class Unit:
    """One protected unit: all rows of an owner, or those in one time window.

    With windows, the rows of the same owner in two windows are two units, and
    the guarantee holds for each window on its own.
    """

    owner: Owner
    windows: TimeWindows | None = None
    """How time is cut; None protects all rows of the owner together."""

    def __post_init__(self) -> None:
        if not isinstance(self.owner, Owner):
            raise ConfigError(f"owner={self.owner!r} must be an Owner, e.g. Owner.USER.")
        if self.windows is not None and not isinstance(self.windows, TimeWindows):
            raise ConfigError(
                f"windows={self.windows!r} must be TimeWindows or None, e.g. "
                "TimeWindows.parse('week')."
            )

    @classmethod
    def example(cls, *, days: int | None = None) -> "Unit":
        """One row of the data."""
        return cls(Owner.EXAMPLE, _days(days))

    @classmethod
    def user(cls, *, days: int | None = None) -> "Unit":
        """All rows of one user, or those within `days` days."""
        return cls(Owner.USER, _days(days))

    @classmethod
    def user_advertiser(cls, *, days: int | None = None) -> "Unit":
        """All rows that one user has with one advertiser."""
        return cls(Owner.USER_ADVERTISER, _days(days))

    @classmethod
    def user_publisher(cls, *, days: int | None = None) -> "Unit":
        """All rows that one user has with one publisher."""
        return cls(Owner.USER_PUBLISHER, _days(days))

    @classmethod
    def impression(cls) -> "Unit":
        """One row of the impressions, while all conversions stay."""
        return cls(Owner.IMPRESSION)

    @classmethod
    def conversion(cls) -> "Unit":
        """One row of the conversions, while all impressions stay."""
        return cls(Owner.CONVERSION)

    @classmethod
    def parse(cls, text: str) -> "Unit":
        """Reads what `str(unit)` prints, e.g. "user x advertiser per week in Europe/Berlin".

        "row" is another word for "example".
        """
        owner_text, *window_text = _PER.split(text.strip(), maxsplit=1)
        owner_text = re.sub(r"^row$", Owner.EXAMPLE.value, owner_text.strip().lower())
        try:
            owner = Owner(re.sub(r"\s*[x*×]\s*(?=advertiser|publisher)", " x ", owner_text))
        except ValueError:
            known = [owner.value for owner in Owner]
            raise ConfigError(
                f"unit={text!r} is unknown{did_you_mean(owner_text, known)}; use one of "
                f"{', '.join(map(repr, known))}, optionally with a window such as "
                "'user per 7 days' or 'user per week in Europe/Berlin'."
            ) from None
        if not window_text:
            return cls(owner)
        try:
            return cls(owner, TimeWindows.parse(window_text[0]))
        except ConfigError as error:
            raise ConfigError(f"unit={text!r}: {error}") from None

    def covers(self, other: "Unit") -> bool:
        """True if protecting this unit also protects `other`.

        Every row set of `other` must lie inside one of this unit: fewer
        identifiers (a user owns all his pairs with advertisers), and no windows,
        or such that hold whole windows of the other. Under replace at the same cost; where
        rows come and go at up to twice the cost, because a part of the rows of a unit that
        goes replaces what the unit contributes.
        """
        if not self.owner.is_one_row and other.owner.is_one_row:
            # A conversion is on no publisher's pages.
            return (self.owner, other.owner) != (Owner.USER_PUBLISHER, Owner.CONVERSION)
        if not self.owner.keys <= other.owner.keys:
            return False
        if self.owner.is_one_row or self.windows is None:
            return True
        return other.windows is not None and self.windows.holds(other.windows)

    def __str__(self) -> str:
        if self.windows is None:
            return self.owner.value
        return f"{self.owner.value} per {self.windows}"


class Adjacency(enum.Enum):
    """Which two data sets must look alike."""

    REPLACE = "replace"
    """One unit's sensitive columns and labels are replaced; its public columns
    and its number of rows stay (the semi-sensitive adjacency)."""
    ADD_OR_REMOVE = "add-remove"
    """One unit's rows are added or removed."""
    ZERO_OUT = "zero-out"
    """One unit's contribution is replaced by nothing, its rows keep their place."""

    @classmethod
    def parse(cls, text: str) -> "Adjacency":
        """Reads "replace", "add-remove" (or "add-or-remove") or "zero-out"."""
        name = text.strip().lower().replace("_", "-").replace("add-or-remove", "add-remove")
        try:
            return cls(name)
        except ValueError:
            known = [adjacency.value for adjacency in cls]
            raise ConfigError(
                f"adjacency={text!r} is unknown{did_you_mean(name, known)}; "
                f"use one of {', '.join(known)}."
            ) from None

    @property
    def meaning(self) -> str:
        """One plain sentence for a card."""
        return {
            Adjacency.REPLACE: "one unit's sensitive columns and labels are replaced by "
            "any others, while its public columns and number of rows stay",
            Adjacency.ADD_OR_REMOVE: "all rows of one unit are added or removed",
            Adjacency.ZERO_OUT: "the contribution of one unit is replaced by nothing, "
            "while its rows keep their place",
        }[self]


class Scope(enum.Enum):
    """Which columns of a unit the guarantee speaks about."""

    LABELS = "labels"
    SENSITIVE_COLUMNS = "sensitive columns"
    LABELS_AND_SENSITIVE_COLUMNS = "labels and sensitive columns"
    WHOLE_ROWS = "whole rows"

    def covers(self, other: "Scope") -> bool:
        """True if protecting these columns also protects those of `other`."""
        if self is other or self is Scope.WHOLE_ROWS:
            return True
        return self is Scope.LABELS_AND_SENSITIVE_COLUMNS and other is not Scope.WHOLE_ROWS


class TrustModel(enum.Enum):
    """Who sees raw data before noise is added."""

    CENTRAL = "central"
    """The party that runs tulle sees raw rows and adds the noise."""
    LOCAL = "local"
    """Each device adds its own noise; nobody sees a raw value."""
    SHUFFLE = "shuffle"
    """Devices add noise and a shuffler, trusted not to link, mixes the reports."""


def seconds_of(name: str, length: str | int) -> int:
    """Returns the seconds of a setting such as "7 days", or of a whole number of seconds.

    Raises:
      ConfigError: It is neither; the message names the setting.
    """
    if not isinstance(length, str):
        return check_count(name, length)
    try:
        return parse_seconds(length)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _days(days: int | None) -> TimeWindows | None:
    if days is None:
        return None
    if isinstance(days, bool) or not isinstance(days, int):
        raise ConfigError(f"days={days!r} must be a whole number or None.")
    return TimeWindows(days * _DAY_SECONDS)
