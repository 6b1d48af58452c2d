import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.key_selection_checks import assert_keep_chances_private
from statistical.randomizer_checks import ScriptedNoise, exact_chances
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.key_selection import KeySelectionConfig, keep_thresholds, select_keys
from tulle.privacy.events import KeySelection


def _closed_form(epsilon: float, delta: float, num_units: int) -> float:
    """Desfontaines et al. 2020, theorem 1."""
    growth = math.expm1(epsilon)
    first = 1 + math.floor(
        math.log((math.exp(epsilon) + 2 * delta - 1) / (delta * (math.exp(epsilon) + 1))) / epsilon
    )
    if num_units <= first:
        return math.expm1(num_units * epsilon) / growth * delta
    kept_at_first = math.expm1(first * epsilon) / growth * delta
    steps = num_units - first
    spread = delta / growth
    dropped = (1 - kept_at_first + spread) * math.exp(-steps * epsilon) - spread
    return min(1.0, 1 - dropped)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-7), (0.1, 1e-10), (5.0, 1e-5), (0.5, 0.01), (1.0, 1e-15)]
)
def test_keep_chances_are_those_of_the_closed_form(epsilon: float, delta: float) -> None:
    config = KeySelectionConfig(epsilon=epsilon, delta=delta)
    for num_units in range(config.num_units_sure + 3):
        expected = _closed_form(epsilon, delta, num_units)
        tolerance = 1e-6 if delta > 1e-12 else 1e-3
        assert config.keep_prob(num_units) == pytest.approx(expected, rel=tolerance, abs=1e-15)


@settings(max_examples=60)
@given(epsilon=st.floats(0.05, 50.0), delta=st.floats(1e-18, 0.9))
def test_realised_thresholds_are_private_at_every_count(epsilon: float, delta: float) -> None:
    table = keep_thresholds(epsilon, delta)
    chances = [Fraction(words, 2**64) for words in (*table, 2**64)]
    assert_keep_chances_private(chances, epsilon, delta)
    config = KeySelectionConfig(epsilon=epsilon, delta=delta)
    assert config.num_units_sure <= config._table_length_bound


def test_thresholds_at_small_epsilon_are_private_for_hundreds_of_counts() -> None:
    chances = [Fraction(words, 2**64) for words in keep_thresholds(0.05, 1e-12)]
    assert len(chances) > 500
    assert_keep_chances_private(chances, 0.05, 1e-12)


def test_the_sampler_keeps_with_exactly_the_thresholds() -> None:
    config = KeySelectionConfig(epsilon=1.0, delta=1e-3)
    for num_units, words in enumerate(keep_thresholds(1.0, 1e-3)):
        chances = exact_chances(
            lambda word, n=num_units: bool(select_keys([n], config, rng=ScriptedNoise([word]))[0])
        )
        assert chances.get(True, 0) == Fraction(words, 2**64)


def test_each_key_is_decided_by_a_word_of_its_own() -> None:
    config = KeySelectionConfig(epsilon=1.0, delta=1e-3)
    rng = ScriptedNoise([0, 2**64 - 1, 0, 0])
    assert select_keys([3, 3, 3, 0], config, rng=rng).tolist() == [True, False, True, False]


def test_keys_with_enough_units_are_always_kept_and_one_unit_shows_with_delta() -> None:
    config = KeySelectionConfig(epsilon=1.0, delta=1e-7, max_keys_per_unit=3)
    sure = config.num_units_sure
    assert config.keep_prob(1) == pytest.approx(1e-7)
    assert config.keep_prob(sure - 1) < config.keep_prob(sure) == config.keep_prob(10**9) == 1.0
    assert select_keys(np.full(10_000, sure), config, rng=SeededNoise(0)).all()
    assert config.event() == KeySelection(epsilon=1.0, delta=1e-7, max_keys_per_unit=3)


def test_no_keys_give_no_decisions() -> None:
    config = KeySelectionConfig(epsilon=1.0, delta=1e-7)
    assert select_keys([], config, rng=release_rng()).tolist() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": 100.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": 1e-30},
        {"epsilon": 1e-9},
        {"max_keys_per_unit": 0},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        KeySelectionConfig(**({"epsilon": 1.0, "delta": 1e-7} | wrong))


@pytest.mark.parametrize("bad", [[-1], [1.5], [[1, 2]], [math.nan]])
def test_counts_that_are_no_counts_are_refused(bad: list[Any]) -> None:
    config = KeySelectionConfig(epsilon=1.0, delta=1e-7)
    with pytest.raises(DataError, match="raw_unit_counts"):
        select_keys(bad, config, rng=SeededNoise(0))
