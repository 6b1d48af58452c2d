"""Settings of private counts: sensitivities, thresholds and events."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.accountant import pld_epsilon
from tulle.data.features.column_features import VocabularyFeature
from tulle.data.features.feature_plan import FeaturePlan, vocabulary_all
from tulle.data.features.private_vocabulary import PrivateVocabularyConfig, RowCountNoise
from tulle.data.schema import Schema
from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    DiscreteLaplace,
    EpsilonDelta,
    Gaussian,
    event_from_json,
    event_to_json,
)
from tulle.privacy.units import Adjacency, Unit

SALT = bytes(range(16))


def plan(num_columns: int = 2, min_count: int = 16, unit: str | None = "user") -> FeaturePlan:
    columns = tuple(f"s{number}" for number in range(num_columns))
    schema = Schema(label="y", public=("p",), sensitive=columns, unit=unit)
    return vocabulary_all(schema, sensitive_min_count=min_count, salt=SALT)


def noise(**settings: Any) -> RowCountNoise:
    defaults = {"noise_multiplier": None, "epsilon": None, "delta": 1e-6}
    return RowCountNoise(**(defaults | {"num_columns": 1, "max_rows_per_unit": 1} | settings))


def test_gaussian_noise_covers_a_unit_whose_rows_all_have_one_value() -> None:
    # 3 rows with the same value in each of 4 columns: L2 norm 3 * sqrt(4), not sqrt(3 * 4).
    made = noise(noise_multiplier=1.5, num_columns=4, max_rows_per_unit=3)
    assert made.noise_scale == pytest.approx(1.5 * 3 * 2, rel=1e-12)
    assert made.noise_scale >= 1.5 * 3 * 2
    assert made.event() == Composed(
        (
            Gaussian(noise_multiplier=1.5, replace_factor=math.sqrt(2)),
            EpsilonDelta(epsilon=0.0, delta=1e-6),
        )
    )


def test_laplace_noise_covers_all_rows_of_all_columns() -> None:
    made = noise(epsilon=0.5, num_columns=4, max_rows_per_unit=3)
    assert made.noise_scale == pytest.approx(24, rel=1e-12)
    assert made.event().events[0] == DiscreteLaplace(scale=made.noise_scale, max_contribution=12)


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=3)


@given(ROWS, ROWS)
def test_neighbours_move_counts_by_no_more_than_stated(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    def counts(rows: list[tuple[int, int]]) -> np.ndarray:
        result = np.zeros((2, 3))
        for row, (column, place) in itertools.product(rows, enumerate(range(2))):
            result[column, row[place]] += 1
        return result

    gaussian = noise(noise_multiplier=1.0, num_columns=2, max_rows_per_unit=3)
    laplace = noise(epsilon=1.0, num_columns=2, max_rows_per_unit=3)
    moved = counts(left) - counts(right)
    assert np.linalg.norm(counts(left)) <= gaussian.noise_scale
    assert np.linalg.norm(moved) <= math.sqrt(2) * gaussian.noise_scale
    assert np.abs(counts(left)).sum() <= laplace.noise_scale
    assert np.abs(moved).sum() <= 2 * laplace.noise_scale


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 1), (1, 4), (2, 5)])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_unit_alone_in_its_values_shows_with_chance_delta_at_most(
    columns: int, rows: int, law: str
) -> None:
    settings = {"noise_multiplier": 1.1} if law == "gaussian" else {"epsilon": 0.7}
    made = noise(delta=1e-3, num_columns=columns, max_rows_per_unit=rows, **settings)
    worst = max(
        1 - math.prod(1 - tail(made, made.threshold - count) for count in split) ** columns
        for split in partitions(rows)
    )
    assert worst <= 1e-3
    if rows == 1:
        lower = 1 - (1 - tail(made, made.threshold - 2)) ** columns
        assert lower > 1e-3 * 0.99


def tail(made: RowCountNoise, least: int) -> float:
    """P(noise >= least)."""
    if made.epsilon is None:
        return math.erfc((least - 0.5) / made.noise_scale / math.sqrt(2)) / 2
    odds = math.exp(-1 / made.noise_scale)
    return odds**least / (1 + odds)


def partitions(total: int, largest: int | None = None) -> list[list[int]]:
    """All ways to spread one unit's rows over values."""
    if total == 0:
        return [[]]
    return [
        [part, *rest]
        for part in range(1, min(total, largest or total) + 1)
        for rest in partitions(total - part, part)
    ]


