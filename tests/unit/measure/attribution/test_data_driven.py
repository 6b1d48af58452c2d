"""A model of channels behind noise."""

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from statistical.noise_checks import assert_discrete
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, FrameTable, Side
from tulle.measure.attribution.data_driven import (
    LEAST_WEIGHT,
    ChannelCells,
    ChannelGame,
    CoalitionValue,
    DataDrivenConfig,
    RateFit,
    channel_effects,
    coalition_values,
    fit_channel_weights,
    raw_cell_counts,
    weights_from_public_history,
)
from tulle.measure.attribution.rules import Attribution, Linear
from tulle.measure.engines.engine import open_engine
from tulle.measure.engines.matching import channel_sets
from tulle.measure.slice_jobs import SliceColumn
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.events import DiscreteLaplace
from tulle.privacy.units import Unit
from unit.measure.attribution.exposures import (
    BASELINE,
    CHANNELS,
    EFFECTS,
    additive_rate,
    table_of,
    units_of,
)
from unit.measure.attribution.reference import Touch, credit_by_rule

CELLS = ChannelCells(channels=CHANNELS)
EXACT = RateFit(noise_stddev=0.0, baseline_rate=None)
SIZES = {1: 4000, 2: 2000, 3: 1000}
BOTH = list(CoalitionValue)
MANY = table_of(units_of({1: 40_000, 2: 20_000, 3: 10_000}))


def synergy_rate(channels: tuple[str, ...]) -> float:
    """News and video together do more than each alone."""
    return additive_rate(channels) + 0.02 * ({"news", "video"} <= set(channels))


@pytest.mark.parametrize("value", BOTH)
def test_effects_that_add_up_are_found_as_they_are(value: CoalitionValue) -> None:
    counts = raw_cell_counts(table_of(units_of(SIZES)), CELLS)
    effects = channel_effects(counts, CELLS, EXACT, value)
    assert effects == pytest.approx(list(EFFECTS.values()), abs=1e-9)


def test_the_removal_effect_is_what_a_population_without_the_channel_loses() -> None:
    units = units_of(SIZES, synergy_rate)
    fit = RateFit(noise_stddev=0.0, baseline_rate=BASELINE)
    effects = channel_effects(
        raw_cell_counts(table_of(units), CELLS), CELLS, fit, CoalitionValue.REMOVAL
    )
    for channel, effect in zip(CHANNELS, effects, strict=True):
        lost, num_seen = 0.0, 0
        for (channels, _), num_units in units.items():
            if channel in channels:
                left = tuple(other for other in channels if other != channel)
                lost += num_units * (synergy_rate(channels) - synergy_rate(left))
                num_seen += num_units
        assert effect == pytest.approx(lost / num_seen, abs=1e-9)


def test_shapley_values_halve_what_two_channels_do_together() -> None:
    # Only news and video, always together: the synergy is shared, removal counts it twice.
    units = {
        key: num
        for key, num in units_of(SIZES, synergy_rate).items()
        if key[0] == ("news", "video") or len(key[0]) == 1
    }
    counts = raw_cell_counts(table_of(units), CELLS)
    fit = RateFit(noise_stddev=0.0, baseline_rate=BASELINE)
    shares = {
        value: channel_effects(counts, CELLS, fit, value)[0] - EFFECTS["news"] for value in BOTH
    }
    # 2,000 of the 6,000 who saw news saw video as well.
    assert shares[CoalitionValue.SHAPLEY] == pytest.approx(0.01 / 3)
    assert shares[CoalitionValue.REMOVAL] == pytest.approx(0.02 / 3)


def test_without_overlap_the_baseline_is_part_of_every_effect() -> None:
    counts = raw_cell_counts(table_of(units_of({1: 4000})), CELLS)
    effects = channel_effects(counts, CELLS, EXACT, CoalitionValue.SHAPLEY)
    assert effects == pytest.approx([BASELINE + effect for effect in EFFECTS.values()])


