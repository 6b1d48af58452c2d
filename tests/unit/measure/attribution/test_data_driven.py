"""A model of channels behind noise."""

import numpy as np
import polars as pl
import pytest

from statistical.noise_checks import assert_discrete
from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, FrameTable, Side
from tulle.measure.attribution.channel_effects import ChannelCells, CoalitionValue, raw_cell_counts
from tulle.measure.attribution.data_driven import (
    LEAST_WEIGHT,
    ChannelGame,
    DataDrivenConfig,
    fit_channel_weights,
    weights_from_public_history,
)
from tulle.measure.attribution.rules import Attribution, Linear
from tulle.measure.engines.channel_paths import channel_sets
from tulle.measure.engines.engine import open_engine
from tulle.measure.slice_jobs import SliceColumn
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.units import Unit
from unit.measure.attribution.exposures import CHANNELS, EFFECTS, table_of, units_of
from unit.measure.attribution.reference import Touch, credit_by_rule

MANY = table_of(units_of({1: 40_000, 2: 20_000, 3: 10_000}))


def config_of(
    *, epsilon: float = 1.0, value: CoalitionValue = CoalitionValue.SHAPLEY, max_set_size: int = 3
) -> DataDrivenConfig:
    cells = ChannelCells(channels=CHANNELS, max_set_size=max_set_size)
    return DataDrivenConfig(
        epsilon=epsilon, game=ChannelGame(column="publisher", cells=cells, value=value)
    )


@pytest.mark.parametrize("value", list(CoalitionValue))
def test_a_planted_truth_is_found_through_the_noise(value: CoalitionValue) -> None:
    model = fit_channel_weights(MANY, config_of(value=value), rng=SeededNoise(1))
    weights = model.rule.weights
    assert weights["news"] == 1
    assert weights["video"] == pytest.approx(1 / 3, abs=0.03)
    assert weights["radio"] < 0.03
    assert model.rule.column == "publisher"
    touches = [Touch(age_seconds=1, channel=channel) for channel in CHANNELS]
    assert credit_by_rule(model.rule, touches)[0] == pytest.approx(0.75, abs=0.02)


def log_of_planted_effects(num_users: int) -> AdLog:
    """Half of the users see each channel; of those who saw any, some convert a day later."""
    rng = np.random.default_rng(8)
    seen = rng.random((num_users, len(CHANNELS))) < 0.5
    rates = 0.02 + 5 * seen @ np.array(list(EFFECTS.values()))
    users, channels = np.nonzero(seen)
    impressions = pl.DataFrame(
        {
            "user": users,
            "timestamp": 1_000_000 + rng.integers(0, 3600, size=len(users)),
            "publisher": np.array(CHANNELS)[channels],
        }
    )
    (buyers,) = np.nonzero(seen.any(axis=1) & (rng.random(num_users) < rates))
    conversions = pl.DataFrame({"user": buyers, "timestamp": np.full(len(buyers), 1_086_400)})
    return AdLog(
        impressions=FrameTable(frame=impressions), conversions=FrameTable(frame=conversions)
    )


@pytest.mark.parametrize("value", list(CoalitionValue))
def test_a_planted_truth_is_found_in_a_log(value: CoalitionValue) -> None:
    with open_engine("duckdb") as engine:
        raw_sets = channel_sets(
            engine,
            log_of_planted_effects(100_000),
            Attribution(rule=Linear(), lookback_seconds=7 * 86_400),
            SliceColumn(name="channel", side=Side.IMPRESSION, column="publisher"),
            unit=Unit.user(),
            salt=b"0123456789abcdef",
        )
    model = fit_channel_weights(raw_sets, config_of(value=value), rng=SeededNoise(1))
    # Drawing people spreads an effect by 0.0022 and a weight by 0.015: 6.5 times that is far.
    expected = [5 * effect for effect in EFFECTS.values()]
    assert list(model.noisy_effects.values()) == pytest.approx(expected, abs=0.015)
    assert model.rule.weights["video"] == pytest.approx(1 / 3, abs=0.1)
    assert model.rule.weights["radio"] < 0.1


@pytest.mark.parametrize("value", list(CoalitionValue))
def test_the_stated_spread_is_that_of_many_releases(value: CoalitionValue) -> None:
    config = config_of(epsilon=0.3, value=value)
    models = [fit_channel_weights(MANY, config, rng=SeededNoise(seed)) for seed in range(300)]
    effects = np.array([[model.noisy_effects[c] for c in CHANNELS] for model in models])
    stated = np.array([models[0].effect_stddevs[c] for c in CHANNELS])
    # Standard deviations of 300 and of 200 draws are each within 7% or so; twice is refused.
    assert np.std(effects, axis=0) == pytest.approx(stated, rel=0.45)
    errors = np.abs(effects.mean(axis=0) - list(EFFECTS.values()))
    assert np.all(errors < 7 * stated / np.sqrt(300))


def test_the_counts_have_the_noise_of_the_event() -> None:
    epsilon = 0.7
    config = config_of(epsilon=epsilon)
    exact = raw_cell_counts(MANY, config.game.cells)

    def noise(rng: NoiseSource, size: int) -> np.ndarray:
        num_models = -(-size // exact.size)
        models = (fit_channel_weights(MANY, config, rng=rng) for _ in range(num_models))
        return np.concatenate([(m.noisy_counts - exact).ravel() for m in models])[:size]

    assert config.event() == DiscreteLaplace(scale=config.noise.scale)
    assert config.noise.scale == pytest.approx(1 / epsilon)
    assert_discrete(
        noise, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=config.noise.scale
    )


def test_the_weights_follow_from_the_noisy_counts_alone() -> None:
    config = config_of()
    model = fit_channel_weights(MANY, config, rng=SeededNoise(5))
    cells = config.game.cells
    names = [tuple(c for i, c in enumerate(CHANNELS) if mask >> i & 1) for mask in cells.masks]
    # A log that has the noisy counts as its exact ones.
    again = {
        (name, converted): max(0, int(model.noisy_counts[row, int(converted)]))
        for row, name in enumerate(names)
        for converted in (False, True)
    }
    exact = weights_from_public_history(table_of(again), config.game)
    assert model.rule.weights == pytest.approx(dict(exact.weights), abs=1e-3)


def test_public_history_gives_the_weights_without_noise() -> None:
    rule = weights_from_public_history(MANY, config_of().game)
    assert rule.weights == pytest.approx({"news": 1, "video": 1 / 3, "radio": LEAST_WEIGHT})


def test_units_that_saw_too_much_are_told() -> None:
    model = fit_channel_weights(MANY, config_of(max_set_size=2), rng=SeededNoise(1))
    assert model.noisy_share_left_out == pytest.approx(1 / 19, abs=0.001)
    assert model.event == config_of().event()


def test_without_any_units_all_channels_weigh_the_same() -> None:
    empty = MANY.with_columns(num_units=pl.lit(0))
    model = fit_channel_weights(empty, config_of(), rng=SeededNoise(1))
    assert set(model.rule.weights.values()) == {1.0}


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_an_epsilon_that_is_no_limit_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon="):
        config_of(epsilon=epsilon)


@pytest.mark.parametrize("baseline_rate", [-0.1, 1.5, float("nan")])
def test_a_baseline_that_is_no_rate_is_refused(baseline_rate: float) -> None:
    cells = ChannelCells(channels=CHANNELS)
    with pytest.raises(ConfigError, match="baseline_rate="):
        ChannelGame(column="publisher", cells=cells, baseline_rate=baseline_rate)
