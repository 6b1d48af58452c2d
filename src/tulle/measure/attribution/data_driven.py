"""Weights of channels that are learnt from a log, to share credit by.

The model sees the log through one noisy histogram: how many units saw which set of channels,
and how many of them converted. It costs one release, and everything after it is free: the
effects of channels, their weights, and how noisy they are. The order of impressions is not
used: a unit has one set but many transitions, and each would cost.

The game: a set of channels is worth the conversion rate of units that saw exactly it. A channel's
effect is its value in the game on the channels that a unit saw, on average over the units that saw
it. Cells with too few units have the rate that a sum of one effect a channel gives them, and no
weight of their own.

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
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.attribution.rules import ChannelWeights
from tulle.mechanisms.discrete_laplace import (
    DiscreteLaplaceConfig,
    release_discrete_laplace,
    sample_discrete_laplace,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.fields import check_count, check_text
from tulle.privacy.units import Adjacency

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
LEAST_WEIGHT = 1e-3
"""Weight of a channel without effect, where the channel with the largest effect has 1."""
_NUM_REPEATS = 200
"""Times that noise is drawn again; a spread is then off by 5% or so."""
_REPEAT_SEED = 1
"""Fixed, so that a stored model always tells the same spread; this noise protects nothing."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelGame:
    """How weights follow from counts of units by channel set. Every field is public."""

    column: str
    """The column of impressions whose values are the channels."""
    cells: ChannelCells
    value: CoalitionValue = CoalitionValue.SHAPLEY
    baseline_rate: float | None = None
    """Conversion rate of units that saw no channel, from a public source such as a test with
    a control group. None reads it off the sets that overlap, and takes 0 if none do."""

    def __post_init__(self) -> None:
        check_text("column", self.column)
        if self.baseline_rate is not None and not 0 <= self.baseline_rate <= 1:
            raise ConfigError(
                f"baseline_rate={self.baseline_rate} must be in [0, 1], or None to fit it."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataDrivenConfig:
    """Settings of a private model of channels. Every field is public."""

    epsilon: float
    """What the histogram costs."""
    game: ChannelGame

    def __post_init__(self) -> None:
        _ = self.noise

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise on each count."""
        return DiscreteLaplaceConfig.for_epsilon(self.epsilon, adjacency=Adjacency.ADD_OR_REMOVE)

    def event(self) -> DiscreteLaplace:
        """What the model costs."""
        return self.noise.event()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChannelModel:
    """Noisy counts and the weights that follow from them. May be published."""

    config: DataDrivenConfig
    noisy_counts: IntArray
    """[sets + 1, 2], see `raw_cell_counts`; may be negative."""

    @property
    def event(self) -> DiscreteLaplace:
        """What the model cost, whether its rule is used or not."""
        return self.config.event()

    @functools.cached_property
    def noisy_effects(self) -> Mapping[str, float]:
        """What seeing a channel adds to the conversion rate, by channel."""
        return self._by_channel(self._effects_of(self.noisy_counts))

    @functools.cached_property
    def effect_stddevs(self) -> Mapping[str, float]:
        """The spread of an effect over the noise, by channel, found by drawing noise again.

        The noise only: that people convert at random comes on top.
        """
        rng = SeededNoise(_REPEAT_SEED)
        shape = (_NUM_REPEATS, *self.noisy_counts.shape)
        more_noise = sample_discrete_laplace(self.config.noise.scale, shape, rng=rng)
        repeats = [self._effects_of(self.noisy_counts + noise) for noise in more_noise]
        return self._by_channel(np.std(repeats, axis=0, ddof=1))

    @property
    def rule(self) -> ChannelWeights:
        """The rule that shares credit by these effects."""
        return _rule_of_effects(np.array(list(self.noisy_effects.values())), self.config.game)

    @property
    def noisy_share_left_out(self) -> float:
        """Share of the units that saw too many channels to be used, between 0 and 1."""
        num_units = np.maximum(self.noisy_counts.sum(axis=1), 0)
        return float(num_units[-1] / max(1, num_units.sum()))

    def _effects_of(self, counts: IntArray) -> FloatArray:
        game = self.config.game
        fit = RateFit(noise_stddev=self.config.noise.noise_stddev, baseline_rate=game.baseline_rate)
        return channel_effects(counts, game.cells, fit, game.value)

    def _by_channel(self, values: FloatArray) -> dict[str, float]:
        return dict(zip(self.config.game.cells.channels, values.tolist(), strict=True))


def fit_channel_weights(
    raw_sets: pl.DataFrame, config: DataDrivenConfig, *, rng: NoiseSource | None = None
) -> ChannelModel:
    """Learns how much each channel adds to conversions, from a noisy histogram.

    Args:
      raw_sets: How many units saw which channels, and converted or not: columns `channels`,
        `converted`, `num_units`, each unit in one row at most. Sensitive.
      config: Channels, game and epsilon.
      rng: Source of the noise; None: the operating system's. Sensitive: never log or save its
        state.

    Privacy:
      Unit: that of `raw_sets`, add-remove. L1 sensitivity: 1. Event: one DiscreteLaplace
      for all cells together. Relies on: one row a unit at most.
    """
    rng = rng or release_rng()
    raw_counts = raw_cell_counts(raw_sets, config.game.cells)
    noisy_counts = release_discrete_laplace(raw_counts, config.noise, rng=rng)
    return ChannelModel(config=config, noisy_counts=noisy_counts)


def weights_from_public_history(public_sets: pl.DataFrame, game: ChannelGame) -> ChannelWeights:
    """Fits weights of channels to exact counts of data that is public. NOT PRIVATE.

    Args:
      public_sets: As for `fit_channel_weights`, of data that needs no protection: synthetic,
        published, or of a panel that agreed to it. A past period of the same users needs it.
      game: Channels and game.

    Privacy:
      None. The weights tell about every unit of `public_sets`.
    """
    fit = RateFit(noise_stddev=0.0, baseline_rate=game.baseline_rate)
    counts = raw_cell_counts(public_sets, game.cells)
    return _rule_of_effects(channel_effects(counts, game.cells, fit, game.value), game)


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


def _rule_of_effects(effects: FloatArray, game: ChannelGame) -> ChannelWeights:
    # Without any effect all channels are alike: then credit is shared as by Linear.
    largest = effects.max()
    relative = effects / largest if largest > 0 else np.ones_like(effects)
    weights = np.maximum(relative, LEAST_WEIGHT)
    return ChannelWeights(
        column=game.column,
        weights=dict(zip(game.cells.channels, weights.tolist(), strict=True)),
        other_weight=LEAST_WEIGHT,
    )
