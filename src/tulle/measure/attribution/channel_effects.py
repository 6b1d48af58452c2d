"""What seeing a channel adds to the probability of a conversion, from counts of units by set.

The game: a set of channels is worth the conversion rate of units that saw exactly it. A
channel's effect is its value in the game on the channels that a unit saw, on average over
the units that saw it. Counts may be noisy: cells with too few units have the rate that a sum
of one effect a channel gives them, and no weight of their own.

A unit is in one cell at most, so that one unit more or less changes one count by 1. Sets of more
channels than wanted have a cell of their own: cut down to fewer channels, they would be counted as
people who saw less than they did. Both values of a game are linear in the worths of its sets, so
that many games are valued by one product. A set is a number whose bit i says that channel i is in
it; worths are in the order of these numbers.
"""

import dataclasses
import enum
import functools
import math

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_count, check_text

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MAX_CHANNELS = 12
"""Most channels: a game has a worth for each of their 2^12 sets."""
MAX_CELLS = 5000
"""Most counts that get noise: with more, each holds too few units to tell a rate."""
_TYPES = {"channels": pl.List(pl.String), "converted": pl.Boolean}
"""Columns that a table of channel sets must have, beside num_units."""
_LEAST_UNITS_IN_STDDEVS = 10.0
"""Units of a set, in deviations of their noise, from which on it has a rate of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelCells:
    """The cells that units are counted in. Public."""

    channels: tuple[str, ...]
    """Names of the channels; others are ignored."""
    max_set_size: int = 3
    """Units that saw more channels than this are counted apart, and not used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        for channel in self.channels:
            check_text("channels", channel)
        if len(set(self.channels)) < len(self.channels):
            raise ConfigError(f"channels={list(self.channels)} must be distinct.")
        if not 2 <= len(self.channels) <= MAX_CHANNELS:
            raise ConfigError(
                f"channels has {len(self.channels)} names, must have 2 to {MAX_CHANNELS}; put "
                "small channels together in a column of their groups."
            )
        check_count("max_set_size", self.max_set_size)
        if self.num_cells > MAX_CELLS:
            raise ConfigError(
                f"max_set_size={self.max_set_size} with {len(self.channels)} channels makes "
                f"{self.num_cells} cells, must be at most {MAX_CELLS}; lower it, e.g. to 3."
            )

    @property
    def num_cells(self) -> int:
        """How many counts there are."""
        num_channels = len(self.channels)
        sizes = range(1, min(self.max_set_size, num_channels) + 1)
        return 2 * (1 + sum(math.comb(num_channels, size) for size in sizes))

    @functools.cached_property
    def masks(self) -> IntArray:
        """The sets, as numbers whose bit i says that channel i is in the set; by size."""
        every = np.arange(1, 1 << len(self.channels))
        sizes = np.bitwise_count(every)
        kept = every[sizes <= self.max_set_size]
        return kept[np.argsort(np.bitwise_count(kept), kind="stable")].astype(np.int64)


