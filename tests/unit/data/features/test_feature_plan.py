"""A feature plan names public settings and refuses what cannot be meant."""

import json
from typing import Any

import pytest

from tulle.data.features.column_features import (
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.features.feature_plan import FeaturePlan, hash_all, vocabulary_all
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError

SALT = bytes(range(16))
SCHEMA = Schema(
    label="sale",
    public=("site", "price"),
    sensitive=("age", "seen"),
    unit="user",
    time="clicked",
    ignored=("junk",),
    kinds={"price": Kind.REAL, "age": Kind.INTEGER, "seen": Kind.TIMESTAMP},
)
ALL_KINDS = (
    HashedFeature(column="site", num_bins=50),
    LogFeature(column="price", num_buckets=9),
    VocabularyFeature(column="age", min_count=64),
    HourFeature(column="clicked"),
    DayOfWeekFeature(column="clicked"),
    HourFeature(column="seen"),
)


def plan(*features: Any, **settings: Any) -> FeaturePlan:
    return FeaturePlan(**({"schema": SCHEMA, "features": features, "salt": SALT} | settings))


def test_a_plan_survives_its_json() -> None:
    original = plan(*ALL_KINDS, shared_tables=True)
    copy = FeaturePlan.from_dict(json.loads(json.dumps(original.to_dict())))
    assert copy == original
    assert copy.to_json() == original.to_json()


def test_a_feature_has_the_role_of_its_column_and_time_is_public() -> None:
    made = plan(*ALL_KINDS)
    assert [made.role(f) for f in made.features] == [
        "public",
        "public",
        "sensitive",
        "public",
        "public",
        "sensitive",
    ]
    assert [f.column for f in made.vocabularies("sensitive")] == ["age"]
    assert made.vocabularies("public") == ()


def test_hashing_everything_follows_the_paper() -> None:
    made = hash_all(SCHEMA)
    assert [(f.column, f.num_bins) for f in made.features if isinstance(f, HashedFeature)] == [
        ("site", 100_000),
        ("price", 100_000),
        ("age", 50_000),
        ("seen", 50_000),
    ]
    assert made.shared_tables
    assert len(made.salt) >= 16
    assert hash_all(SCHEMA).salt != made.salt


def test_a_vocabulary_of_everything_follows_the_paper() -> None:
    made = vocabulary_all(SCHEMA, sensitive_min_count=1024, salt=SALT)
    assert {f.column: f.min_count for f in made.vocabularies("public")} == {"site": 16, "price": 16}
    assert {f.min_count for f in made.vocabularies("sensitive")} == {1024}


@pytest.mark.parametrize("column", ["sale", "user", "junk", "clicked", "sight"])
def test_only_public_and_sensitive_columns_are_features(column: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot use column '{column}'"):
        plan(HashedFeature(column=column, num_bins=10))


def test_a_misspelt_column_is_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean 'price'"):
        plan(LogFeature(column="prise"))


@pytest.mark.parametrize(
    "feature",
    [LogFeature(column="site"), HourFeature(column="age"), DayOfWeekFeature(column="site")],
)
def test_a_transform_needs_a_column_of_its_kind(feature: Any) -> None:
    with pytest.raises(ConfigError, match="set its kind in the schema"):
        plan(feature)


@pytest.mark.parametrize(
    "make",
    [
        lambda: plan(),
        lambda: plan("site"),
        lambda: plan(HashedFeature(column="age", num_bins=9), LogFeature(column="age")),
        lambda: plan(HashedFeature(column="site", num_bins=9), salt=b"short"),
        lambda: HashedFeature(column="site", num_bins=1),
        lambda: HashedFeature(column="", num_bins=10),
        lambda: VocabularyFeature(column="age", min_count=0),
        lambda: VocabularyFeature(column="age", min_count=2.5),
        lambda: LogFeature(column="price", num_buckets=0),
        lambda: LogFeature(column="price", num_buckets=65),
    ],
)
def test_settings_without_meaning_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_features_of_one_shared_table_have_the_same_bins() -> None:
    features = (
        HashedFeature(column="site", num_bins=10),
        HashedFeature(column="price", num_bins=20),
    )
    assert plan(*features).features == features
    with pytest.raises(ConfigError, match="num_bins differ"):
        plan(*features, shared_tables=True)


@pytest.mark.parametrize(
    "change",
    [
        {"slat": "00"},
        {"salt": "no hex"},
        {"salt": 5},
        {"shared_tables": 1},
        {"features": {}},
        {"features": [{"kind": "hashed", "column": "site"}]},
        {"features": [{"kind": "hashed", "column": "site", "num_bins": 9, "bins": 9}]},
        {"features": [{"kind": "hash", "column": "site", "num_bins": 9}]},
        {"features": ["site"]},
    ],
)
def test_a_plan_file_with_a_mistake_is_refused(change: dict[str, Any]) -> None:
    data = plan(*ALL_KINDS).to_dict() | change
    with pytest.raises(ConfigError):
        FeaturePlan.from_dict(data)


def test_a_plan_file_without_a_key_is_refused() -> None:
    data = plan(*ALL_KINDS).to_dict()
    del data["shared_tables"]
    with pytest.raises(ConfigError, match="shared_tables"):
        FeaturePlan.from_dict(data)
