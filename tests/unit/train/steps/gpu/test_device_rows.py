"""Rows on a device move as lazy rows of the processor do, and draw noise where these do."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.gpu import device_rows
from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows
from tulle.train.steps.lazy_rows import LazyRows
from unit.train.steps.step_reference import NoNoise
from unit.train.steps.test_age_table import cosine, random, rising, warmup_and_cosine

CPU = torch.device("cpu")
NUM_ROWS, DIM = 30, 3
RATES = [0.3, 0.0, 0.2, 0.25, 0.1, 0.0, 0.15, 0.05, 0.4, 0.3, 0.2, 0.0]


def start(
    weights: Tensor,
    *,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    stddev: float = 0.0,
    seed: int = 1,
) -> tuple[DeviceAges, DeviceRows]:
    ages = DeviceAges(momentum=momentum, weight_decay=weight_decay, max_steps=100, device=CPU)
    rows = DeviceRows(weights, ages, noise_stddev=stddev, max_reads=200, rng=SeededNoise(seed))
    return ages, rows


def random_weights() -> Tensor:
    rng = torch.Generator().manual_seed(3)
    return torch.randn(NUM_ROWS, DIM, generator=rng, dtype=torch.float64)


def random_reads(step: int) -> Tensor:
    return torch.randint(NUM_ROWS, (5, 4), generator=torch.Generator().manual_seed(step))


def gradients_of(weights: Tensor, reads: Tensor) -> Tensor:
    return (0.5 * weights[reads] - 0.1).flatten(1)


def end(ages: DeviceAges, rate: float) -> None:
    ages.expect(1)
    ages.end_step(torch.tensor([rate], dtype=torch.float64))


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_without_noise_rows_are_those_of_the_processor(
    momentum: float, weight_decay: float
) -> None:
    """Reads repeat rows, within an example and between examples."""
    weights = [random_weights() for _ in range(2)]
    ages, rows = start(weights[0], momentum=momentum, weight_decay=weight_decay)
    table = AgeTable(momentum=momentum, weight_decay=weight_decay)
    lazy = LazyRows(weights[1], table, noise=NoNoise(), noise_stddev=1.0)
    factors = torch.tensor([1.0, 0.3, 0.0, 1.0, 0.7], dtype=torch.float64)
    scale = torch.tensor([0.25], dtype=torch.float64)
    for step, rate in enumerate(RATES):
        reads, draw = random_reads(step), torch.tensor([step])
        rows.catch_up(reads, draw)
        distinct = torch.tensor(sorted(set(reads.flatten().tolist())))
        lazy.catch_up(distinct)
        torch.testing.assert_close(weights[0][distinct], weights[1][distinct], rtol=0, atol=1e-12)
        grads = gradients_of(weights[0], reads)
        rows.add_gradient(grads, reads, factors, scale)
        values = torch.zeros_like(weights[1])
        values.index_add_(0, reads.flatten(), (grads * factors[:, None]).view(-1, DIM))
        lazy.add_gradient(distinct, values[distinct], 0.25)
        end(ages, rate)
        table.end_step(rate)
    rows.flush()
    ages.reset()
    released, expected = rows.release_momentum(), lazy.release_state()
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-12)
    assert (released is not None) == bool(expected) == bool(momentum)
    if released is not None:
        torch.testing.assert_close(released, expected["momentum"], rtol=0, atol=1e-12)


def test_rows_that_are_not_read_wait() -> None:
    weights = random_weights()
    before = weights.clone()
    ages, rows = start(weights, stddev=1.0)
    reads = torch.tensor([[3, 3, 5]])
    for step in range(4):
        rows.catch_up(reads, torch.tensor([step]))
        end(ages, 0.1)
    has_moved = (weights != before).all(1).tolist()
    assert has_moved == [row in (3, 5) for row in range(NUM_ROWS)]
    rows.flush()
    assert bool((weights != before).all())


def test_a_second_catch_up_in_one_step_changes_nothing() -> None:
    weights = random_weights()
    ages, rows = start(weights, stddev=1.0)
    end(ages, 0.3)
    reads = torch.tensor([[3, 7]])
    rows.catch_up(reads, torch.tensor([1]))
    seen = weights.clone()
    for draw in (1, 2):
        rows.catch_up(torch.tensor([[7, 3, 3]]), torch.tensor([draw]))
        assert torch.equal(weights, seen)


def test_rows_have_noise_of_their_own_whoever_reads_them_with_them() -> None:
    found = []
    for reads in ([[3, 7]], [[7, 9], [3, 3]], [[29, 3]]):
        weights = torch.zeros(NUM_ROWS, DIM)
        ages, rows = start(weights, stddev=1.0)
        end(ages, 0.3)
        rows.catch_up(torch.tensor(reads), torch.tensor([1]))
        found.append(weights[3].clone())
        assert len(set(weights[reads[0][0]].tolist())) == DIM
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_no_noise_is_drawn_twice_by_reads_flushes_and_momenta(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All normals of one row over a run with checkpoints are different ones."""
    monkeypatch.setattr(device_rows, "_ROWS_AT_A_TIME", 8)
    weights = torch.zeros(NUM_ROWS, DIM)
    ages, rows = start(weights, momentum=0.5, stddev=1.0)
    seen: list[Tensor] = []
    for step in range(20):
        before = weights.clone()
        if step % 4 == 3:
            rows.flush()
            ages.reset()
            seen.append(weights - before)
            # As if nothing were known about the momentum, so that it is its own normal.
            rows.mean.zero_()
            rows.variance.fill_(1)
            momentum = rows.release_momentum()
            assert momentum is not None
            seen.append(momentum.clone())
        else:
            rows.catch_up(torch.arange(NUM_ROWS).view(10, 3), torch.tensor([step]))
            seen.append(weights - before)
        rows.mean.zero_()
        end(ages, 1.0)
    drawn = torch.stack([values for values in seen if bool((values != 0).any())])
    assert len(drawn) >= 15
    # With the mean taken out, what a row moved by is its normal times a public number.
    shares = (drawn[:, :, 1] / drawn[:, :, 0]).flatten()
    assert len(set(shares.tolist())) == shares.numel()


