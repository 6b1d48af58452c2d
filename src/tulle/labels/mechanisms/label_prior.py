"""A prior for a mechanism: public weights of the values, or a private histogram of the labels.

Integer noise is added to the number of labels in each cell. A replaced label leaves
one cell and enters another, so the counts move by 2 in L1. What follows, cutting
negative counts and dividing by the sum, is free. Poor priors serve nearly as well as
good ones, so few cells and a small epsilon will do. The histogram costs budget as the
labels do, and both look at each label, so that their costs add up.

A release that learns its prior first draws the histogram and then builds the mechanism that is best
for it. From the first draw on nothing may fail, since to try again would look at the labels again.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.labels.label_grid import LabelGrid, NumberRange, Prior, as_prior, prior_weights
from tulle.labels.label_mechanism import RowMechanism
from tulle.labels.label_noise import LabelNoise, RowDraw, RowNoise, single_values
from tulle.labels.mechanisms.class_response import checked_classes
from tulle.labels.unit_rows import UnitRows
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Composed, DiscreteLaplace, Event, RandomizedResponse
from tulle.privacy.fields import Scalar, check_count, check_finite
from tulle.privacy.units import Adjacency, Unit

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_MOST_CELLS = 40
"""Most cells of a learnt prior by default: more share the same epsilon and are each noisier."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPriorConfig:
    """Settings of a private histogram of labels. Every field is public."""

    epsilon: float
    """What the histogram costs a unit with one label."""
    labels: LabelGrid | int
    """The values of the label, or the number of classes."""
    num_cells: int | None = None
    """Number of cells of neighbouring values that are counted; None counts each value."""

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
        """Number of values that a label may have."""
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
    def weights(self) -> FloatArray:
        """The prior: one weight for each value of the label, evenly within a cell."""
        kept = np.maximum(self.noisy_counts, 0)
        if not kept.any():
            return np.full(self.config.num_values, 1 / self.config.num_values)
        cells = self.config.cell_of_value
        each = (kept / np.bincount(cells))[cells]
        return np.asarray(each / each.sum())

    def describe(self) -> dict[str, Any]:
        """Settings and noisy counts as plain data."""
        return {
            "epsilon": self.config.epsilon,
            "num_values": self.config.num_values,
            "num_cells": int(self.noisy_counts.size),
            "noise_stddev": self.config.noise.noise_stddev,
            "noisy_counts": self.noisy_counts.tolist(),
        }


