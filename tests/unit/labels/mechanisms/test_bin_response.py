"""RR-on-Bins as a mechanism: exact privacy, exact moments, targets, what it describes."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from statistical.randomizer_checks import assert_follows, assert_private
from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import LabelGrid
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.bin_search import POISSON
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import RandomizedResponse

GRID = LabelGrid(low=0.0, high=20.0, step=0.5)


def made(epsilon: float = 4.0, seed: int = 0) -> BinResponse:
    prior = np.random.default_rng(seed).dirichlet(np.ones(GRID.num_values))
    return BinResponse(grid=GRID, prior=prior, epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_all_pairs_of_labels_are_within_epsilon(epsilon: float) -> None:
    mechanism = made(epsilon)
    rows = mechanism.response.realised_channel()
    assert_private([rows[place] for place in mechanism.bins.bin_of_label()], epsilon)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_moments_of_the_target_are_those_of_brute_force(epsilon: float) -> None:
    mechanism = made(epsilon)
    rows = mechanism.response.realised_channel()
    targets = [Fraction(target) for target in mechanism.targets]
    means, variances = mechanism.mean(GRID.values), mechanism.variance(GRID.values)
    for label, place in enumerate(mechanism.bins.bin_of_label()):
        mean = sum(c * t for c, t in zip(rows[place], targets, strict=True))
        square = sum(c * t**2 for c, t in zip(rows[place], targets, strict=True))
        assert means[label] == pytest.approx(float(mean), rel=1e-11, abs=1e-11)
        assert variances[label] == pytest.approx(float(square - mean**2), rel=1e-9)


def test_the_target_is_unbiased_over_the_prior_and_the_bias_is_that_of_the_bin() -> None:
    mechanism = made()
    bias = mechanism.bias(GRID.values)
    assert bias @ mechanism.prior == pytest.approx(0, abs=1e-12)
    place = mechanism.bins.bin_of_label()
    for index in range(mechanism.bins.num_bins):
        inside = place == index
        assert bias[inside] @ mechanism.prior[inside] == pytest.approx(0, abs=1e-12)
        width = np.ptp(GRID.values[inside])
        assert np.all(np.abs(bias[inside]) <= width)
    assert mechanism.expected_squared_bias == pytest.approx(bias**2 @ mechanism.prior)


def test_reports_follow_the_channel_and_targets_belong_to_them() -> None:
    mechanism = made()
    num_rows = 200_000
    noisy = mechanism.release(np.full(num_rows, 7.5), rng=SeededNoise(2))
    places = np.searchsorted(mechanism.bins.values, noisy.labels)
    np.testing.assert_array_equal(mechanism.bins.values[places], noisy.labels)
    assert noisy.targets is not None
    np.testing.assert_array_equal(mechanism.targets[places], noisy.targets)
    held = mechanism.bins.bin_of_label()[GRID.index_of([7.5])[0]]
    counts = np.bincount(places, minlength=mechanism.bins.num_bins)
    assert_follows(counts, [float(c) for c in mechanism.response.realised_channel()[held]])
    assert float(noisy.noise_variance) == mechanism.expected_variance


def test_it_is_a_row_mechanism_with_the_event_of_its_bins() -> None:
    mechanism: RowMechanism = made(2.0)
    assert mechanism.name == "rr-on-bins"
    num_bins = mechanism.describe()["num_bins"]
    assert mechanism.event() == RandomizedResponse(epsilon=2.0, num_values=num_bins)
    assert json.loads(json.dumps(mechanism.describe())) == mechanism.describe()
    assert mechanism.describe()["realised_epsilon"] <= 2.0


def test_bins_without_weight_have_the_middle_as_their_mean() -> None:
    prior = np.zeros(GRID.num_values)
    prior[[0, 40]] = 0.5
    mechanism = BinResponse(grid=GRID, prior=prior, epsilon=1.0)
    assert np.all(np.isfinite(mechanism.targets))
    assert mechanism.bins.num_bins == 2


def test_another_loss_has_other_bins() -> None:
    prior = np.exp(-GRID.values / 3)
    squared = BinResponse(grid=GRID, prior=prior / prior.sum(), epsilon=5.0)
    poisson = BinResponse(grid=GRID, prior=prior / prior.sum(), epsilon=5.0, loss=POISSON)
    assert squared.bins.starts.tolist() != poisson.bins.starts.tolist()


@pytest.mark.parametrize("bad", [[-0.5], [20.5], [math.nan], ["a"], [None]])
def test_labels_outside_of_the_range_are_refused_without_showing_them(bad: list[object]) -> None:
    mechanism = made()
    with pytest.raises(DataError) as caught:
        mechanism.check_labels(np.array(bad))
    assert "-0.5" not in str(caught.value)
    assert "20.5" not in str(caught.value)
    with pytest.raises(DataError):
        mechanism.release(np.array(bad), rng=SeededNoise(0))


def test_a_prior_with_a_single_label_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="sure of one label"):
        BinResponse(grid=GRID, prior=np.eye(GRID.num_values)[4], epsilon=1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_settings_without_meaning_are_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        made(epsilon)
