"""Sketches: their formulas, merging, sensitivity, noise and intervals."""

import math
import pickle

import numpy as np
import polars as pl
import pytest
from scipy import stats

from statistical.noise_checks import assert_discrete
from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.liquid_legions import (
    LiquidLegions,
    LiquidLegionsConfig,
    SketchReachConfig,
    hash_users,
    merge_sketches,
    reach_from_marks,
    release_sketch_reach,
)
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.units import Adjacency

KEY = bytes(range(16))
SMALL = LiquidLegionsConfig(num_registers=1000, decay=8.0)


def sketch_of(ids: range, config: LiquidLegionsConfig = SMALL) -> LiquidLegions:
    return LiquidLegions.of_users(np.array(ids), config, key=KEY)


def test_registers_follow_the_published_formula() -> None:
    uniforms = np.linspace(0, 1 - 1e-9, 1001)
    a, m = SMALL.decay, SMALL.num_registers
    published = np.floor(m * (1 - np.log(np.exp(a) + uniforms * (1 - np.exp(a))) / a))
    # Numbers on the edge of a register may fall to either side.
    assert np.mean(SMALL.registers_of(uniforms) != published) < 0.01
    assert np.abs(SMALL.registers_of(uniforms) - published).max() <= 1


def test_registers_are_hit_with_their_stated_chances() -> None:
    config = LiquidLegionsConfig(num_registers=20, decay=3.0)
    draws = config.registers_of(np.random.default_rng(1).random(400_000))
    expected = 400_000 * config.hit_probs
    statistic = np.sum((np.bincount(draws, minlength=20) - expected) ** 2 / expected)
    # Chi-square with 19 degrees: above 85 with a chance of 2e-10.
    assert statistic < 85
    assert config.hit_probs.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("num_registers", "decay"), [(1000, 8.0), (5000, 2.0), (20_000, 12.0)])
@pytest.mark.parametrize("reach", [50, 2000, 60_000])
def test_expected_marks_and_their_spread_are_those_of_the_exact_sums(
    num_registers: int, decay: float, reach: int
) -> None:
    config = LiquidLegionsConfig(num_registers=num_registers, decay=decay)
    empty = (1 - config.hit_probs) ** reach
    assert config.expected_marks(reach) == pytest.approx(float(np.sum(1 - empty)), rel=2e-3)
    slope = float(config.hit_probs @ empty)
    assert config.marks_per_user(reach) == pytest.approx(slope, rel=5e-3, abs=1e-9)
    variance = float(np.sum(empty * (1 - empty))) - reach * slope**2
    assert config.marks_stddev(reach) == pytest.approx(math.sqrt(variance), rel=0.02)


def test_reach_is_the_inverse_of_expected_marks() -> None:
    for reach in (1.0, 37.0, 5e3, 1e6):
        assert SMALL.reach_of(SMALL.expected_marks(reach)) == pytest.approx(reach, rel=1e-8)
    assert SMALL.reach_of(-5.0) == 0.0
    assert SMALL.reach_of(10_000.0) == SMALL.max_reach < math.inf


@pytest.mark.parametrize(
    ("config", "reach", "low", "high"),
    [
        (LiquidLegionsConfig(num_registers=100_000, decay=12.0), 100_000, 0.004, 0.010),
        (LiquidLegionsConfig(num_registers=1_000_000, decay=5.6), 1_000_000, 0.0008, 0.002),
    ],
)
def test_simulated_errors_are_those_that_the_formula_states(
    config: LiquidLegionsConfig, reach: int, low: float, high: float
) -> None:
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(20):
        marks = np.zeros(config.num_registers, np.bool_)
        marks[config.registers_of(rng.random(reach))] = True
        errors.append(config.reach_of(int(marks.sum())) / reach - 1)
    stated = config.marks_stddev(reach) / config.marks_per_user(reach) / reach
    assert low < stated < high
    # A mean square of 20 is off by a factor outside [0.1, 3.4] with a chance below 1e-9.
    assert 0.1 < np.mean(np.square(errors)) / stated**2 < 3.4


def test_merging_is_the_sketch_of_the_union() -> None:
    parts = [sketch_of(range(400)), sketch_of(range(300, 900)), sketch_of(range(850, 1000))]
    merged = merge_sketches(parts)
    np.testing.assert_array_equal(merged.raw_marks, sketch_of(range(1000)).raw_marks)
    # In any order and grouping, and a part twice.
    again = merge_sketches([parts[2], merge_sketches([parts[1], parts[0]]), parts[1]])
    np.testing.assert_array_equal(merged.raw_marks, again.raw_marks)


