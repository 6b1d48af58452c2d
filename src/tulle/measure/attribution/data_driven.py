"""Weights of channels that are learnt from a log, to share credit by.

The model sees the log through one noisy histogram: how many units saw which set of channels,
and how many of them converted. It costs one release, and everything after it is free: the
effects of channels, their weights, and how noisy they are. The order of impressions is not
used: a unit has one set but many transitions, and each would cost.
"""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import polars as pl

from tulle.errors import ConfigError
from tulle.measure.attribution.channel_effects import (
    ChannelCells,
    CoalitionValue,
    FloatArray,
    IntArray,
    RateFit,
    channel_effects,
    raw_cell_counts,
)
from tulle.measure.attribution.rules import ChannelWeights
from tulle.mechanisms.discrete_laplace import (
    DiscreteLaplaceConfig,
    release_discrete_laplace,
    sample_discrete_laplace,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.fields import check_text
from tulle.privacy.units import Adjacency

LEAST_WEIGHT = 1e-3
"""Weight of a channel without effect, where the channel with the largest effect has 1."""
_NUM_REPEATS = 200
"""Times that noise is drawn again; a spread is then off by 5% or so."""
_REPEAT_SEED = 1
"""Fixed, so that a stored model always tells the same spread; this noise protects nothing."""


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
