"""Where the ids of each feature lie."""

from typing import Any

import pytest

from tulle.data.features.column_features import (
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.id_places import place_features
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError

SCHEMA = Schema(
    label="y",
    public=("a", "b", "n"),
    sensitive=("s", "v", "w"),
    time="t",
    kinds={"n": Kind.INTEGER},
)


def plan(*, shared: bool, num_bins: int = 100) -> FeaturePlan:
    return FeaturePlan(
        schema=SCHEMA,
        features=(
            HashedFeature(column="s", num_bins=num_bins),
            LogFeature(column="n", num_buckets=8),
            VocabularyFeature(column="v", min_count=16),
            HashedFeature(column="a", num_bins=1000),
            HourFeature(column="t"),
            VocabularyFeature(column="w", min_count=16),
            HashedFeature(column="b", num_bins=1000),
        ),
        salt=bytes(16),
        shared_tables=shared,
    )


KEPT = {"v": 30, "w": 5}


def feature(name: str, role: str, num_ids: int, **bins: Any) -> PreparedFeature:
    return PreparedFeature(name=name, role=role, num_ids=num_ids, table=name, **bins)


def test_without_sharing_each_feature_has_its_own_table() -> None:
    placed = place_features(plan(shared=False), KEPT)
    assert [place.feature for place in placed] == [
        feature("n", "public", 10, order="line", num_bins=8, num_apart=2),
        feature("a", "public", 1000),
        feature("t hour", "public", 25, order="cycle", num_bins=24, num_apart=1),
        feature("b", "public", 1000),
        feature("s", "sensitive", 100),
        feature("v", "sensitive", 32),
        feature("w", "sensitive", 7),
    ]
    assert [place.first_id for place in placed] == [0, 0, 0, 0, 0, 1, 1]
    assert all(place.unknown_id == 0 for place in placed if place.feature.name in KEPT)


def test_with_sharing_each_role_has_one_table() -> None:
    placed = {place.feature.name: place for place in place_features(plan(shared=True), KEPT)}
    public, sensitive = 1000 + 10 + 25, 100 + 1 + 31 + 6
    assert {name: p.feature.table for name, p in placed.items() if p.feature.role == "public"} == {
        "n": "public",
        "a": "public",
        "t hour": "public",
        "b": "public",
    }
    assert {p.feature.num_ids for p in placed.values() if p.feature.table == "public"} == {public}
    assert {placed[name].feature.num_ids for name in ("s", "v", "w")} == {sensitive}
    assert placed["a"].first_id == placed["b"].first_id == placed["s"].first_id == 0
    assert (placed["n"].first_id, placed["t hour"].first_id) == (1000, 1010)
    assert (placed["v"].unknown_id, placed["w"].unknown_id) == (100, 100)
    assert (placed["v"].first_id, placed["w"].first_id) == (101, 132)


def test_a_table_with_more_ids_than_an_id_can_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="table 'sensitive'"):
        place_features(plan(shared=True, num_bins=2**31 - 5), KEPT)
