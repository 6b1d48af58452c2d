"""Terms and users' squares as whole numbers of steps in a public range.

Bounding is the last thing that a device does: whatever it computed, what it adds to a sum is a
whole number from 0 to NUM_STEPS for each term, and for the square of its total.
"""

import numpy as np

from tulle.select.auctions import FloatArray, IntArray
from tulle.select.evaluation.device_terms import TermRange

NUM_STEPS = 2**24
"""Steps over the range of one term, and over the range of one user's square."""


def term_step(limits: TermRange) -> float:
    """What one step of a term is worth."""
    return (limits.high - limits.low) / NUM_STEPS


def square_step(limits: TermRange, max_decisions_per_user: int) -> float:
    """What one step of a user's square is worth."""
    return (max_decisions_per_user * limits.largest_size) ** 2 / NUM_STEPS


def terms_on_grid(raw_terms: FloatArray, limits: TermRange) -> IntArray:
    """[terms], from 0 to NUM_STEPS, rounded to the nearest step.

    Privacy:
      Not noised. Bounds each term's part of a sum, for any input.
    """
    return _bounded(np.rint((raw_terms - limits.low) / term_step(limits)))


def squares_on_grid(
    raw_steps: IntArray, user_numbers: IntArray, limits: TermRange, max_decisions_per_user: int
) -> IntArray:
    """[users], the square of each user's total, from 0 to NUM_STEPS, rounded up.

    Privacy:
      Not noised. Bounds each user's part of a sum, for any input.

    Args:
      raw_steps: [terms], on the grid.
      user_numbers: [terms], from 0 without gaps.
      limits: Range of the terms.
      max_decisions_per_user: Most terms that a user has.
    """
    raw_terms = limits.low + term_step(limits) * raw_steps
    raw_totals = np.bincount(user_numbers, weights=raw_terms)
    return _bounded(np.ceil(raw_totals**2 / square_step(limits, max_decisions_per_user)))


def _bounded(steps: FloatArray) -> IntArray:
    # fmax and fmin take the bound where a computation went wrong (NaN); clip would keep it.
    return np.fmin(np.fmax(steps, 0), NUM_STEPS).astype(np.int64)
