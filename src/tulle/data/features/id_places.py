"""Where the ids of each feature are: features that share a table get ranges that do not overlap.

A table begins with the bins of hashed features, which all of them share, and the id of values that
no vocabulary has. Behind them each other feature has its own ids.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from tulle.data.features.column_features import (
    FeatureSettings,
    HashedFeature,
    KnownValuesFeature,
    PrivateQuantileFeature,
    QuantileFeature,
    Role,
    VocabularyFeature,
)
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.known_values import KnownValues
from tulle.data.prepared.feature import FactGroups, PreparedFeature
from tulle.errors import ConfigError

_MOST_IDS = 2**31 - 1
"""Ids are stored as 32-bit integers; a larger one would wrap around into another value's row."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedFeature:
    """A feature and where its ids are."""

    settings: FeatureSettings
    feature: PreparedFeature
    first_id: int
    """First id of the feature's bins, kept values or buckets."""
    unknown_id: int = 0
    """Id of all values of a column that were not kept, or are not known."""


def place_features(plan: FeaturePlan, num_kept: Mapping[str, int]) -> tuple[PlacedFeature, ...]:
    """All features of a plan, public ones first.

    Args:
      plan: The features.
      num_kept: Size of each vocabulary, and number of bins between learnt edges, by column.
    """
    placed: list[PlacedFeature] = []
    roles: tuple[Role, ...] = ("public", "sensitive")
    known = plan.schema.known_values
    num_kept = {**{name: len(found.values) for name, found in known.items()}, **num_kept}
    for role in roles:
        features = plan.of_role(role)
        if plan.shared_tables:
            placed.extend(_place_in_table(role, role, features, num_kept))
            continue
        for feature in features:
            placed.extend(_place_in_table(feature.name, role, [feature], num_kept))
    return tuple(
        _with_known(place, known[place.settings.column])
        if isinstance(place.settings, KnownValuesFeature)
        else place
        for place in placed
    )


def _place_in_table(
    table: str, role: Role, features: Sequence[FeatureSettings], num_kept: Mapping[str, int]
) -> list[PlacedFeature]:
    hashed = [f for f in features if isinstance(f, HashedFeature)]
    unknown_id = hashed[0].num_bins if hashed else 0
    next_id = unknown_id + any(isinstance(f, VocabularyFeature) for f in features)
    first_ids: dict[str, int] = {}
    for feature in sorted(features, key=lambda f: not isinstance(f, VocabularyFeature)):
        if isinstance(feature, HashedFeature):
            first_ids[feature.name] = 0
            continue
        first_ids[feature.name] = next_id
        next_id += _num_own_ids(feature, num_kept)
    if next_id > _MOST_IDS:
        raise ConfigError(
            f"table {table!r} needs {next_id} ids and can have {_MOST_IDS}; lower num_bins or "
            "raise min_count, or set shared_tables=False."
        )
    return [
        PlacedFeature(
            settings=feature,
            feature=_prepared(feature, role, table, next_id, first_ids[feature.name], num_kept),
            first_id=first_ids[feature.name],
            unknown_id=unknown_id,
        )
        for feature in features
    ]


def _prepared(
    feature: FeatureSettings,
    role: Role,
    table: str,
    num_ids: int,
    first_id: int,
    num_kept: Mapping[str, int],
) -> PreparedFeature:
    """A feature as datasets know it, with the place of its bins if they lie in order."""
    plain = PreparedFeature(name=feature.name, role=role, num_ids=num_ids, table=table)
    if not feature.order:
        return plain
    return dataclasses.replace(
        plain,
        order=feature.order,
        first_bin=first_id,
        num_bins=_num_own_ids(feature, num_kept) - feature.num_apart,
        num_apart=feature.num_apart,
    )


def _with_known(place: PlacedFeature, known: KnownValues) -> PlacedFeature:
    """A feature of known values with the facts about them; other values have an id of their own."""
    feature = dataclasses.replace(
        place.feature,
        first_known=place.first_id,
        num_known=len(known.values),
        known_digest=known.digest,
        facts=tuple(FactGroups(name=fact.name, groups=fact.places) for fact in known.facts),
    )
    unknown_id = place.first_id + len(known.values) + 1
    return dataclasses.replace(place, feature=feature, unknown_id=unknown_id)


def _num_own_ids(feature: FeatureSettings, num_kept: Mapping[str, int]) -> int:
    if isinstance(feature, HashedFeature):
        return feature.num_bins
    if isinstance(feature, KnownValuesFeature):
        return num_kept[feature.column] + 2  # missing, and all values that are not known
    if isinstance(feature, VocabularyFeature | QuantileFeature | PrivateQuantileFeature):
        return num_kept[feature.column] + 1
    return feature.num_ids
