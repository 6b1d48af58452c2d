"""One draw for a unit: private for any two label vectors, without bias within the cap."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.randomizer_checks import (
    ScriptedNoise,
    assert_private,
    exact_chances,
    exceeds_exp,
    largest_ratio,
)
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.joint_response import (
    ConversionChoice,
    JointResponseConfig,
    JointSubsetConfig,
    cap_conversions,
    release_joint_response,
)
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.mechanisms.subset_selection import SubsetSelectionConfig
from tulle.privacy.events import RandomizedResponse, SubsetSelection

Config = JointResponseConfig | JointSubsetConfig

CONFIGS: list[Config] = [
    JointResponseConfig(epsilon=epsilon, num_rows=num_rows, max_conversions=max_conversions)
    for epsilon in (0.01, 1.0, 4.0)
    for num_rows in range(1, 6)
    for max_conversions in range(1, 4)
] + [
    JointSubsetConfig(epsilon=epsilon, num_rows=num_rows)
    for epsilon in (0.01, 0.3, 1.0, 4.0)
    for num_rows in (1, 2, 3, 5, 7)
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=str)


def states_of(config: Config) -> list[tuple[int, ...]]:
    """Label vectors within the cap, in the order of the channel's rows."""
    if isinstance(config, JointResponseConfig):
        return config.outputs()
    return JointResponseConfig(epsilon=1.0, num_rows=config.num_rows).outputs()


def first_ones(vector: tuple[int, ...], max_ones: int) -> tuple[int, ...]:
    """An independent truncation, label by label."""
    kept: list[int] = []
    for label in vector:
        kept.append(int(label and sum(kept) < max_ones))
    return tuple(kept)


def channel_of_all_vectors(config: Config) -> list[list[Fraction]]:
    """The law of the report for every label vector, also beyond the cap."""
    by_state = dict(zip(states_of(config), config.realised_channel(), strict=True))
    rows = []
    for vector in itertools.product((0, 1), repeat=config.num_rows):
        if config.choice is ConversionChoice.FIRST:
            rows.append(by_state[first_ones(vector, config.max_conversions)])
            continue
        ones = [place for place, label in enumerate(vector) if label]
        kept = itertools.combinations(ones, min(len(ones), config.max_conversions))
        laws = [by_state[tuple(int(p in k) for p in range(config.num_rows))] for k in kept]
        rows.append([sum(column) / len(laws) for column in zip(*laws, strict=True)])
    return rows


@each_config
@pytest.mark.parametrize("choice", ConversionChoice)
def test_any_two_label_vectors_look_alike_also_beyond_the_cap(
    config: Config, choice: ConversionChoice
) -> None:
    chosen = type(config)(**{**settings_of(config), "choice": choice})
    channel = channel_of_all_vectors(chosen)
    assert_private(channel, chosen.epsilon)
    # Nothing is wasted either: some pair of vectors uses the whole epsilon.
    assert math.log(largest_ratio(channel)) == pytest.approx(chosen.epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("num_rows", "max_conversions"), [*itertools.product((1, 2, 3), (1, 2, 3)), (4, 2)]
)
def test_the_sampler_has_exactly_the_stated_chances_for_every_vector(
    num_rows: int, max_conversions: int
) -> None:
    config = JointResponseConfig(epsilon=0.8, num_rows=num_rows, max_conversions=max_conversions)
    outputs = config.outputs()
    expected = channel_of_all_vectors(config)
    for vector, law in zip(itertools.product((0, 1), repeat=num_rows), expected, strict=True):
        chances = exact_chances(
            lambda word, vector=vector: tuple(
                release_joint_response([vector], config, rng=ScriptedNoise([word]))[0].tolist()
            )
        )
        assert [chances.get(output, Fraction(0)) for output in outputs] == law


@each_config
def test_the_target_of_each_row_has_the_label_as_its_mean(config: Config) -> None:
    probs = config.row_probs
    gain = probs.if_held - probs.if_not_held
    for state, law in zip(states_of(config), config.realised_channel(), strict=True):
        for row in range(config.num_rows):
            chance = sum(c for c, report in zip(law, config.outputs(), strict=True) if report[row])
            assert (chance - probs.if_not_held) / gain == state[row]


@each_config
def test_two_rows_are_reported_together_with_the_stated_chance(config: Config) -> None:
    for state, law in zip(states_of(config), config.realised_channel(), strict=True):
        for first, second in itertools.combinations(range(config.num_rows), 2):
            both = sum(
                chance
                for chance, report in zip(law, config.outputs(), strict=True)
                if report[first] and report[second]
            )
            assert both == config.pair_prob(state[first], state[second])


@each_config
def test_the_event_is_that_of_one_report_at_the_whole_epsilon(config: Config) -> None:
    event = config.event()
    expected = RandomizedResponse if isinstance(config, JointResponseConfig) else SubsetSelection
    assert isinstance(event, expected)
    assert event.epsilon == config.epsilon
    assert event.num_values == config.num_states == len(states_of(config))


def test_chances_of_one_conversion_have_the_closed_form() -> None:
    probs = JointResponseConfig(epsilon=2.0, num_rows=7).row_probs
    assert float(probs.if_not_held) == pytest.approx(1 / (math.exp(2) + 7), rel=1e-12)
    assert float(probs.if_held) == pytest.approx(math.exp(2) / (math.exp(2) + 7), rel=1e-12)


