"""Subset selection: report a random set of values that favours the truth.

All subsets have the same size; one that holds the truth is e^epsilon times as
likely as one that does not (Ye, Barg 2018; Wang et al. 2016). It has the least
variance of all local randomizers of one value at small and middle epsilon.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.noisy_reports import (
    BitMatrix,
    FloatArray,
    IntArray,
    SupportProbs,
    check_held_values,
)
from tulle.mechanisms.thresholds import WORD_VALUES, absent_mass, log_ratio, sample_subsets
from tulle.privacy.events import SubsetSelection

_CHUNK_WORDS = 1 << 17
"""Words that are drawn at once, so that the arrays stay in the processor's cache."""
_MAX_CHANNEL_OUTPUTS = 1 << 16
"""Most reports that are written out one by one, for exact checks of small cases."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsetSelectionConfig:
    """Settings of subset selection. Every field is public information."""

    epsilon: float
    """Log-likelihood ratio of a subset with the truth to one without it."""
    num_values: int
    """How many values a unit may hold."""
    subset_size: int | None = None
    """How many values a report names; None takes the size of least variance."""

    def __post_init__(self) -> None:
        absent_mass(self.epsilon, self.num_values, self.event().subset_size)

    @property
    def reported_size(self) -> int:
        """How many values a report names: near num_values / (1 + e^epsilon) if not set."""
        if self.subset_size is not None:
            return self.subset_size
        # Checked here because the formula below would hide a wrong setting.
        SubsetSelection(epsilon=self.epsilon, num_values=self.num_values, subset_size=1)
        odds = math.exp(-self.epsilon)
        return max(1, round(self.num_values * odds / (1 + odds)))

    def event(self) -> SubsetSelection:
        """What one report of each unit costs."""
        return SubsetSelection(
            epsilon=self.epsilon, num_values=self.num_values, subset_size=self.reported_size
        )

    @property
    def words_for_absent(self) -> int:
        """Words, of 2^64, that lead to a subset without the truth."""
        return absent_mass(self.epsilon, self.num_values, self.reported_size)

    @property
    def support_probs(self) -> SupportProbs:
        """The probabilities that the sampler realises."""
        size, num_others = self.reported_size, self.num_values - 1
        absent = Fraction(self.words_for_absent, WORD_VALUES)
        return SupportProbs(
            if_held=1 - absent,
            if_not_held=((1 - absent) * (size - 1) + absent * size) / num_others,
        )

    @property
    def realised_ratio(self) -> Fraction:
        """Largest likelihood ratio of the sampler; at most e^epsilon."""
        size, absent = self.reported_size, self.words_for_absent
        return Fraction((WORD_VALUES - absent) * (self.num_values - size), absent * size)

    @property
    def realised_epsilon(self) -> float:
        """Logarithm of `realised_ratio`. Below epsilon by rounding only, except above 44."""
        return min(self.epsilon, log_ratio(self.realised_ratio))

    def outputs(self) -> list[tuple[bool, ...]]:
        """All reports as rows of marks, in the order of the channel's columns."""
        num_outputs = math.comb(self.num_values, self.reported_size)
        if num_outputs > _MAX_CHANNEL_OUTPUTS:
            raise ConfigError(
                f"num_values={self.num_values} and subset size {self.reported_size} give "
                f"{num_outputs} reports; a channel is written out for at most "
                f"{_MAX_CHANNEL_OUTPUTS}. Use support_probs."
            )
        subsets = itertools.combinations(range(self.num_values), self.reported_size)
        return [tuple(v in subset for v in range(self.num_values)) for subset in subsets]

    def channel_matrix(self) -> FloatArray:
        """Probability of each report (column) for each value held (row), before rounding."""
        size, odds = self.reported_size, math.exp(-self.epsilon)
        num_present = math.comb(self.num_values - 1, size - 1)
        num_absent = math.comb(self.num_values - 1, size)
        present = 1 / (num_present + num_absent * odds)
        has_truth = np.asarray(self.outputs()).T
        return np.where(has_truth, present, present * odds)

    def realised_channel(self) -> list[list[Fraction]]:
        """The channel of the sampler, as exact fractions."""
        size = self.reported_size
        absent = Fraction(self.words_for_absent, WORD_VALUES)
        each_present = (1 - absent) / math.comb(self.num_values - 1, size - 1)
        each_absent = absent / math.comb(self.num_values - 1, size)
        return [
            [each_present if report[held] else each_absent for report in self.outputs()]
            for held in range(self.num_values)
        ]


def release_subset_selection(
    raw_values: ArrayLike, config: SubsetSelectionConfig, *, rng: NoiseSource | None = None
) -> BitMatrix:
    """Draws one subset, a row of marks, for each value.

    Args:
      raw_values: What each unit holds, from 0 to num_values - 1.
      config: Privacy settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one entry, replace. Local: each entry is noised on its own.
      Event: one SubsetSelection. Relies on: one entry a unit, drawn once.
    """
    rng = rng or release_rng()
    values = check_held_values(raw_values, config.num_values).reshape(-1)
    reports = np.empty((values.size, config.num_values), np.bool_)
    rows_per_chunk = max(1, _CHUNK_WORDS // config.num_values)
    for start in range(0, values.size, rows_per_chunk):
        held = values[start : start + rows_per_chunk]
        reports[start : start + rows_per_chunk] = _draw_subsets(held, config, rng)
    return reports


def _draw_subsets(held: IntArray, config: SubsetSelectionConfig, rng: NoiseSource) -> BitMatrix:
    is_present = rng.words(held.size) >= np.uint64(config.words_for_absent)
    reports = np.empty((held.size, config.num_values), np.bool_)
    for presence in (False, True):
        rows = np.flatnonzero(is_present == presence)
        num_others = config.reported_size - presence
        others = sample_subsets(config.num_values - 1, num_others, rows.size, rng=rng)
        reports[rows] = _insert_truth(others, held[rows], presence)
    return reports


def _insert_truth(others: BitMatrix, held: IntArray, presence: bool) -> BitMatrix:
    """Moves marks of the other values around the column of the truth."""
    num_rows, num_others = others.shape
    column = np.arange(num_others)[None, :]
    result = np.full((num_rows, num_others + 1), presence)
    target = column + (column >= held[:, None])
    np.put_along_axis(result, target, others, axis=1)
    return result
