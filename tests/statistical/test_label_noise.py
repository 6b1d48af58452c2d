"""Noisy labels have the stated law, and every planted fault in one is caught."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from statistical import faulty_label_noise as faulty
from statistical.noise_checks import assert_bernoulli, assert_discrete, assert_laplace
from statistical.randomizer_checks import assert_follows, assert_rejects
from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.mechanisms.label_prior import (
    LabelPriorConfig,
    raw_cell_counts,
    release_prior_of_counts,
)
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.labels.mechanisms.stepped_noise import DiscreteLaplaceLabels, StaircaseLabels
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.staircase_noise import StaircaseAim, StaircaseConfig

GRID = LabelGrid(low=0, high=20)
LAPLACE = LaplaceLabels(epsilon=1.0, grid=GRID)
DISCRETE = DiscreteLaplaceLabels(epsilon=1.0, grid=GRID)
STAIRCASE = StaircaseLabels(epsilon=1.0, grid=GRID)
BINARY = BinaryResponse(epsilon=1.0)
PRIOR = PriorResponse(epsilon=1.0, prior=np.array([0.1, 0.5, 0.4]))
HISTOGRAM = LabelPriorConfig(epsilon=0.5, labels=100_000)
NUM_REPORTS = 600_000

Release = Callable[[np.ndarray, Any, NoiseSource], np.ndarray]


def staircase_pmf(sensitivity: int, aim: StaircaseAim, scale: float) -> Any:
    """The law for a range over epsilon of `scale`."""
    return StaircaseConfig(epsilon=sensitivity / scale, sensitivity=sensitivity, aim=aim).pmf


def check_staircase(release: Release, mechanism: StaircaseLabels = STAIRCASE) -> None:
    sensitivity = mechanism.noise.sensitivity
    label = mechanism.grid.high

    def sampler(rng: NoiseSource, size: int) -> np.ndarray:
        noisy = release(np.full(size, label), mechanism, rng)
        return np.rint((noisy - label) / mechanism.grid.step * mechanism.refinement)

    assert_discrete(
        sampler,
        functools.partial(staircase_pmf, sensitivity, mechanism.aim),
        scale=sensitivity / mechanism.epsilon,
        num_draws=400_000,
    )


def check_discrete(release: Release) -> None:
    assert_discrete(
        lambda rng, size: release(np.full(size, 7.0), DISCRETE, rng) - 7.0,
        lambda scale: DiscreteLaplaceConfig(scale=scale).pmf,
        scale=20.0,
    )


def check_laplace(release: Release) -> None:
    assert_laplace(lambda rng, size: release(np.full(size, 7.0), LAPLACE, rng) - 7.0, scale=20.0)


def check_binary(release: Release) -> None:
    flip = 1 / (1 + np.e)
    for label in (0, 1):
        assert_bernoulli(
            lambda rng, size, label=label: release(np.full(size, label), BINARY, rng) != label,
            prob=flip,
        )


def check_prior(release: Release) -> None:
    for label, law in enumerate(PRIOR.realised_channel()):
        reports = release(np.full(NUM_REPORTS, label), PRIOR, SeededNoise(label))
        counts = np.bincount(reports, minlength=3)
        chances = [float(chance) for chance in law]
        possible = [c for c in range(3) if chances[c]]
        assert counts.sum() == counts[possible].sum(), "a class came that cannot be reported"
        assert_follows(counts[possible], [chances[c] for c in possible])


def check_histogram(release: Release) -> None:
    assert_discrete(
        lambda rng, size: release(np.zeros(1, int), HISTOGRAM, rng)[1 : size + 1],
        lambda scale: DiscreteLaplaceConfig(scale=scale).pmf,
        scale=4.0,
    )


def of_release(raw: np.ndarray, mechanism: Any, rng: NoiseSource) -> np.ndarray:
    return mechanism.release(raw, rng=rng).labels


def of_histogram(raw: np.ndarray, config: LabelPriorConfig, rng: NoiseSource) -> np.ndarray:
    raw_counts = raw_cell_counts(raw, config)
    return release_prior_of_counts(raw_counts, config, rng=rng).noisy_counts


RIGHT: list[tuple[Callable[[Release], None], Release]] = [
    (check_staircase, of_release),
    (check_discrete, of_release),
    (check_laplace, of_release),
    (check_binary, of_release),
    (check_prior, of_release),
    (check_histogram, of_histogram),
]

FAULTS: dict[str, Callable[[Release], None]] = {
    "staircase_whose_coin_is_a_sign": check_staircase,
    "staircase_with_two_zeros": check_staircase,
    "staircase_for_half_the_range": check_staircase,
    "staircase_that_stops_at_the_first_level": check_staircase,
    "discrete_laplace_for_one_step": check_discrete,
    "laplace_of_the_scale_for_its_deviation": check_laplace,
    "one_draw_for_all_labels": check_laplace,
    "reports_from_a_generator_made_anew": check_binary,
    "uniform_prob_for_flip_prob": check_binary,
    "truth_kept_outside_the_top": check_prior,
    "likeliest_class_outside_the_top": check_prior,
    "histogram_for_a_removed_label": check_histogram,
    "histogram_without_noise_on_empty_cells": check_histogram,
}


@pytest.mark.parametrize(("check", "release"), RIGHT)
def test_the_right_noise_passes(check: Callable[[Release], None], release: Release) -> None:
    check(release)


@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        FAULTS[name](getattr(faulty, name))


def test_the_faulty_staircases_draw_in_the_steps_of_the_right_one() -> None:
    assert STAIRCASE.refinement == 1


def test_every_fault_in_the_file_is_listed() -> None:
    planted = {
        name
        for name, function in inspect.getmembers(faulty, inspect.isfunction)
        if function.__module__ == faulty.__name__ and not name.startswith("_")
    }
    assert planted == set(FAULTS)


@pytest.mark.parametrize("aim", StaircaseAim)
@pytest.mark.parametrize(
    ("epsilon", "grid"),
    [
        (0.5, LabelGrid(low=0, high=1)),
        (1.0, LabelGrid(low=-1, high=2, step=0.5)),
        (2.0, LabelGrid(low=0, high=400)),
        (4.0, LabelGrid(low=0, high=50)),
        (4.2, LabelGrid(low=0, high=5)),
    ],
)
def test_staircase_noise_has_the_stated_law_on_many_grids(
    epsilon: float, grid: LabelGrid, aim: StaircaseAim
) -> None:
    check_staircase(of_release, StaircaseLabels(epsilon=epsilon, grid=grid, aim=aim))


@pytest.mark.parametrize("num_classes", [3, 6])
def test_class_reports_follow_the_channel_and_not_one_of_a_5_percent_wrong_epsilon(
    num_classes: int,
) -> None:
    mechanism = ClassResponse(epsilon=1.5, num_classes=num_classes)
    raw = np.full(NUM_REPORTS, num_classes - 1)
    reports = mechanism.release(raw, rng=SeededNoise(4)).labels
    counts = np.bincount(reports, minlength=num_classes)
    assert_follows(counts, mechanism.response.channel_matrix()[-1])
    for factor in (0.95, 1.05):
        wrong = dataclasses.replace(mechanism, epsilon=factor * mechanism.epsilon)
        assert_rejects(counts, wrong.response.channel_matrix()[-1])


def test_reports_with_a_prior_do_not_follow_a_5_percent_wrong_epsilon() -> None:
    reports = PRIOR.release(np.full(NUM_REPORTS, 1), rng=SeededNoise(5)).labels
    counts = np.bincount(reports, minlength=3)[[1, 2]]
    for factor in (0.95, 1.05):
        wrong = PriorResponse(epsilon=factor, prior=PRIOR.prior).realised_channel()[1]
        assert_rejects(counts, [float(wrong[c]) for c in (1, 2)])


@pytest.mark.parametrize("mechanism", [LAPLACE, DISCRETE, STAIRCASE], ids=lambda m: m.name)
@pytest.mark.parametrize("label", [0.0, 5.0, 20.0])
def test_clipped_labels_have_the_stated_mean_and_variance(mechanism: Any, label: float) -> None:
    clipped = dataclasses.replace(mechanism, clip=True)
    noisy = clipped.release(np.full(NUM_REPORTS, label), rng=SeededNoise(6)).labels
    variance = clipped.variance(label)
    assert abs(noisy.mean() - clipped.mean(label)) < 6.5 * np.sqrt(variance / NUM_REPORTS)
    # A label in a range of 20 has squares below 400, so this bounds six and a half deviations.
    squares = (noisy - clipped.mean(label)) ** 2
    assert abs(squares.mean() - variance) < 6.5 * squares.std() / np.sqrt(NUM_REPORTS)
    wrong = dataclasses.replace(clipped, epsilon=1.05)
    assert abs(squares.mean() - wrong.variance(label)) > 6.5 * squares.std() / np.sqrt(
        NUM_REPORTS
    ) or abs(noisy.mean() - wrong.mean(label)) > 6.5 * np.sqrt(variance / NUM_REPORTS)
