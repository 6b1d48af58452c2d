"""Training noise has the stated scale on every entry, and no two entries or steps share it.

A large tensor is noised by several streams side by side, so its parts are looked at
one by one. Every planted fault must be caught by the check that is named for it.
"""

import inspect
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from statistical import faulty_training_noise
from statistical.faulty_training_noise import AddTo
from statistical.noise_checks import FALSE_ALARM, assert_gaussian
from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.steps import training_noise as noise_module
from tulle.train.steps.training_noise import TrainingNoise

NUM_PARTS = 8
PART = 40_000
LARGE = NUM_PARTS * PART
NUM_FOR_TAILS = 1 << 24
STDDEV = 1.5
SHARED = 0.05

Start = Callable[[NoiseSource], AddTo]
Values = NDArray[np.float64]


def right_noise(rng: NoiseSource) -> AddTo:
    return TrainingNoise(rng).add_to


def noise_on(values: Tensor, add_to: AddTo, stddev: float = STDDEV) -> Values:
    add_to(values, stddev)
    return values.double().numpy()


def check_scale_of_a_small_tensor(start: Start) -> None:
    started: list[AddTo] = []

    def sample(rng: NoiseSource, size: int) -> Values:
        started.extend([start(rng)] if not started else [])
        return noise_on(torch.zeros(size), started[0])

    assert_gaussian(sample, stddev=STDDEV)


