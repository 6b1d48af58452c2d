"""Reach and frequency releases: what they cost, their noise, their estimates and intervals."""

import itertools
import math

import numpy as np
import polars as pl
import pytest

from statistical.noise_checks import assert_discrete, assert_gaussian
from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.consistent_reach import LinearSystem, nearest_point
from tulle.measure.reach import (
    FrequencyConfig,
    FrequencyRelease,
    Range,
    average_range,
    isotonic_regression,
    monotone_counts,
    release_frequencies,
    share_range,
)
from tulle.measure.slice_jobs import Frequencies
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.units import Adjacency

ADD = Adjacency.ADD_OR_REMOVE


def histograms(rows: list[list[int]]) -> Frequencies:
    names = [f"slice {index}" for index in range(len(rows))]
    return Frequencies(
        slices=pl.DataFrame({"campaign": names}), raw_counts=np.array(rows, dtype=np.int64)
    )


def counts_of(users: list[tuple[int, ...]], max_frequency: int) -> np.ndarray:
    """Buckets of each slice, from how often each user was in it."""
    counts = np.zeros((len(users[0]), max_frequency), np.int64)
    for user in users:
        for place, frequency in enumerate(user):
            if frequency:
                counts[place, min(frequency, max_frequency) - 1] += 1
    return counts


def worst_log_ratio(
    config: FrequencyConfig, neighbours: list[tuple[np.ndarray, np.ndarray]]
) -> float:
    """Of the chances of any output under two neighbours, over all of a grid."""
    grid = np.arange(-3, 8)
    worst = 0.0
    for first, second in neighbours:
        total = 0.0
        for noise, sides in (
            (config.bucket_noise, (first.ravel(), second.ravel())),
            (config.reach_noise, (first.sum(axis=1), second.sum(axis=1))),
        ):
            if noise is None:
                continue
            assert isinstance(noise, DiscreteLaplaceConfig)
            for a, b in zip(*sides, strict=True):
                ratios = np.log(noise.pmf(grid - a)) - np.log(noise.pmf(grid - b))
                total += float(np.abs(ratios).max())
        worst = max(worst, total)
    return worst


def all_neighbours(
    num_slices: int, max_slices: int, adjacency: Adjacency
) -> list[tuple[np.ndarray, np.ndarray]]:
    users = [
        user
        for user in itertools.product(range(4), repeat=num_slices)
        if sum(frequency > 0 for frequency in user) <= max_slices
    ]
    rest = [tuple([1] + [0] * (num_slices - 1))]
    if adjacency is Adjacency.REPLACE:
        pairs = itertools.product(users, repeat=2)
        return [(counts_of([*rest, a], 2), counts_of([*rest, b], 2)) for a, b in pairs]
    return [(counts_of(rest, 2), counts_of([*rest, user], 2)) for user in users]


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE])
@pytest.mark.parametrize("max_slices", [1, 2])
@pytest.mark.parametrize("reach_share", [0.0, 0.3])
def test_no_output_tells_neighbours_apart_by_more_than_epsilon(
    adjacency: Adjacency, max_slices: int, reach_share: float
) -> None:
    config = FrequencyConfig(
        epsilon=0.8,
        max_frequency=2,
        max_slices_per_unit=max_slices,
        adjacency=adjacency,
        reach_share=reach_share,
    )
    worst = worst_log_ratio(config, all_neighbours(4, max_slices, adjacency))
    # The noise is rounded up; the logarithms of chances are good to 14 digits.
    assert worst <= 0.8 * (1 + 1e-13)
    assert worst == pytest.approx(0.8, rel=1e-9)


def test_a_unit_in_more_slices_than_stated_breaks_epsilon() -> None:
    config = FrequencyConfig(epsilon=0.8, max_frequency=2, adjacency=ADD)
    assert worst_log_ratio(config, all_neighbours(3, 2, ADD)) == pytest.approx(1.6)


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE])
@pytest.mark.parametrize("reach_share", [0.0, 0.1, 1 / 3])
def test_the_event_costs_what_was_asked_for(adjacency: Adjacency, reach_share: float) -> None:
    settings = {
        "max_frequency": 5,
        "max_slices_per_unit": 3,
        "adjacency": adjacency,
        "reach_share": reach_share,
    }
    pure = pure_epsilon(FrequencyConfig(epsilon=0.7, **settings).event(), adjacency)
    assert pure is not None
    assert 0.7 * (1 - 1e-12) <= pure <= 0.7
    gaussian = FrequencyConfig(epsilon=0.7, delta=1e-6, **settings)
    assert pld_epsilon(gaussian.event(), 1e-6, adjacency) == pytest.approx(0.7, rel=1e-3)


