"""Deliberately wrong label sums. Each must move further than it claims."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.lab.linear_labels.feature_rows import OneHotFields
from tulle.lab.linear_labels.label_sums import ConversionCap, LabelBlock, LabelSumsConfig, SumsNoise
from tulle.lab.linear_labels.label_sums import release_label_sums as release
from tulle.mechanisms.entropy import SeededNoise
from unit.lab.linear_labels.label_neighbours import FIELDS, OTHER_LABELS, unit_rows_with_others

Array = NDArray[np.float64]
SumsOf = Callable[[NDArray[np.int64]], Array]


def claim_without_the_constant(config: LabelSumsConfig) -> float:
    """Counts the fields and forgets the column of ones."""
    fields = len(FIELDS.num_ids)
    norm = fields if config.noise is SumsNoise.LAPLACE else math.sqrt(fields)
    return norm * (config.max_conversions_per_unit or 1) * config.replace_factor


def claim_without_the_other_labels(config: LabelSumsConfig) -> float:
    """Takes conversions away and forgets those that may come elsewhere."""
    return config.max_contribution


def capped_after_summing(unit_ids: NDArray[np.int64], config: LabelSumsConfig) -> SumsOf:
    """Sums every conversion and limits the sums, not what one unit adds to them."""
    ids = unit_rows_with_others(unit_ids)
    num_units = 2

    def sums_of(labels: NDArray[np.int64]) -> Array:
        raw = FIELDS.rows(ids).exact_sums(np.concatenate([labels, OTHER_LABELS]) == 1)
        return np.minimum(raw, (config.max_conversions_per_unit or 1) * num_units).astype(float)

    return sums_of


def uncapped(unit_ids: NDArray[np.int64], config: LabelSumsConfig) -> SumsOf:
    """Noise for one row a unit, though units have several."""
    per_row = LabelSumsConfig(layout=FIELDS, noise=config.noise, noise_multiplier=1.0)
    ids = unit_rows_with_others(unit_ids)

    def sums_of(labels: NDArray[np.int64]) -> Array:
        block = LabelBlock(rows=FIELDS.rows(ids), raw_labels=np.concatenate([labels, OTHER_LABELS]))
        return release([block], per_row, rng=SeededNoise(1)).noisy_sums

    return sums_of


def capped_in_each_block(unit_ids: NDArray[np.int64], config: LabelSumsConfig) -> SumsOf:
    """Forgets the conversions of earlier blocks."""

    def sums_of(labels: NDArray[np.int64]) -> Array:
        total = np.zeros(FIELDS.num_columns)
        for ids, label in zip(unit_ids, labels, strict=True):
            cap = ConversionCap(config.max_conversions_per_unit or 1)
            kept = cap.keep(np.array([label == 1]), np.zeros(1, np.int64))
            total += FIELDS.rows(ids[None]).exact_sums(kept)
        return total

    return sums_of


def columns_shared_between_fields(unit_ids: NDArray[np.int64]) -> SumsOf:
    """Two fields of one table on the same columns: a row may have a two."""
    one_table = OneHotFields(num_ids=(max(FIELDS.num_ids),))

    def sums_of(labels: NDArray[np.int64]) -> Array:
        parts = [
            one_table.rows(unit_ids[:, [field]]).exact_sums(labels == 1)
            for field in range(unit_ids.shape[1])
        ]
        return np.sum(parts, axis=0).astype(float)

    return sums_of
