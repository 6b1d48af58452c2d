"""Fitting vocabularies: what is kept, in which order, and who pays before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.accounting.budget import Budget
from tulle.accounting.ledger import Ledger
from tulle.accounting.ledger_rows import SpendStatus
from tulle.data.features.column_features import HashedFeature, VocabularyFeature
from tulle.data.features.feature_plan import FeaturePlan, vocabulary_all
from tulle.data.features.hashing import ValueHasher
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig
from tulle.data.features.vocabulary import Vocabularies, fit_vocabularies
from tulle.data.schema import Kind, Schema
from tulle.errors import BudgetExceededError, ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, Words
from tulle.privacy.units import Adjacency, Unit

SALT = bytes(range(16))
SCHEMA = Schema(label="y", public=("site",), sensitive=("age", "city"), kinds={"age": Kind.INTEGER})
PLAN = vocabulary_all(SCHEMA, public_min_count=3, sensitive_min_count=40, salt=SALT)
PRIVATE = PrivateVocabularyConfig(unit=Unit.example(), epsilon=2.0, delta=1e-4)


def table() -> pl.DataFrame:
    ages = ["31"] * 300 + ["47"] * 200 + ["052"] * 3 + [None] * 497
    cities = ["Graz"] * 500 + [f"hamlet {number}" for number in range(500)]
    sites = ["a"] * 2 + ["b"] * 3 + ["c"] * 995
    return pl.DataFrame({"site": sites, "age": ages, "city": cities})


def in_blocks(size: int, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    return (frame.slice(start, size) for start in range(0, len(frame), size))


def hash_set(column: str, values: list[str]) -> set[int]:
    hashes = ValueHasher(column=column, salt=SALT).hashes(pl.Series(values))
    return {int(value) for value in hashes}


def as_set(fitted: Vocabularies, column: str) -> set[int]:
    return {int(value) for value in fitted.hashes[column]}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.create(tmp_path / "ledger.db")
    made.create_budget(
        Budget(
            name="all",
            unit=Unit.example(),
            adjacency=Adjacency.REPLACE,
            epsilon=4.1,
            delta=1e-3,
        )
    )
    return made


def fit(paid_by: Ledger | None, frame: pl.DataFrame | None = None, **settings: Any) -> Vocabularies:
    rows = table() if frame is None else frame
    defaults = {"private": PRIVATE, "ledger": paid_by, "rng": SeededNoise(1)}
    return fit_vocabularies(lambda: in_blocks(300, rows), PLAN, **(defaults | settings))


def test_public_values_are_kept_by_exact_and_sensitive_ones_by_noisy_counts(
    ledger: Ledger,
) -> None:
    fitted = fit(ledger)
    assert fitted.num_kept == {"site": 2, "age": 2, "city": 1}
    assert as_set(fitted, "site") == hash_set("site", ["b", "c"])
    assert as_set(fitted, "age") == hash_set("age", ["31", "47"])
    assert as_set(fitted, "city") == hash_set("city", ["Graz"])
    assert fitted.event == PRIVATE.event(PLAN)


def test_text_and_numbers_give_the_same_vocabulary(ledger: Ledger) -> None:
    numbers = table().with_columns(pl.col("age").cast(pl.Int64))
    fitted, from_numbers = fit(ledger), fit(new_ledger(ledger), numbers)
    assert as_set(fitted, "age") == as_set(from_numbers, "age")


def test_a_vocabulary_does_not_depend_on_blocks_or_their_order(ledger: Ledger) -> None:
    fitted = fit(ledger)
    shuffled = table().sample(fraction=1.0, shuffle=True, seed=2)
    again = fit_vocabularies(
        lambda: in_blocks(37, shuffled),
        PLAN,
        private=PRIVATE,
        ledger=new_ledger(ledger),
        rng=SeededNoise(1),
    )
    for column in fitted.hashes:
        assert np.array_equal(fitted.hashes[column], again.hashes[column])


AGES = {
    "left": ["31"] * 300 + ["47"] * 299 + [None] * 401,
    "right": ["31"] * 299 + ["47"] * 300 + [None] * 401,
}
"""One row of `left` has another age in `right`, and the order by frequency flips."""


def assert_ids_say_no_more_than_what_is_kept(left: list[int], right: list[int]) -> None:
    """Neighbours with the same kept values must have the same ids for them."""
    assert set(left) == set(right)
    assert left == right, "the order of ids tells neighbours apart"


def test_neighbours_with_the_same_kept_values_have_the_same_ids(ledger: Ledger) -> None:
    fits = [
        fit(new_ledger(ledger), table().with_columns(age=pl.Series(ages))) for ages in AGES.values()
    ]
    left, right = (fitted.hashes["age"].tolist() for fitted in fits)
    assert len(left) == 2
    assert_ids_say_no_more_than_what_is_kept(left, right)


def test_ids_in_the_order_of_exact_counts_are_caught() -> None:
    """Planted fault: the most frequent value first, as vocabularies usually are."""
    by_frequency = []
    for ages in AGES.values():
        tally = pl.Series("age", ages).drop_nulls().value_counts(sort=True)
        by_frequency.append(ValueHasher(column="age", salt=SALT).hashes(tally["age"]).tolist())
    with pytest.raises(AssertionError, match="tells neighbours apart"):
        assert_ids_say_no_more_than_what_is_kept(*by_frequency)


def test_an_order_by_exact_counts_would_be_refused() -> None:
    by_frequency = np.array([9, 4], dtype=np.uint64)
    with pytest.raises(DataError, match="sorted"):
        Vocabularies(hashes={"age": by_frequency}, salt=SALT)


def test_known_values_of_another_kind_are_refused_before_they_are_paid_for(ledger: Ledger) -> None:
    known = {"age": ("31", "young"), "city": ("Graz",)}
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=2.0, known_values=known)
    with pytest.raises(ConfigError, match=r"known_values of column 'age' .* integer"):
        fit(ledger, private=private)
    assert ledger.spends("all") == ()


def test_known_values_are_all_noised_and_others_never_kept(ledger: Ledger) -> None:
    known = {"age": ("31", "47", "99"), "city": ("Linz",)}
    private = PrivateVocabularyConfig(unit=Unit.example(), epsilon=2.0, known_values=known)
    fitted = fit(ledger, private=private)
    assert as_set(fitted, "age") == hash_set("age", ["31", "47"])
    assert as_set(fitted, "city") == set()
    low = FeaturePlan(
        schema=SCHEMA, features=(VocabularyFeature(column="age", min_count=1),), salt=SALT
    )
    many = PrivateVocabularyConfig(
        unit=Unit.example(), epsilon=0.5, known_values={"age": tuple(map(str, range(1000, 2000)))}
    )
    noisy = fit_vocabularies(
        lambda: iter([table()]), low, private=many, ledger=new_ledger(ledger), rng=SeededNoise(4)
    )
    # No row has any of them: about P(noise >= 1), just under a half, pass by noise alone.
    assert 300 < noisy.num_kept["age"] < 500


def test_little_memory_gives_the_same_values(ledger: Ledger) -> None:
    frame = pl.DataFrame(
        {
            "site": [f"s{number % 1000}" for number in range(4000)],
            "age": ["31"] * 4000,
            "city": [f"hamlet {number}" for number in range(2000)] + ["Graz"] * 2000,
        }
    )
    fitted = fit(ledger, frame, max_values_in_memory=1000)
    assert fitted.num_kept == {"site": 1000, "age": 1, "city": 1}
    assert as_set(fitted, "city") == hash_set("city", ["Graz"])


class WatchfulNoise(SeededNoise):
    """Notes what the ledger says each time that noise is drawn."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(1)
        self._ledger = ledger
        self.num_spends: list[int] = []

    def words(self, num_words: int) -> Words:
        self.num_spends.append(len(self._ledger.spends("all")))
        return super().words(num_words)


