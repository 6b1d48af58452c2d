"""Noisy label sums brought back to what labels can make. Costs no privacy.

Noise can make sums that no labels give: more conversions than rows, or fields that
disagree about the total. A fit to such sums has no lower bound without a ridge. The
box keeps each sum within its own limits; the projection finds the nearest sums
X^T q with q in [0, 1] for each row, which also settles fields against one another.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.labels.linear.label_sums import FeatureRows, LabelSums
from tulle.privacy.fields import check_count

FloatArray = NDArray[np.float64]


def clip_to_box(sums: LabelSums) -> FloatArray:
    """Each sum within its least and largest value."""
    return np.clip(sums.noisy_sums, sums.least_sums, sums.most_sums)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProjectedSums:
    """Sums that some soft labels make, and how near they are to the nearest ones."""

    sums: FloatArray
    distance_gap: float
    """By how much half the squared distance can at most exceed the least possible."""
    num_passes: int


def project_on_labels(
    sums: LabelSums, rows: FeatureRows, *, max_passes: int = 200, tolerance: float = 1e-3
) -> ProjectedSums:
    """The sums X^T q, q in [0, 1], next to the noisy ones.

    Frank-Wolfe: only the sums are kept, not q, and each pass over the rows adds the labels
    that point at the noisy sums best. The gap that it stops at is a certificate (Jaggi 2013).

    Args:
      sums: The release.
      rows: The features of the same table; equal rows may be put together.
      max_passes: Most passes over the rows.
      tolerance: The gap to stop at, relative to the expected square of the noise.
    """
    check_count("max_passes", max_passes)
    enough = tolerance * 0.5 * sums.noise_stddev**2 * len(sums.noisy_sums)
    rate = _mean_label(sums, rows)
    current = rows.sums(np.full(_num_entries(rows), rate))
    gap, num_passes = np.inf, 0
    while num_passes < max_passes:
        num_passes += 1
        excess = current - sums.noisy_sums
        best = rows.sums((rows.dot(excess) < 0).astype(np.float64))
        direction = best - current
        gap = float(-excess @ direction)
        length = float(direction @ direction)
        if gap <= enough or length == 0:
            break
        current = current + min(1.0, gap / length) * direction
    return ProjectedSums(sums=current, distance_gap=max(0.0, gap), num_passes=num_passes)


def _num_entries(rows: FeatureRows) -> int:
    return len(rows.dot(np.zeros(rows.layout.num_columns)))


def _mean_label(sums: LabelSums, rows: FeatureRows) -> float:
    """The constant label that fits the noisy sums best: a good place to start."""
    ones = rows.sums(np.ones(_num_entries(rows)))
    return float(np.clip(ones @ sums.noisy_sums / max(float(ones @ ones), 1e-300), 0.0, 1.0))
