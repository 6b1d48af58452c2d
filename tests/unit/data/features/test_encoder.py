"""Tables become ids: the same from text and from numbers, within their tables."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from tulle.data.features.column_features import (
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    LogFeature,
    VocabularyFeature,
)
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan, hash_all
from tulle.data.features.hashing import ValueHasher, bins_of
from tulle.data.features.vocabulary import Vocabularies
from tulle.data.schema import Kind, Schema
from tulle.errors import ConfigError, DataError
from tulle.privacy.events import EpsilonDelta

SALT = bytes(range(16))
SCHEMA = Schema(
    label="y",
    public=("site", "price", "clicks"),
    sensitive=("age", "city"),
    time="t",
    kinds={"price": Kind.REAL, "clicks": Kind.INTEGER},
)
TEXT = pl.DataFrame(
    {
        "site": ["17", "17", "4", None],
        "price": ["0.50", "12.0", None, "1e3"],
        "clicks": ["0", "7", "-1", None],
        "age": ["31", "47", "8", None],
        "city": ["Graz", None, "Linz", "Wien"],
        "t": ["0", "90000", None, "-1"],
    }
)
NUMBERS = pl.DataFrame(
    {
        "site": pl.Series([17, 17, 4, None], dtype=pl.Int32),
        "price": pl.Series([0.5, 12.0, None, 1000.0], dtype=pl.Float32),
        "clicks": pl.Series([0, 7, -1, None], dtype=pl.Int16),
        "age": pl.Series([31, 47, 8, None], dtype=pl.UInt8),
        "city": pl.Series(["Graz", None, "Linz", "Wien"], dtype=pl.Categorical),
        "t": pl.Series([0, 90000, None, -1]),
    }
)


def kept(column: str, *values: str) -> np.ndarray:
    return np.sort(ValueHasher(column=column, salt=SALT).hashes(pl.Series(values)))


def made(*, shared: bool = False, salt: bytes = SALT) -> Encoder:
    plan = FeaturePlan(
        schema=SCHEMA,
        features=(
            VocabularyFeature(column="age", min_count=16),
            HashedFeature(column="city", num_bins=50),
            HashedFeature(column="site", num_bins=60),
            HashedFeature(column="price", num_bins=60),
            LogFeature(column="clicks", num_buckets=4),
            HourFeature(column="t"),
            DayOfWeekFeature(column="t"),
        ),
        salt=salt,
        shared_tables=shared,
    )
    hashes = {"age": kept("age", "31", "47")}
    return build_encoder(plan, Vocabularies(hashes=hashes, salt=salt))


def ids_of(encoder: Encoder, table: pl.DataFrame, name: str) -> list[int]:
    place = [feature.name for feature in encoder.features].index(name)
    return [int(value) for value in encoder.encode(table)[:, place]]


def test_text_and_numbers_have_the_same_ids() -> None:
    for shared in (False, True):
        encoder = made(shared=shared)
        ids = encoder.encode(TEXT)
        assert np.array_equal(ids, encoder.encode(NUMBERS))
        assert ids.dtype == np.int32
        assert ids.flags.c_contiguous
        assert ids.shape == (4, len(encoder.features))


def test_public_features_come_first() -> None:
    roles = [feature.role for feature in made().features]
    assert roles == ["public"] * 5 + ["sensitive"] * 2


def test_hashed_values_fall_into_their_bins() -> None:
    hashes = ValueHasher(column="site", salt=SALT).hashes(TEXT["site"])
    assert ids_of(made(), TEXT, "site") == bins_of(hashes, 60).tolist()


def test_vocabulary_values_unknown_ones_and_missing_have_different_ids() -> None:
    first, second = (
        int(np.searchsorted(kept("age", "31", "47"), kept("age", v)[0])) for v in ("31", "47")
    )
    assert ids_of(made(), TEXT, "age") == [1 + first, 1 + second, 0, 3]
    # Shared: 50 bins, then unknown, then the two values and missing.
    assert ids_of(made(shared=True), TEXT, "age") == [51 + first, 51 + second, 50, 53]


def test_numbers_and_times_are_transformed() -> None:
    assert ids_of(made(), TEXT, "clicks") == [0, 3, 4, 5]
    assert ids_of(made(), TEXT, "t hour") == [0, 1, 24, 23]
    assert ids_of(made(), TEXT, "t day of week") == [3, 4, 7, 2]
    assert ids_of(made(shared=True), TEXT, "clicks") == [60, 63, 64, 65]


def test_all_ids_lie_within_their_tables() -> None:
    for shared in (False, True):
        encoder = made(shared=shared)
        sizes = np.array([feature.num_ids for feature in encoder.features])
        ids = encoder.encode(TEXT)
        assert (ids >= 0).all()
        assert (ids < sizes).all()


def test_every_row_is_encoded_on_its_own() -> None:
    encoder = made()
    whole = encoder.encode(TEXT)
    rows = np.concatenate([encoder.encode(TEXT.slice(place, 1)) for place in range(4)])
    assert np.array_equal(whole, rows)
    assert encoder.encode(TEXT.clear()).shape == (0, 7)


def test_columns_without_a_feature_are_not_looked_at() -> None:
    extended = TEXT.with_columns(y=pl.lit("label"), other=pl.lit(1))
    assert np.array_equal(made().encode(extended), made().encode(TEXT))


def test_a_missing_column_is_named_with_the_closest_one() -> None:
    with pytest.raises(DataError, match=r"column 'age' is not in the data \(did you mean 'ages'"):
        made().encode(TEXT.rename({"age": "ages"}))


def test_a_wrong_kind_is_named_by_column_only() -> None:
    wrong = TEXT.with_columns(clicks=pl.Series(["1", "secret", "2", "3"]))
    with pytest.raises(DataError, match="column 'clicks'") as caught:
        made().encode(wrong)
    assert "secret" not in str(caught.value)


def test_vocabularies_of_another_plan_are_refused() -> None:
    plan = made().plan
    with pytest.raises(ConfigError, match="lack column 'age'"):
        build_encoder(plan)
    hashes = {"age": kept("age", "31")}
    with pytest.raises(ConfigError, match="another salt"):
        build_encoder(plan, Vocabularies(hashes=hashes, salt=SALT[::-1]))
    with pytest.raises(ConfigError, match="have column 'city'"):
        build_encoder(plan, Vocabularies(hashes=hashes | {"city": hashes["age"]}, salt=SALT))


def test_hashing_all_gives_one_table_a_role() -> None:
    encoder = build_encoder(hash_all(SCHEMA, salt=SALT))
    assert {(f.table, f.num_ids) for f in encoder.features} == {
        ("public", 100_000),
        ("sensitive", 50_000),
    }


def test_the_fingerprint_tells_encoders_apart() -> None:
    assert made().fingerprint() == made().fingerprint()
    others = {
        made(shared=True).fingerprint(),
        made(salt=SALT[::-1]).fingerprint(),
        build_encoder(
            made().plan, Vocabularies(hashes={"age": kept("age", "31")}, salt=SALT)
        ).fingerprint(),
        build_encoder(
            made().plan,
            dataclasses.replace(made().vocabularies, event=EpsilonDelta(epsilon=1.0)),
        ).fingerprint(),
    }
    assert len(others | {made().fingerprint()}) == 5


def test_long_tables_are_encoded_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made().encode(TEXT)
    monkeypatch.setattr("tulle.data.features.encoder._ROWS_AT_A_TIME", 3)
    assert np.array_equal(made().encode(TEXT), whole)
