"""The features of a log about which nothing was said but roles and kinds: kinds decide.

| kind | public column | sensitive column |
|---|---|---|
| categorical | hashed | hashed; an id for each value if the schema knows them |
| integer, real | bins by exact quantiles | bins between declared bounds, else by powers |
| boolean | false, true | false, true |
| timestamp | hour and day of the week | hour and day of the week |

A missing value is a value of its own everywhere. A column of numbers whose kind nobody has said
would be hashed, each number by itself, and teach next to nothing: `number_columns` refuses it.
"""

from tulle.data.features.column_features import (
    NUMBER_BINS,
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
    QuantileFeature,
)
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.schema import Kind, Schema

_FEWEST_PUBLIC_BINS, _FEWEST_SENSITIVE_BINS = 500, 250
"""However few the rows are, a table keeps so many ids: smaller ones would mix up common values."""
_PARTS_OF_POWERS = 4
"""Parts of the buckets between powers of two, of which rare ones are merged with their neighbours:
a quarter is 12 to 25% of a number."""
ROWS_FOR_ALL_BINS = 2 * PUBLIC_BINS
"""Number of rows from which on tables of default features grow no more."""


def default_features(schema: Schema, *, num_rows: int, salt: bytes) -> FeaturePlan:
    """The features of a log about which nothing was said but the roles and kinds of its columns.

    Args:
      schema: Roles, kinds and bounds of the columns.
      num_rows: Number of rows, or any number from `ROWS_FOR_ALL_BINS` on if there are more.
      salt: Salt of the hashes.
    """
    bins = {
        "public": min(PUBLIC_BINS, max(_FEWEST_PUBLIC_BINS, num_rows // 2)),
        "sensitive": min(SENSITIVE_BINS, max(_FEWEST_SENSITIVE_BINS, num_rows // 4)),
    }
    return FeaturePlan(
        schema=schema,
        features=(
            *(f for column in schema.public for f in features_of_kind(schema, column, bins)),
            *features_of_time(schema),
            *(f for column in schema.sensitive for f in features_of_kind(schema, column, bins)),
        ),
        salt=salt,
        shared_tables=True,
    )


def features_of_kind(
    schema: Schema, column: str, hash_bins: dict[str, int]
) -> tuple[FeatureSettings, ...]:
    """What becomes of a public or sensitive column of which only its kind is known.

    Args:
      schema: Roles, kinds and bounds.
      column: Name of the column.
      hash_bins: Number of ids that categories are hashed into, by role.
    """
    kind = schema.kind(column)
    role = "sensitive" if column in schema.sensitive else "public"
    if kind in (Kind.INTEGER, Kind.REAL):
        return (_number_feature(schema, column),)
    if kind is Kind.BOOLEAN:
        return (BooleanFeature(column=column),)
    if kind is Kind.TIMESTAMP:
        return HourFeature(column=column), DayOfWeekFeature(column=column)
    if column in schema.known_values:
        return (KnownValuesFeature(column=column),)
    return (HashedFeature(column=column, num_bins=hash_bins[role]),)


def features_of_time(schema: Schema) -> tuple[FeatureSettings, ...]:
    """Hour and day of the week of the column of role time, as far as its kind has them."""
    if schema.time is None:
        return ()
    day = DayOfWeekFeature(column=schema.time)
    if schema.kind(schema.time) is Kind.TIMESTAMP:
        return HourFeature(column=schema.time), day
    return (day,) if schema.kind(schema.time) is Kind.INTEGER else ()


def _number_feature(schema: Schema, column: str) -> FeatureSettings:
    if column not in schema.sensitive:
        return QuantileFeature(column=column)
    if column not in schema.bounds:
        return LogFeature(column=column, parts=_PARTS_OF_POWERS)
    low, high = schema.bounds[column]
    num_bins = NUMBER_BINS
    if schema.kind(column) is Kind.INTEGER:
        # No more bins than whole numbers: the others would stay empty.
        num_bins = min(num_bins, int(high) - int(low) + 1)
    return BoundedFeature(column=column, low=low, high=high, num_bins=num_bins)
