"""The contract of every local randomizer of one value out of a few.

Such a randomizer is a module with a `release_…` function and a config that knows its exact
channel, its event and the probabilities that a report supports a value. What every randomizer of
`tulle.mechanisms` must be is in `test_mechanisms.py`.
"""

import importlib
import math
import pkgutil
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tulle.mechanisms
from statistical.randomizer_checks import assert_private, exceeds_exp, largest_ratio
from tulle.errors import ConfigError, DataError
from tulle.mechanisms import randomized_response, rappor, subset_selection
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.noisy_reports import count_reports, debias_counts, variance_per_report
from tulle.privacy.events import Event, Repeated, event_from_json, event_to_json

CONFIG_CLASSES: dict[ModuleType, Any] = {
    randomized_response: randomized_response.RandomizedResponseConfig,
    rappor: rappor.RapporConfig,
    subset_selection: subset_selection.SubsetSelectionConfig,
}
CASES = [
    pytest.param(module, config_class(epsilon=epsilon, num_values=num_values), id=name)
    for module, config_class in CONFIG_CLASSES.items()
    for num_values in (2, 3, 4, 6)
    for epsilon in (0.001, 0.3, 1.0, 4.0, 50.0)
    for name in [f"{module.__name__.rpartition('.')[2]}-{num_values}-{epsilon}"]
]
each_case = pytest.mark.parametrize(("module", "config"), CASES)


def draw_of(module: ModuleType) -> Any:
    """The function of a module that draws one report for each value."""
    return getattr(module, f"release_{module.__name__.rpartition('.')[2]}")


def test_every_module_with_a_randomizer_is_listed_here() -> None:
    names = [m.name for m in pkgutil.iter_modules(tulle.mechanisms.__path__)]
    modules = [importlib.import_module(f"tulle.mechanisms.{name}") for name in names]
    with_probs = {
        module
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__
        and hasattr(value, "support_probs")
        and not getattr(value, "_is_protocol", False)
    }
    assert with_probs == set(CONFIG_CLASSES)


@each_case
def test_the_realised_channel_is_private_for_all_inputs_and_outputs(
    module: ModuleType, config: Any
) -> None:
    del module
    channel = config.realised_channel()
    assert_private(channel, config.epsilon)
    assert largest_ratio(channel) == config.realised_ratio
    assert config.realised_epsilon <= config.epsilon


@each_case
def test_rounding_costs_next_to_nothing(module: ModuleType, config: Any) -> None:
    del module
    if config.epsilon < 20:
        assert config.realised_epsilon == pytest.approx(config.epsilon, rel=1e-12)
    else:
        assert 40 < config.realised_epsilon <= config.epsilon


@each_case
def test_the_ideal_channel_is_the_realised_one_up_to_rounding(
    module: ModuleType, config: Any
) -> None:
    del module
    ideal = config.channel_matrix()
    np.testing.assert_allclose(ideal.sum(axis=1), 1.0, rtol=1e-12)
    realised = np.array([[float(chance) for chance in row] for row in config.realised_channel()])
    np.testing.assert_allclose(ideal, realised, rtol=1e-9, atol=1e-18)


@each_case
def test_debiased_counts_have_no_bias_at_all(module: ModuleType, config: Any) -> None:
    del module
    probs = config.support_probs
    supports = _supports(config)
    for held, row in enumerate(config.realised_channel()):
        for value in range(config.num_values):
            chance = sum(c for c, report in zip(row, supports, strict=True) if report[value])
            estimate = (chance - probs.if_not_held) / (probs.if_held - probs.if_not_held)
            assert estimate == (1 if value == held else 0)


@each_case
def test_debiased_counts_follow_from_the_support_chances(module: ModuleType, config: Any) -> None:
    del module
    probs = config.support_probs
    counts = np.arange(config.num_values) * 7
    gain = probs.if_held - probs.if_not_held
    expected = [float((Fraction(int(c)) - 100 * probs.if_not_held) / gain) for c in counts]
    np.testing.assert_allclose(debias_counts(counts, 100, config), expected, rtol=1e-9)