class CoalitionValue(enum.Enum):
    """How the worth of all players together is laid on each of them."""

    SHAPLEY = "shapley"
    """What a player adds to those before it, on average over all orders of players.

    The values add up to the worth of all less that of none (Shapley 1953).
    """
    REMOVAL = "removal"
    """What is lost if the player goes and all others stay. Need not add up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateFit:
    """How rates are read from counts. Public."""

    noise_stddev: float
    """Standard deviation of the noise on each count; 0 for exact counts."""
    baseline_rate: float | None
    """Conversion rate of units that saw no channel; None fits it."""

    @property
    def least_units(self) -> float:
        """Cells with fewer units have no rate of their own."""
        # Both counts of a set have noise; from ten times that on a rate is off by 0.1 or less.
        return max(1.0, _LEAST_UNITS_IN_STDDEVS * math.sqrt(2) * self.noise_stddev)


def raw_cell_counts(raw_sets: pl.DataFrame, cells: ChannelCells) -> IntArray:
    """Exact counts [sets + 1, 2] of units, not converted and converted. Sensitive.

    The last row is that of sets with more than max_set_size channels. Units that saw none of
    the channels are in no cell.

    Args:
      raw_sets: Columns `channels` (lists of text), `converted` (true or false) and
        `num_units` (whole numbers): how many units saw exactly these channels. Sensitive.
      cells: Channels and sizes of sets.

    Privacy:
      L1 sensitivity: 1 under add-remove. Relies on: each unit is counted in `num_units`
      of one row at most.
    """
    _check_table(raw_sets)
    bit_of = {channel: 1 << place for place, channel in enumerate(cells.channels)}
    place_of = {int(mask): place for place, mask in enumerate(cells.masks)}
    counts = np.zeros((len(place_of) + 1, 2), dtype=np.int64)
    for channels, converted, num_units in raw_sets.select([*_TYPES, "num_units"]).iter_rows():
        mask = sum(bit_of.get(channel, 0) for channel in set(channels))
        if mask:
            counts[place_of.get(mask, -1), int(converted)] += num_units
    return counts


def channel_effects(
    counts: IntArray, cells: ChannelCells, fit: RateFit, value: CoalitionValue
) -> FloatArray:
    """The effect of each channel on the conversion rate; 0 if too few units saw it.

    Args:
      counts: Counts as `raw_cell_counts` gives them, with noise or of public data.
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


def coalition_values(worths: FloatArray, value: CoalitionValue) -> FloatArray:
    """The value of each player: [..., 2^players] worths give [..., players] values."""
    num_players = int(np.shape(worths)[-1]).bit_length() - 1
    if num_players < 1 or np.shape(worths)[-1] != 1 << num_players:
        raise ConfigError(
            f"worths has {np.shape(worths)[-1]} sets; it must have 2^players, the empty set first."
        )
    return np.asarray(worths @ _coefficients(num_players, value))


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
    """Members of sets of one size, and the masks of all subsets of each, in order."""
    members = np.nonzero(_is_member(masks, num_channels))[1].reshape(len(masks), -1)
    size = members.shape[1]
    in_subset = (np.arange(1 << size)[:, None] >> np.arange(size)) & 1
    return members, (1 << members) @ in_subset.T


@functools.lru_cache(maxsize=64)
def _coefficients(num_players: int, value: CoalitionValue) -> FloatArray:
    """[sets, players]: how much the worth of a set counts for a player."""
    sets = np.arange(1 << num_players)
    columns = []
    for player in range(num_players):
        with_player = sets[(sets >> player) & 1 == 1]
        probs = _probs(with_player, num_players, value)
        column = np.zeros(len(sets))
        column[with_player] = probs
        column[with_player ^ (1 << player)] = -probs
        columns.append(column)
    return np.stack(columns, axis=1)


def _probs(
    with_player: npt.NDArray[np.int64], num_players: int, value: CoalitionValue
) -> FloatArray:
    """The probability that the player comes as the last of each set that has it."""
    sizes = np.bitwise_count(with_player)
    if value is CoalitionValue.REMOVAL:
        return np.asarray(sizes == num_players, dtype=np.float64)
    # (s - 1)! (n - s)! / n! orders have the other s - 1 before it and the rest after it.
    of_size = [1 / (size * math.comb(num_players, size)) for size in range(1, num_players + 1)]
    return np.asarray(np.array(of_size)[sizes - 1])


def _check_table(raw_sets: pl.DataFrame) -> None:
    for name in (*_TYPES, "num_units"):
        if name not in raw_sets.columns:
            raise DataError(f"the table of channel sets has no column {name!r}; it needs it.")
        if raw_sets[name].null_count():
            raise DataError(f"column {name!r} of the channel sets has nulls; fill or drop them.")
    for name, dtype in _TYPES.items():
        if raw_sets.schema[name] != dtype:
            raise DataError(
                f"column {name!r} of the channel sets is {raw_sets.schema[name]}, must be {dtype}."
            )
    if not raw_sets.schema["num_units"].is_integer() or (raw_sets["num_units"] < 0).any():
        raise DataError("column 'num_units' of the channel sets must hold whole numbers >= 0.")
