import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import LabelGrid, check_prior
from tulle.labels.mechanisms.label_prior import (
    LabelPriorConfig,
    LearntPriorNoise,
    PrivatePrior,
    raw_cell_counts,
    release_prior_of_counts,
)
from tulle.labels.mechanisms.prior_response import PriorRr
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed, RandomizedResponse
from tulle.privacy.units import Adjacency

GRID = LabelGrid(low=0, high=400)
COARSE = LabelPriorConfig(epsilon=0.5, labels=GRID, num_cells=40)
CLASSES = LabelPriorConfig(epsilon=0.5, labels=4)


@pytest.mark.parametrize("config", [COARSE, CLASSES], ids=["coarse grid", "classes"])
@settings(max_examples=50)
@given(data=st.data())
def test_a_replaced_label_moves_the_counts_by_at_most_2(
    config: LabelPriorConfig, data: st.DataObject
) -> None:
    values = st.integers(0, config.num_values - 1)
    labels = data.draw(st.lists(values, min_size=1, max_size=20))
    row = data.draw(st.integers(0, len(labels) - 1))
    neighbour = [*labels[:row], data.draw(values), *labels[row + 1 :]]
    one, two = (raw_cell_counts(np.array(x), config) for x in (labels, neighbour))
    assert np.abs(one - two).sum() <= 2
    assert one.sum() == two.sum() == len(labels)


def test_the_bound_of_2_is_reached() -> None:
    one, two = (raw_cell_counts(np.array([x]), CLASSES) for x in (0, 3))
    assert np.abs(one - two).sum() == 2


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0])
def test_the_histogram_costs_at_most_its_epsilon(epsilon: float) -> None:
    config = LabelPriorConfig(epsilon=epsilon, labels=GRID)
    cost = pure_epsilon(config.event(), Adjacency.REPLACE)
    assert cost is not None
    assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < cost <= Fraction(epsilon)
    assert config.noise.scale == pytest.approx(2 / epsilon)


def test_the_cost_joins_that_of_the_labels() -> None:
    noise = PriorRr(num_classes=4, prior_epsilon=0.5).noise(1.5)
    assert isinstance(noise, LearntPriorNoise)
    labels = RandomizedResponse(epsilon=1.0)
    assert noise.event() == Composed((noise.prior.event(), labels))
    cost = pure_epsilon(noise.event(), Adjacency.REPLACE)
    assert float(cost or 0) == pytest.approx(1.5)
    assert float(cost or 0) <= 1.5


def test_weights_follow_the_noisy_counts() -> None:
    prior = PrivatePrior(config=CLASSES, noisy_counts=np.array([30, -5, 10, 0]))
    assert prior.weights.tolist() == [0.75, 0.0, 0.25, 0.0]


def test_a_histogram_without_a_positive_count_gives_an_even_prior() -> None:
    prior = PrivatePrior(config=CLASSES, noisy_counts=np.array([0, -5, -1, 0]))
    assert prior.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("num_cells", [1, 7, 40, 401, None])
def test_cells_hold_neighbours_in_nearly_equal_numbers(num_cells: int | None) -> None:
    config = LabelPriorConfig(epsilon=1.0, labels=GRID, num_cells=num_cells)
    cells = config.cell_of_value
    sizes = np.bincount(cells)
    assert np.all(np.diff(cells) >= 0)
    assert sizes.size == (num_cells or 401)
    assert sizes.max() - sizes.min() <= 1


def test_coarse_counts_are_spread_evenly_over_their_cell() -> None:
    config = LabelPriorConfig(epsilon=1.0, labels=5, num_cells=2)
    assert config.cell_of_value.tolist() == [0, 0, 0, 1, 1]
    prior = PrivatePrior(config=config, noisy_counts=np.array([6, 2]))
    np.testing.assert_allclose(prior.weights, [0.25, 0.25, 0.25, 0.125, 0.125])


@pytest.mark.parametrize("config", [COARSE, CLASSES], ids=["coarse grid", "classes"])
def test_a_release_gives_a_prior_that_mechanisms_accept(config: LabelPriorConfig) -> None:
    raw = np.random.default_rng(0).integers(0, config.num_values, 5000)
    prior = release_prior_of_counts(raw_cell_counts(raw, config), config, rng=SeededNoise(1))
    check_prior(prior.weights, config.num_values)
    assert prior.noisy_counts.dtype == np.int64
    facts = prior.describe()
    assert facts["noisy_counts"] == prior.noisy_counts.tolist()
    assert facts["noise_stddev"] == pytest.approx(math.sqrt(2) * 4, rel=0.01)


def test_counts_of_blocks_add_up_to_those_of_the_table() -> None:
    raw = np.random.default_rng(1).integers(0, 4, 90)
    counts = sum(raw_cell_counts(block, CLASSES) for block in np.split(raw, 3))
    whole = release_prior_of_counts(raw_cell_counts(raw, CLASSES), CLASSES, rng=SeededNoise(2))
    blocks = release_prior_of_counts(np.asarray(counts), CLASSES, rng=SeededNoise(2))
    assert blocks.noisy_counts.tolist() == whole.noisy_counts.tolist()
    with pytest.raises(DataError, match="each of the 4 cells"):
        release_prior_of_counts(np.zeros(3, int), CLASSES, rng=SeededNoise(2))


def test_noise_is_on_empty_cells_too() -> None:
    config = LabelPriorConfig(epsilon=0.1, labels=400)
    prior = release_prior_of_counts(
        raw_cell_counts(np.zeros(10, int), config), config, rng=SeededNoise(1)
    )
    assert np.mean(prior.noisy_counts[1:] != 0) > 0.9


def test_labels_outside_are_refused() -> None:
    for config, bad in ((COARSE, 401.0), (CLASSES, 4), (COARSE, math.nan), (CLASSES, 0.5)):
        with pytest.raises(DataError):
            release_prior_of_counts(
                raw_cell_counts(np.array([bad]), config), config, rng=SeededNoise(0)
            )


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"labels": 1},
        {"labels": 2.5},
        {"num_cells": 0},
        {"num_cells": 5},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LabelPriorConfig(**({"epsilon": 1.0, "labels": 4} | wrong))
