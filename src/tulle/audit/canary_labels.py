"""Canaries whose labels are fair coins: rows of the data itself, one of a unit at most.

A flipped label is a replaced one, so nothing is added to the data, and the claim that is
audited is the claim of the run. The coins are for the audit alone: training is handed labels
and cannot tell which of them were drawn.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import sample_bernoulli
from tulle.privacy.fields import check_count
from tulle.train.examples import ExampleSet

IntArray = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelCanaries:
    """Data with canaries. Sensitive: the coins must not reach the training."""

    examples: ExampleSet
    """The rows to train on."""
    rows: IntArray
    """Which of them are canaries, ascending."""
    coins: IntArray
    """The label of each canary."""


def plant_label_canaries(
    examples: ExampleSet, num_canaries: int, *, rng: NoiseSource
) -> LabelCanaries:
    """Gives some rows a label by a fair coin.

    Args:
      examples: Rows with labels 0 and 1. They are not changed.
      num_canaries: How many rows, in as many units.
      rng: Source of the choice and of the coins.

    Privacy:
      The labels of canaries are lost to the training. What is released about the coins tells
      nothing about the labels that they took the place of.
    """
    if examples.labels is None:
        raise DataError("the rows have no label column; name one in the schema.")
    check_count("num_canaries", num_canaries)
    candidates = _one_row_a_unit(examples, rng)
    if num_canaries > candidates.size:
        raise ConfigError(
            f"num_canaries={num_canaries} must be <= {candidates.size}, the number of units with "
            "a row; lower it."
        )
    # Words tie so rarely that no order is favoured.
    order = np.argsort(rng.words(candidates.size), kind="stable")
    rows = np.sort(candidates[order[:num_canaries]])
    coins = sample_bernoulli(0.5, num_canaries, rng=rng).astype(np.int64)
    labels = np.array(examples.labels, copy=True)
    labels[rows] = coins
    # They are other data now, whatever they were read from.
    planted = dataclasses.replace(examples, labels=labels, fingerprint="")
    return LabelCanaries(examples=planted, rows=rows, coins=coins)


def _one_row_a_unit(examples: ExampleSet, rng: NoiseSource) -> IntArray:
    """Rows of different units: a claim for units speaks of one coin of each."""
    shuffled = np.argsort(rng.words(examples.num_rows), kind="stable")
    if examples.units is None:
        return shuffled
    _, first = np.unique(examples.units[shuffled], return_index=True)
    return np.asarray(shuffled[first], dtype=np.int64)
