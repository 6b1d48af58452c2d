"""Whom a training run protects: one row, or one user with several.

With users, at most a fixed number of rows of each takes part, chosen by rules that
look at one user alone. Three accounts of what such a user costs are offered; the
default is the tightest for clipped rows.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, ClassVar

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.events import Event, event_from_dict, event_to_dict
from tulle.privacy.fields import check_count, check_fields, check_list, check_text, did_you_mean
from tulle.privacy.plan import ColumnRoles
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import TimeWindows

MOST_ROWS_PER_USER = 10_000
"""Largest number of rows of a user that the accountant takes if rows are sampled one by one."""


class UserAccounting(enum.Enum):
    """How the cost of one user's rows is bounded."""

    SEVERAL_ROWS = "several rows"
    """Rows are sampled and clipped one by one; a user is in a batch Binomial(k, q) times."""
    GROUP_PRIVACY = "group privacy"
    """The same steps, accounted by group privacy from one row to k, as in the papers."""
    CLIPPED_USERS = "clipped users"
    """Users are sampled; all rows of one are averaged and clipped together."""


class RowChoice(enum.Enum):
    """Which rows of a user take part."""

    WITH_REPLACEMENT = "with replacement"
    """Exactly k draws from each user's rows, as in the papers: all users weigh the same."""
    RANDOM = "random"
    """A random subset of at most k rows."""
    FIRST = "first"
    """The first k rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleLevel:
    """Each row is protected on its own."""

    kind: ClassVar[str] = "example"

    @property
    def unit(self) -> Unit:
        """One row."""
        return Unit.example()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserLevel:
    """All rows of a user are protected together, or those in one window of time.

    Every field is public information. Methods that sum over all rows (Mosaic) use the window alone,
    as they have room for every row of a user.
    """

    kind: ClassVar[str] = "user"
    options: ClassVar[dict[str, str]] = {
        "max_rows_per_user": "max_rows_per_user",
        "max_labels_per_user": "max_labels_per_user",
        "user_accounting": "accounting",
    }

    max_rows_per_user: int = 1
    """Most rows of a user in private steps."""
    max_labels_per_user: int = 1
    """Most randomized labels of a user. They share the labels' epsilon, so 1 is best for most."""
    max_sharing_labels_per_user: int | None = None
    """Instead of one label of a user: up to so many, which share that label's epsilon by their
    own number K_i, epsilon / K_i each. K_i is public, because only labels are replaced. The
    forward correction weighs rows by their noise."""
    accounting: UserAccounting = UserAccounting.SEVERAL_ROWS
    """How the cost of one user's rows is bounded."""
    choice: RowChoice = RowChoice.WITH_REPLACEMENT
    window_seconds: int | None = None
    """Length of the windows of time, which begin at 1970 UTC: the rows of a user in one of them are
    a unit. None: all rows of a user."""
    calendar: str | None = None
    """Other windows of time in words, such as "week" or "month in Europe/Berlin"."""

    def __post_init__(self) -> None:
        check_count("max_rows_per_user", self.max_rows_per_user)
        check_count("max_labels_per_user", self.max_labels_per_user)
        if self.max_sharing_labels_per_user is not None:
            self._check_sharing()
        if not isinstance(self.accounting, UserAccounting):
            raise ConfigError(f"accounting={self.accounting!r} must be a UserAccounting.")
        if not isinstance(self.choice, RowChoice):
            raise ConfigError(f"choice={self.choice!r} must be a RowChoice.")
        if self.calendar is not None and self.window_seconds is not None:
            raise ConfigError(
                f"window_seconds={self.window_seconds} and calendar={self.calendar!r} are two ways "
                "to name the windows of a user; leave one of them out."
            )
        if self.calendar is not None:
            # One spelling, so that equal windows make equal settings.
            windows = TimeWindows.parse(check_text("calendar", self.calendar))
            object.__setattr__(self, "calendar", None if windows.is_plain else str(windows))
            object.__setattr__(
                self, "window_seconds", windows.seconds if windows.is_plain else None
            )
        elif self.window_seconds is not None:
            # It refuses what is no length of time.
            TimeWindows(self.window_seconds)
        is_row_by_row = self.accounting is UserAccounting.SEVERAL_ROWS
        is_drawn = self.choice is RowChoice.WITH_REPLACEMENT
        if self.max_rows_per_user > MOST_ROWS_PER_USER and (is_row_by_row or is_drawn):
            raise ConfigError(
                f"max_rows_per_user={self.max_rows_per_user} must be <= {MOST_ROWS_PER_USER}: more "
                "rows are neither accounted one by one nor drawn with replacement. Keep fewer, or "
                "use UserAccounting.CLIPPED_USERS with RowChoice.RANDOM."
            )

    @property
    def unit(self) -> Unit:
        """All rows of one user, or those in one window."""
        return Unit(Owner.USER, self.windows)

    @property
    def windows(self) -> TimeWindows | None:
        """How time is cut; None if all rows of a user are protected together."""
        if self.calendar is not None:
            return TimeWindows.parse(self.calendar)
        return None if self.window_seconds is None else TimeWindows(self.window_seconds)

    @property
    def bounds_of_rows(self) -> dict[str, object]:
        """What was said of the rows of a user that take part, without what has its default."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if field.name not in {"window_seconds", "calendar"}
            and (value := getattr(self, field.name)) != field.default
        }

    @property
    def label_cap(self) -> int:
        """Most rows of a user whose labels are randomized."""
        return self.max_sharing_labels_per_user or self.max_labels_per_user

    def _check_sharing(self) -> None:
        check_count("max_sharing_labels_per_user", self.max_sharing_labels_per_user)
        if self.max_labels_per_user != 1:
            raise ConfigError(
                f"max_labels_per_user={self.max_labels_per_user} and max_sharing_labels_per_user="
                f"{self.max_sharing_labels_per_user} are two ways to use more labels; leave the "
                "first at 1, or the second out."
            )
        if self.choice is RowChoice.WITH_REPLACEMENT:
            raise ConfigError(
                "max_sharing_labels_per_user with rows drawn with replacement gives every user "
                "the same number of labels; use RowChoice.RANDOM or RowChoice.FIRST."
            )


UnitLevel = ExampleLevel | UserLevel


_ROWS = ("example", "row", "impression")
"""Words for one row as the unit of protection."""
_USERS = "user"
_PER = " per "
"""What stands between the owner of rows and the length of a window."""


def unit_level(word: str) -> UnitLevel:
    """The level that a word means: one row, or all rows of a user.

    Args:
      word: "example", "user", or the name of the unit column, the last two also with a window, as
        in "user per 30 days" or "user per month"; see `check_unit_word`.
    """
    owner, separator, window = word.partition(_PER)
    if owner in _ROWS and separator:
        raise ConfigError(
            f"unit={word!r} has a window, and one row is in one moment; use {owner!r}."
        )
    if owner in _ROWS:
        return ExampleLevel()
    if not separator:
        return UserLevel()
    try:
        windows = TimeWindows.parse(window)
    except ConfigError as error:
        raise ConfigError(f"unit={word!r}: {error}") from None
    if windows.is_plain:
        return UserLevel(window_seconds=windows.seconds)
    return UserLevel(calendar=str(windows))


def is_unit_word(word: object) -> bool:
    """True for a word that names a unit whatever the data are, and so no column."""
    return isinstance(word, str) and unit_owner(word) in (*_ROWS, _USERS)


def unit_owner(word: str) -> str:
    """A word for a unit without its window: "user" of "user per 30 days"."""
    return word.partition(_PER)[0]


def check_unit_word(word: object, unit_column: str | None, *, others: Sequence[str] = ()) -> None:
    """Refuses a word for the unit that is neither known nor the unit column of the data.

    Args:
      word: What was said; only text is looked at.
      unit_column: Column that says whose each row is; None if the data have none.
      others: Names of columns that may be meant, for a suggestion.
    """
    known = (*_ROWS, _USERS, *(() if unit_column is None else (unit_column,)))
    if not isinstance(word, str):
        return
    owner = unit_owner(word)
    if owner not in known:
        meant = [name for name in (*known, *others) if name != owner]
        raise ConfigError(
            f"unit={word!r} is unknown{did_you_mean(owner, meant)}; use 'example' to "
            "protect each row on its own, 'user' to protect all rows of one user, or the name of "
            "the column that says whose each row is; 'user per 30 days' or 'user per month' "
            "protects the rows of one user in a window of time."
        )
    unit_level(word)


def chosen_level(level: UnitLevel | None, unit_column: str | None) -> UnitLevel:
    """The level that was chosen, or else that of the data.

    Who names a column that says whose each row is gets a guarantee for all rows of one owner. Where
    the data do not say it, each row is protected on its own.

    Args:
      level: The chosen level; None if nobody chose.
      unit_column: Column that says whose each row is; None if the data have no such column.
    """
    if level is not None:
        return level
    return ExampleLevel() if unit_column is None else UserLevel()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataShape:
    """The public side of a set of training examples. Every field is public information."""

    features: tuple[PreparedFeature, ...]
    """Public ones first."""
    columns: ColumnRoles
    num_label_rows: int
    """Rows whose labels are randomized, after the bound on each user's."""
    num_private_rows: int
    """Rows that batches of private steps are drawn from, after the bound on each user's."""
    num_users: int | None = None
    """Owners of these rows; None if each row is its own unit."""
    vocabulary_event: Event | None = None
    """What the vocabularies of sensitive columns have cost already."""

    def __post_init__(self) -> None:
        check_count("num_label_rows", self.num_label_rows)
        check_count("num_private_rows", self.num_private_rows)
        if self.num_users is not None:
            check_count("num_users", self.num_users)
        if not self.features:
            raise ConfigError("features=() must name at least one feature.")

    @property
    def public_features(self) -> tuple[PreparedFeature, ...]:
        """The features that phase 1 sees."""
        return tuple(feature for feature in self.features if feature.role == "public")

    @property
    def has_sensitive(self) -> bool:
        """True if there is a sensitive feature."""
        return len(self.public_features) < len(self.features)

    def to_dict(self) -> dict[str, Any]:
        """The shape as plain data, every field of it."""
        event = self.vocabulary_event
        return {
            "features": [feature.to_dict() for feature in self.features],
            "columns": self.columns.to_dict(),
            "num_label_rows": self.num_label_rows,
            "num_private_rows": self.num_private_rows,
            "num_users": self.num_users,
            "vocabulary_event": None if event is None else event_to_dict(event),
        }

    @classmethod
    def from_dict(cls, data: object) -> "DataShape":
        """Reads what `to_dict` gave."""
        names = [field.name for field in dataclasses.fields(cls)]
        fields = dict(check_fields("shape", data, names))
        event = fields["vocabulary_event"]
        features = check_list("features", fields["features"])
        return cls(
            features=tuple(map(PreparedFeature.from_dict, features)),
            columns=ColumnRoles.from_dict(fields["columns"]),
            num_label_rows=fields["num_label_rows"],
            num_private_rows=fields["num_private_rows"],
            num_users=fields["num_users"],
            vocabulary_event=None if event is None else event_from_dict(event),
        )
