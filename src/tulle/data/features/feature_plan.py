"""Which columns become features, and how: public settings, fixed before data are read.

A feature turns the values of one column into ids of a table of embeddings. With
shared tables all public features look into one table and all sensitive ones
into another (the semi-sensitive paper's models); without, each has its own (the
hybrid paper's).
"""

import dataclasses
import secrets
import typing
from typing import ClassVar, Literal

from tulle.data.features.hashing import check_num_bins, check_salt
from tulle.data.features.transforms import DAYS_PER_WEEK, HOURS_PER_DAY, num_log_ids
from tulle.data.prepared.dataset import check_whole
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import canonical_json, check_fields, check_list, check_text, did_you_mean

Role = Literal["public", "sensitive"]

_MOST_LOG_BUCKETS = 64
"""Base-2 logarithms of 64-bit integers fall into 64 buckets; larger floats share the last one."""
PUBLIC_BINS, SENSITIVE_BINS = 100_000, 50_000
"""Number of ids of the public and of the sensitive table, unless somebody says otherwise."""
_FEWEST_PUBLIC_BINS, _FEWEST_SENSITIVE_BINS = 500, 250
"""However few the rows are, a table keeps so many ids: smaller ones would mix up common values."""
ROWS_FOR_ALL_BINS = 2 * PUBLIC_BINS
"""Number of rows from which on tables of default features grow no more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfOneColumn:
    """What all features share: the column whose values they turn into ids."""

    column: str

    def __post_init__(self) -> None:
        check_text("column", self.column)

    @property
    def name(self) -> str:
        """What the feature is called: its column, if that has no other feature."""
        return self.column


@dataclasses.dataclass(frozen=True, kw_only=True)
class HashedFeature(_OfOneColumn):
    """Each value falls into one of a fixed number of bins. Missing is a value of its own."""

    kind: ClassVar[str] = "hashed"

    num_bins: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_bins(self.num_bins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyFeature(_OfOneColumn):
    """Frequent values have an id each, all others share the out-of-vocabulary id.

    Missing has an id of its own, whether frequent or not.
    """

    kind: ClassVar[str] = "vocabulary"

    min_count: int
    """Least number of rows with a value that is kept: exact for a public column, noisy for
    a sensitive one, where noise can force a higher one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("min_count", self.min_count, 1, 2**62)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogFeature(_OfOneColumn):
    """The bucket floor(log2(1 + x)) of a number; negative and missing have an id each."""

    kind: ClassVar[str] = "log"

    num_buckets: int = 32
    """The last bucket holds all that lies above it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_buckets", self.num_buckets, 1, _MOST_LOG_BUCKETS)

    @property
    def num_ids(self) -> int:
        """Buckets, negative and missing."""
        return num_log_ids(self.num_buckets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HourFeature(_OfOneColumn):
    """The hour of the day of a time in seconds, UTC; missing has an id of its own."""

    kind: ClassVar[str] = "hour"
    num_ids: ClassVar[int] = HOURS_PER_DAY + 1

    @property
    def name(self) -> str:
        """What the feature is called."""
        return f"{self.column} hour"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DayOfWeekFeature(_OfOneColumn):
    """The day of the week of a time in seconds, UTC; missing has an id of its own."""

    kind: ClassVar[str] = "day of week"
    num_ids: ClassVar[int] = DAYS_PER_WEEK + 1

    @property
    def name(self) -> str:
        """What the feature is called."""
        return f"{self.column} day of week"


FeatureSettings = HashedFeature | VocabularyFeature | LogFeature | HourFeature | DayOfWeekFeature

_NEEDED_KINDS: dict[type[FeatureSettings], tuple[Kind, ...]] = {
    LogFeature: (Kind.INTEGER, Kind.REAL),
    HourFeature: (Kind.TIMESTAMP,),
    DayOfWeekFeature: (Kind.TIMESTAMP,),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturePlan:
    """The features of a data set. Every field is public information."""

    schema: Schema
    features: tuple[FeatureSettings, ...]
    salt: bytes
    """Salt of the hashes: 16 to 64 bytes, drawn anew for each data set. Public, no secret."""
    shared_tables: bool = False
    """One table for all public features and one for all sensitive ones."""

    def __post_init__(self) -> None:
        check_salt(self.salt)
        object.__setattr__(self, "features", tuple(self.features))
        if not self.features:
            raise ConfigError("features=() must name at least one feature, e.g. by hash_all().")
        names: set[str] = set()
        for feature in self.features:
            self._check_feature(feature)
            if feature.name in names:
                raise ConfigError(
                    f"feature {feature.name!r} is there twice; a column has one feature by its "
                    "values and, if it is a timestamp, one hour and one day of week. Drop one."
                )
            names.add(feature.name)
        if self.shared_tables:
            self._check_shared_bins()

    def role(self, feature: FeatureSettings) -> Role:
        """Whether a feature is protected. The time column is not, as in the schema's scope."""
        return "sensitive" if feature.column in self.schema.sensitive else "public"

    def of_role(self, role: Role) -> tuple[FeatureSettings, ...]:
        """The features of one role, in order."""
        return tuple(feature for feature in self.features if self.role(feature) == role)

    def vocabularies(self, role: Role) -> tuple[VocabularyFeature, ...]:
        """The vocabulary features of one role, in order."""
        return tuple(f for f in self.of_role(role) if isinstance(f, VocabularyFeature))

    def to_dict(self) -> dict[str, object]:
        """Plain data; the salt in hexadecimal."""
        return {
            "schema": self.schema.to_dict(),
            "features": [plain_data(feature) for feature in self.features],
            "salt": self.salt.hex(),
            "shared_tables": self.shared_tables,
        }

    @classmethod
    def from_dict(cls, data: object) -> "FeaturePlan":
        """Reads what `to_dict` wrote; every key must be there and known."""
        keys = ("schema", "features", "salt", "shared_tables")
        fields = check_fields("feature plan", data, keys)
        try:
            salt = bytes.fromhex(fields["salt"])
        except (TypeError, ValueError):
            raise ConfigError(f"salt={fields['salt']!r} must be hexadecimal text.") from None
        if not isinstance(fields["shared_tables"], bool):
            raise ConfigError(f"shared_tables={fields['shared_tables']!r} must be true or false.")
        return cls(
            schema=Schema.from_dict(fields["schema"]),
            features=tuple(
                settings_from(FeatureSettings, feature, what="feature")
                for feature in check_list("features", fields["features"])
            ),
            salt=salt,
            shared_tables=fields["shared_tables"],
        )

    def to_json(self) -> str:
        """One line, the same for equal plans."""
        return canonical_json(self.to_dict())

    def _check_feature(self, feature: object) -> None:
        if not isinstance(feature, FeatureSettings):
            raise ConfigError(f"feature {feature!r} must be one of {', '.join(_class_names())}.")
        columns = self.schema.features
        if isinstance(feature, HourFeature | DayOfWeekFeature) and self.schema.time is not None:
            columns = (*columns, self.schema.time)
        if feature.column not in columns:
            raise ConfigError(
                f"{type(feature).__name__} cannot use column {feature.column!r}"
                f"{did_you_mean(feature.column, columns)}: only public and sensitive columns are "
                "features, and the time by its hour and day. Give it one of these roles."
            )
        needed = _NEEDED_KINDS.get(type(feature))
        kind = self.schema.kind(feature.column)
        if needed is not None and kind not in needed:
            words = " or ".join(k.value for k in needed)
            raise ConfigError(
                f"{type(feature).__name__} needs column {feature.column!r} to be {words}, not "
                f"{kind.value}; set its kind in the schema, or use HashedFeature."
            )

    def _check_shared_bins(self) -> None:
        for role in ("public", "sensitive"):
            hashed = [f for f in self.of_role(role) if isinstance(f, HashedFeature)]
            if len({f.num_bins for f in hashed}) > 1:
                raise ConfigError(
                    f"shared_tables=True puts all {role} hashed features into the same bins, but "
                    f"num_bins differ ({hashed[0].name!r}: {hashed[0].num_bins}); give all the "
                    "same number or set shared_tables=False."
                )