@pytest.mark.parametrize("value", BOTH)
def test_cells_of_few_units_are_not_used(value: CoalitionValue) -> None:
    units = units_of(SIZES)
    fit = RateFit(noise_stddev=10.0, baseline_rate=None)
    assert 141 < fit.least_units < 142
    # A pair of 100 people who all converted would raise its channels above all others.
    units[(("video", "radio"), True)], units[(("video", "radio"), False)] = 100, 0
    effects = channel_effects(raw_cell_counts(table_of(units), CELLS), CELLS, fit, value)
    assert effects == pytest.approx(list(EFFECTS.values()), abs=1e-9)


def test_nothing_follows_from_empty_cells() -> None:
    counts = np.zeros((len(CELLS.masks) + 1, 2), dtype=np.int64)
    assert not channel_effects(counts, CELLS, EXACT, CoalitionValue.SHAPLEY).any()


CELLS_OF_CHANNEL_CELLS = ChannelCells(channels=CHANNELS, max_set_size=2)


def test_every_set_has_its_row_and_larger_sets_share_the_last() -> None:
    counts = raw_cell_counts(
        table_of(
            {
                (("video", "news"), True): 5,
                (("news", "video", "news"), True): 2,
                (("news",), False): 7,
                (CHANNELS, False): 11,
                (("billboard", "radio"), True): 3,
                (("billboard",), True): 13,
                ((), True): 17,
            }
        ),
        CELLS_OF_CHANNEL_CELLS,
    )
    rows = [*CELLS_OF_CHANNEL_CELLS.masks.tolist(), "larger"]
    assert CELLS_OF_CHANNEL_CELLS.masks.tolist() == [0b001, 0b010, 0b100, 0b011, 0b101, 0b110]
    filled = {row: pair for row, pair in zip(rows, counts.tolist(), strict=True) if any(pair)}
    assert filled == {0b001: [7, 0], 0b011: [0, 7], 0b100: [0, 3], "larger": [11, 0]}


@pytest.mark.parametrize(("num_channels", "max_set_size"), [(2, 1), (4, 3), (12, 3), (5, 9)])
def test_the_number_of_cells_is_that_of_sets_and_outcomes(
    num_channels: int, max_set_size: int
) -> None:
    cells = ChannelCells(
        channels=tuple(f"channel {i}" for i in range(num_channels)), max_set_size=max_set_size
    )
    sets = [
        members
        for size in range(1, max_set_size + 1)
        for members in itertools.combinations(range(num_channels), size)
    ]
    assert len(cells.masks) == len(sets)
    assert {int(mask) for mask in cells.masks} == {sum(1 << i for i in s) for s in sets}
    assert cells.num_cells == 2 * (len(sets) + 1)


@given(
    units=st.lists(
        st.tuples(st.lists(st.sampled_from([*CHANNELS, "billboard"])), st.booleans()), min_size=1
    ),
    data=st.data(),
)
def test_one_unit_more_changes_one_count_by_one_at_most(
    units: list[tuple[list[str], bool]], data: st.DataObject
) -> None:
    def counts_of(rows: list[tuple[list[str], bool]]) -> np.ndarray:
        frame = pl.DataFrame(
            {
                "channels": [channels for channels, _ in rows],
                "converted": [converted for _, converted in rows],
                "num_units": [1] * len(rows),
            },
            schema={"channels": pl.List(pl.String), "converted": pl.Boolean, "num_units": pl.Int64},
        )
        return raw_cell_counts(frame, CELLS_OF_CHANNEL_CELLS)

    place = data.draw(st.integers(0, len(units) - 1))
    others = [*units[:place], *units[place + 1 :]]
    assert np.abs(counts_of(units) - counts_of(others)).sum() <= 1


@pytest.mark.parametrize(
    ("channels", "max_set_size", "reason"),
    [
        (("news",), 2, "2 to 12"),
        (tuple(f"c{i}" for i in range(13)), 2, "2 to 12"),
        (("news", "news"), 2, "distinct"),
        (("news", ""), 2, "not empty"),
        (("news", "video"), 0, "max_set_size"),
        (tuple(f"c{i}" for i in range(12)), 8, "at most 5000"),
    ],
)
def test_cells_that_cannot_be_counted_are_refused(
    channels: tuple[str, ...], max_set_size: int, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        ChannelCells(channels=channels, max_set_size=max_set_size)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (pl.col("num_units").cast(pl.Float64), "whole numbers"),
        (-pl.col("num_units"), "whole numbers"),
        (pl.col("converted").cast(pl.Int64), "'converted' .* must be Boolean"),
        (pl.col("channels").list.first(), "'channels' .* must be List"),
        (pl.lit(None).alias("converted"), "has nulls"),
    ],
)
def test_tables_of_another_kind_are_refused(change: pl.Expr, reason: str) -> None:
    table = table_of({(("news",), True): 1}).with_columns(change)
    with pytest.raises(DataError, match=reason):
        raw_cell_counts(table, CELLS_OF_CHANNEL_CELLS)