def release_prior_of_counts(
    raw_counts: IntArray, config: LabelPriorConfig, *, rng: NoiseSource | None = None
) -> PrivatePrior:
    """Adds noise to the number of labels in each cell.

    Args:
      raw_counts: What `raw_cell_counts` gave, added up over the blocks of the table.
      config: Cells and privacy.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one label, replace. L1 sensitivity: 2. Event: one DiscreteLaplace for all cells
      together. Relies on: one label a unit, and a number of rows that is public.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearntPriorNoise(LabelNoise):
    """Noise that first draws a histogram of all labels, then uses the mechanism best for it."""

    prior: LabelPriorConfig
    build: Callable[[FloatArray], RowMechanism]
    """Makes the mechanism from the weights of the prior."""
    fallback: RowMechanism
    """What is used where the prior gives none. Once a prior is drawn the release must not
    fail: to try again would look at the labels again."""
    word: str
    """Its name on the command line and on cards."""

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return self.word

    @property
    def label_epsilon(self) -> float:
        """What the noisy label of one row costs, beside the prior."""
        return self.fallback.epsilon

    @property
    def epsilon(self) -> float:
        """What prior and noisy label of one row cost together."""
        return self.prior.epsilon + self.label_epsilon

    def event(self, unit_rows: UnitRows | None = None) -> Event:
        """What the release costs one row, whoever owns it."""
        del unit_rows
        # Which mechanism it will be is not known yet: the binary response of the same
        # epsilon costs as much as the costliest of them (Kairouz, Oh, Viswanath 2016).
        labels = RandomizedResponse(epsilon=self.label_epsilon)
        return Composed((self.prior.event(), labels))

    def sentence(self, unit: Unit) -> str:
        """How the labels are randomized."""
        del unit
        return (
            "a noisy histogram of all labels sets the mechanism, and each label is randomized "
            "once by it"
        )

    def settings(self) -> dict[str, Scalar]:
        """The settings of the fallback, and those of the histogram."""
        return single_values(self.fallback.describe()) | {
            "prior_epsilon": self.prior.epsilon,
            "prior_num_values": self.prior.num_values,
            "prior_num_cells": self.prior.num_cells,
            "label_epsilon": self.label_epsilon,
        }

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared values, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        self.fallback.check_labels(raw_labels)

    def summary(self, raw_labels: NDArray[Any]) -> IntArray:
        """How many labels of a block fall into each cell. Sensitive.

        Privacy:
          Releases nothing: the counts are exact.
        """
        return raw_cell_counts(raw_labels, self.prior)

    def start(
        self,
        raw_summaries: Sequence[NDArray[Any] | None],
        unit_rows: UnitRows | None,
        *,
        rng: NoiseSource,
    ) -> RowDraw:
        """Draws the prior, and begins the draw of the labels.

        Args:
          raw_summaries: The counts of each block.
          unit_rows: Ignored: a row is a unit.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one row, replace. Event: `event`, for the prior and one pass over all labels.
          Relies on: the caller has paid, and starts once.
        """
        del unit_rows
        raw_counts = np.sum([counts for counts in raw_summaries if counts is not None], axis=0)
        prior = release_prior_of_counts(raw_counts, self.prior, rng=rng)
        mechanism = self.mechanism(prior)
        description = mechanism.describe() | {"prior_release": prior.describe()}
        return RowDraw(mechanism, description, rng)

    def mechanism(self, prior: PrivatePrior) -> RowMechanism:
        """The mechanism for a prior that was released."""
        try:
            built = self.build(prior.weights)
        except Exception:
            # Whatever went wrong: a second try would draw a second prior.
            return self.fallback
        return built if built.epsilon <= self.label_epsilon else self.fallback


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorSettings:
    """Settings of mechanisms that do best where most labels have few of the declared values."""

    prior: Prior | None = None
    """Public weights of the values, not made with the labels that are released."""
    prior_epsilon: float | None = None
    """Part of epsilon that pays for a prior that is learnt from the labels, in place of a given
    one."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", as_prior(self.prior))
        if self.prior is not None and self.prior_epsilon is not None:
            raise ConfigError("prior and prior_epsilon exclude each other; give one.")

    def noise(self, epsilon: float) -> RowNoise | LearntPriorNoise:
        """The noise on labels that costs this epsilon in all, with the prior if one is learnt."""
        if self.prior_epsilon is None:
            prior = prior_weights(self.prior, self._num_values)
            return RowNoise(mechanism=self._built(epsilon, prior))
        label_epsilon = split_epsilon(epsilon, self.prior_epsilon)
        return LearntPriorNoise(
            prior=self._learnt_prior(self.prior_epsilon),
            build=functools.partial(self._built, label_epsilon),
            # Made first, so that no setting fails once the prior is drawn.
            fallback=self._without_prior(label_epsilon),
            word=self.kind,
        )

    @property
    def _num_values(self) -> int:
        raise NotImplementedError

    def _built(self, epsilon: float, prior: FloatArray) -> RowMechanism:
        raise NotImplementedError

    def _without_prior(self, epsilon: float) -> RowMechanism:
        return self._built(epsilon, prior_weights(None, self._num_values))

    def _learnt_prior(self, epsilon: float) -> LabelPriorConfig:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberPriorSettings(PriorSettings, NumberRange):
    """Settings of mechanisms for numbers that do best with a prior."""

    prior_cells: int | None = None
    """Number of cells of a learnt prior; None: as many as there are values, at most 40."""

    def __post_init__(self) -> None:
        PriorSettings.__post_init__(self)
        NumberRange.__post_init__(self)

    @property
    def _num_values(self) -> int:
        return self.grid.num_values

    def _learnt_prior(self, epsilon: float) -> LabelPriorConfig:
        num_cells = min(self.prior_cells or _MOST_CELLS, self._num_values)
        return LabelPriorConfig(epsilon=epsilon, labels=self.grid, num_cells=num_cells)


def split_epsilon(epsilon: float, prior_epsilon: float) -> float:
    """What is left for the labels after the prior is paid.

    Privacy:
      The two parts never add up to more than the whole, also after rounding.
    """
    if not 0 < check_finite("prior_epsilon", prior_epsilon) < epsilon:
        raise ConfigError(
            f"prior_epsilon={prior_epsilon} must be > 0 and below epsilon={epsilon}: the rest is "
            "for the labels."
        )
    label_epsilon = epsilon - prior_epsilon
    while label_epsilon > 0 and label_epsilon + prior_epsilon > epsilon:
        label_epsilon = math.nextafter(label_epsilon, 0.0)
    return label_epsilon


def is_informative(prior: FloatArray) -> bool:
    """True if a prior prefers some values: then somebody made it, and vouches for how."""
    return not np.allclose(prior, prior[0], rtol=1e-9, atol=0.0)
