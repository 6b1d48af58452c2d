"""How far the labels of one unit can move label sums, measured on every pair of label vectors.

Two releases with the same noise differ by exactly what their raw sums differ by.
"""

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.lab.linear_labels.feature_rows import OneHotFields
from tulle.lab.linear_labels.label_sums import LabelBlock, LabelSumsConfig, release_label_sums
from tulle.mechanisms.entropy import SeededNoise

Array = NDArray[np.float64]
SumsOf = Callable[[NDArray[np.int64]], Array]

FIELDS = OneHotFields(num_ids=(2, 3, 2))
OTHER_IDS = np.array([[0, 1, 1], [1, 2, 0]])
OTHER_LABELS = np.array([1, 0])


def worst_unit(max_conversions: int) -> NDArray[np.int64]:
    """Rows that share nothing but the constant with as many others."""
    return np.repeat([[0, 0, 0], [1, 1, 1]], max_conversions, axis=0)


def unit_rows_with_others(unit_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([unit_ids, OTHER_IDS])


def released_sums(
    unit_ids: NDArray[np.int64], config: LabelSumsConfig
) -> Callable[[NDArray[np.int64]], Array]:
    """The release as a function of the labels of one unit, for one draw of the noise."""
    ids = unit_rows_with_others(unit_ids)
    units = None
    if config.max_conversions_per_unit is not None:
        units = np.concatenate([np.zeros(len(unit_ids), np.int64), [1, 1]])

    def sums_of(labels: NDArray[np.int64]) -> Array:
        block = LabelBlock(
            rows=FIELDS.rows(ids), raw_labels=np.concatenate([labels, OTHER_LABELS]), units=units
        )
        return release_label_sums([block], config, rng=SeededNoise(1)).noisy_sums

    return sums_of


def largest_distance(sums_of: SumsOf, num_rows: int, order: int) -> float:
    """Over all pairs of label vectors of a unit, in L1 (order 1) or L2 (order 2)."""
    vectors = [np.array(v) for v in itertools.product((0, 1), repeat=num_rows)]
    sums = np.array([sums_of(labels) for labels in vectors])
    return max(
        float(np.linalg.norm(one - other, order)) for one, other in itertools.combinations(sums, 2)
    )
