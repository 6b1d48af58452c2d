"""Features of all columns, said by a few numbers: one way for each role, and times beside it."""

import dataclasses
import secrets

from tulle.data.features.feature_plan import (
    PUBLIC_BINS,
    SENSITIVE_BINS,
    DayOfWeekFeature,
    FeaturePlan,
    FeatureSettings,
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.schema import Schema
from tulle.errors import ConfigError

_SALT_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """What becomes of the columns. Every field is public information."""

    hash_bins_public: int | None = None
    """Number of ids that public values are hashed into; None: 100,000."""
    hash_bins_sensitive: int | None = None
    """Number of ids that sensitive values are hashed into; None: 50,000."""
    min_count_public: int | None = None
    """Least number of rows of a public value with an id of its own; None: values are hashed."""
    min_count_sensitive: int | None = None
    """Least noisy number of rows of a sensitive value with an id; None: values are hashed."""
    log: tuple[str, ...] = ()
    """Columns of numbers that become buckets of their logarithm."""
    hour: bool = False
    """Whether the hour of the time is a feature."""
    day_of_week: bool = False
    """Whether the day of the week of the time is a feature."""
    salt: bytes | None = None
    """Salt of the hashes; None: a new one for each plan."""

    def plan(self, schema: Schema) -> FeaturePlan:
        """Makes features of all public and sensitive columns, in one table for each role.

        Raises:
          ConfigError: Two fields contradict each other, or a column is missing.
        """
        times: list[FeatureSettings] = []
        for asked, is_wanted, feature in (
            ("hour=True needs", self.hour, HourFeature),
            ("day_of_week=True needs", self.day_of_week, DayOfWeekFeature),
        ):
            if is_wanted and schema.time is None:
                raise ConfigError(f"{asked} a column of role time; name it in the schema.")
            if is_wanted:
                times.append(feature(column=str(schema.time)))
        for column in self.log:
            if column not in schema.features:
                raise ConfigError(f"log={column!r} must name a public or sensitive column.")
        return FeaturePlan(
            schema=schema,
            features=(
                *self._columns(schema.public, "public", PUBLIC_BINS),
                *times,
                *self._columns(schema.sensitive, "sensitive", SENSITIVE_BINS),
            ),
            salt=self.salt or secrets.token_bytes(_SALT_BYTES),
            shared_tables=True,
        )

    def _columns(
        self, columns: tuple[str, ...], role: str, default_bins: int
    ) -> list[FeatureSettings]:
        num_bins = getattr(self, f"hash_bins_{role}")
        min_count = getattr(self, f"min_count_{role}")
        if num_bins is not None and min_count is not None:
            raise ConfigError(
                f"hash_bins_{role}={num_bins} and min_count_{role}={min_count} exclude each "
                "other: values are hashed or have a vocabulary. Give one."
            )
        made: list[FeatureSettings] = []
        for column in columns:
            if column in self.log:
                made.append(LogFeature(column=column))
            elif min_count is not None:
                made.append(VocabularyFeature(column=column, min_count=min_count))
            else:
                bins = default_bins if num_bins is None else num_bins
                made.append(HashedFeature(column=column, num_bins=bins))
        return made
