"""Exact moments of the debiased targets of one unit's rows.

A target is (report - a) / g, with a the chance of a report of 1 for a label of 0
and g by how much a label of 1 raises it. Its mean is the label within the cap.
Reports of one unit are drawn together, so the targets of two of its rows are
correlated: with at most one conversion they repel each other.
"""

from fractions import Fraction
from typing import Protocol

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.frequency import SupportProbs


class VectorConfig(Protocol):
    """Settings of a randomizer of the label vector of a unit."""

    @property
    def row_probs(self) -> SupportProbs:
        """The chance that a row is reported as 1, by its label within the cap."""

    def pair_prob(self, label: int, other_label: int) -> Fraction:
        """The chance that two rows are both reported as 1."""


def row_channel(config: VectorConfig) -> BinaryChannel:
    """The channel of each single row of the unit."""
    return channel_of(config.row_probs)


def channel_of(probs: SupportProbs) -> BinaryChannel:
    """The channel with these chances."""
    return BinaryChannel(
        prob_if_negative=np.asarray(float(probs.if_not_held)),
        prob_if_positive=np.asarray(float(probs.if_held)),
    )


def row_variance(config: VectorConfig, label: int) -> Fraction:
    """Variance of the target of a row with this label within the cap, over the noise."""
    probs = config.row_probs
    chance = probs.if_held if label else probs.if_not_held
    return chance * (1 - chance) / (probs.if_held - probs.if_not_held) ** 2


def row_covariance(config: VectorConfig, label: int, other_label: int) -> Fraction:
    """Covariance of the targets of two rows of one unit, over the noise."""
    probs = config.row_probs
    first, second = (
        probs.if_held if value else probs.if_not_held for value in (label, other_label)
    )
    gain = probs.if_held - probs.if_not_held
    return (config.pair_prob(label, other_label) - first * second) / gain**2


def mean_covariance(config: VectorConfig, base_rate: float, max_conversions: int) -> float:
    """Covariance of two rows where this share of labels within the cap is 1.

    The labels of the two rows are taken as independent, but never both 1 with a
    cap of one conversion.
    """
    if not 0 < base_rate < 1:
        raise ConfigError(f"base_rate={base_rate} must be between 0 and 1, e.g. 0.05.")
    both = 0.0 if max_conversions == 1 else base_rate**2
    neither = float(row_covariance(config, 0, 0)) * (1 - 2 * base_rate + both)
    one = float(row_covariance(config, 0, 1)) * 2 * (base_rate - both)
    return neither + one + (float(row_covariance(config, 1, 1)) * both if both else 0.0)
