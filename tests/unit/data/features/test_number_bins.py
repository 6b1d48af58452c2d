"""Bins of numbers: exact public quantiles, noisy sensitive ones, and who may have which."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.data.features import number_bins
from tulle.data.features.column_features import (
    BooleanFeature,
    BoundedFeature,
    PrivateQuantileFeature,
    QuantileFeature,
)
from tulle.data.features.encoder import Encoder, build_encoder
from tulle.data.features.feature_plan import FeaturePlan
from tulle.data.features.id_names import names_of_ids
from tulle.data.features.number_bins import BucketCounts, NumberCounts, bin_starts
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig, RowCountNoise
from tulle.data.features.vocabulary import Vocabularies, fit_vocabularies
from tulle.data.schema import Kind, Schema
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, DiscreteLaplace
from tulle.privacy.units import Adjacency, Unit

SALT = bytes(range(16))
SCHEMA = Schema(
    label="y",
    public=("price", "clicks"),
    sensitive=("age", "member"),
    kinds={
        "price": Kind.REAL,
        "clicks": Kind.INTEGER,
        "age": Kind.INTEGER,
        "member": Kind.BOOLEAN,
    },
)
PRIVATE = PrivateVocabularyConfig(unit=Unit.example(), epsilon=2.0, known_values={})


def edges(numbers: list[float], num_bins: int) -> list[float]:
    counts = NumberCounts()
    counts.add(pl.Series(numbers, dtype=pl.Float64))
    return counts.edges(num_bins).tolist()


def ids(numbers: list[float], num_bins: int) -> np.ndarray:
    found = np.array(edges(numbers, num_bins))
    return np.searchsorted(found, np.array(numbers), side="right")


def test_bins_have_about_as_many_rows_each() -> None:
    numbers = np.random.default_rng(1).exponential(size=10_000).tolist()
    sizes = np.bincount(ids(numbers, 16))
    assert len(sizes) == 16
    assert sizes.min() == sizes.max() == 625


def test_few_values_have_a_bin_each_and_a_frequent_value_has_its_own() -> None:
    assert edges([3, 1, 2, 1], 64) == [1.5, 2.5]
    many = [0.0] * 900 + [float(n) for n in range(1, 101)]
    sizes = np.bincount(ids(many, 5))
    assert sizes.tolist() == [900, 25, 25, 25, 25]


@given(
    st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, 1.0, 2.0]), min_size=1),
    st.integers(1, 9),
)
def test_any_numbers_make_sorted_edges_and_bins_without_gaps(
    numbers: list[float], num_bins: int
) -> None:
    found = np.array(edges(numbers, num_bins))
    assert (np.diff(found) > 0).all()
    assert len(found) < num_bins
    used = np.unique(ids(numbers, num_bins))
    assert used.tolist() == list(range(len(found) + 1))


def test_quantiles_do_not_depend_on_blocks_or_their_order() -> None:
    numbers = pl.Series(np.random.default_rng(2).normal(size=5_000))
    whole, parts = NumberCounts(), NumberCounts()
    whole.add(numbers)
    for start in (3_000, 0, 1_000, 4_000, 2_000):
        parts.add(numbers.slice(start, 1_000))
    assert np.array_equal(whole.edges(64), parts.edges(64))


def test_beyond_the_memory_values_lose_bits_and_quantiles_hardly_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = np.random.default_rng(3).lognormal(size=20_000)
    exact = np.array(edges(numbers.tolist(), 32))
    monkeypatch.setattr(number_bins, "_MOST_VALUES", 2_000)
    coarse = NumberCounts()
    backwards = NumberCounts()
    for part in np.split(numbers, 10):
        coarse.add(pl.Series(part))
    for part in np.split(numbers, 10)[::-1]:
        backwards.add(pl.Series(part))
    assert np.array_equal(coarse.edges(32), backwards.edges(32))
    assert np.allclose(coarse.edges(32), exact, rtol=0.02)


def test_starts_of_bins_follow_the_counts() -> None:
    assert bin_starts(np.array([1, 1, 1, 1]), 2).tolist() == [2]
    assert bin_starts(np.array([10, 1, 1]), 2).tolist() == [1]
    assert bin_starts(np.array([5]), 8).tolist() == []


def plan(*features: object) -> FeaturePlan:
    return FeaturePlan(schema=SCHEMA, features=features, salt=SALT)  # type: ignore[arg-type]


ROWS = pl.DataFrame(
    {
        "price": ["0.5", "1.5", None, "2.5"],
        "clicks": ["3", "-1", "3", "7"],
        "age": ["17", "30", None, "130"],
        "member": ["true", None, "no", "1"],
    }
)
PLAN = plan(
    QuantileFeature(column="price", num_bins=2),
    BoundedFeature(column="age", low=18, high=99, num_bins=82),
    BooleanFeature(column="member"),
)


def blocks(frame: pl.DataFrame = ROWS) -> Iterator[pl.DataFrame]:
    return iter([frame])


def encoder() -> Encoder:
    return build_encoder(PLAN, fit_vocabularies(blocks, PLAN))


def test_numbers_fall_into_bins_and_missing_has_an_id_of_its_own() -> None:
    price, age, member = encoder().encode(ROWS).T.tolist()
    assert price == [0, 0, 2, 1]
    assert age == [0, 12, 82, 81]
    assert member == [1, 2, 0, 1]
    whole = pl.DataFrame({"age": range(18, 100), "price": 0.0, "member": True})
    assert encoder().encode(whole)[:, 1].tolist() == list(range(82))


def test_infinite_numbers_fall_into_end_bins_and_nan_is_missing() -> None:
    odd = pl.DataFrame(
        {"price": [np.inf, -np.inf, np.nan], "age": [18, 99, 50], "member": [True] * 3}
    )
    assert encoder().encode(odd)[:, 0].tolist() == [1, 0, 2]


def test_the_model_is_told_which_ids_lie_in_order() -> None:
    price, age, member = encoder().features
    assert (price.order, price.first_bin, price.num_bins, price.num_apart) == ("line", 0, 2, 1)
    assert (age.num_bins, age.num_ids, member.num_bins) == (82, 83, 2)


def test_edges_survive_their_files_and_belong_to_the_fingerprint(tmp_path: Path) -> None:
    made = encoder()
    made.to_files(tmp_path)
    again = Encoder.from_files(tmp_path)
    assert again.fingerprint() == made.fingerprint()
    assert np.array_equal(again.encode(ROWS), made.encode(ROWS))
    other = Vocabularies(hashes={}, salt=SALT, edges={"price": np.array([1.25])})
    assert build_encoder(PLAN, other).fingerprint() != made.fingerprint()
    assert made.of_role("sensitive").plan.features == PLAN.features[1:]


def test_edges_of_another_plan_are_refused() -> None:
    with pytest.raises(ConfigError, match="lack edges of bins of column 'price'"):
        build_encoder(PLAN)
    with pytest.raises(DataError, match="sorted"):
        Vocabularies(hashes={}, salt=SALT, edges={"price": np.array([2.0, 1.0])})


def test_exact_quantiles_of_a_sensitive_column_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"publish exact quantiles .* PrivateQuantileFeature"):
        plan(QuantileFeature(column="age"))
    with pytest.raises(ConfigError, match="pay for a public column"):
        plan(PrivateQuantileFeature(column="price"))
    with pytest.raises(ConfigError, match=r"set its kind"):
        plan(QuantileFeature(column="member"))


@pytest.mark.parametrize(
    "settings",
    [{"low": 1.0}, {"low": 2.0, "high": 1.0}, {"low": 0.0, "high": np.inf}, {"num_bins": 0}],
)
def test_settings_of_bins_without_meaning_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        PrivateQuantileFeature(column="age", **settings)  # type: ignore[arg-type]


def ledger_of(tmp_path: Path, epsilon: float) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    example, replace = Unit.example(), Adjacency.REPLACE
    made.create_budget(
        Budget(name="all", unit=example, adjacency=replace, epsilon=epsilon, delta=1e-6)
    )
    return made


PAID = plan(PrivateQuantileFeature(column="age", num_bins=8))


def test_noisy_quantiles_are_charged_and_near_the_exact_ones(tmp_path: Path) -> None:
    ages = np.random.default_rng(4).integers(18, 98, 20_000)
    rows = pl.DataFrame({"age": ages})
    ledger = ledger_of(tmp_path, 4.1)
    fitted = fit_vocabularies(
        lambda: blocks(rows), PAID, private=PRIVATE, ledger=ledger, rng=SeededNoise(1)
    )
    assert fitted.event == PRIVATE.event(PAID)
    assert fitted.event == Composed((DiscreteLaplace(scale=np.nextafter(0.5, 1)),))
    assert len(ledger.spends("all")) == 1
    shares = np.bincount(np.searchsorted(fitted.edges["age"], ages, side="right")) / len(ages)
    assert len(shares) == 8
    assert shares.max() < 0.2
    made = build_encoder(PAID, fitted)
    assert made.vocabulary_event == fitted.event


def test_noisy_quantiles_without_payment_or_budget_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="column 'age' is sensitive"):
        fit_vocabularies(blocks, PAID)
    with pytest.raises(BudgetExceededError):
        fit_vocabularies(blocks, PAID, private=PRIVATE, ledger=ledger_of(tmp_path, 1.0))


def test_bins_that_noise_would_scatter_are_merged() -> None:
    counts = BucketCounts(PrivateQuantileFeature(column="age", low=0, high=100))
    counts.add(pl.Series(np.arange(0, 100, 0.1)))
    assert len(counts.edges(counts.raw_counts, 16, 0.0)) == 15
    assert len(counts.edges(counts.raw_counts, 16, 1.0)) < 8
    assert len(counts.edges(counts.raw_counts, 16, 1e6)) == 0


NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False))


@given(st.lists(NUMBERS, min_size=3, max_size=3), st.lists(NUMBERS, min_size=3, max_size=3))
def test_neighbours_move_bucket_counts_by_no_more_than_stated(
    left: list[float | None], right: list[float | None]
) -> None:
    features = (
        PrivateQuantileFeature(column="age"),
        PrivateQuantileFeature(column="age", low=-5, high=5),
    )

    def counts(rows: list[float | None]) -> np.ndarray:
        tallies = [BucketCounts(feature) for feature in features]
        for tally in tallies:
            tally.add(pl.Series(rows, dtype=pl.Float64))
        return np.concatenate([tally.raw_counts for tally in tallies])

    def noise(**settings: float) -> RowCountNoise:
        given = {"noise_multiplier": None, "epsilon": None} | settings
        return RowCountNoise(**given, delta=0.0, num_columns=2, max_rows_per_unit=3)  # type: ignore[arg-type]

    moved = counts(left) - counts(right)
    assert np.abs(moved).sum() <= 2 * noise(epsilon=1.0).noise_scale
    assert np.linalg.norm(moved) <= np.sqrt(2) * noise(noise_multiplier=1.0).noise_scale


def test_bins_are_named_by_their_ranges() -> None:
    price, age, member = names_of_ids(encoder())
    assert [price.name(i) for i in price.ids] == ["below 2", "2 or more", "missing"]
    assert [age.name(i) for i in (0, 1, 80, 81, 82)] == [
        "up to 18",
        "19",
        "98",
        "99 or more",
        "missing",
    ]
    assert [member.name(i) for i in member.ids] == ["false", "true", "missing"]
    assert (price.num_ordered, age.num_ordered) == (2, 82)