def default_features(schema: Schema, *, num_rows: int, salt: bytes) -> FeaturePlan:
    """The features of a log about which nothing was said but the roles and kinds of its columns.

    Numbers become buckets of their logarithm, times the hour and the day of the week, and all
    other values are hashed into one table a role, which is smaller where rows are few.

    Args:
      schema: Roles and kinds of the columns.
      num_rows: Number of rows, or any number from `ROWS_FOR_ALL_BINS` on if there are more.
      salt: Salt of the hashes.
    """
    bins = {
        "public": min(PUBLIC_BINS, max(_FEWEST_PUBLIC_BINS, num_rows // 2)),
        "sensitive": min(SENSITIVE_BINS, max(_FEWEST_SENSITIVE_BINS, num_rows // 4)),
    }

    def feature(column: str, role: str) -> FeatureSettings:
        if schema.kind(column) in (Kind.INTEGER, Kind.REAL):
            return LogFeature(column=column)
        return HashedFeature(column=column, num_bins=bins[role])

    times: tuple[FeatureSettings, ...] = ()
    if schema.time is not None and schema.kind(schema.time) is Kind.TIMESTAMP:
        times = (HourFeature(column=schema.time), DayOfWeekFeature(column=schema.time))
    return FeaturePlan(
        schema=schema,
        features=(
            *(feature(column, "public") for column in schema.public),
            *times,
            *(feature(column, "sensitive") for column in schema.sensitive),
        ),
        salt=salt,
        shared_tables=True,
    )


def hash_all(
    schema: Schema,
    public_bins: int = PUBLIC_BINS,
    sensitive_bins: int = SENSITIVE_BINS,
    *,
    salt: bytes | None = None,
) -> FeaturePlan:
    """Hashes every feature into one shared table a role (the semi-sensitive paper, Search).

    Args:
      schema: Roles and kinds of the columns.
      public_bins: Ids of the public table.
      sensitive_bins: Ids of the sensitive table.
      salt: Salt of the hashes; by default a fresh random one.
    """
    features = (
        *(HashedFeature(column=column, num_bins=public_bins) for column in schema.public),
        *(HashedFeature(column=column, num_bins=sensitive_bins) for column in schema.sensitive),
    )
    return FeaturePlan(
        schema=schema, features=features, salt=salt or _fresh_salt(), shared_tables=True
    )


def vocabulary_all(
    schema: Schema,
    public_min_count: int = 16,
    sensitive_min_count: int = 256,
    *,
    salt: bytes | None = None,
) -> FeaturePlan:
    """Keeps the frequent values of every feature (the semi-sensitive paper, Display).

    Args:
      schema: Roles and kinds of the columns.
      public_min_count: Threshold of exact counts.
      sensitive_min_count: Threshold of noisy counts; the paper tries 16 to 4096.
      salt: Salt of the hashes; by default a fresh random one.
    """
    counts = {"public": public_min_count, "sensitive": sensitive_min_count}
    features = tuple(
        VocabularyFeature(column=column, min_count=counts[role])
        for role in ("public", "sensitive")
        for column in getattr(schema, role)
    )
    return FeaturePlan(
        schema=schema, features=features, salt=salt or _fresh_salt(), shared_tables=True
    )


def _fresh_salt() -> bytes:
    return secrets.token_bytes(16)


def _class_names() -> list[str]:
    return [cls.__name__ for cls in typing.get_args(FeatureSettings)]