@pytest.mark.parametrize("size", [1, 7, 30])
def test_pieces_of_a_flush_cover_all_rows(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for at_a_time in (1 << 22, size):
        monkeypatch.setattr(device_rows, "_ROWS_AT_A_TIME", at_a_time)
        weights = random_weights()
        ages, rows = start(weights, stddev=0.7)
        rows.catch_up(torch.tensor([[1, 4, 9]]), torch.tensor([0]))
        rows.mean[4] += 1
        end(ages, 0.3)
        rows.flush()
        found.append((weights, rows.variance.clone(), rows.mean.clone()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_two_flushes_have_two_noises() -> None:
    moves = []
    weights = torch.zeros(NUM_ROWS, DIM)
    ages, rows = start(weights, momentum=0.0, stddev=1.0)
    for _ in range(2):
        before = weights.clone()
        end(ages, 1.0)
        rows.flush()
        ages.reset()
        moves.append(weights - before)
    assert not bool((moves[0] == moves[1]).any())


def test_a_table_without_momentum_has_no_state() -> None:
    ages, rows = start(random_weights(), momentum=0.0, stddev=1.0)
    rows.catch_up(torch.tensor([[1]]), torch.tensor([0]))
    rows.mean[1] = 5
    end(ages, 0.1)
    rows.flush()
    ages.reset()
    assert rows.release_momentum() is None
    rows.mean[1] = 5
    rows.load_momentum(None)
    assert float(rows.mean.abs().max()) == 0


def test_a_run_goes_on_from_what_was_written() -> None:
    weights = random_weights()
    ages, rows = start(weights, stddev=1.0)
    for step, rate in enumerate(RATES):
        reads = random_reads(step)
        rows.catch_up(reads, torch.tensor([step]))
        end(ages, rate)
    rows.flush()
    ages.reset()
    momentum = rows.release_momentum()
    assert float(rows.variance.abs().max()) == 0
    other_ages, other = start(weights.clone(), stddev=1.0, seed=2)
    end(other_ages, 0.1)
    other.catch_up(random_reads(0), torch.tensor([1]))
    other.load_momentum(momentum)
    other_ages.reset()
    assert torch.equal(other.mean, rows.mean)
    assert torch.equal(other.exact_at, rows.exact_at)
    assert float(other.variance.abs().max()) == 0


@pytest.mark.parametrize("momentum", [None, torch.zeros(2, DIM)])
def test_a_momentum_that_is_missing_or_of_another_shape_is_refused(
    momentum: Tensor | None,
) -> None:
    _, rows = start(random_weights())
    with pytest.raises(RunStateError, match="momentum of a table"):
        rows.load_momentum(momentum)


def test_an_example_of_factor_0_adds_nothing_whatever_it_is() -> None:
    _, rows = start(random_weights())
    grads = torch.ones(2, 2 * DIM, dtype=torch.float64)
    grads[1] = math.nan
    factors = torch.tensor([1.0, 0.0], dtype=torch.float64)
    reads = torch.tensor([[4, 4], [4, 5]])
    rows.add_gradient(grads, reads, factors, torch.ones(1))
    expected = torch.zeros(NUM_ROWS, DIM, dtype=torch.float64)
    expected[4] = 2
    assert torch.equal(rows.mean, expected)


def test_tables_of_one_source_have_keys_of_their_own() -> None:
    rng = SeededNoise(1)
    ages = DeviceAges(momentum=0.9, weight_decay=0.0, max_steps=5, device=CPU)
    keys = []
    for _ in range(2):
        rows = DeviceRows(torch.zeros(3, 2), ages, noise_stddev=1.0, max_reads=4, rng=rng)
        keys += [rows._key, rows._flush_key, rows._state_key]
    assert len({tuple(key.tolist()) for key in keys}) == 6


MOST_ERROR = 1e-12


def some_zeros(num_steps: int) -> list[float]:
    """Rates of 0 at the start, at the end and in between."""
    rates = np.array(random(num_steps))
    rates[np.random.default_rng(2).random(num_steps) < 0.3] = 0
    rates[:3] = rates[-2:] = 0
    return [float(rate) for rate in rates]


def zeros(num_steps: int) -> list[float]:
    return [0.0] * num_steps


SCHEDULES = [cosine, warmup_and_cosine, rising, random, some_zeros, zeros]


def device_ages(momentum: float, weight_decay: float = 0.0, max_steps: int = 1000) -> DeviceAges:
    return DeviceAges(momentum=momentum, weight_decay=weight_decay, max_steps=max_steps, device=CPU)


def assert_equal_moments(ages: DeviceAges, table: AgeTable, num_steps: int) -> None:
    """For rows that were last exact at every step so far."""
    seen = torch.arange(num_steps + 1)
    age = num_steps - seen
    assert int(ages.now) == num_steps
    right = table.moments(age)
    short = age.clamp(max=ages.horizon)
    found = {
        "drift": ages.drift[seen],
        "memory": ages.memory[short],
        "weight_variance": ages.weight_variance[seen],
        "covariance": ages.covariance[seen],
        "momentum_variance": ages.momentum_variance[short],
        "kept": ages.kept[seen],
    }
    for name, values in found.items():
        expected: Tensor | None = getattr(right, name)
        if expected is None:
            expected = torch.ones_like(values)
        torch.testing.assert_close(values, expected, rtol=MOST_ERROR, atol=1e-30, msg=name)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_moments_are_those_of_the_age_table(
    momentum: float, weight_decay: float, schedule: Callable[[int], list[float]]
) -> None:
    ages, table = (
        device_ages(momentum, weight_decay),
        AgeTable(momentum=momentum, weight_decay=weight_decay),
    )
    assert_equal_moments(ages, table, 0)
    for step, rate in enumerate(schedule(450), start=1):
        end(ages, rate)
        table.end_step(rate)
        if step in (1, 2, 3, 60, 395, 450):
            assert_equal_moments(ages, table, step)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_after_a_reset_all_begins_again(momentum: float) -> None:
    ages, table = device_ages(momentum, 0.1, 60), AgeTable(momentum=momentum, weight_decay=0.1)
    for rate in random(60):
        end(ages, rate)
    ages.reset()
    assert_equal_moments(ages, table, 0)
    for rate in cosine(50):
        end(ages, rate)
        table.end_step(rate)
    assert_equal_moments(ages, table, 50)


def test_steps_without_room_are_refused_before_they_are_taken() -> None:
    ages = device_ages(0.9, max_steps=3)
    ages.expect(2)
    with pytest.raises(ConfigError, match=r"4 steps .* max_steps=3; flush"):
        ages.expect(2)
    ages.expect(1)
    with pytest.raises(ConfigError, match="flush"):
        ages.expect(1)
    ages.reset()
    ages.expect(3)


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "max_steps"), [(1.0, 0.0, 5), (-0.1, 0.0, 5), (0.9, -1.0, 5)]
)
def test_settings_that_make_no_sense_are_refused(
    momentum: float, weight_decay: float, max_steps: int
) -> None:
    with pytest.raises(ConfigError):
        device_ages(momentum, weight_decay, max_steps)


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_steps"):
        device_ages(0.9, max_steps=0)
