"""The best that any private rule could do in one auction, as a yardstick.

Every rule within epsilon has a public floor m_y for each candidate and probabilities in [m_y,
e^epsilon m_y]; conversely all probabilities within such bounds are private. So the best rule for
equally likely devices is a linear programme. It knows these devices, which no real rule does: its
value is an upper bound for them.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from tulle.errors import ConfigError
from tulle.select.auctions import FloatArray

_MAX_CELLS = 100_000
"""Largest number of devices times candidates: the programme then takes seconds."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BestFloors:
    """An optimal rule. As sensitive as the scores that it was made for."""

    floors: FloatArray
    """[candidates], least probability of each."""
    value: float
    """Mean score of what is chosen."""


def best_floors(raw_scores: FloatArray, *, epsilon: float) -> BestFloors:
    """Floors with the largest mean score over given devices.

    Args:
      raw_scores: [devices, candidates], equally likely; for a plan drawn from a prior.
      epsilon: Largest log-likelihood ratio of a choice.

    Privacy:
      None: floors are fitted to the scores. Use drawn or public ones.
    """
    from scipy.optimize import linprog

    if not 0 < epsilon <= 50:
        raise ConfigError(f"epsilon={epsilon} must be > 0 and at most 50, e.g. 3.0.")
    if raw_scores.ndim != 2 or not 0 < raw_scores.size <= _MAX_CELLS:
        raise ConfigError(
            f"raw_scores has shape {raw_scores.shape}; it needs [devices, candidates] with at "
            f"most {_MAX_CELLS} entries. Take fewer devices."
        )
    num_devices, num_candidates = raw_scores.shape
    # Probabilities of all devices first, then caps: floors are e^epsilon times smaller.
    bounds_of_chances, sums = _constraints(num_devices, num_candidates, math.exp(-epsilon))
    weights = np.concatenate([-raw_scores.ravel() / num_devices, np.zeros(num_candidates)])
    result = linprog(
        weights,
        A_ub=bounds_of_chances,
        b_ub=np.zeros(2 * raw_scores.size),
        A_eq=sums,
        b_eq=np.ones(num_devices),
        method="highs",
    )
    if result.x is None:
        raise ConfigError(f"the linear programme failed ({result.message}); take fewer devices.")
    caps = np.asarray(result.x[-num_candidates:])
    return BestFloors(floors=caps * math.exp(-epsilon), value=float(-weights @ result.x))


def _constraints(num_devices: int, num_candidates: int, floor_per_cap: float) -> tuple[Any, Any]:
    """Probabilities are at most the caps and at least floor_per_cap times them, and add up to 1."""
    # Sparse tables, which linprog takes though its type hints do not know them.
    from scipy.sparse import csr_array

    cells = np.arange(num_devices * num_candidates)
    caps = len(cells) + cells % num_candidates
    num_variables = len(cells) + num_candidates
    entries = np.repeat([1.0, -1.0, -1.0, floor_per_cap], len(cells))
    lines = np.concatenate([cells, cells, len(cells) + cells, len(cells) + cells])
    columns = np.concatenate([cells, caps, cells, caps])
    bounds = csr_array((entries, (lines, columns)), shape=(2 * len(cells), num_variables))
    places = (cells // num_candidates, cells)
    sums = csr_array((np.ones(len(cells)), places), shape=(num_devices, num_variables))
    return bounds, sums
