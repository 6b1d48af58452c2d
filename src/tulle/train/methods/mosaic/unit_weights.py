"""What rows weigh in a run: in sums over cells, in counts, and in releases of the overall level.

The rows of a unit together weigh at most what one row may weigh (`row_parts`). For the level, rows
of units with many rows may count in full where the noise is small against all of them.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_sums import LABEL_SENSITIVITY
from tulle.train.methods.mosaic.row_parts import RowParts, row_parts
from tulle.train.methods.mosaic.user_labels import OwnedRows, owned_rows

IntArray = NDArray[np.int64]

_LEVEL_ERROR = 0.005
"""Standard deviation, at sensitivity 1, that a run aims at for the noise on the rate of labels."""
_VALUE_ERROR = 0.0005
"""The same for values, whose mean may be small against their clip."""
_MOST_LEVEL_SHARE = 0.05
"""Largest share that one release of the level takes to reach `_LEVEL_ERROR`. Where rows are so few
that it would need more, the level is less exact."""
_SMALL_LEVEL_SHARE = 0.01
"""Fraction of the least share that is enough for the level if rows of large units count in full:
the noise on the rate is then a tenth of `_LEVEL_ERROR`, a hundredth of a usual rate of labels."""
_FULL_ROWS = (1000, 300, 100, 30, 10, 3, 1)
"""Numbers of rows that a unit may have before its rows count less in the overall level: the first
that noise allows. The level is then that of rows, not of users, who may differ."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnitWeights:
    """What rows weigh, so that those of a unit together weigh no more than 1. Public."""

    parts: RowParts
    """What each row weighs in counts, and in sums over cells."""
    level_parts: RowParts
    """What it weighs in releases of the overall level."""
    level_share: float
    """Share of one such release. All classes have the same one, as the proof needs."""
    users: OwnedRows | None = None
    """Whose each row is, if labels of 0 and 1 of users with several rows may be divided."""
    repeat_share: float = 0.0
    """Share of the release that says how often users repeat a label of 1."""


def unit_weights(
    examples: ExampleSet,
    noise_multiplier: float,
    *,
    units: IntArray | None,
    full_rows: int | None,
    least_level_share: float,
    are_values: bool = False,
) -> UnitWeights:
    """Divides the weight of each unit among its rows, and says what an exact level takes.

    Args:
      examples: All training rows, of which numbers, units and sample weights are looked at.
      noise_multiplier: Noise of the whole budget.
      units: [rows]: number of the unit of each row; None: each row is a unit.
      full_rows: Number of rows that a unit may have before each weighs less, in sums over cells;
        None: labels are divided where they are 0 or 1, and else 1.
      least_level_share: Least share of a release of the overall level.
      are_values: True if labels are values, whose mean may be small.
    """
    # Noise of stddev noise / sqrt(share) on the sum of labels is _LEVEL_ERROR * total at the
    # share that is needed. Many rows need next to nothing and get the least share.
    noise = LABEL_SENSITIVITY * noise_multiplier
    error = _VALUE_ERROR if are_values else _LEVEL_ERROR
    num_rows, weights = examples.num_rows, examples.weights
    parts = level_parts = row_parts(num_rows, units, weights, full_rows=full_rows or 1)
    needed = np.inf
    for more_rows in _FULL_ROWS if units is not None else _FULL_ROWS[-1:]:
        level_parts = row_parts(num_rows, units, weights, full_rows=more_rows)
        needed = (noise / (error * level_parts.total)) ** 2
        if needed <= _SMALL_LEVEL_SHARE * least_level_share:
            break
    share = max(least_level_share, min(float(needed), _MOST_LEVEL_SHARE))
    return UnitWeights(
        parts=parts,
        level_parts=level_parts,
        level_share=share,
        users=owned_rows(units) if full_rows is None else None,
        repeat_share=least_level_share,
    )