def test_a_plan_tells_its_cost_and_thresholds_before_data_are_read() -> None:
    config = PrivateVocabularyConfig(
        unit=Unit.user(), noise_multiplier=8.0, delta=1e-7, max_rows_per_unit=2
    )
    made = plan(num_columns=3, min_count=64)
    event = config.event(made)
    assert event_from_json(event_to_json(event)) == event
    least = config.noise(3).threshold
    assert config.thresholds(made) == dict.fromkeys(("s0", "s1", "s2"), least)
    assert least > 64
    assert set(config.thresholds(plan(num_columns=3, min_count=4096)).values()) == {4096}


@pytest.mark.parametrize("known", [True, False])
def test_replacing_a_unit_costs_more_than_removing_one(known: bool) -> None:
    extra: dict[str, Any] = {"known_values": {"s0": ("x",)}} if known else {"delta": 1e-9}
    laplace = PrivateVocabularyConfig(unit=Unit.example(), epsilon=0.5, **extra)
    event = laplace.event(plan(num_columns=1))
    assert pld_epsilon(event, 1e-6, Adjacency.ADD_OR_REMOVE) == pytest.approx(0.5, abs=1e-3)
    assert pld_epsilon(event, 1e-6, Adjacency.REPLACE) == pytest.approx(1.0, abs=1e-3)
    gaussian = PrivateVocabularyConfig(unit=Unit.example(), noise_multiplier=5.0, **extra)
    event = gaussian.event(plan(num_columns=1))
    plain = Gaussian(noise_multiplier=5.0)
    scaled = Gaussian(noise_multiplier=5.0 / math.sqrt(2))
    for adjacency, alone in ((Adjacency.ADD_OR_REMOVE, plain), (Adjacency.REPLACE, scaled)):
        expected = pld_epsilon(alone, 1e-6 - 1e-9, Adjacency.ADD_OR_REMOVE)
        assert pld_epsilon(event, 1e-6, adjacency) == pytest.approx(expected, rel=2e-3)


def test_known_values_need_no_delta_and_take_the_threshold_as_it_is() -> None:
    config = PrivateVocabularyConfig(
        unit=Unit.example(), epsilon=1.0, known_values={"s0": ("a", "b"), "s1": ("c",)}
    )
    assert config.thresholds(plan()) == {"s0": 16, "s1": 16}
    scale = config.noise(2).noise_scale
    assert config.event(plan()) == Composed((DiscreteLaplace(scale=scale, max_contribution=2),))
    config.check_plan(plan())


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epsilon": 1.0, "noise_multiplier": 1.0, "delta": 1e-6},
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 1e-6, "known_values": {"s0": ()}},
        {"epsilon": 1.0, "known_values": {"s0": "phone"}},
        {"epsilon": 1.0, "known_values": {"s0": (5,)}},
        {"epsilon": 0.0, "delta": 1e-6},
        {"epsilon": math.inf, "delta": 1e-6},
        {"noise_multiplier": 0.0, "delta": 1e-6},
        {"noise_multiplier": math.nan, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": -1e-6},
        {"epsilon": 1.0, "delta": 1e-6, "max_rows_per_unit": 0},
        {"epsilon": 1.0, "delta": 1e-6, "max_rows_per_unit": 2.0},
        {"epsilon": 1.0, "delta": 1e-6, "unit": "user"},
        {"epsilon": 1.0, "delta": 1e-6, "unit": Unit.example(), "max_rows_per_unit": 3},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PrivateVocabularyConfig(**({"unit": Unit.user()} | wrong))


def test_rows_of_a_user_cannot_be_bounded_without_a_unit_column() -> None:
    config = PrivateVocabularyConfig(unit=Unit.user(), epsilon=1.0, delta=1e-6)
    config.check_plan(plan())
    with pytest.raises(ConfigError, match="needs a unit column"):
        config.check_plan(plan(unit=None))


@pytest.mark.parametrize(
    ("columns", "message"),
    [(("s0",), "lacks column 's1'"), (("s0", "s1", "p"), "names column 'p'")],
)
def test_known_values_are_given_for_each_sensitive_column(
    columns: tuple[str, ...], message: str
) -> None:
    config = PrivateVocabularyConfig(
        unit=Unit.user(), epsilon=1.0, known_values=dict.fromkeys(columns, ("x",))
    )
    with pytest.raises(ConfigError, match=message):
        config.check_plan(plan())


def test_a_plan_without_sensitive_vocabularies_has_no_private_cost() -> None:
    schema = Schema(label="y", public=("p",))
    public = FeaturePlan(
        schema=schema, features=(VocabularyFeature(column="p", min_count=2),), salt=SALT
    )
    config = PrivateVocabularyConfig(unit=Unit.example(), epsilon=1.0, delta=1e-6)
    with pytest.raises(ConfigError, match="private=None"):
        config.event(public)