@pytest.mark.parametrize("reach_share", [0.0, 0.4])
def test_gaussian_noise_has_the_distance_of_one_event(reach_share: float) -> None:
    config = FrequencyConfig(
        epsilon=1.0,
        delta=1e-6,
        max_frequency=5,
        max_slices_per_unit=9,
        adjacency=ADD,
        reach_share=reach_share,
    )
    distance = 9 / config.bucket_noise.noise_stddev**2
    if config.reach_noise is not None:
        distance += 9 / config.reach_noise.noise_stddev**2
    # In units of noise, one unit moves everything by 1 / noise_multiplier.
    assert math.sqrt(distance) <= 1 / config.event().noise_multiplier
    assert math.sqrt(distance) == pytest.approx(1 / config.event().noise_multiplier, rel=1e-5)


def test_buckets_have_discrete_laplace_noise_of_the_stated_scale() -> None:
    config = FrequencyConfig(epsilon=0.5, max_frequency=4, max_slices_per_unit=3, adjacency=ADD)

    def sampler(rng: NoiseSource, size: int) -> np.ndarray:
        raw = Frequencies(slices=pl.DataFrame(), raw_counts=np.full((size // 4, 4), 100))
        return release_frequencies(raw, config, rng=rng).noisy_counts.reshape(-1) - 100

    assert_discrete(sampler, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=6.0)


def test_half_the_noise_would_be_noticed() -> None:
    config = FrequencyConfig(epsilon=1.0, max_frequency=4, max_slices_per_unit=3, adjacency=ADD)

    def half_noise(rng: NoiseSource, size: int) -> np.ndarray:
        raw = Frequencies(slices=pl.DataFrame(), raw_counts=np.zeros((size // 4, 4), np.int64))
        return release_frequencies(raw, config, rng=rng).noisy_counts.reshape(-1)

    with pytest.raises(AssertionError, match="wrong for scale"):
        assert_discrete(half_noise, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=6.0)


def test_gaussian_noise_has_the_stated_deviation() -> None:
    config = FrequencyConfig(epsilon=0.5, delta=1e-6, max_frequency=4, adjacency=ADD)

    def sampler(rng: NoiseSource, size: int) -> np.ndarray:
        raw = Frequencies(slices=pl.DataFrame(), raw_counts=np.full((size // 4, 4), 100))
        return release_frequencies(raw, config, rng=rng).noisy_counts.reshape(-1) - 100

    assert_gaussian(sampler, stddev=config.bucket_noise.noise_stddev)


def test_joint_estimates_are_those_of_dense_weighted_least_squares() -> None:
    config = FrequencyConfig(epsilon=1.0, max_frequency=4, adjacency=ADD, reach_share=0.4)
    release = release_frequencies(
        histograms([[50, 20, 5, 1], [3, 0, 0, 2]]), config, rng=SeededNoise(2)
    )
    assert config.reach_noise is not None
    assert release.noisy_reach is not None
    design = np.vstack([np.ones(4), np.eye(4)])
    variances = [config.reach_noise.noise_stddev**2] + [config.bucket_noise.noise_stddev**2] * 4
    weights = np.diag(1 / np.array(variances))
    covariance = np.linalg.inv(design.T @ weights @ design)
    for row in range(2):
        measured = np.concatenate([[release.noisy_reach[row]], release.noisy_counts[row]])
        np.testing.assert_allclose(
            release.counts[row], covariance @ design.T @ weights @ measured, rtol=1e-10
        )
    ones = np.ones(4)
    assert release.reach(0).noise_stddev == pytest.approx(math.sqrt(ones @ covariance @ ones))
    tail = np.array([0.0, 0, 1, 1])
    expected = math.sqrt(tail @ covariance @ tail)
    assert release.k_plus_reach(0, 3).noise_stddev == pytest.approx(expected)


@pytest.mark.parametrize("max_frequency", [3, 9])
def test_reach_of_its_own_helps_above_the_stated_share(max_frequency: int) -> None:
    def deviation(share: float) -> float:
        config = FrequencyConfig(
            epsilon=0.01, max_frequency=max_frequency, adjacency=ADD, reach_share=share
        )
        raw = histograms([[10] * max_frequency])
        return release_frequencies(raw, config, rng=SeededNoise(1)).reach(0).noise_stddev

    turning_point = 2 / (max_frequency + 1)
    assert deviation(turning_point) == pytest.approx(deviation(0.0), rel=1e-4)
    assert deviation(1.2 * turning_point) < deviation(0.0) < deviation(0.8 * turning_point)


RAW = [400, 150, 80, 40, 30]


TRUE_NUMBERS = {
    "reach": 700.0,
    "k_plus_reach": 150.0,
    "k_frequency": 150 / 700,
    "k_plus_frequency": 150 / 700,
    "average_frequency": (400 + 300 + 240 + 160 + 150) / 700,
}


def numbers_of(release: FrequencyRelease, row: int) -> dict:
    return {
        "reach": release.reach(row),
        "k_plus_reach": release.k_plus_reach(row, 3),
        "k_frequency": release.k_frequency(row, 2),
        "k_plus_frequency": release.k_plus_frequency(row, 3),
        "average_frequency": release.average_frequency(row),
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 1.0},
        {"epsilon": 0.03},
        {"epsilon": 0.3, "reach_share": 0.5},
        {"epsilon": 0.3, "delta": 1e-6, "reach_share": 0.2},
    ],
    ids=["laplace", "much noise", "own reach", "gaussian"],
)
def test_intervals_cover_the_truth_and_are_not_too_wide(settings: dict[str, float]) -> None:
    config = FrequencyConfig(max_frequency=5, adjacency=ADD, **settings)
    num_runs = 800
    release = release_frequencies(histograms([RAW] * num_runs), config, rng=SeededNoise(9))
    covered = dict.fromkeys(TRUE_NUMBERS, 0)
    narrow_covered = dict.fromkeys(TRUE_NUMBERS, 0)
    for row in range(num_runs):
        for name, number in numbers_of(release, row).items():
            low, high = number.interval.low, number.interval.high
            middle, half = (low + high) / 2, (high - low) / 2
            assert low <= number.value <= high
            covered[name] += low <= TRUE_NUMBERS[name] <= high
            narrow_covered[name] += abs(TRUE_NUMBERS[name] - middle) <= half / 2
    # 95% of 800, less six standard errors.
    least = 0.95 - 6 * math.sqrt(0.95 * 0.05 / num_runs)
    for name in TRUE_NUMBERS:
        assert covered[name] / num_runs >= least, name
        # Half the width must fail where the stated one holds.
        assert name == "average_frequency" or narrow_covered[name] / num_runs < 0.945, name


def test_an_average_of_many_buckets_has_an_interval_of_few_deviations() -> None:
    config = FrequencyConfig(epsilon=0.3, max_frequency=10, adjacency=ADD)
    release = release_frequencies(histograms([[300] * 10] * 1000), config, rng=SeededNoise(2))
    numbers = [release.average_frequency(row) for row in range(1000)]
    covered = np.mean([n.interval.low <= 5.5 <= n.interval.high for n in numbers])
    widths = [(n.interval.high - n.interval.low) / n.noise_stddev for n in numbers]
    errors = np.array([n.value - 5.5 for n in numbers])
    assert covered >= 0.95
    assert np.mean(widths) < 9
    assert errors.std() == pytest.approx(numbers[0].noise_stddev, rel=0.2)


@pytest.mark.parametrize("reach_share", [0.0, 0.5])
def test_intervals_of_counts_cover_hardly_more_than_stated(reach_share: float) -> None:
    config = FrequencyConfig(epsilon=0.05, max_frequency=5, adjacency=ADD, reach_share=reach_share)
    release = release_frequencies(histograms([RAW] * 4000), config, rng=SeededNoise(4))
    numbers = [release.reach(row) for row in range(4000)]
    share = np.mean([n.interval.low <= 700 <= n.interval.high for n in numbers])
    assert 0.95 - 0.021 <= share <= 0.956 + 0.021
    errors = np.array([n.value for n in numbers]) - 700
    assert errors.std() == pytest.approx(numbers[0].noise_stddev, rel=0.1)


def test_shares_of_a_slice_are_a_distribution_and_counts_are_monotone() -> None:
    config = FrequencyConfig(epsilon=0.2, max_frequency=6, adjacency=ADD)
    release = release_frequencies(histograms([[30, 2, 0, 0, 0, 0]]), config, rng=SeededNoise(6))
    assert (release.noisy_counts < 0).any()
    assert (release.consistent_counts >= 0).all()
    shares = [release.k_frequency(0, k).value for k in range(1, 7)]
    assert sum(shares) == pytest.approx(1.0)


def test_a_slice_of_nothing_still_has_numbers() -> None:
    config = FrequencyConfig(epsilon=0.5, max_frequency=3, adjacency=ADD)
    release = release_frequencies(histograms([[0, 0, 0]] * 200), config, rng=SeededNoise(6))
    for row in range(200):
        number = release.k_frequency(row, 1)
        assert 0 <= number.interval.low <= number.value <= number.interval.high <= 1
        assert 1 <= release.average_frequency(row).value <= 3


def test_the_table_has_one_row_for_each_number() -> None:
    config = FrequencyConfig(epsilon=5.0, max_frequency=3, adjacency=ADD)
    release = release_frequencies(histograms([RAW[:3], [9, 1, 0]]), config, rng=SeededNoise(1))
    table = release.table()
    assert table.columns[:4] == ["campaign", "metric", "k", "value"]
    assert table.height == 2 * (1 + 2 + 3 + 1)
    reach = table.filter(pl.col("metric") == "reach")
    assert reach["campaign"].to_list() == ["slice 0", "slice 1"]
    assert reach["value"].to_list() == [release.reach(0).value, release.reach(1).value]


def test_a_release_without_slice_columns_has_one_row_a_number() -> None:
    config = FrequencyConfig(epsilon=5.0, max_frequency=2, adjacency=ADD)
    raw = Frequencies(slices=pl.DataFrame(), raw_counts=np.array([[5, 4]]))
    assert release_frequencies(raw, config, rng=SeededNoise(1)).table().height == 5
    none = Frequencies(
        slices=pl.DataFrame({"campaign": []}, schema={"campaign": pl.String}),
        raw_counts=np.zeros((0, 2), np.int64),
    )
    assert release_frequencies(none, config, rng=SeededNoise(1)).table().height == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("delta", 1.0),
        ("delta", -0.1),
        ("reach_share", 1.0),
        ("reach_share", -0.1),
        ("max_frequency", 0),
        ("max_frequency", 101),
        ("max_slices_per_unit", 0),
    ],
)
def test_settings_without_sense_are_refused_by_name(field: str, value: float) -> None:
    settings = {"epsilon": 1.0, "max_frequency": 3, "adjacency": ADD} | {field: value}
    with pytest.raises(ConfigError, match=field):
        FrequencyConfig(**settings)


def test_histograms_of_another_length_are_refused() -> None:
    config = FrequencyConfig(epsilon=1.0, max_frequency=4, adjacency=ADD)
    with pytest.raises(DataError, match="max_frequency=4 columns"):
        release_frequencies(histograms([[1, 2, 3]]), config, rng=SeededNoise(1))
    uneven = Frequencies(
        slices=pl.DataFrame({"campaign": ["a"]}), raw_counts=np.zeros((2, 4), np.int64)
    )
    with pytest.raises(DataError, match="slices has 1 rows"):
        release_frequencies(uneven, config, rng=SeededNoise(1))


def test_frequencies_outside_the_histogram_are_refused() -> None:
    config = FrequencyConfig(epsilon=1.0, max_frequency=3, adjacency=ADD)
    release = release_frequencies(histograms([[1, 2, 3]]), config, rng=SeededNoise(1))
    for k in (0, 4):
        with pytest.raises(ConfigError, match=f"k={k}"):
            release.k_frequency(0, k)
    with pytest.raises(ConfigError, match="k >= 2"):
        release.k_plus_frequency(0, 1)
    with pytest.raises(ConfigError, match="index=-1"):
        release.reach(-1)


def test_one_bucket_has_reach_and_nothing_else() -> None:
    config = FrequencyConfig(epsilon=1.0, max_frequency=1, adjacency=ADD)
    release = release_frequencies(histograms([[7]]), config, rng=SeededNoise(1))
    assert release.table()["metric"].to_list() == ["reach"]
    with pytest.raises(ConfigError, match="every share 1"):
        release.k_frequency(0, 1)
    with pytest.raises(ConfigError, match="every average 1"):
        release.average_frequency(0)


def around(value: float, half_width: float) -> Range:
    return Range.around(np.array([value]), half_width)


def test_a_share_lies_between_the_extremes_of_its_box() -> None:
    rng = np.random.default_rng(1)
    found = share_range(around(30.0, 5.0), around(60.0, 20.0))
    chosen, others = rng.uniform(25, 35, 100_000), rng.uniform(40, 80, 100_000)
    shares = chosen / (chosen + others)
    assert found.lows[0] <= shares.min() <= found.lows[0] + 0.01
    assert found.highs[0] >= shares.max() >= found.highs[0] - 0.01


@pytest.mark.parametrize(
    ("chosen", "others", "expected"),
    [(-50.0, 100.0, (0.0, 0.0)), (100.0, -50.0, (1.0, 1.0)), (0.0, 0.0, (0.0, 1.0))],
)
def test_shares_of_next_to_nothing_stay_between_0_and_1(
    chosen: float, others: float, expected: tuple[float, float]
) -> None:
    found = share_range(around(chosen, 10.0), around(others, 10.0))
    assert (found.lows[0], found.highs[0]) == expected


def test_an_average_lies_within_what_its_sums_allow() -> None:
    counts = np.array([40.0, 30.0, 20.0, 10.0])
    frequencies = np.arange(1, 5)
    sums = np.array([[counts @ (frequencies - centre) for centre in frequencies]])
    found = average_range(
        sums, np.full(4, 12.0), around(100.0, 10.0), centres=frequencies.astype(float), most=4
    )
    # Every c bounds it; the nearest to the average of 2 gives 2 + [-12, 12] / 90.
    assert found.lows[0] == pytest.approx(2 - 12 / 90)
    assert found.highs[0] == pytest.approx(2 + 12 / 90)


def test_an_average_over_nobody_may_be_anything() -> None:
    found = average_range(
        np.zeros((1, 3)), np.full(3, 5.0), around(0.0, 5.0), centres=np.arange(1.0, 4.0), most=3
    )
    assert (found.lows[0], found.highs[0]) == (1.0, 3.0)


def nearest_rising(values: np.ndarray, weights: np.ndarray, least: float) -> np.ndarray:
    """By the general solver, in units in which all weights are 1."""
    size = len(values)
    rows = np.zeros((size, size))
    rows[np.arange(size), np.arange(size)] = -1.0
    rows[np.arange(1, size), np.arange(size - 1)] = 1.0
    limits = np.zeros(size)
    limits[0] = -least
    system = LinearSystem(
        upper=rows, upper_limits=limits, equal=np.zeros((0, size)), equal_limits=np.zeros(0)
    ).scaled(1 / np.sqrt(weights))
    return nearest_point(values * np.sqrt(weights), system).point / np.sqrt(weights)


@pytest.mark.parametrize("seed", range(20))
def test_pooling_gives_the_nearest_rising_sequence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=7), rng.uniform(0.2, 2, 7)
    np.testing.assert_allclose(
        isotonic_regression(values, weights), nearest_rising(values, weights, -100.0), atol=1e-8
    )


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_nearest_in_their_tail_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.normal([50, 20, 5, 0, 0, 0], 10, (1, 6))
    weights = 1 / np.arange(1, 7)
    expected = nearest_rising(np.cumsum(counts[0, ::-1]), weights, 0.0)
    result = monotone_counts(counts)[0]
    assert (result >= 0).all()
    np.testing.assert_allclose(np.cumsum(result[::-1]), expected, atol=1e-7)


def test_counts_without_contradiction_stay_as_they_are() -> None:
    counts = np.array([[9.0, 4.0, 1.0], [0.0, 0.0, 2.0]])
    np.testing.assert_allclose(monotone_counts(counts), counts)
    assert monotone_counts(np.zeros((0, 3))).shape == (0, 3)


def test_empty_buckets_do_not_inflate_reach_as_cutting_at_zero_would() -> None:
    noise = np.random.default_rng(1).laplace(scale=10, size=(4000, 20))
    counts = noise + np.array([1000, *[0] * 19])
    bias = monotone_counts(counts).sum(axis=1).mean() - 1000
    cut_bias = np.maximum(counts, 0).sum(axis=1).mean() - 1000
    # The mean of 4,000 sums with deviation 63 is off by 1 in each standard error.
    assert abs(bias) < 7
    assert cut_bias > 80
