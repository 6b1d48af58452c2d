"""A private histogram of the labels, to serve as the prior of a mechanism.

Integer noise is added to the number of labels in each cell. A replaced label leaves
one cell and enters another, so the counts move by 2 in L1. What follows, cutting
negative counts and dividing by the sum, is free. Poor priors serve nearly as well as
good ones, so few cells and a small epsilon will do. The histogram costs budget as the
labels do: together with theirs, or apart if it is made from rows of its own.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.data.splits import split_at_random
from tulle.errors import ConfigError, DataError
from tulle.labels.class_response import checked_classes
from tulle.labels.label_grid import LabelGrid
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, DiscreteLaplace, Event, Parallel
from tulle.privacy.fields import check_count
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPriorConfig:
    """Settings of a private histogram of labels. Every field is public."""

    epsilon: float
    """What the histogram costs a unit with one label."""
    labels: LabelGrid | int
    """The values of the label, or the number of classes."""
    num_cells: int | None = None
    """How many cells of neighbouring values are counted; None counts each value."""

    def __post_init__(self) -> None:
        if not isinstance(self.labels, LabelGrid):
            check_count("labels", self.labels, least=2)
        if self.num_cells is not None:
            check_count("num_cells", self.num_cells)
            if self.num_cells > self.num_values:
                raise ConfigError(
                    f"num_cells={self.num_cells} must be <= {self.num_values}, the number of "
                    "values; use None to count each value."
                )
        _ = self.noise

    @property
    def num_values(self) -> int:
        """How many values a label may have."""
        return self.labels.num_values if isinstance(self.labels, LabelGrid) else self.labels

    @property
    def cell_of_value(self) -> IntArray:
        """The cell of each value; cells hold as equal numbers of neighbours as can be."""
        num_cells = self.num_values if self.num_cells is None else self.num_cells
        return np.arange(self.num_values, dtype=np.int64) * num_cells // self.num_values

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise on each cell. A replaced label takes 1 from a cell and gives 1 to another."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon, adjacency=Adjacency.REPLACE, max_contribution=1, replace_factor=2.0
        )

    def event(self) -> DiscreteLaplace:
        """What the histogram costs."""
        return self.noise.event()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrivatePrior:
    """Noisy counts of labels and the prior they give. May be published."""

    config: LabelPriorConfig
    noisy_counts: IntArray
    """One for each cell; may be negative."""

    @property
    def event(self) -> DiscreteLaplace:
        """What the histogram costs, whether its prior is used or not."""
        return self.config.event()

    @property
    def weights(self) -> FloatArray:
        """The prior: one weight for each value of the label, evenly within a cell."""
        kept = np.maximum(self.noisy_counts, 0)
        if not kept.any():
            return np.full(self.config.num_values, 1 / self.config.num_values)
        cells = self.config.cell_of_value
        num_values_in = np.bincount(cells)
        each = (kept / num_values_in)[cells]
        return np.asarray(each / each.sum())

    def with_labels(self, labels_event: Event) -> Composed:
        """The cost of histogram and noisy labels of the same rows: both look at each label."""
        return Composed((self.event, labels_event))

    def apart_from_labels(self, labels_event: Event) -> Parallel:
        """The cost where the histogram has rows of its own, whose labels are not released.

        For units of one label each, in parts that `split_prior_rows` made.
        """
        return Parallel(events=(self.event, labels_event), parts_are_public=True)

    def describe(self) -> dict[str, Any]:
        """Settings and noisy counts as plain data."""
        return {
            "epsilon": self.config.epsilon,
            "num_values": self.config.num_values,
            "num_cells": int(self.noisy_counts.size),
            "noise_stddev": self.config.noise.noise_stddev,
            "noisy_counts": self.noisy_counts.tolist(),
        }


def release_label_prior(
    raw_labels: NDArray[Any], config: LabelPriorConfig, *, rng: NoiseSource
) -> PrivatePrior:
    """Counts the labels in each cell and adds noise.

    Args:
      raw_labels: Labels within the declared range.
      config: Cells and privacy.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      Unit: one label, replace. L1 sensitivity: 2. Event: one DiscreteLaplace for all cells
      together. Relies on: one label a unit, and a number of rows that is public.
    """
    return release_prior_of_counts(raw_cell_counts(raw_labels, config), config, rng=rng)


def release_prior_of_counts(
    raw_counts: IntArray, config: LabelPriorConfig, *, rng: NoiseSource
) -> PrivatePrior:
    """Adds noise to counts that were summed over the blocks of a long table.

    Args:
      raw_counts: What `raw_cell_counts` gave, added up over all rows.
      config: Cells and privacy.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      As `release_label_prior`.
    """
    num_cells = int(config.cell_of_value[-1]) + 1
    if np.shape(raw_counts) != (num_cells,):
        raise DataError(
            f"raw_counts has the shape {np.shape(raw_counts)}, must have one count for each of "
            f"the {num_cells} cells, as raw_cell_counts() gives them."
        )
    noisy_counts = release_discrete_laplace(raw_counts, config.noise, rng=rng)
    return PrivatePrior(config=config, noisy_counts=noisy_counts)


def raw_cell_counts(raw_labels: NDArray[Any], config: LabelPriorConfig) -> IntArray:
    """How many labels fall into each cell, without noise. Sensitive.

    Privacy:
      Releases nothing: the counts are exact. One label is in one cell, so that a replaced one
      changes two counts by 1.
    """
    if isinstance(config.labels, LabelGrid):
        places = config.labels.index_of(raw_labels)
    else:
        places = checked_classes(raw_labels, config.labels)
    cells = config.cell_of_value
    counts = np.bincount(cells[places.reshape(-1)], minlength=int(cells[-1]) + 1)
    return counts.astype(np.int64)


def split_prior_rows(num_rows: int, *, prior_share: float, key: bytes) -> tuple[IntArray, IntArray]:
    """Rows for the histogram and rows whose labels are released, by a keyed hash of the number.

    Args:
      num_rows: Rows of the table.
      prior_share: Share of the rows that only the histogram looks at, e.g. 0.05.
      key: At least 16 bytes. The same key gives the same parts.
    """
    if not 0 < prior_share < 1:
        raise ConfigError(f"prior_share={prior_share} must be between 0 and 1, e.g. 0.05.")
    prior_rows, label_rows = split_at_random(
        num_rows, fractions=(prior_share, 1 - prior_share), key=key
    )
    return prior_rows, label_rows
