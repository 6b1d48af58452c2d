"""The union of parties that see nothing of one another: results, noise and what workers see."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from statistical.noise_checks import assert_discrete
from tulle.accounting.accountant import pld_epsilon
from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.liquid_legions import (
    LiquidLegions,
    LiquidLegionsConfig,
    merge_sketches,
    reach_from_marks,
)
from tulle.lab.sketches.private_union import (
    PrivateUnionConfig,
    ResidueHalves,
    add_halves,
    encode_party,
    reach_of_union,
)
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.polya import sample_noise_shares
from tulle.privacy.units import Adjacency

KEY = bytes(range(16))
SHAPE = LiquidLegionsConfig(num_registers=300, decay=3.0)
CONFIG = PrivateUnionConfig(
    epsilon=1.0, delta=1e-9, num_parties=3, min_honest_parties=3, sketch=SHAPE
)


def sketches() -> list[LiquidLegions]:
    ids = (range(60), range(40, 90), range(85, 120))
    return [LiquidLegions.of_users(np.array(part), SHAPE, key=KEY) for part in ids]


def encoded(
    config: PrivateUnionConfig, rng: NoiseSource, release_name: str = "week 1"
) -> list[ResidueHalves]:
    return [
        encode_party(sketch, config, party=party, key=KEY, release_name=release_name, rng=rng)
        for party, sketch in enumerate(sketches())
    ]


def totals(halves: list[ResidueHalves], config: PrivateUnionConfig) -> tuple:
    first = add_halves([half.first for half in halves], config)
    return first, add_halves([half.second for half in halves], config)


def noisy_marks(config: PrivateUnionConfig, rng: NoiseSource) -> int:
    first, second = totals(encoded(config, rng), config)
    return int(np.count_nonzero(first + second)) - config.noise_offset * config.num_parties


def test_reach_is_that_of_the_merged_sketch_up_to_noise() -> None:
    config = dataclasses.replace(CONFIG, epsilon=12.0)
    raw = merge_sketches(sketches()).raw_num_marks
    release = reach_of_union(*totals(encoded(config, SeededNoise(1)), config), config)
    assert abs(noisy_marks(config, SeededNoise(1)) - raw) <= 1
    assert release.value == pytest.approx(SHAPE.reach_of(raw), rel=0.05)
    assert release.event == config.event()


def test_the_parties_noise_adds_up_to_discrete_laplace() -> None:
    config = dataclasses.replace(CONFIG, epsilon=0.5)

    def sampler(rng: NoiseSource, size: int) -> np.ndarray:
        return sample_noise_shares(config.noise_share, 3 * size, rng=rng).reshape(size, 3).sum(1)

    assert_discrete(sampler, lambda scale: DiscreteLaplaceConfig(scale=scale).pmf, scale=2.0)


def test_each_party_marks_as_many_extra_registers_as_its_share_says() -> None:
    tiny = dataclasses.replace(CONFIG, sketch=LiquidLegionsConfig(num_registers=1, decay=1.0))
    empty = LiquidLegions.of_users([], tiny.sketch, key=KEY)
    for seed in range(200):
        half = encode_party(empty, tiny, party=1, key=KEY, release_name="x", rng=SeededNoise(seed))
        share = int(sample_noise_shares(tiny.noise_share, 1, rng=SeededNoise(seed))[0])
        assert np.count_nonzero(half.first + half.second) == tiny.noise_offset + share


def test_noise_leaves_its_registers_with_less_chance_than_delta() -> None:
    for config in (CONFIG, dataclasses.replace(CONFIG, epsilon=0.05, min_honest_parties=1)):
        odds = math.exp(-1 / config.noise_scale)
        shape = 1 / config.min_honest_parties
        # A share is a difference of two negative binomial numbers.
        tail = 2 * stats.nbinom.sf(config.noise_offset, shape, 1 - odds)
        distance = config.num_parties * float(tail)
        assert distance * (1 + math.exp(config.epsilon)) <= config.delta


def test_the_event_costs_epsilon_and_delta() -> None:
    for adjacency in (Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE):
        assert pld_epsilon(CONFIG.event(), CONFIG.delta, adjacency) <= 1.0 + 1e-9
        assert pld_epsilon(CONFIG.event(), CONFIG.delta / 2, adjacency) > 1.0


def test_each_half_and_each_marked_residue_is_uniform() -> None:
    rng = SeededNoise(3)
    halves = [encoded(CONFIG, rng) for _ in range(30)]
    seconds = np.concatenate([half.second for parties in halves for half in parties])
    marked = np.concatenate([np.add(*totals(parties, CONFIG)) for parties in halves])
    for words in (seconds, marked[marked != 0]):
        bins = np.bincount((words >> np.uint64(59)).astype(np.int64), minlength=32)
        assert stats.chisquare(bins).pvalue > 1e-9


def test_the_order_of_registers_is_new_for_each_release_and_hides_them() -> None:
    def marked_places(release_name: str) -> np.ndarray:
        halves = encoded(CONFIG, SeededNoise(1), release_name)
        return np.flatnonzero(np.add(*totals(halves, CONFIG)))

    places = [marked_places(f"week {week}") for week in range(200)]
    assert not np.array_equal(places[0], places[1])
    # Low registers are marked e^3 times as often; where they stand must not show it.
    counts = np.bincount(np.concatenate(places), minlength=CONFIG.num_residues)
    halves = np.array_split(counts, 2)
    mean = len(np.concatenate(places)) / 2
    assert abs(halves[0].sum() - mean) < 6 * math.sqrt(mean / 2)


def test_two_releases_with_spare_honest_parties_have_more_noise() -> None:
    spare = dataclasses.replace(CONFIG, min_honest_parties=1)
    assert spare.total_noise.noise_stddev == pytest.approx(
        math.sqrt(3) * CONFIG.total_noise.noise_stddev
    )
    values = [noisy_marks(spare, SeededNoise(seed)) for seed in range(300)]
    # Three times the variance; a third of it would be far outside.
    assert np.std(values) == pytest.approx(spare.total_noise.noise_stddev, rel=0.4)


def test_intervals_cover_the_noise_of_all_parties_and_hashing() -> None:
    shape = LiquidLegionsConfig(num_registers=2000, decay=6.0)
    config = dataclasses.replace(CONFIG, sketch=shape, epsilon=0.05, min_honest_parties=1)
    rng, num_runs, reach = np.random.default_rng(4), 500, 3000
    shares = sample_noise_shares(config.noise_share, 3 * num_runs, rng=SeededNoise(4))
    covered = ignorant = 0
    for noise in shares.reshape(num_runs, 3).sum(axis=1).tolist():
        marks = np.unique(shape.registers_of(rng.random(reach))).size
        # What the workers would see: as many residues as marks, offsets and noise.
        residues = np.zeros(config.num_residues, np.uint64)
        residues[: marks + noise + 3 * config.noise_offset] = 7
        found = reach_of_union(residues, np.zeros_like(residues), config)
        covered += found.interval.low <= reach <= found.interval.high
        alone = reach_from_marks(
            marks + noise,
            shape,
            SharedNoise(scale=config.noise_scale / 2),
            config.event(),
            confidence=0.95,
        )
        ignorant += alone.interval.low <= reach <= alone.interval.high
    least = 0.95 - 6 * math.sqrt(0.95 * 0.05 / num_runs)
    assert covered / num_runs >= least
    assert ignorant / num_runs < least


def test_missing_parties_and_wrong_settings_are_refused() -> None:
    halves = encoded(CONFIG, SeededNoise(1))
    with pytest.raises(DataError, match="2 parties sent their half, num_parties=3"):
        add_halves([half.first for half in halves[:2]], CONFIG)
    with pytest.raises(DataError, match="shape"):
        add_halves([half.first[:5] for half in halves], CONFIG)
    with pytest.raises(ConfigError, match="another shape or key"):
        encode_party(
            sketches()[0], CONFIG, party=0, key=bytes(16), release_name="x", rng=SeededNoise(1)
        )
    with pytest.raises(ConfigError, match="party=3"):
        encode_party(sketches()[0], CONFIG, party=3, key=KEY, release_name="x", rng=SeededNoise(1))
    for field, value in (("epsilon", 0.0), ("delta", 0.0), ("min_honest_parties", 4)):
        with pytest.raises(ConfigError, match=field):
            dataclasses.replace(CONFIG, **{field: value})
