"""One noisy report about all labels of a unit, where at most a few are 1.

A unit with K rows and at most C conversions has far fewer than 2^K label
vectors. Randomized response over these vectors spends the whole epsilon once,
instead of epsilon / K on each row. Conversions beyond the cap are dropped by a
rule that sees this unit's labels alone, before any noise.

With C = 1 the label vector is one value of K + 1 (which row converted, or
none), and subset selection over it has less variance for small epsilon.
"""

import dataclasses
import enum
import functools
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms import randomized_response, subset_selection
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.noisy_reports import SupportProbs
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.subset_ranks import (
    BitMatrix,
    check_vector_count,
    count_vectors,
    ones_of,
    rank_vectors,
    unrank_vectors,
)
from tulle.mechanisms.subset_selection import SubsetSelectionConfig
from tulle.privacy.events import RandomizedResponse, SubsetSelection
from tulle.privacy.fields import check_count

_MAX_CHANNEL_OUTPUTS = 1 << 12
"""Most reports that are written out one by one, for exact checks of small cases."""


class ConversionChoice(enum.Enum):
    """Which conversions of a unit are kept if it has more than its cap."""

    FIRST = "first"
    RANDOM = "random"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointResponseConfig:
    """Settings of joint randomized response for units of one size. All are public."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two label vectors."""
    num_rows: int
    """Rows of the unit."""
    max_conversions: int = 1
    """Most labels of 1 that a unit keeps."""
    choice: ConversionChoice = ConversionChoice.FIRST

    def __post_init__(self) -> None:
        check_count("num_rows", self.num_rows)
        check_count("max_conversions", self.max_conversions)
        _check_choice(self.choice)
        check_vector_count(self.num_rows, self.max_conversions)
        self.response.event()

    @property
    def num_states(self) -> int:
        """How many label vectors there are within the cap."""
        return count_vectors(self.num_rows, self.max_conversions)

    @functools.cached_property
    def response(self) -> RandomizedResponseConfig:
        """The randomized response over the numbers of the label vectors."""
        return RandomizedResponseConfig(epsilon=self.epsilon, num_values=self.num_states)

    def event(self) -> RandomizedResponse:
        """What the report of each unit costs."""
        return self.response.event()

    @property
    def row_probs(self) -> SupportProbs:
        """Probability that a row is reported as 1, by its label within the cap."""
        probs = self.response.support_probs
        num_marked = count_vectors(self.num_rows - 1, self.max_conversions - 1)
        lies = probs.if_not_held * num_marked
        return SupportProbs(if_held=lies + probs.if_held - probs.if_not_held, if_not_held=lies)

    def pair_prob(self, label: int, other_label: int) -> Fraction:
        """Probability that two rows are both reported as 1, by their labels within the cap."""
        _check_pair(self.num_rows, self.max_conversions, label + other_label)
        probs = self.response.support_probs
        num_marked = (
            count_vectors(self.num_rows - 2, self.max_conversions - 2)
            if self.max_conversions > 1
            else 0
        )
        gain = probs.if_held - probs.if_not_held if label and other_label else 0
        return probs.if_not_held * num_marked + gain

    def outputs(self) -> list[tuple[int, ...]]:
        """All label vectors within the cap, in the order of their numbers."""
        if self.num_states > _MAX_CHANNEL_OUTPUTS:
            raise ConfigError(
                f"num_rows={self.num_rows} and max_conversions={self.max_conversions} give "
                f"{self.num_states} reports; they are written out for at most "
                f"{_MAX_CHANNEL_OUTPUTS}. Use row_probs."
            )
        numbers = np.arange(self.num_states)
        vectors = unrank_vectors(numbers, self.num_rows, self.max_conversions)
        return [tuple(vector) for vector in vectors.tolist()]

    def realised_channel(self) -> list[list[Fraction]]:
        """Exact probability of each output (column) for each label vector within the cap (row)."""
        self.outputs()
        return self.response.realised_channel()


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointSubsetConfig:
    """Settings of subset selection over "which row converted, or none". All are public."""

    epsilon: float
    """Largest log-likelihood ratio of a report between any two label vectors."""
    num_rows: int
    """Rows of the unit."""
    choice: ConversionChoice = ConversionChoice.FIRST

    def __post_init__(self) -> None:
        check_count("num_rows", self.num_rows)
        _check_choice(self.choice)
        check_vector_count(self.num_rows, 1)
        self.selection.event()

    @property
    def max_conversions(self) -> int:
        """Most labels of 1 that a unit keeps."""
        return 1

    @property
    def num_states(self) -> int:
        """How many label vectors there are within the cap."""
        return self.num_rows + 1

    @functools.cached_property
    def selection(self) -> SubsetSelectionConfig:
        """The subset selection, with the size of least variance for a row of label 0."""
        candidates = (
            SubsetSelectionConfig(
                epsilon=self.epsilon, num_values=self.num_states, subset_size=size
            )
            for size in self._sizes()
        )
        return min(candidates, key=_negative_variance)

    def event(self) -> SubsetSelection:
        """What the report of each unit costs."""
        return self.selection.event()

    @property
    def row_probs(self) -> SupportProbs:
        """Probability that a row is marked, by its label within the cap."""
        return self.selection.support_probs

    def pair_prob(self, label: int, other_label: int) -> Fraction:
        """Probability that two rows are both marked, by their labels within the cap."""
        _check_pair(self.num_rows, 1, label + other_label)
        selection = self.selection
        size, num_others = selection.reported_size, self.num_states - 1
        held = selection.support_probs.if_held
        if label or other_label:
            return held * Fraction(size - 1, num_others)
        pairs = held * (size - 1) * (size - 2) + (1 - held) * size * (size - 1)
        return pairs / (num_others * (num_others - 1))

    def outputs(self) -> list[tuple[int, ...]]:
        """All reports as marks of the rows, in the order of the channel's columns.

        The mark of "none" is left out: it follows, since all subsets have one size.
        """
        return [tuple(int(mark) for mark in marks[1:]) for marks in self.selection.outputs()]

    def realised_channel(self) -> list[list[Fraction]]:
        """Exact probability of each output (column) for each label vector within the cap (row)."""
        return self.selection.realised_channel()

    def _sizes(self) -> list[int]:
        default = SubsetSelectionConfig(
            epsilon=self.epsilon, num_values=self.num_states
        ).reported_size
        near = {1, default - 1, default, default + 1}
        return sorted(size for size in near if 1 <= size < self.num_states)


