"""Which columns become features, and how: public settings, fixed before data are read.

A feature turns the values of one column into ids of a table of embeddings. With
shared tables all public features look into one table and all sensitive ones
into another (the semi-sensitive paper's models); without, each has its own (the
hybrid paper's).
"""

import dataclasses
import secrets
import typing

from tulle.data.features.column_features import (
    PUBLIC_BINS,
    SENSITIVE_BINS,
    BooleanFeature,
    BoundedFeature,
    DayOfWeekFeature,
    FeatureSettings,
    HashedFeature,
    HourFeature,
    KnownValuesFeature,
    LogFeature,
    PrivateQuantileFeature,
    QuantileFeature,
    Role,
    VocabularyFeature,
)
from tulle.data.features.hashing import check_salt
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data, settings_from
from tulle.privacy.fields import canonical_json, check_fields, check_list, did_you_mean

_NUMBERS = (Kind.INTEGER, Kind.REAL)
_NEEDED_KINDS: dict[type[FeatureSettings], tuple[Kind, ...]] = {
    LogFeature: _NUMBERS,
    QuantileFeature: _NUMBERS,
    PrivateQuantileFeature: _NUMBERS,
    BoundedFeature: _NUMBERS,
    BooleanFeature: (Kind.BOOLEAN,),
    HourFeature: (Kind.TIMESTAMP,),
    # A whole number counts days, as in a column of role time.
    DayOfWeekFeature: (Kind.TIMESTAMP, Kind.INTEGER),
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

    @property
    def quantiles(self) -> tuple[QuantileFeature, ...]:
        """The features whose edges are exact quantiles of public columns, in order."""
        return tuple(f for f in self.features if isinstance(f, QuantileFeature))

    @property
    def private_quantiles(self) -> tuple[PrivateQuantileFeature, ...]:
        """The features whose edges are noisy quantiles of sensitive columns, in order."""
        return tuple(f for f in self.features if isinstance(f, PrivateQuantileFeature))

    def paid_columns(self) -> tuple[str, ...]:
        """Sensitive columns whose values are counted with noise, at a cost of privacy."""
        counted = (*self.vocabularies("sensitive"), *self.private_quantiles)
        return tuple(feature.column for feature in counted)

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
        if isinstance(feature, KnownValuesFeature) and feature.column not in (
            self.schema.known_values
        ):
            raise ConfigError(
                f"KnownValuesFeature of column {feature.column!r} needs the schema's known_values "
                "of it; declare them there, or use HashedFeature."
            )
        if isinstance(feature, QuantileFeature) and self.role(feature) == "sensitive":
            raise ConfigError(
                f"QuantileFeature of column {feature.column!r} would publish exact quantiles of a "
                "sensitive column. Use BoundedFeature with bounds that everybody knows, "
                "LogFeature, or PrivateQuantileFeature, which a ledger is charged for."
            )
        if isinstance(feature, PrivateQuantileFeature) and self.role(feature) == "public":
            raise ConfigError(
                f"PrivateQuantileFeature of column {feature.column!r} would pay for a public "
                "column; use QuantileFeature, which is exact and costs nothing."
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
