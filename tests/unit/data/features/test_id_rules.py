import dataclasses
import math
import typing

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.data.features.column_features import (
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
    VocabularyFeature,
)
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.hashing import ValueHasher
from tulle.data.features.id_rules import (
    CycleRule,
    HashRule,
    IntervalRule,
    VocabularyRule,
    id_by_encoder,
    rules_of,
)
from tulle.data.features.vocabulary import Vocabularies
from tulle.data.schema import Kind, Schema
from tulle.data.tables.kinds import MOST_SECONDS
from tulle.errors import DataError

SALT = bytes(range(16))
SCHEMA = Schema(
    label="sale",
    public=("campaign", "shop", "clicks", "size", "price", "views", "day", "is_app"),
    time="second",
    sensitive=("age", "spent", "share", "audience"),
    known_values={"audience": ["b", "a", "long" * 40]},
    kinds={
        "clicks": Kind.INTEGER,
        "size": Kind.REAL,
        "price": Kind.REAL,
        "views": Kind.INTEGER,
        "day": Kind.INTEGER,
        "is_app": Kind.BOOLEAN,
        "spent": Kind.REAL,
        "share": Kind.REAL,
        "age": Kind.INTEGER,
        "second": Kind.TIMESTAMP,
    },
)
KEPT = ("a", "b", "long" * 40)
PLAN = FeaturePlan(
    schema=SCHEMA,
    features=(
        HashedFeature(column="campaign", num_bins=50),
        VocabularyFeature(column="shop", min_count=2),
        LogFeature(column="clicks"),
        LogFeature(column="size", num_buckets=5),
        QuantileFeature(column="price", num_bins=5),
        QuantileFeature(column="views", num_bins=5),
        DayOfWeekFeature(column="day"),
        BooleanFeature(column="is_app"),
        HourFeature(column="second"),
        DayOfWeekFeature(column="second"),
        HashedFeature(column="age", num_bins=50),
        PrivateQuantileFeature(column="spent", num_bins=4),
        BoundedFeature(column="share", low=-0.1, high=1.0, num_bins=7),
        KnownValuesFeature(column="audience"),
    ),
    salt=SALT,
    shared_tables=True,
)


def encoder_of_all_kinds() -> Encoder:
    hasher = ValueHasher(column="shop", salt=SALT)
    hashes = np.sort(hasher.hashes(pl.Series(KEPT)))
    edges = {
        "price": np.array([-3.5, 0.1, 7.0, 7.5]),
        "views": np.array([1.0, 2.0, 10.0, 1e15]),
        "spent": np.array([0.0, 0.3]),
    }
    return build_encoder(PLAN, Vocabularies(hashes={"shop": hashes}, salt=SALT, edges=edges))


ENCODER = encoder_of_all_kinds()
RULES = rules_of(ENCODER)
TEXTS = st.text(max_size=20) | st.sampled_from([*KEPT, "c", "y" * 200]) | st.none()
WHOLE = st.integers(-(2**62), 2**62) | st.integers(-3, 70) | st.none()
SECONDS = st.integers(-MOST_SECONDS, MOST_SECONDS) | st.integers(-3, 70) | st.none()
REAL = st.floats(allow_nan=True, allow_infinity=False) | st.floats(-2, 70) | WHOLE
VALUES = {
    "campaign": TEXTS | st.integers(),
    "shop": TEXTS,
    "audience": TEXTS,
    "clicks": WHOLE,
    "size": REAL,
    "second": SECONDS,
    "age": WHOLE,
    "price": REAL,
    "views": WHOLE,
    "day": WHOLE,
    "is_app": st.booleans() | st.none(),
    "spent": REAL,
    "share": REAL | st.floats(-0.2, 1.1),
}


def test_every_kind_of_feature_has_a_rule_here() -> None:
    kinds = {type(feature) for feature in PLAN.features}
    assert kinds == set(typing.get_args(FeatureSettings))


@settings(max_examples=60)
@given(data=st.data())
def test_rules_give_the_ids_of_the_encoder(data: st.DataObject) -> None:
    for number, feature in enumerate(RULES):
        value = data.draw(VALUES[feature.column])
        plain = feature.plain_value(value)
        assert plain is not NotImplemented
        assert feature.rule.id_of(plain) == id_by_encoder(ENCODER, number, value)


@pytest.mark.parametrize("time", [MOST_SECONDS + 1, -MOST_SECONDS - 1])
def test_times_in_milliseconds_are_refused(time: int) -> None:
    place = next(n for n, one in enumerate(RULES) if one.column == "second")
    assert RULES[place].plain_value(time) is NotImplemented
    with pytest.raises(DataError, match="such times look like milliseconds"):
        id_by_encoder(ENCODER, place, time)


def test_edges_of_numbers_are_exact_to_the_last_bit() -> None:
    for number, feature in enumerate(RULES):
        if isinstance(feature.rule, IntervalRule):
            if feature.kind is Kind.BOOLEAN:
                continue
            edges = np.array(feature.rule.edges)
            assert np.all(np.diff(edges) > 0)
            assert len(edges) >= 2
            near = [edges, np.nextafter(edges, -math.inf), np.nextafter(edges, math.inf)]
            values = np.concatenate([*near, [-1e18, 1e18, 0.0, -0.0]])
            if feature.kind is Kind.INTEGER:
                values = np.unique(np.floor(values).astype(np.int64))
            found = [feature.rule.id_of(value) for value in values.tolist()]
            assert found == ENCODER.ids_of(number, pl.Series(values)).tolist()


def test_each_rule_is_of_its_kind() -> None:
    kinds = [type(feature.rule) for feature in RULES]
    assert kinds.count(HashRule) == 2
    assert kinds.count(VocabularyRule) == 2
    assert kinds.count(IntervalRule) == 7
    assert kinds.count(CycleRule) == 3
    assert [feature.role for feature in RULES] == [f.role for f in ENCODER.features]


def test_a_value_of_another_type_is_left_to_the_encoder() -> None:
    by_name = {feature.name: feature for feature in RULES}
    assert by_name["clicks"].plain_value("5") is NotImplemented
    assert by_name["campaign"].plain_value(5.0) is NotImplemented
    assert by_name["second hour"].plain_value("2024-01-01T05:00") is NotImplemented
    assert id_by_encoder(ENCODER, 2, "5") == by_name["clicks"].rule.id_of(5)
    with pytest.raises(DataError, match="column 'clicks' holds no whole number"):
        id_by_encoder(ENCODER, 2, "many")


def test_a_rule_that_is_off_by_one_bit_would_be_noticed() -> None:
    rule = next(feature.rule for feature in RULES if isinstance(feature.rule, IntervalRule))
    edges = (np.nextafter(rule.edges[0], 9.0), *rule.edges[1:])
    wrong = dataclasses.replace(rule, edges=edges)
    assert wrong.id_of(rule.edges[0]) != rule.id_of(rule.edges[0])
