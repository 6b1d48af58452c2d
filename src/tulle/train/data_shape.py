"""What a training plan knows of the data before it reads them.

Names, roles and numbers of ids are public. So are numbers of rows and of units
under replace, which keeps both.
"""

import dataclasses

from tulle.data.prepared.format import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count


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
