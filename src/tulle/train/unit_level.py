"""Whom a training run protects: one row, or one user with several.

With users, at most a fixed number of rows of each takes part, chosen by rules that
look at one user alone. Three accounts of what such a user costs are offered; the
default is the tightest for clipped rows.
"""

import dataclasses
import enum
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count
from tulle.privacy.units import Unit

MOST_ROWS_PER_USER = 10_000
"""As many as the accountant takes for rows that are sampled one by one."""


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
    """All rows of a user are protected together. Every field is public information."""

    kind: ClassVar[str] = "user"

    max_rows_per_user: int = 1
    """Most rows of a user in private steps."""
    max_labels_per_user: int = 1
    """Most randomized labels of a user. They share the labels' epsilon, so 1 is best for most."""
    max_sharing_labels_per_user: int | None = None
    """Instead of one label of a user: up to so many, which share that label's epsilon by their
    own number K_i, epsilon / K_i each. K_i is public, because only labels are replaced. The
    forward correction weighs rows by their noise."""
    accounting: UserAccounting = UserAccounting.SEVERAL_ROWS
    choice: RowChoice = RowChoice.WITH_REPLACEMENT

    def __post_init__(self) -> None:
        check_count("max_rows_per_user", self.max_rows_per_user)
        check_count("max_labels_per_user", self.max_labels_per_user)
        if self.max_sharing_labels_per_user is not None:
            self._check_sharing()
        if not isinstance(self.accounting, UserAccounting):
            raise ConfigError(f"accounting={self.accounting!r} must be a UserAccounting.")
        if not isinstance(self.choice, RowChoice):
            raise ConfigError(f"choice={self.choice!r} must be a RowChoice.")
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
        """All rows of one user."""
        return Unit.user()

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


def chosen_level(level: UnitLevel | None, unit_column: str | None) -> UnitLevel:
    """The level that was chosen; each row on its own where the data do not say whose it is.

    Args:
      level: None if nobody chose.
      unit_column: Says whose each row is; None if the data have no such column.

    Raises:
      ConfigError: Nobody chose, and the rows of one unit could be protected together.
    """
    if level is not None:
        return level
    if unit_column is not None:
        raise ConfigError(
            f"unit=None, but column {unit_column!r} says whose each row is, and a guarantee for "
            "one row is weak for who has many. Choose unit=UserLevel() to protect all rows of one "
            f"{unit_column}, with any private config but MosaicConfig, or unit=ExampleLevel() to "
            "protect each row on its own."
        )
    return ExampleLevel()