@settings(max_examples=60)
@given(
    epsilon=st.floats(1e-3, 30.0), num_rows=st.integers(1, 400), max_conversions=st.integers(1, 3)
)
def test_the_ratio_of_any_unit_is_within_epsilon(
    epsilon: float, num_rows: int, max_conversions: int
) -> None:
    config = JointResponseConfig(
        epsilon=epsilon, num_rows=num_rows, max_conversions=max_conversions
    )
    assert not exceeds_exp(config.response.realised_ratio, epsilon)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("num_rows", [1, 2, 5, 10, 33])
def test_the_subset_has_the_size_of_least_variance(epsilon: float, num_rows: int) -> None:
    def variance(size: int) -> float:
        probs = SubsetSelectionConfig(
            epsilon=epsilon, num_values=num_rows + 1, subset_size=size
        ).support_probs
        gain = probs.if_held - probs.if_not_held
        return float(probs.if_not_held * (1 - probs.if_not_held) / gain**2)

    chosen = JointSubsetConfig(epsilon=epsilon, num_rows=num_rows).selection.reported_size
    assert variance(chosen) == min(variance(size) for size in range(1, num_rows + 1))


def test_a_unit_of_one_row_is_binary_randomized_response() -> None:
    labels = np.arange(5000) % 2
    reports = release_joint_response(
        labels[:, None], JointResponseConfig(epsilon=0.5, num_rows=1), rng=SeededNoise(1)
    )
    expected = release_randomized_response(
        labels, RandomizedResponseConfig(epsilon=0.5), rng=SeededNoise(1)
    )
    assert reports[:, 0].tolist() == expected.tolist()


def test_the_report_of_a_unit_does_not_depend_on_other_units() -> None:
    config = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
    vectors = np.array(list(itertools.product((0, 1), repeat=4)))
    changed = vectors.copy()
    changed[3] = 1
    before, after = (
        release_joint_response(matrix, config, rng=SeededNoise(5)) for matrix in (vectors, changed)
    )
    assert np.array_equal(np.delete(before, 3, axis=0), np.delete(after, 3, axis=0))


def test_the_first_conversions_of_each_unit_are_kept() -> None:
    vectors = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    capped = cap_conversions(vectors, 2, ConversionChoice.FIRST, rng=release_rng())
    expected = [[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0]]
    assert capped.astype(int).tolist() == expected
    assert vectors.sum() == 8


def test_random_conversions_are_all_kept_equally_often() -> None:
    vectors = np.tile(np.array([1, 0, 1, 1, 0], bool), (30_000, 1))
    capped = cap_conversions(vectors, 2, ConversionChoice.RANDOM, rng=SeededNoise(3))
    assert set(capped.sum(axis=1).tolist()) == {2}
    # 6.1 standard deviations of a share of 2/3 at 30,000 units: false alarms below 1e-9.
    assert np.abs(capped[:, [0, 2, 3]].mean(axis=0) - 2 / 3).max() < 6.2 * math.sqrt(2 / 9 / 30_000)
    assert not capped[:, [1, 4]].any()


def test_a_random_choice_keeps_units_within_the_cap_whole() -> None:
    vectors = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]], bool)
    capped = cap_conversions(vectors, 2, ConversionChoice.RANDOM, rng=release_rng())
    assert np.array_equal(capped, vectors)


@pytest.mark.parametrize(
    "bad", [[[0, 1]], [0, 1, 0], [[0, 1, 2]], [[0, 1, -1]], [[0.0, 1.0, 0.5]], [["0", "1", "1"]]]
)
def test_labels_that_are_no_vectors_of_zeros_and_ones_are_refused(bad: Any) -> None:
    with pytest.raises(DataError):
        release_joint_response(bad, JointResponseConfig(epsilon=1.0, num_rows=3), rng=release_rng())


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"num_rows": 0},
        {"num_rows": 3000},
        {"max_conversions": 0},
        {"max_conversions": 1.5},
        {"choice": "first"},
        {"epsilon": 1e-18},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    sound: dict[str, Any] = {"epsilon": 1.0, "num_rows": 5, "max_conversions": 3}
    with pytest.raises(ConfigError):
        JointResponseConfig(**{**sound, **wrong})


def test_two_conversions_of_a_pair_need_a_cap_of_two() -> None:
    with pytest.raises(ConfigError, match="max_conversions"):
        JointResponseConfig(epsilon=1.0, num_rows=5).pair_prob(1, 1)
    with pytest.raises(ConfigError, match="num_rows=1"):
        JointSubsetConfig(epsilon=1.0, num_rows=1).pair_prob(0, 0)


def test_no_units_give_no_reports() -> None:
    config = JointResponseConfig(epsilon=1.0, num_rows=3)
    assert release_joint_response(np.zeros((0, 3), int), config, rng=release_rng()).shape == (0, 3)


def settings_of(config: Config) -> dict[str, Any]:
    names = config.__dataclass_fields__
    return {name: getattr(config, name) for name in names}


def test_a_channel_of_too_many_reports_is_not_written_out() -> None:
    most = JointResponseConfig(epsilon=1.0, num_rows=12, max_conversions=12)
    assert len(most.outputs()) == 1 << 12
    more = JointResponseConfig(epsilon=1.0, num_rows=13, max_conversions=13)
    with pytest.raises(ConfigError, match=r"num_rows=13 .* at most 4096\. Use row_probs"):
        more.outputs()