def check_scale_of_every_part_of_a_large_tensor(start: Start) -> None:
    add_to = start(SeededNoise(3))
    calls = [noise_on(torch.zeros(LARGE), add_to) for _ in range(2)]
    for part in range(NUM_PARTS):
        halves = iter(values[part * PART :][: PART // 2] for values in calls)
        assert_gaussian(lambda _, __, halves=halves: next(halves), stddev=STDDEV)


def check_scale_of_single_entries(start: Start) -> None:
    add_to = start(SeededNoise(4))
    steps = np.stack([noise_on(torch.zeros(3), add_to) for _ in range(PART)])
    for entry in range(3):
        halves = iter(np.array_split(steps[:, entry], 2))
        assert_gaussian(lambda _, __, halves=halves: next(halves), stddev=STDDEV)


def check_independence_of_steps(start: Start) -> None:
    add_to = start(SeededNoise(5))
    assert_independent([noise_on(torch.zeros(60_000), add_to) for _ in range(6)])


def check_independence_of_entries(start: Start) -> None:
    add_to = start(SeededNoise(6))
    assert_independent(np.array_split(noise_on(torch.zeros(8 * 60_000), add_to), 8))
    neighbours = noise_on(torch.zeros(4 * 60_000), add_to).reshape(-1, 4).T
    assert_independent(list(neighbours))


def check_independence_of_pairs(start: Start) -> None:
    """Two entries that come from one radius are half a small tensor apart."""
    add_to = start(SeededNoise(7))
    assert_independent(np.array_split(noise_on(torch.zeros(2 * 60_000), add_to), 2))


def check_tails(start: Start) -> None:
    """How many of 16 million normals lie beyond 3, 4, 4.5 and 5 deviations, on each side."""
    add_to = start(SeededNoise(8))
    values = noise_on(torch.zeros(NUM_FOR_TAILS), add_to) / STDDEV
    limits = (3.0, 4.0, 4.5, 5.0)
    for limit, side in itertools.product(limits, (1, -1)):
        count = int(np.sum(side * values > limit))
        p_value = stats.binomtest(count, NUM_FOR_TAILS, stats.norm.sf(limit)).pvalue
        assert p_value > FALSE_ALARM / 8, f"{count} beyond {side * limit}: p = {p_value:.2g}"
    narrow = int(np.sum(np.abs(values) > 4 / 0.95))
    chance = 2 * stats.norm.sf(4)
    assert stats.binomtest(narrow, NUM_FOR_TAILS, chance).pvalue <= FALSE_ALARM


def assert_independent(samples: list[Values]) -> None:
    """No two samples of normals are correlated, nor are their sizes.

    The same samples, with 5% of one mixed into another, must be refused.
    """
    pairs = list(itertools.combinations(samples, 2))
    alarm = FALSE_ALARM / len(pairs)
    for first, second in pairs:
        p_value = dependence_p_value(first, second)
        assert p_value > alarm, f"two samples share their noise: p = {p_value:.2g}"
        mixed = np.sqrt(1 - SHARED**2) * second + SHARED * first
        assert dependence_p_value(first, mixed) <= alarm, "the samples are too small to tell"


def dependence_p_value(first: Values, second: Values) -> float:
    """Exact for normals: correlation of the values, and of their sizes made normal."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    sizes = [stats.norm.ppf(stats.chi2(1).cdf((x / STDDEV) ** 2)) for x in (first, second)]
    finite = np.isfinite(sizes).all(axis=0)
    p_values = (
        stats.pearsonr(first, second).pvalue,
        stats.pearsonr(*np.array(sizes)[:, finite]).pvalue,
    )
    return 2 * float(min(p_values))


CHECKS = [
    check_scale_of_a_small_tensor,
    check_scale_of_every_part_of_a_large_tensor,
    check_scale_of_single_entries,
    check_independence_of_steps,
    check_independence_of_entries,
    check_independence_of_pairs,
    check_tails,
]

FAULTS = {
    "noise_reused_across_steps": check_independence_of_steps,
    "noise_reused_with_the_other_sign": check_independence_of_steps,
    "half_noise": check_scale_of_a_small_tensor,
    "root_two_noise": check_scale_of_every_part_of_a_large_tensor,
    "five_percent_less_noise": check_scale_of_single_entries,
    "one_draw_for_all_entries": check_independence_of_entries,
    "every_stream_from_the_same_start": check_independence_of_entries,
    "half_of_the_entries_left_out": check_scale_of_every_part_of_a_large_tensor,
    "both_of_a_pair_from_one_angle": check_independence_of_pairs,
    "tails_that_end_at_four_and_a_half_deviations": check_tails,
    "tails_of_a_uniform_of_14_bits": check_tails,
}


@pytest.mark.parametrize("check", CHECKS)
def test_training_noise_is_as_stated(check: Callable[[Start], None]) -> None:
    check(right_noise)


@pytest.mark.parametrize(
    "check", [check_scale_of_a_small_tensor, check_independence_of_pairs, check_tails]
)
def test_training_noise_is_as_stated_without_a_compiler(
    check: Callable[[Start], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_module, "compiled_kernels", lambda: None)
    check(right_noise)


@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        FAULTS[name](getattr(faulty_training_noise, name))


def test_every_fault_in_the_file_is_listed() -> None:
    planted = {
        name
        for name, function in inspect.getmembers(faulty_training_noise, inspect.isfunction)
        if function.__module__ == faulty_training_noise.__name__
    }
    assert planted == set(FAULTS)


@pytest.mark.parametrize("stddev", [1e-6, 0.3, 2e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_has_the_stated_scale_in_every_type(dtype: torch.dtype, stddev: float) -> None:
    def sample(rng: NoiseSource, size: int) -> Values:
        return noise_on(torch.zeros(size, dtype=dtype), right_noise(rng), stddev)

    assert_gaussian(sample, stddev=stddev)


def test_double_noise_is_not_rounded_to_single() -> None:
    values = noise_on(torch.zeros(1000, dtype=torch.float64), right_noise(SeededNoise(1)))
    assert np.mean(values == values.astype(np.float32)) < 0.01


@pytest.mark.parametrize(
    "view",
    [
        lambda whole: whole.reshape(200, 200)[:, ::2],
        lambda whole: whole.reshape(200, 200).T[:100],
        lambda whole: whole[::2],
    ],
)
def test_a_view_gets_noise_on_its_entries_and_nowhere_else(
    view: Callable[[Tensor], Tensor],
) -> None:
    def sample(rng: NoiseSource, size: int) -> Values:
        whole = torch.zeros(2 * size)
        right_noise(rng)(view(whole), STDDEV)
        values = whole.double().numpy()
        assert np.sum(values != 0) == size
        return values[values != 0]

    assert_gaussian(sample, stddev=STDDEV)


def test_noise_is_added_to_what_is_there() -> None:
    values, noise = torch.full((5,), 100.0), torch.zeros(5)
    right_noise(SeededNoise(1))(values, STDDEV)
    right_noise(SeededNoise(1))(noise, STDDEV)
    assert torch.allclose(values, 100 + noise)
    assert (noise != 0).all()


@pytest.mark.parametrize("size", [5, LARGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filling_is_adding_to_zeros(dtype: torch.dtype, size: int) -> None:
    filled = torch.full((size,), 7.0, dtype=dtype)
    TrainingNoise(SeededNoise(1)).fill(filled, STDDEV)
    added = torch.zeros(size, dtype=dtype)
    right_noise(SeededNoise(1))(added, STDDEV)
    assert torch.equal(filled, added)


def test_filling_with_a_stddev_of_zero_leaves_zeros() -> None:
    values = torch.ones(3)
    TrainingNoise(SeededNoise(1)).fill(values, 0.0)
    assert values.tolist() == [0.0, 0.0, 0.0]


def test_only_contiguous_memory_is_filled() -> None:
    values = torch.zeros(4, 4)
    with pytest.raises(ConfigError, match="contiguous"):
        TrainingNoise(SeededNoise(1)).fill(values[:, :2], 1.0)
    assert not values.any()


def test_a_stddev_of_zero_adds_nothing() -> None:
    values = torch.tensor([1.0, -2.0, 0.0])
    right_noise(SeededNoise(1))(values, 0.0)
    assert values.tolist() == [1.0, -2.0, 0.0]


@pytest.mark.parametrize("stddev", [-1.0, float("nan"), float("inf"), -float("inf"), 1e-50, 1e39])
def test_a_stddev_that_float32_cannot_carry_is_refused(stddev: float) -> None:
    values = torch.zeros(3)
    with pytest.raises(ConfigError, match="stddev="):
        right_noise(SeededNoise(1))(values, stddev)
    assert values.tolist() == [0.0, 0.0, 0.0]
