"""Which id each feature's values have in which table of embeddings.

With shared tables, the table of a role holds first the bins of its hashed
features, then one out-of-vocabulary id, then for each vocabulary feature its
values and its missing id, then the ids of each log, hour and day feature. Bins
and the out-of-vocabulary id are shared; name and value are hashed together, so
equal values of two columns are strangers. Without, each feature has its own
table, laid out alike.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from tulle.data.features.feature_plan import (
    FeaturePlan,
    FeatureSettings,
    HashedFeature,
    Role,
    VocabularyFeature,
)
from tulle.errors import ConfigError

_MOST_IDS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of an encoded data set: a column of ids."""

    name: str
    role: Role
    num_ids: int
    """Size of its table: all its ids lie in [0, num_ids)."""
    table: str
    """Which table its ids belong to; features with the same table share it."""

    @property
    def embedding_size(self) -> int:
        """The rule int(2 V^0.25) of the hybrid paper for a table of V ids."""
        return int(2 * self.num_ids**0.25)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedFeature:
    """A feature and where its ids are."""

    settings: FeatureSettings
    feature: Feature
    first_id: int
    """First id of the feature's bins, kept values or buckets."""
    unknown_id: int = 0
    """Id of all values of a vocabulary column that were not kept."""


def place_features(plan: FeaturePlan, num_kept: Mapping[str, int]) -> tuple[PlacedFeature, ...]:
    """All features of a plan, public ones first.

    Args:
      plan: The features.
      num_kept: Size of each vocabulary, by column.
    """
    placed: list[PlacedFeature] = []
    roles: tuple[Role, ...] = ("public", "sensitive")
    for role in roles:
        features = plan.of_role(role)
        if plan.shared_tables:
            placed.extend(_place_in_table(role, role, features, num_kept))
            continue
        for feature in features:
            placed.extend(_place_in_table(feature.name, role, [feature], num_kept))
    return tuple(placed)


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
            feature=Feature(feature.name, role, next_id, table),
            first_id=first_ids[feature.name],
            unknown_id=unknown_id,
        )
        for feature in features
    ]


def _num_own_ids(feature: FeatureSettings, num_kept: Mapping[str, int]) -> int:
    if isinstance(feature, HashedFeature):
        return feature.num_bins
    if isinstance(feature, VocabularyFeature):
        return num_kept[feature.column] + 1
    return feature.num_ids