def test_users_seen_by_several_parties_count_once() -> None:
    config = LiquidLegionsConfig(num_registers=50_000, decay=10.0)
    first, second = sketch_of(range(20_000), config), sketch_of(range(10_000, 30_000), config)
    estimate = config.reach_of(merge_sketches([first, second]).raw_num_marks)
    assert estimate == pytest.approx(30_000, rel=0.06)


def test_one_user_moves_the_number_of_marks_by_one_at_most() -> None:
    rng = np.random.default_rng(3)
    moves = set()
    for _ in range(300):
        ids = rng.choice(5000, size=int(rng.integers(1, 3000)), replace=False)
        with_user = LiquidLegions.of_users(np.append(ids, 9999), SMALL, key=KEY).raw_num_marks
        replaced = LiquidLegions.of_users(np.append(ids, 8888), SMALL, key=KEY).raw_num_marks
        without = LiquidLegions.of_users(ids, SMALL, key=KEY).raw_num_marks
        moves.add(with_user - without)
        assert abs(with_user - replaced) <= 1
    assert moves == {0, 1}


def test_noise_for_one_user_on_the_estimate_would_break_epsilon() -> None:
    noise = SketchReachConfig(epsilon=1.0).noise
    ids = np.arange(20_000)
    before = LiquidLegions.of_users(ids, SMALL, key=KEY)
    # One more user who happens to mark an empty register.
    for user in range(20_000, 40_000):
        after = LiquidLegions.of_users(np.append(ids, user), SMALL, key=KEY)
        if after.raw_num_marks > before.raw_num_marks:
            break
    outputs = np.arange(-300, 300)

    def worst_log_ratio(first: int, second: int) -> float:
        seen = outputs + first
        chances = noise.pmf(seen - first), noise.pmf(seen - second)
        return float(np.abs(np.log(chances[0]) - np.log(chances[1])).max())

    estimates = [round(SMALL.reach_of(s.raw_num_marks)) for s in (before, after)]
    assert worst_log_ratio(before.raw_num_marks, after.raw_num_marks) <= 1.0 + 1e-12
    assert worst_log_ratio(*estimates) > 100


def test_marks_have_discrete_laplace_noise_of_scale_one_over_epsilon() -> None:
    config = SketchReachConfig(epsilon=0.2)
    for adjacency in (Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE):
        cost = pure_epsilon(config.event(), adjacency)
        assert cost is not None
        assert 0.2 * (1 - 1e-12) < cost <= 0.2
    shape = LiquidLegionsConfig(num_registers=40_000, decay=1.0)
    marks = np.zeros(40_000, np.bool_)
    marks[:20_000] = True
    sketch = LiquidLegions(config=shape, key_mark="", raw_marks=marks)

    def sampler(rng: NoiseSource, size: int) -> np.ndarray:
        releases = [release_sketch_reach(sketch, config, rng=rng) for _ in range(size)]
        return np.array([round(shape.expected_marks(r.value)) - 20_000 for r in releases])

    def fast_sampler(rng: NoiseSource, size: int) -> np.ndarray:
        return release_discrete_laplace(np.zeros(size, np.int64), config.noise, rng=rng)

    assert_discrete(fast_sampler, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=5.0)
    # What is released is made of that noise and of nothing else.
    one_by_one = SeededNoise(5)
    expected = [fast_sampler(one_by_one, 1)[0] for _ in range(20)]
    np.testing.assert_array_equal(sampler(SeededNoise(5), 20), expected)


@pytest.mark.parametrize("epsilon", [0.02, 1.0])
def test_intervals_cover_noise_and_hashing_together(epsilon: float) -> None:
    config = LiquidLegionsConfig(num_registers=2000, decay=6.0)
    noise = SketchReachConfig(epsilon=epsilon)
    rng, noise_rng = np.random.default_rng(1), SeededNoise(1)
    num_runs, reach = 600, 3000
    covered = narrow = 0
    for _ in range(num_runs):
        marks = np.zeros(2000, np.bool_)
        marks[config.registers_of(rng.random(reach))] = True
        sketch = LiquidLegions(config=config, key_mark="", raw_marks=marks)
        found = release_sketch_reach(sketch, noise, rng=noise_rng)
        covered += found.interval.low <= reach <= found.interval.high
        narrow += abs(found.value - reach) <= found.noise_stddev
    assert covered / num_runs >= 0.95 - 6 * math.sqrt(0.95 * 0.05 / num_runs)
    assert covered / num_runs <= 0.995
    assert narrow / num_runs < 0.9