def test_the_ledger_is_charged_before_noise_is_drawn(ledger: Ledger) -> None:
    rng = WatchfulNoise(ledger)
    fit(ledger, rng=rng)
    assert rng.num_spends
    assert set(rng.num_spends) == {1}
    (spend,) = ledger.spends("all")
    assert spend.status is SpendStatus.RELEASED
    assert spend.request.event == PRIVATE.event(PLAN)
    assert spend.request.purpose == "vocabulary"


def test_a_short_budget_refuses_before_data_are_read(ledger: Ledger) -> None:
    known = {"age": ("31",), "city": ("Graz",)}
    costly = PrivateVocabularyConfig(unit=Unit.example(), epsilon=3.0, known_values=known)

    def unread() -> Iterator[pl.DataFrame]:
        raise AssertionError("the data were read")

    rng = WatchfulNoise(ledger)
    with pytest.raises(BudgetExceededError):
        fit_vocabularies(unread, PLAN, private=costly, ledger=ledger, rng=rng)
    assert rng.num_spends == []
    assert ledger.spends("all") == ()


def test_data_that_cannot_be_counted_cost_nothing(ledger: Ledger) -> None:
    wrong = table().with_columns(age=pl.lit("thirty"))
    with pytest.raises(DataError, match="column 'age'"):
        fit(ledger, wrong)
    assert ledger.spends("all") == ()


@pytest.mark.parametrize("lacking", ["private", "ledger"])
def test_sensitive_values_are_not_counted_without_noise_and_ledger(
    ledger: Ledger, lacking: str
) -> None:
    with pytest.raises(ConfigError, match=f"{lacking}=None, but column 'age' is sensitive"):
        fit(ledger, **{lacking: None})


def test_public_vocabularies_need_no_ledger() -> None:
    plan = FeaturePlan(
        schema=SCHEMA,
        features=(
            VocabularyFeature(column="site", min_count=3),
            HashedFeature(column="age", num_bins=9),
        ),
        salt=SALT,
    )
    fitted = fit_vocabularies(lambda: iter([table()]), plan)
    assert fitted.event is None
    assert fitted.num_kept == {"site": 2}
    with pytest.raises(ConfigError, match="private=None"):
        fit_vocabularies(lambda: iter([table()]), plan, private=PRIVATE)


def test_a_plan_without_vocabularies_reads_nothing() -> None:
    plan = FeaturePlan(
        schema=SCHEMA, features=(HashedFeature(column="age", num_bins=9),), salt=SALT
    )

    def unread() -> Iterator[pl.DataFrame]:
        raise AssertionError("the data were read")

    assert fit_vocabularies(unread, plan).num_kept == {}


def test_released_vocabularies_cannot_be_changed() -> None:
    given = np.array([4, 9], dtype=np.uint64)
    fitted = Vocabularies(hashes={"age": given}, salt=SALT)
    given[0] = 5
    assert fitted.hashes["age"].tolist() == [4, 9]
    with pytest.raises(ValueError, match="read-only"):
        fitted.hashes["age"][0] = 1
    with pytest.raises(TypeError):
        fitted.hashes["age"] = given  # type: ignore[index]


def new_ledger(like: Ledger) -> Ledger:
    """Another ledger with the same budgets and nothing spent."""
    number = sum(1 for _ in like.path.parent.iterdir())
    made = Ledger.create(like.path.with_name(f"other-{number}.db"))
    for budget in like.budgets():
        made.create_budget(budget)
    return made
