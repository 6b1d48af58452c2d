"""What seeing a channel adds to the chance of a conversion, from counts of units by set.

The game: a set of channels is worth the conversion rate of units that saw exactly it. A
channel's effect is its value in the game on the channels that a unit saw, on average over
the units that saw it. Counts may be noisy: cells with too few units have the rate that a sum
of one effect a channel gives them, and no weight of their own.
"""

import dataclasses
import math

import numpy as np

from tulle.measure.attribution.channel_cells import ChannelCells, IntArray
from tulle.measure.attribution.coalition_values import CoalitionValue, FloatArray, coalition_values

_LEAST_UNITS_IN_STDDEVS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateFit:
    """How rates are read from counts. Public."""

    noise_stddev: float
    """Of each count; 0 for exact counts."""
    baseline_rate: float | None
    """Conversion rate of units that saw no channel; None fits it."""

    @property
    def least_units(self) -> float:
        """Cells with fewer units have no rate of their own."""
        # Both counts of a set have noise; from ten times that on a rate is off by 0.1 or less.
        return max(1.0, _LEAST_UNITS_IN_STDDEVS * math.sqrt(2) * self.noise_stddev)


def channel_effects(
    counts: IntArray, cells: ChannelCells, fit: RateFit, value: CoalitionValue
) -> FloatArray:
    """The effect of each channel on the conversion rate; 0 if too few units saw it.

    Args:
      counts: As `raw_cell_counts` gives them, with noise or of public data.
      cells: What was counted.
      fit: Noise of the counts, and the rate without any channel.
      value: How a set's rate is laid on its channels.
    """
    num_units = counts[:-1].sum(axis=1).astype(np.float64)
    has_rate = num_units >= fit.least_units
    weights = np.where(has_rate, num_units, 0.0)
    rates = _rates_of_all_sets(counts, weights, cells, fit)
    total, seen = np.zeros(len(cells.channels)), np.zeros(len(cells.channels))
    sizes = np.bitwise_count(cells.masks)
    for size in np.unique(sizes):
        members, subsets = _games_of_size(cells.masks[sizes == size], len(cells.channels))
        values = coalition_values(rates[subsets], value)
        of_game = np.broadcast_to(weights[sizes == size, None], members.shape)
        np.add.at(total, members, of_game * values)
        np.add.at(seen, members, of_game)
    return np.divide(total, seen, out=np.zeros_like(total), where=seen > 0)


def _rates_of_all_sets(
    counts: IntArray, weights: FloatArray, cells: ChannelCells, fit: RateFit
) -> FloatArray:
    """A rate for each of the 2^channels sets: its own, or that of the additive fit."""
    used = weights > 0
    masks = cells.masks[used]
    own_rates = np.clip(counts[:-1, 1][used] / weights[used], 0, 1)
    is_member = _is_member(masks, len(cells.channels))
    baseline, effects = _additive_fit(is_member, own_rates, weights[used], fit)
    every = _is_member(np.arange(1 << len(cells.channels)), len(cells.channels))
    rates = np.minimum(baseline + every @ effects, 1.0)
    rates[masks] = own_rates
    return np.asarray(rates)


def _additive_fit(
    is_member: FloatArray, own_rates: FloatArray, weights: FloatArray, fit: RateFit
) -> tuple[float, FloatArray]:
    """Least squares for a baseline and one effect a channel, none of them negative."""
    from scipy.optimize import nnls

    if not len(own_rates):
        return fit.baseline_rate or 0.0, np.zeros(is_member.shape[1])
    # The variance of a rate: that of drawing units, and that of the noise.
    mean_rate = max(float(np.average(own_rates, weights=weights)), 1e-9)
    precision = 1 / np.sqrt(mean_rate / weights + (fit.noise_stddev / weights) ** 2)
    with_baseline = np.column_stack([np.ones(len(own_rates)), is_member])
    # Without sets that overlap nothing tells the baseline from the effects.
    is_known = np.linalg.matrix_rank(with_baseline) == np.linalg.matrix_rank(is_member) + 1
    if fit.baseline_rate is None and is_known:
        found, _ = nnls(with_baseline * precision[:, None], own_rates * precision)
        return float(found[0]), found[1:]
    baseline = fit.baseline_rate or 0.0
    effects, _ = nnls(is_member * precision[:, None], (own_rates - baseline) * precision)
    return baseline, effects


def _is_member(masks: IntArray, num_channels: int) -> FloatArray:
    return ((masks[:, None] >> np.arange(num_channels)) & 1).astype(np.float64)


def _games_of_size(masks: IntArray, num_channels: int) -> tuple[IntArray, IntArray]:
    """For sets of one size: their members, and the masks of all subsets of each, in order."""
    members = np.nonzero(_is_member(masks, num_channels))[1].reshape(len(masks), -1)
    size = members.shape[1]
    in_subset = (np.arange(1 << size)[:, None] >> np.arange(size)) & 1
    return members, (1 << members) @ in_subset.T
