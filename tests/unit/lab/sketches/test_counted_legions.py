"""Counted sketches: frequencies across parties, their sensitivity and intervals."""

import itertools
import math
import pickle

import numpy as np
import pytest

from tulle.accounting.event_rules import pure_epsilon
from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.counted_legions import (
    CountedLegions,
    SketchFrequencyConfig,
    merge_counted,
    release_sketch_frequencies,
)
from tulle.lab.sketches.liquid_legions import LiquidLegions, LiquidLegionsConfig
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.units import Adjacency

KEY = bytes(range(16))
SHAPE = LiquidLegionsConfig(num_registers=400, decay=4.0)


def counted(ids: np.ndarray, key: bytes = KEY) -> CountedLegions:
    return CountedLegions.of_impressions(np.asarray(ids, np.int64), SHAPE, key=key)


def state(sketch: CountedLegions) -> tuple[bytes, bytes, bytes]:
    return (
        sketch.raw_owners.tobytes(),
        sketch.raw_counts.tobytes(),
        sketch.raw_is_shared.tobytes(),
    )


def test_lonely_users_are_counted_as_by_hand() -> None:
    ids = np.repeat(np.arange(150), np.arange(150) % 4 + 1)
    registers = {}
    for user in range(150):
        alone = LiquidLegions.of_users(np.array([user]), SHAPE, key=KEY)
        registers[user] = int(np.flatnonzero(alone.raw_marks)[0])
    homes = list(registers.values())
    lonely = [user for user in range(150) if homes.count(registers[user]) == 1]
    expected = [sum(user % 4 + 1 == k for user in lonely) for k in (1, 2)]
    expected.append(len(lonely) - sum(expected))
    sketch = counted(ids)
    assert sketch.raw_frequencies(3).tolist() == expected
    assert sketch.raw_num_marks == len(set(homes))
    assert 0 < len(lonely) < 150


def test_merging_is_the_sketch_of_all_impressions_in_any_order() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 300, 200) for _ in range(3)]
    sketches = [counted(part) for part in parts]
    expected = state(counted(np.concatenate(parts)))
    for order in itertools.permutations(range(3)):
        assert state(merge_counted([sketches[place] for place in order])) == expected
    grouped = merge_counted([sketches[0], merge_counted(sketches[1:])])
    assert state(grouped) == expected


def test_one_user_moves_marks_and_histogram_by_one_each() -> None:
    rng = np.random.default_rng(2)
    moves = set()
    for _ in range(300):
        ids = rng.integers(0, 2000, int(rng.integers(1, 600)))
        more = np.append(ids, np.full(int(rng.integers(1, 6)), 9999))
        # The user's impressions may lie with two parties.
        cut = int(rng.integers(0, len(more) + 1))
        without, with_user = counted(ids), merge_counted([counted(more[:cut]), counted(more[cut:])])
        histogram_move = np.abs(with_user.raw_frequencies(3) - without.raw_frequencies(3)).sum()
        moves.add((with_user.raw_num_marks - without.raw_num_marks, int(histogram_move)))
    # Into an empty register, to a lonely user, to users who share one.
    assert moves == {(1, 1), (0, 1), (0, 0)}


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_OR_REMOVE, Adjacency.REPLACE])
def test_the_event_costs_what_was_asked_for(adjacency: Adjacency) -> None:
    config = SketchFrequencyConfig(
        epsilon=0.9, max_frequency=5, adjacency=adjacency, reach_share=1 / 3
    )
    cost = pure_epsilon(config.event(), adjacency)
    assert cost is not None
    assert 0.9 * (1 - 1e-12) < cost <= 0.9


def test_intervals_cover_noise_and_sampling_together() -> None:
    shape = LiquidLegionsConfig(num_registers=1500, decay=3.0)
    config = SketchFrequencyConfig(epsilon=0.5, max_frequency=3, adjacency=Adjacency.ADD_OR_REMOVE)
    num_runs, num_users = 400, 1200
    rng = np.random.default_rng(3)
    covered = np.zeros(4)
    half_covered = 0
    for run in range(num_runs):
        ids = np.repeat(rng.integers(0, 2**60, num_users), np.repeat([1, 2, 5], [720, 360, 120]))
        sketch = CountedLegions.of_impressions(ids, shape, key=KEY)
        release = release_sketch_frequencies(sketch, config, rng=SeededNoise(run))
        numbers = [release.reach, *(release.k_frequency(k) for k in (1, 2, 3))]
        for place, truth in enumerate((num_users, 0.6, 0.3, 0.1)):
            interval = numbers[place].interval
            assert interval.low <= numbers[place].value <= interval.high
            covered[place] += interval.low <= truth <= interval.high
        half_covered += (
            abs(numbers[1].value - 0.6) <= (numbers[1].interval.high - numbers[1].interval.low) / 8
        )
    assert (covered / num_runs >= 0.95 - 6 * math.sqrt(0.95 * 0.05 / num_runs)).all()
    assert half_covered / num_runs < 0.85


def test_settings_and_sketches_without_sense_are_refused() -> None:
    add = Adjacency.ADD_OR_REMOVE
    for field, value in (("epsilon", 0.0), ("reach_share", 1.0), ("max_frequency", 0)):
        settings = {"epsilon": 1.0, "max_frequency": 3, "adjacency": add} | {field: value}
        with pytest.raises(ConfigError, match=field):
            SketchFrequencyConfig(**settings)
    with pytest.raises(ConfigError, match="different keys"):
        merge_counted([counted(np.arange(3)), counted(np.arange(3), key=bytes(16))])
    with pytest.raises(ConfigError, match="at least one"):
        merge_counted([])
    with pytest.raises(DataError, match="with noise"):
        pickle.dumps(counted(np.arange(3)))