@each_case
def test_the_variance_formula_is_that_of_brute_force(module: ModuleType, config: Any) -> None:
    del module
    probs = config.support_probs
    gain = probs.if_held - probs.if_not_held
    supports = _supports(config)
    for held in (0, 1):
        row = config.realised_channel()[held]
        weights = [(int(report[0]) - probs.if_not_held) / gain for report in supports]
        mean = sum(c * w for c, w in zip(row, weights, strict=True))
        variance = sum(c * (w - mean) ** 2 for c, w in zip(row, weights, strict=True))
        frequency = 1.0 if held == 0 else 0.0
        assert variance_per_report(config, frequency=frequency) == pytest.approx(
            float(variance), rel=1e-12
        )


@each_case
def test_the_event_costs_the_configured_epsilon(module: ModuleType, config: Any) -> None:
    del module
    assert _pure_epsilon(config.event()) == config.epsilon
    assert event_from_json(event_to_json(config.event())) == config.event()


@each_case
def test_a_seeded_source_repeats_and_the_operating_system_does_not(
    module: ModuleType, config: Any
) -> None:
    values = np.arange(4000) % config.num_values
    first, again = (draw_of(module)(values, config, rng=SeededNoise(3)) for _ in range(2))
    assert np.array_equal(first, again)
    if config.epsilon < 2:
        one, two = (draw_of(module)(values, config, rng=release_rng()) for _ in range(2))
        assert not np.array_equal(one, two)


@each_case
def test_every_report_is_one_of_the_outputs(module: ModuleType, config: Any) -> None:
    values = np.arange(500) % config.num_values
    reports = draw_of(module)(values, config, rng=SeededNoise(1))
    outputs = set(config.outputs())
    assert {tuple(r.tolist()) if r.ndim else int(r) for r in reports} <= outputs
    assert count_reports(reports, config).shape == (config.num_values,)


@pytest.mark.parametrize("module", CONFIG_CLASSES, ids=lambda m: m.__name__.rpartition(".")[2])
@pytest.mark.parametrize("bad", [[0, 3], [-1, 0], [0.0, 1.0], [math.nan], ["a"], [None], [2**63]])
def test_values_that_cannot_be_held_are_refused_without_showing_them(
    module: ModuleType, bad: list[Any]
) -> None:
    config = CONFIG_CLASSES[module](epsilon=1.0, num_values=3)
    with pytest.raises(DataError) as caught:
        draw_of(module)(bad, config, rng=SeededNoise(0))
    assert not any(f"{value} " in str(caught.value) for value in (-1, 2**63, "nan"))


@pytest.mark.parametrize("module", CONFIG_CLASSES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_no_values_give_no_reports(module: ModuleType) -> None:
    config = CONFIG_CLASSES[module](epsilon=1.0, num_values=3)
    reports = draw_of(module)([], config, rng=release_rng())
    assert len(reports) == 0
    assert count_reports(reports, config).tolist() == [0, 0, 0]


@pytest.mark.parametrize("config_class", CONFIG_CLASSES.values())
@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": 1e-25},
        {"num_values": 1},
        {"num_values": 2.5},
    ],
)
def test_settings_without_meaning_are_refused(config_class: Any, wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "num_values": 3} | wrong
    with pytest.raises(ConfigError):
        config_class(**settings)


@pytest.mark.parametrize("config_class", CONFIG_CLASSES.values())
def test_a_huge_epsilon_stays_finite_and_keeps_every_output_possible(config_class: Any) -> None:
    config = config_class(epsilon=800.0, num_values=4)
    assert not exceeds_exp(config.realised_ratio, 800.0)
    assert all(0 < chance < 1 for row in config.realised_channel() for chance in row)


def _supports(config: Any) -> list[tuple[bool, ...]]:
    """For each output, which values it supports."""
    return [
        output
        if isinstance(output, tuple)
        else tuple(value == output for value in range(config.num_values))
        for output in config.outputs()
    ]


def _pure_epsilon(event: Event) -> float:
    if isinstance(event, Repeated):
        return event.count * _pure_epsilon(event.event)
    return float(event.epsilon)  # type: ignore[attr-defined]
