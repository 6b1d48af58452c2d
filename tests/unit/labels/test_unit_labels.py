"""Variances and covariances of targets: brute force over all reports, and known numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.labels.mechanisms.unit_response import PerRowResponse
from tulle.labels.unit_labels import (
    mean_covariance,
    row_channel,
    row_covariance,
    row_variance,
)
from tulle.mechanisms.joint_response import JointResponseConfig, JointSubsetConfig

Config = JointResponseConfig | JointSubsetConfig

CONFIGS: list[Config] = [
    JointResponseConfig(epsilon=epsilon, num_rows=num_rows, max_conversions=max_conversions)
    for epsilon in (0.1, 1.0, 4.0)
    for num_rows in (1, 2, 3, 5)
    for max_conversions in (1, 2, 3)
] + [
    JointSubsetConfig(epsilon=epsilon, num_rows=num_rows)
    for epsilon in (0.1, 1.0, 4.0)
    for num_rows in (1, 2, 5, 7)
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_moments_are_those_of_brute_force_over_all_reports(config: Config) -> None:
    probs = config.row_probs
    gain = probs.if_held - probs.if_not_held
    targets = [[(bit - probs.if_not_held) / gain for bit in report] for report in config.outputs()]
    states = JointResponseConfig(
        epsilon=1.0, num_rows=config.num_rows, max_conversions=config.max_conversions
    ).outputs()
    for state, law in zip(states, config.realised_channel(), strict=True):

        def mean_of(first: int, second: int, law: list[Fraction] = law) -> Fraction:
            products = (target[first] * target[second] for target in targets)
            return sum((c * p for c, p in zip(law, products, strict=True)), start=Fraction(0))

        for row in range(config.num_rows):
            assert mean_of(row, row) - state[row] == row_variance(config, state[row])
        for first, second in itertools.combinations(range(config.num_rows), 2):
            covariance = mean_of(first, second) - state[first] * state[second]
            assert covariance == row_covariance(config, state[first], state[second])


@pytest.mark.parametrize(
    ("epsilon", "num_rows", "per_row", "joint", "impression"),
    [
        (1, 5, 24.9, 2.28, 0.92),
        (2, 10, 24.9, 0.40, 0.18),
        (3, 10, 11.0, 0.080, 0.055),
        (4, 10, 6.17, 0.022, 0.019),
    ],
)
def test_a_joint_draw_has_the_variance_of_the_reference_table(
    epsilon: float, num_rows: int, per_row: float, joint: float, impression: float
) -> None:
    # A row that does not convert; epsilon / K_i, one draw with C = 1, and each row by itself.
    config = JointResponseConfig(epsilon=epsilon, num_rows=num_rows)
    assert float(row_variance(config, 0)) == pytest.approx(joint, rel=0.03)
    closed_form = (math.exp(epsilon) + num_rows - 1) / (math.exp(epsilon) - 1) ** 2
    assert float(row_variance(config, 0)) == pytest.approx(closed_form, rel=1e-12)
    shared = PerRowResponse(epsilon=epsilon, max_rows_per_unit=None)
    assert shared.row_channel(num_rows).target_variance(0) == pytest.approx(per_row, rel=0.005)
    assert shared.row_channel(1).target_variance(0) == pytest.approx(impression, rel=0.03)


def test_subset_selection_has_the_variance_of_the_reference() -> None:
    subset = JointSubsetConfig(epsilon=1.0, num_rows=10)
    response = JointResponseConfig(epsilon=1.0, num_rows=10)
    assert float(row_variance(subset, 0)) == pytest.approx(2.87, abs=0.005)
    assert float(row_variance(response, 0)) == pytest.approx(3.97, abs=0.005)


def test_rows_of_one_unit_repel_each_other_with_one_conversion_at_most() -> None:
    config = JointResponseConfig(epsilon=1.5, num_rows=6)
    expected = -1 / (math.exp(1.5) - 1) ** 2
    assert float(row_covariance(config, 0, 0)) == pytest.approx(expected, rel=1e-12)
    assert row_covariance(config, 0, 1) < 0


def test_the_mean_covariance_weighs_the_labels_of_both_rows() -> None:
    one = JointResponseConfig(epsilon=1.0, num_rows=4)
    expected = 0.8 * row_covariance(one, 0, 0) + 0.2 * row_covariance(one, 0, 1)
    assert mean_covariance(one, 0.1, 1) == pytest.approx(float(expected))
    two = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
    pairs = [(0, 0, 0.81), (0, 1, 0.18), (1, 1, 0.01)]
    expected_two = sum(weight * float(row_covariance(two, a, b)) for a, b, weight in pairs)
    assert mean_covariance(two, 0.1, 2) == pytest.approx(expected_two)
    with pytest.raises(ConfigError, match="base_rate"):
        mean_covariance(one, 0.0, 1)


def test_the_channel_of_a_row_has_the_exact_chances() -> None:
    config = JointResponseConfig(epsilon=1.0, num_rows=4, max_conversions=2)
    channel = row_channel(config)
    np.testing.assert_allclose(channel.prob_if_negative, float(config.row_probs.if_not_held))
    np.testing.assert_allclose(channel.prob_if_positive, float(config.row_probs.if_held))
    assert channel.target_variance(1) == pytest.approx(float(row_variance(config, 1)))