def test_an_empty_and_a_full_sketch_have_finite_numbers() -> None:
    for marks in (-20, 0, 1000, 1020):
        found = reach_from_marks(
            marks,
            SMALL,
            SharedNoise(scale=2.0),
            SketchReachConfig(epsilon=0.5).event(),
            confidence=0.95,
        )
        assert 0 <= found.interval.low <= found.value <= found.interval.high < math.inf


def test_text_ids_and_numbers_are_hashed_alike_in_law() -> None:
    numbers = LiquidLegions.of_users(np.arange(500), SMALL, key=KEY)
    texts = LiquidLegions.of_users([str(i) for i in range(500)], SMALL, key=KEY)
    assert abs(numbers.raw_num_marks - texts.raw_num_marks) < 8 * SMALL.marks_stddev(500)
    other = LiquidLegions.of_users(np.arange(500), SMALL, key=bytes(16))
    assert (numbers.raw_marks != other.raw_marks).any()
    assert LiquidLegions.of_users([], SMALL, key=KEY).raw_num_marks == 0


def test_sketches_of_other_shapes_or_keys_do_not_merge() -> None:
    with pytest.raises(ConfigError, match="use one config"):
        merge_sketches([sketch_of(range(5)), sketch_of(range(5), LiquidLegionsConfig())])
    other = LiquidLegions.of_users(np.arange(5), SMALL, key=bytes(16))
    with pytest.raises(ConfigError, match="different keys"):
        merge_sketches([sketch_of(range(5)), other])
    with pytest.raises(ConfigError, match="at least one"):
        merge_sketches([])


def test_a_sketch_is_neither_shown_nor_saved() -> None:
    sketch = sketch_of(range(5))
    assert "raw_marks" not in repr(sketch)
    with pytest.raises(DataError, match="release its reach with noise"):
        pickle.dumps(sketch)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_registers": 0}, "num_registers"),
        ({"num_registers": 1 << 30}, "num_registers"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 60.0}, "decay"),
    ],
)
def test_shapes_without_sense_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        LiquidLegionsConfig(**settings)


def test_ids_and_keys_without_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        LiquidLegions.of_users(np.arange(5), SMALL, key=b"short")
    with pytest.raises(DataError, match="without nulls"):
        LiquidLegions.of_users(["a", None], SMALL, key=KEY)  # type: ignore[list-item]
    with pytest.raises(DataError, match="dimensions"):
        LiquidLegions.of_users(np.zeros((2, 2), np.int64), SMALL, key=KEY)
    with pytest.raises(ConfigError, match="epsilon"):
        SketchReachConfig(epsilon=0.0)


def test_hashes_are_the_same_in_every_version() -> None:
    # Parties with different versions must agree; a change here breaks old sketches.
    numbers = hash_users(np.array([0, 1, 2**62]), KEY, "register").words
    assert numbers.tolist() == [0x9CA732CD29A9235A, 0x17CEEC0C96F4088A, 0xDEE2A8A5BFB95192]
    texts = hash_users(["a", "ü"], KEY, "register").words
    assert texts.tolist() == [0x10614C82E459790F, 0x7A23CF6E5B9DC231]


def test_the_container_of_ids_does_not_matter() -> None:
    names = [f"user {number}" for number in range(50)]
    expected = hash_users(names, KEY, "register").words
    for same in (np.array(names), np.array(names, dtype=object), pl.Series(names)):
        np.testing.assert_array_equal(hash_users(same, KEY, "register").words, expected)
    numbers = hash_users(np.arange(50), KEY, "register").words
    small = hash_users(np.arange(50, dtype=np.int16), KEY, "register").words
    np.testing.assert_array_equal(numbers, small)


def test_other_keys_and_purposes_give_unrelated_hashes() -> None:
    for ids in (np.arange(1000), [str(number) for number in range(1000)]):
        words = hash_users(ids, KEY, "register").words
        assert not np.isin(hash_users(ids, bytes(16), "register").words, words).any()
        assert not np.isin(hash_users(ids, KEY, "owner").words, words).any()


def test_uniforms_are_uniform() -> None:
    for ids in (np.arange(20_000), [str(number) for number in range(20_000)]):
        uniforms = hash_users(ids, KEY, "register").uniforms
        assert stats.kstest(uniforms, "uniform").pvalue > 1e-9
        assert stats.kstest(uniforms**1.1, "uniform").pvalue < 1e-9
