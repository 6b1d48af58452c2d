"""Where the search for an unbiased randomizer starts.

Some columns are always there and make every problem feasible: rounding at random to
the two ends, then binary randomized response on the ends. Others are guessed from the
solution for half as many labels.
"""

import numpy as np
from numpy.typing import NDArray

from tulle.labels.unbiased.pricing import Columns, Duals, Problem, join
from tulle.labels.unbiased.rounding import Rounding

_GUESSES_PER_LABEL = 4
_REACH = 0.05

IntArray = NDArray[np.int64]


def start_columns(problem: Problem) -> Columns:
    """The randomizer of the two ends as staircase columns, and debiased K-ary response.

    A chance that grows linearly with the label is a mixture of steps, one for each
    border between neighbouring labels.
    """
    num_labels, low_share = problem.num_labels, problem.low_share
    noise = low_share / (1 - low_share)
    borders = np.arange(1, num_labels)[:, None]
    is_above = np.arange(num_labels) >= borders
    low_end = np.full(num_labels - 1, problem.labels[0] - noise)
    high_end = np.full(num_labels - 1, problem.labels[-1] + noise)
    gain = (1 - low_share) / (1 + (num_labels - 1) * low_share)
    lie = low_share / (1 + (num_labels - 1) * low_share)
    response = (problem.labels - lie * problem.labels.sum()) / gain
    return Columns(
        outputs=np.concatenate([low_end, high_end, response]),
        is_high=np.concatenate([~is_above, is_above, np.eye(num_labels, dtype=np.bool_)]),
    )


def coarser(problem: Problem) -> tuple[Problem, IntArray]:
    """About half the labels, with both ends, and the prior rounded onto them."""
    num_kept = problem.num_labels // 2 + 1
    places = np.unique(np.rint(np.linspace(0, problem.num_labels - 1, num_kept)).astype(np.int64))
    atoms = problem.labels[places]
    prior = Rounding(atoms=atoms).pushed(problem.labels, problem.prior)
    return Problem(labels=atoms, prior=prior, low_share=problem.low_share), places


def finer_duals(coarse: Problem, duals: Duals, fine: Problem) -> Duals:
    """Prices for all labels from those of some.

    What label y adds to a reduced cost is p times a parabola in the output; sum and
    product of its roots change smoothly with the label, so they are interpolated.
    """
    root_sum = 2 * coarse.labels + duals.slope / coarse.prior
    root_product = coarse.labels**2 - duals.constant / coarse.prior
    fine_sum = np.interp(fine.labels, coarse.labels, root_sum)
    fine_product = np.interp(fine.labels, coarse.labels, root_product)
    return Duals(
        constant=(fine.labels**2 - fine_product) * fine.prior,
        slope=(fine_sum - 2 * fine.labels) * fine.prior,
    )


def finer_columns(coarse: Columns, places: IntArray, fine: Problem, duals: Duals) -> Columns:
    """Guessed columns for all labels from the solution for the labels at `places`."""
    low, high = coarse.outputs.min(), coarse.outputs.max()
    reach = _REACH * (high - low)
    spread = np.linspace(low - reach, high + reach, _GUESSES_PER_LABEL * fine.num_labels)
    outputs = np.concatenate([spread, coarse.outputs])
    each = fine.prior * (outputs[:, None] - fine.labels) ** 2
    each = each - duals.constant - duals.slope * outputs[:, None]
    guesses = Columns(outputs=outputs, is_high=each < 0)
    return join(guesses, *_widened(coarse, places, fine.num_labels))


def _widened(coarse: Columns, places: IntArray, num_labels: int) -> list[Columns]:
    """Every range of labels that keeps and leaves out the same coarse labels."""
    result = []
    index = np.arange(num_labels)
    bounds = np.concatenate([[-1], places, [num_labels]])
    for output, is_high in zip(coarse.outputs, coarse.is_high, strict=True):
        inside = np.flatnonzero(is_high)
        if not inside.size:
            continue
        first, last = int(inside[0]), int(inside[-1])
        starts = np.arange(bounds[first] + 1, bounds[first + 1] + 1)
        ends = np.arange(bounds[last + 1], bounds[last + 2])
        is_inside = (index >= starts[:, None, None]) & (index <= ends[None, :, None])
        marks = is_inside.reshape(-1, num_labels)
        result.append(Columns(outputs=np.full(len(marks), output), is_high=marks))
    return result