def release_joint_response(
    raw_vectors: ArrayLike,
    config: JointResponseConfig | JointSubsetConfig,
    *,
    rng: NoiseSource | None = None,
) -> BitMatrix:
    """Draws one report, a row of zeros and ones, for the label vector of each unit.

    Args:
      raw_vectors: One row for each unit: its labels, 0 or 1, in the order of its rows.
      config: Privacy settings for units of this size.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: one row of the matrix, replace: any label vector against any other, also
      beyond the cap. Event: that of the config. Relies on: the rows of a unit and
      their order are public, each unit is one row of the matrix, drawn once.
    """
    rng = rng or release_rng()
    vectors = _checked_vectors(raw_vectors, config.num_rows)
    capped = cap_conversions(vectors, config.max_conversions, config.choice, rng=rng)
    states = rank_vectors(capped, config.max_conversions)
    if isinstance(config, JointSubsetConfig):
        marks = subset_selection.release_subset_selection(states, config.selection, rng=rng)
        return marks[:, 1:].astype(np.uint8)
    reports = randomized_response.release_randomized_response(states, config.response, rng=rng)
    return unrank_vectors(reports, config.num_rows, config.max_conversions)


def cap_conversions(
    raw_vectors: NDArray[np.bool_],
    max_conversions: int,
    choice: ConversionChoice,
    *,
    rng: NoiseSource,
) -> NDArray[np.bool_]:
    """Keeps at most `max_conversions` ones of each vector, looking at no other vector.

    Args:
      raw_vectors: One row for each unit.
      max_conversions: Most ones to keep.
      choice: Which ones; random ones are drawn afresh at each call.
      rng: Source of a random choice.

    Privacy:
      Unit: one row of the matrix. Not a release: the result is as sensitive as the labels.
    """
    owners, places, numbers = ones_of(raw_vectors)
    if choice is ConversionChoice.RANDOM:
        shuffled = np.lexsort((rng.words(owners.size), owners))
        places = places[shuffled]
    is_dropped = numbers >= max_conversions
    capped = raw_vectors.copy()
    capped[owners[is_dropped], places[is_dropped]] = False
    return capped


def _checked_vectors(raw_vectors: ArrayLike, num_rows: int) -> NDArray[np.bool_]:
    vectors = np.asarray(raw_vectors)
    if vectors.ndim != 2 or vectors.shape[1] != num_rows:
        raise DataError(
            f"raw_vectors has the shape {vectors.shape}; give one row of num_rows={num_rows} "
            "labels for each unit."
        )
    if vectors.dtype.kind not in "biu" or not ((vectors == 0) | (vectors == 1)).all():
        raise DataError("raw_vectors must hold the whole numbers 0 and 1; encode the labels first.")
    return vectors.astype(np.bool_, copy=False)


def _negative_variance(config: SubsetSelectionConfig) -> Fraction:
    probs = config.support_probs
    return probs.if_not_held * (1 - probs.if_not_held) / (probs.if_held - probs.if_not_held) ** 2


def _check_pair(num_rows: int, max_conversions: int, num_ones: int) -> None:
    if num_rows < 2 or num_ones > max_conversions:
        raise ConfigError(
            f"num_rows={num_rows} and max_conversions={max_conversions} allow no two rows with "
            f"{num_ones} conversions; raise max_conversions."
        )


def _check_choice(choice: object) -> None:
    if not isinstance(choice, ConversionChoice):
        raise ConfigError(f"choice={choice!r} must be a ConversionChoice, e.g. FIRST.")
