"""The contract of every way to count values, whatever the trust model."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tulle.accounting.accountant import pld_epsilon, verify_plan
from tulle.errors import ConfigError, DataError
from tulle.lab.trust.central_counts import (
    CentralGaussianConfig,
    CentralLaplaceConfig,
    ValueCountsConfig,
    plan_counts,
)
from tulle.lab.trust.local_counts import (
    LocalLaplaceConfig,
    LocalRapporConfig,
    LocalResponseConfig,
    LocalSubsetConfig,
)
from tulle.lab.trust.shuffled_counts import MixedCountsConfig, ShuffledResponseConfig
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.plan import Plan, Status
from tulle.privacy.units import Adjacency, TrustModel

FURTHER_SETTINGS: dict[type[ValueCountsConfig], dict[str, Any]] = {
    CentralLaplaceConfig: {},
    CentralGaussianConfig: {"delta": 1e-6},
    LocalResponseConfig: {},
    LocalRapporConfig: {},
    LocalSubsetConfig: {},
    LocalLaplaceConfig: {},
    ShuffledResponseConfig: {"delta": 1e-6, "min_honest_users": 100},
    MixedCountsConfig: {"delta": 1e-6, "min_honest_users": 100},
}
CONFIG_CLASSES = list(FURTHER_SETTINGS)
each_class = pytest.mark.parametrize("config_class", CONFIG_CLASSES, ids=lambda c: c.__name__)


def make(config_class: type[ValueCountsConfig], **settings: Any) -> ValueCountsConfig:
    defaults = {"epsilon": 1.0, "num_users": 200, **FURTHER_SETTINGS[config_class]}
    return config_class(**defaults | settings)


def test_every_config_is_listed_here() -> None:
    def concrete(parent: type[ValueCountsConfig]) -> set[type[ValueCountsConfig]]:
        children = parent.__subclasses__()
        return set().union(*(concrete(child) for child in children)) if children else {parent}

    assert concrete(ValueCountsConfig) == set(CONFIG_CLASSES)


@each_class
@pytest.mark.parametrize("num_values", [2, 7])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_no_plan_promises_more_than_its_event(
    config_class: type[ValueCountsConfig], num_values: int, epsilon: float
) -> None:
    config = make(config_class, num_values=num_values, epsilon=epsilon)
    plan = plan_counts(config, name="counts", value_column="interest", user_column="user_id")
    (spent,) = verify_plan(plan)
    assert plan.trust is config.trust_model
    assert plan.event == config.event()
    assert plan.guarantee.adjacency is Adjacency.REPLACE
    # Neither is much of the epsilon that was asked for left unused.
    assert 0.97 * epsilon <= spent <= epsilon * (1 + 1e-7)
    assert Plan.from_json(plan.to_json()) == plan


@each_class
def test_only_the_shuffle_model_rests_on_something_that_nobody_checks(
    config_class: type[ValueCountsConfig],
) -> None:
    config = make(config_class)
    assumed = [a for a in config.assumptions if a.status is Status.ASSUMED]
    assert bool(assumed) == (config.trust_model is TrustModel.SHUFFLE)


@each_class
def test_two_values_make_one_count_and_more_make_a_histogram(
    config_class: type[ValueCountsConfig],
) -> None:
    bits = np.arange(200) % 2
    assert len(make(config_class).release(bits, rng=SeededNoise(1))) == 1
    histogram = make(config_class, num_values=5).release(bits, rng=SeededNoise(1))
    assert len(histogram) == 5


@each_class
@pytest.mark.parametrize("num_values", [2, 4])
def test_a_release_knows_its_noise_and_its_cost(
    config_class: type[ValueCountsConfig], num_values: int
) -> None:
    config = make(config_class, num_values=num_values)
    values = np.arange(200) % num_values
    for release in config.release(values, rng=SeededNoise(3), confidence=0.9):
        assert release.event == config.event()
        assert release.interval.confidence == 0.9
        assert release.interval.low < release.value < release.interval.high
        extremes = [config.expected_stddev(0.0), config.expected_stddev(1.0)]
        assert min(extremes) * (1 - 1e-9) <= release.noise_stddev
        assert release.noise_stddev <= max(extremes) * (1 + 1e-9)


@each_class
def test_the_same_words_make_the_same_release(config_class: type[ValueCountsConfig]) -> None:
    config, values = make(config_class, num_values=6), np.arange(200) % 6
    first, again = (config.release(values, rng=SeededNoise(5)) for _ in range(2))
    assert first == again
    assert first != config.release(values, rng=SeededNoise(6))


@each_class
def test_another_number_of_users_is_refused(config_class: type[ValueCountsConfig]) -> None:
    with pytest.raises(DataError, match="num_users=200"):
        make(config_class).release(np.zeros(199, int), rng=SeededNoise(1))


@each_class
@pytest.mark.parametrize("bad_value", [-1, 2, 1.5])
def test_values_outside_the_settings_are_refused(
    config_class: type[ValueCountsConfig], bad_value: float
) -> None:
    with pytest.raises(DataError, match="num_values"):
        make(config_class).release(np.full(200, bad_value), rng=SeededNoise(1))


@each_class
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", math.inf),
        ("epsilon", math.nan),
        ("num_users", 0),
        ("num_users", 2.5),
        ("num_users", 2**50),
        ("num_values", 1),
    ],
)
def test_wrong_settings_are_refused_by_name(
    config_class: type[ValueCountsConfig], name: str, value: float
) -> None:
    with pytest.raises(ConfigError, match=name):
        make(config_class, **{name: value})


@pytest.mark.parametrize(
    "config_class", [c for c, further in FURTHER_SETTINGS.items() if "delta" in further]
)
def test_a_delta_that_is_needed_is_checked(config_class: type[ValueCountsConfig]) -> None:
    for delta in (0.0, 1.0, math.nan, -1e-6):
        with pytest.raises(ConfigError, match="delta"):
            make(config_class, delta=delta)


@each_class
def test_a_frequency_outside_the_unit_interval_is_refused(
    config_class: type[ValueCountsConfig],
) -> None:
    for frequency in (-0.1, 1.1):
        with pytest.raises(ConfigError, match="frequency"):
            make(config_class).expected_stddev(frequency)


@each_class
def test_a_wrong_confidence_is_refused(config_class: type[ValueCountsConfig]) -> None:
    with pytest.raises(ConfigError, match="confidence"):
        make(config_class).release(np.zeros(200, int), rng=SeededNoise(1), confidence=1.0)


@each_class
@pytest.mark.parametrize("num_values", [2, 6])
def test_a_plan_with_twice_the_promise_is_caught(
    config_class: type[ValueCountsConfig], num_values: int
) -> None:
    config = make(config_class, num_values=num_values)
    plan = plan_counts(config, name="counts", value_column="interest", user_column="user_id")
    bold = dataclasses.replace(plan.guarantee, epsilon=config.epsilon / 2)
    with pytest.raises(ConfigError, match="gives only"):
        verify_plan(dataclasses.replace(plan, guarantee=bold))


ADDITIVE = [CentralLaplaceConfig, LocalLaplaceConfig, MixedCountsConfig]


@pytest.mark.parametrize("config_class", ADDITIVE, ids=lambda c: c.__name__)
@pytest.mark.parametrize(("num_values", "most"), [(2, 1), (5, 2)])
def test_another_value_of_one_user_moves_the_counts_by_what_the_event_says(
    config_class: type[ValueCountsConfig], num_values: int, most: int
) -> None:
    config = make(config_class, num_values=num_values)
    values = np.arange(200) % num_values
    neighbour = values.copy()
    neighbour[7] = (values[7] + 1) % num_values
    # The same words draw the same noise, so the difference is that of the raw counts.
    first, other = (
        np.array([release.value for release in config.release(data, rng=SeededNoise(2))])
        for data in (values, neighbour)
    )
    assert np.abs(first - other).sum() == most
    epsilon = pld_epsilon(config.event(), config.target_delta, Adjacency.REPLACE)
    stddev = CentralLaplaceConfig(epsilon=epsilon / most, num_users=200).expected_stddev()
    assert config.expected_stddev() >= stddev * (1 - 1e-9)


def test_fewer_honest_users_cost_accuracy() -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "num_users": 400}
    all_honest = MixedCountsConfig(min_honest_users=400, **settings)
    quarter = MixedCountsConfig(min_honest_users=100, **settings)
    assert quarter.expected_stddev() == pytest.approx(2 * all_honest.expected_stddev())
    hidden_by_all = ShuffledResponseConfig(min_honest_users=400, **settings)
    hidden_by_few = ShuffledResponseConfig(min_honest_users=100, **settings)
    assert hidden_by_few.local_epsilon < hidden_by_all.local_epsilon
    assert hidden_by_few.expected_stddev() > hidden_by_all.expected_stddev()


def test_honest_users_are_users() -> None:
    for min_honest_users in (0, 201):
        with pytest.raises(ConfigError, match="min_honest_users"):
            make(ShuffledResponseConfig, min_honest_users=min_honest_users)


def test_a_crowd_too_small_to_mix_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_honest_users"):
        MixedCountsConfig(epsilon=1.0, delta=1e-6, num_users=18, min_honest_users=18)


def test_messages_are_counted_over_all_sums() -> None:
    config = make(MixedCountsConfig, num_values=5)
    assert isinstance(config, MixedCountsConfig)
    assert config.messages_per_user == 5 * config.instance.messages_per_user
