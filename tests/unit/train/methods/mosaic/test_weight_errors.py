"""Errors of weights that are learnt in several fits, against fits that are done many times."""

import numpy as np
import pytest

from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.shrinkage import FittedTable
from tulle.train.methods.mosaic.weight_errors import WeightErrors, mean_over_rows

RATE, PRIOR = 0.1, 0.25
ROWS = np.array([100.0, 1_000.0, 10_000.0])
SLOPES = ROWS * RATE * (1 - RATE)
NUM_TRIALS = 40_000
"""The variance of so many differences is known to 0.7%; it is compared within 4%."""


def sums(noise: float, row_weight: float) -> NoisyCells:
    return NoisyCells(
        residuals=np.zeros(3),
        predicted=row_weight * ROWS * RATE,
        residual_stddev=noise,
        predicted_stddev=0.0,
        row_weights=row_weight,
        rate=RATE,
    )


@pytest.mark.parametrize(
    "fits",
    [
        [(5.0, 1.0, 0.7)],
        [(5.0, 0.5, 0.4), (9.0, 0.8, 0.5)],
        # The same labels over and over: noise averages out, and what labels vary by does not.
        [(2.0, 1.0, 0.5)] * 8,
    ],
    ids=["one fit", "two fits", "eight fits"],
)
def test_deviations_are_those_of_weights_that_were_fitted_so(
    fits: list[tuple[float, float, float]],
) -> None:
    rng = np.random.default_rng(7)
    truth = rng.normal(0, PRIOR**0.5, (NUM_TRIALS, 3))
    estimable = truth + rng.normal(0, 1 / SLOPES**0.5, (NUM_TRIALS, 3))
    weights, errors = np.zeros((NUM_TRIALS, 3)), WeightErrors.empty(3)
    for number, (noise, row_weight, taken) in enumerate(fits):
        seen = estimable + rng.normal(0, noise / (row_weight * SLOPES), (NUM_TRIALS, 3))
        weights += taken * (seen - weights)
        errors.note(
            sums(noise, row_weight),
            np.full(3, taken),
            prior_variance=PRIOR if number == 0 else None,
        )
    found = errors.stddevs(np.zeros(3, np.float32), RATE, is_noisy=False)
    # A row of weight a adds a times its label: rows of equal weight vary as they do without.
    wanted = np.minimum((weights - truth).std(axis=0), PRIOR**0.5)
    np.testing.assert_allclose(found, wanted, rtol=0.04)


def test_a_cell_without_rows_is_as_unknown_as_before() -> None:
    errors = WeightErrors.empty(2)
    cells = NoisyCells(
        residuals=np.zeros(2),
        predicted=np.array([0.0, 50.0]),
        residual_stddev=1.0,
        predicted_stddev=0.0,
        rate=RATE,
    )
    errors.note(cells, np.array([0.0, 0.9]), prior_variance=PRIOR)
    found = errors.stddevs(np.zeros(2, np.float32), RATE, is_noisy=False)
    assert found[0] == pytest.approx(PRIOR**0.5)
    assert found[1] < 0.5 * PRIOR**0.5


def test_rarer_labels_leave_more_unknown() -> None:
    errors = WeightErrors.empty(3)
    errors.note(sums(3.0, 1.0), np.full(3, 0.9), prior_variance=10.0)
    weights = np.array([-1.0, 0.0, 1.0], np.float32)
    cells = [errors.stddevs(np.full(3, weight), RATE, is_noisy=False)[1] for weight in weights]
    assert cells[0] > cells[1] > cells[2]
    noisy = errors.stddevs(np.full(3, 1.0, np.float32), RATE, is_noisy=True)[1]
    assert noisy > cells[2]


def test_weights_learnt_anew_forget_what_was_noted() -> None:
    fitted, again = FittedTable.empty(3), FittedTable.empty(3)
    fitted.note_fit(sums(50.0, 1.0), 1.0, is_first=True)
    for table in (fitted, again):
        table.note_fit(sums(2.0, 1.0), PRIOR, is_first=True)
    zeros = np.zeros(3, np.float32)
    np.testing.assert_array_equal(
        fitted.errors.stddevs(zeros, RATE, is_noisy=False),
        again.errors.stddevs(zeros, RATE, is_noisy=False),
    )
    before = again.variances.copy()
    again.note_fit(sums(2.0, 1.0), before, is_first=False)
    assert (again.variances < before).all()


def test_means_over_rows_weigh_cells_by_their_rows() -> None:
    assert mean_over_rows(np.array([1.0, 3.0]), np.array([300.0, 100.0])) == pytest.approx(1.5)
    # Noisy numbers of rows may be negative.
    assert mean_over_rows(np.array([1.0, 3.0]), np.array([300.0, -9.0])) == pytest.approx(1.0)
    assert mean_over_rows(np.array([1.0]), np.array([-9.0])) == 0
