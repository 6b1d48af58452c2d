"""All steps of one row under correlated noise, together, cost what the plan accounts.

One row adds +1 or, replaced, -1 at the turns its coins choose. What it shows is C x + z, whose
law is a mixture over all coins. Its exact log likelihood ratio gives delta for any epsilon as
a mean over samples, which is held against the accountant.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.special import logsumexp

from tulle.accounting.accountant import privacy_curve
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.settings.band_matrix import BandMatrix

Values = NDArray[np.float64]
NUM_SAMPLES = 200_000
NUM_ERRORS = 7.0
"""Standard errors that a mean of bounded numbers may be off by: a chance below 1e-9."""


def matrix_of(coefficients: Values, num_steps: int) -> Values:
    column = np.zeros(num_steps)
    column[: len(coefficients)] = coefficients
    return np.tril(toeplitz(column))


def found_delta(
    matrix: Values, turns: list[int], prob: float, noise: float, epsilon: float
) -> tuple[float, float]:
    """The delta of the joint law and its standard error."""
    rng = np.random.default_rng(1)
    patterns = np.array(list(itertools.product([0, 1], repeat=len(turns))))
    chances = np.prod(np.where(patterns == 1, prob, 1 - prob), axis=1)
    patterns, chances = patterns[chances > 0], chances[chances > 0]
    means = patterns @ matrix[:, turns].T
    drawn = rng.choice(len(patterns), NUM_SAMPLES, p=chances)
    seen = means[drawn] + noise * rng.standard_normal((NUM_SAMPLES, len(matrix)))

    def log_density(sign: int) -> Values:
        distances = [np.sum((seen - sign * mean) ** 2, axis=1) for mean in means]
        terms = np.log(chances) - np.stack(distances, axis=1) / (2 * noise**2)
        return np.asarray(logsumexp(terms, axis=1))

    loss = log_density(1) - log_density(-1)
    parts = np.maximum(0.0, -np.expm1(epsilon - loss))
    return float(parts.mean()), float(parts.std()) / math.sqrt(NUM_SAMPLES)


CASES = [
    # steps, bands, chance within a group, noise multiplier, epsilon
    (4, 2, 1.0, 1.5, 2.0),
    (4, 2, 0.5, 1.0, 1.5),
    (6, 3, 0.3, 0.8, 1.0),
    (7, 3, 0.3, 0.8, 1.0),
    (6, 1, 0.2, 0.7, 2.0),
]


def accounted_delta(steps: int, groups: int, prob: float, noise: float, epsilon: float) -> float:
    sampler = CyclicPoisson(
        num_rows=60, sampling_prob=prob / groups, num_groups=groups, steps=steps
    )
    event = sampler.event(Gaussian(noise_multiplier=noise), num_bands=groups)
    return privacy_curve(event, Adjacency.REPLACE).delta(epsilon)


@pytest.mark.parametrize(("steps", "bands", "prob", "noise", "epsilon"), CASES)
def test_the_steps_of_a_row_cost_what_is_accounted(
    steps: int, bands: int, prob: float, noise: float, epsilon: float
) -> None:
    matrix = matrix_of(BandMatrix(num_bands=bands, num_steps=steps).coefficients, steps)
    accounted = accounted_delta(steps, bands, prob, noise, epsilon)
    costs = []
    for group in range(bands):
        turns = list(range(group, steps, bands))
        delta, error = found_delta(matrix, turns, prob, noise, epsilon)
        assert delta <= accounted + NUM_ERRORS * error
        costs.append(delta + NUM_ERRORS * error)
    if steps % bands == 0:
        # All turns of the first group have full columns.
        assert costs[0] >= 0.98 * accounted


def test_a_restart_costs_no_more() -> None:
    steps, bands, prob, noise, epsilon = 6, 3, 0.5, 1.0, 1.5
    whole = matrix_of(BandMatrix(num_bands=bands, num_steps=steps).coefficients, steps)
    accounted = accounted_delta(steps, bands, prob, noise, epsilon)
    for start in range(1, steps):
        matrix = whole.copy()
        matrix[start:, :start] = 0
        for group in range(bands):
            turns = list(range(group, steps, bands))
            delta, error = found_delta(matrix, turns, prob, noise, epsilon)
            assert delta <= accounted + NUM_ERRORS * error


STEPS, BANDS, PROB, NOISE, EPSILON = 4, 2, 0.5, 1.0, 1.5
FAULTS = {
    "more bands than groups": BandMatrix(num_bands=3, num_steps=STEPS).coefficients,
    "columns that are not scaled": np.array([1.0, 0.43]),
    "columns 5% too long": 1.05 * BandMatrix(num_bands=2, num_steps=STEPS).coefficients,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_matrices_are_caught(fault: str) -> None:
    matrix = matrix_of(FAULTS[fault], STEPS)
    accounted = accounted_delta(STEPS, BANDS, PROB, NOISE, EPSILON)
    delta, error = found_delta(matrix, [0, 2], PROB, NOISE, EPSILON)
    assert delta > accounted + NUM_ERRORS * error


def test_turns_in_every_step_are_caught() -> None:
    matrix = matrix_of(BandMatrix(num_bands=BANDS, num_steps=STEPS).coefficients, STEPS)
    accounted = accounted_delta(STEPS, BANDS, PROB, NOISE, EPSILON)
    delta, error = found_delta(matrix, [0, 1], PROB, NOISE, EPSILON)
    assert delta > accounted + NUM_ERRORS * error