@pytest.mark.parametrize("column", ["channels", "converted", "num_units"])
def test_a_table_without_one_of_its_columns_is_refused(column: str) -> None:
    with pytest.raises(DataError, match=f"no column '{column}'"):
        raw_cell_counts(table_of({(("news",), True): 1}).drop(column), CELLS_OF_CHANNEL_CELLS)


SHAPLEY, REMOVAL = CoalitionValue.SHAPLEY, CoalitionValue.REMOVAL


Worths = NDArray[np.float64]


def average_over_all_orders(worths: Worths, num_players: int) -> list[float]:
    totals = [0.0] * num_players
    orders = list(itertools.permutations(range(num_players)))
    for order in orders:
        before = 0
        for player in order:
            totals[player] += worths[before | 1 << player] - worths[before]
            before |= 1 << player
    return [total / len(orders) for total in totals]


def random_worths(seed: int, num_players: int) -> Worths:
    return np.random.default_rng(seed).normal(size=1 << num_players)


@pytest.mark.parametrize("num_players", [1, 2, 3, 5, 6])
def test_shapley_values_are_averages_over_all_orders(num_players: int) -> None:
    worths = random_worths(3, num_players)
    expected = average_over_all_orders(worths, num_players)
    assert coalition_values(worths, SHAPLEY) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_players", [1, 2, 4])
def test_the_removal_value_is_what_is_lost_without_the_player(num_players: int) -> None:
    worths = random_worths(4, num_players)
    everyone = (1 << num_players) - 1
    expected = [worths[everyone] - worths[everyone ^ 1 << i] for i in range(num_players)]
    assert coalition_values(worths, REMOVAL) == pytest.approx(expected, abs=1e-12)


@given(seed=st.integers(0, 2**32), num_players=st.integers(1, 12))
def test_shapley_values_add_up_to_the_worth_of_all(seed: int, num_players: int) -> None:
    worths = random_worths(seed, num_players)
    assert coalition_values(worths, SHAPLEY).sum() == pytest.approx(worths[-1] - worths[0])


@given(seed=st.integers(0, 2**32), value=st.sampled_from(CoalitionValue))
def test_a_player_who_never_adds_anything_is_worth_nothing(
    seed: int, value: CoalitionValue
) -> None:
    without = random_worths(seed, 4)
    sets = np.arange(32)
    # Player 2 joins: the worth is that of the other four.
    others = (sets & 0b00011) | (sets >> 1 & 0b01100)
    assert coalition_values(without[others], value)[2] == pytest.approx(0, abs=1e-12)
    kept = coalition_values(without[others], value)[[0, 1, 3, 4]]
    assert kept == pytest.approx(coalition_values(without, value))


@given(seed=st.integers(0, 2**32), value=st.sampled_from(CoalitionValue))
def test_players_who_add_the_same_are_worth_the_same(seed: int, value: CoalitionValue) -> None:
    worths = random_worths(seed, 4)
    sets = np.arange(16)
    swapped = (sets & 0b1001) | (sets >> 1 & 0b0010) | (sets << 1 & 0b0100)
    values = coalition_values(worths + worths[swapped], value)
    assert values[1] == pytest.approx(values[2])


def test_many_games_are_valued_at_once() -> None:
    games = np.stack([random_worths(seed, 3) for seed in range(5)])
    together = coalition_values(games, SHAPLEY)
    assert together == pytest.approx(np.stack([coalition_values(g, SHAPLEY) for g in games]))


@pytest.mark.parametrize("num_sets", [1, 3, 6])
def test_worths_that_are_not_of_all_sets_are_refused(num_sets: int) -> None:
    with pytest.raises(ConfigError, match="2\\^players"):
        coalition_values(np.zeros(num_sets), SHAPLEY)


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
