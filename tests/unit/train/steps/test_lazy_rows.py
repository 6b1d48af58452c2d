"""Lazy rows follow the dense optimizer, keep their order of calls, and give nothing raw away."""

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.contributions import DenseGradient
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps import lazy_rows
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.lazy_rows import LazyRows
from tulle.train.steps.training_noise import TrainingNoise

NUM_ROWS, DIM = 50, 3


def new_table(
    *, momentum: float = 0.9, weight_decay: float = 0.0, stddev: float = 0.1, seed: int = 1
) -> tuple[Tensor, AgeTable, LazyRows]:
    weights = torch.randn(NUM_ROWS, DIM, generator=torch.Generator().manual_seed(seed))
    ages = AgeTable(momentum=momentum, weight_decay=weight_decay)
    noise = TrainingNoise(SeededNoise(seed))
    return weights, ages, LazyRows(weights, ages, noise=noise, noise_stddev=stddev)


def missed_steps(ages: AgeTable, num_steps: int) -> None:
    for _ in range(num_steps):
        ages.end_step(0.1)


def rows_of(*rows: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("piece", [1 << 20, 7 * DIM])
def test_without_noise_every_read_and_the_end_are_those_of_the_dense_optimizer(
    momentum: float, weight_decay: float, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_rows, "_PIECE_ON_CPU", piece)
    weights, ages, table = new_table(momentum=momentum, weight_decay=weight_decay, stddev=0.0)
    expected = weights.clone()
    settings = SGD(learning_rate=0.1, momentum=momentum, weight_decay=weight_decay)
    optimizer = ParameterUpdates({"table": expected}, settings)
    random = torch.Generator().manual_seed(3)
    for step in range(60):
        rows = torch.rand(NUM_ROWS, generator=random).lt(0.01 * step).nonzero().squeeze(1)
        table.catch_up(rows)
        torch.testing.assert_close(weights[rows], expected[rows], rtol=0, atol=1e-6)
        gradient = torch.zeros_like(expected)
        gradient[rows] = torch.tanh(weights[rows])
        table.add_gradient(rows, gradient[rows])
        rate = 0.1 * CosineDecay(warmup_share=0.1).rate_factor(step, 60)
        optimizer.update([DenseGradient(name="table", values=gradient)], rate=rate)
        ages.end_step(rate)
    state = table.release_state()
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
    assert (state.keys() == {"momentum"}) == (momentum > 0)
    for name, values in state.items():
        dense = optimizer.state()[f"{name}.table"]
        torch.testing.assert_close(values, dense, rtol=0, atol=1e-5)


def test_a_second_flush_adds_nothing_more() -> None:
    weights, ages, table = new_table()
    missed_steps(ages, 5)
    table.flush()
    once = weights.clone()
    table.flush()
    table.catch_up(torch.arange(NUM_ROWS))
    assert torch.equal(weights, once)


def test_a_flush_is_a_catch_up_of_all_rows() -> None:
    flushed, caught_up = new_table(), new_table()
    for _, ages, table in (flushed, caught_up):
        missed_steps(ages, 3)
        table.catch_up(rows_of(0, 7))
        table.add_gradient(rows_of(0, 7), torch.ones(2, DIM))
        missed_steps(ages, 4)
    flushed[2].flush()
    caught_up[2].catch_up(torch.arange(NUM_ROWS))
    torch.testing.assert_close(flushed[0], caught_up[0])


def test_only_the_rows_that_are_read_change() -> None:
    weights, ages, table = new_table()
    before = weights.clone()
    missed_steps(ages, 4)
    table.catch_up(rows_of(2, 40))
    changed = (weights != before).all(1).nonzero().squeeze(1)
    assert changed.tolist() == [2, 40]
    assert (weights != before).any(1).sum() == 2


def test_a_step_without_rows_is_a_step() -> None:
    weights, _, table = new_table()
    before = weights.clone()
    table.catch_up(rows_of())
    table.add_gradient(rows_of(), torch.zeros(0, DIM))
    assert torch.equal(weights, before)


def test_rows_that_are_up_to_date_draw_no_noise_again() -> None:
    weights, ages, table = new_table()
    drawn: list[int] = []

    class Counting:
        def fill(self, values: Tensor, stddev: float) -> None:
            drawn.append(values.numel())
            values.fill_(stddev)

    table._noise = Counting()
    missed_steps(ages, 2)
    table.catch_up(rows_of(1, 2))
    before = weights.clone()
    table.catch_up(rows_of(1, 2, 3))
    assert drawn == [2 * DIM, DIM]
    assert torch.equal(weights[[1, 2]], before[[1, 2]])


def test_a_gradient_moves_no_weight_before_the_next_read() -> None:
    weights, ages, table = new_table(stddev=0.0)
    before = weights.clone()
    table.catch_up(rows_of(3))
    table.add_gradient(rows_of(3), torch.ones(1, DIM))
    assert torch.equal(weights, before)
    ages.end_step(0.5)
    table.catch_up(rows_of(3))
    torch.testing.assert_close(weights[3], before[3] - 0.5)


def test_parts_of_a_gradient_add_up() -> None:
    whole, parts = new_table(), new_table()
    for _, _, table in (whole, parts):
        table.catch_up(rows_of(1, 2))
    whole[2].add_gradient(rows_of(1, 2), torch.tensor([[3.0] * DIM, [1.0] * DIM]))
    parts[2].add_gradient(rows_of(1, 2), torch.ones(2, DIM))
    parts[2].add_gradient(rows_of(1), torch.full((1, DIM), 2.0))
    for _, ages, table in (whole, parts):
        ages.end_step(0.1)
        table.flush()
    torch.testing.assert_close(whole[0], parts[0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_run_goes_on_from_a_checkpoint_with_the_same_numbers(momentum: float) -> None:
    weights, ages, table = new_table(momentum=momentum)
    missed_steps(ages, 3)
    table.catch_up(rows_of(4, 5))
    table.add_gradient(rows_of(4, 5), torch.ones(2, DIM))
    missed_steps(ages, 2)
    state = table.release_state()
    saved = weights.clone()
    again = AgeTable(momentum=momentum, step=ages.step)
    resumed = LazyRows(saved, again, noise=TrainingNoise(SeededNoise(5)), noise_stddev=0.1)
    resumed.load_state(state)
    table._noise = TrainingNoise(SeededNoise(5))
    for clock, rows in ((ages, table), (again, resumed)):
        missed_steps(clock, 3)
        rows.catch_up(rows_of(4, 9))
        rows.add_gradient(rows_of(4, 9), torch.ones(2, DIM))
        missed_steps(clock, 2)
    last, last_resumed = table.release_state(), resumed.release_state()
    assert torch.equal(weights, saved)
    for name, values in last.items():
        assert torch.equal(values, last_resumed[name])


def test_a_released_momentum_is_a_copy() -> None:
    _, ages, table = new_table()
    missed_steps(ages, 2)
    momentum = table.release_state()["momentum"]
    before = momentum.clone()
    missed_steps(ages, 2)
    table.flush()
    assert torch.equal(momentum, before)


def test_each_piece_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_rows, "_PIECE_ON_CPU", 10 * DIM)
    weights, ages, table = new_table()
    weights.zero_()
    missed_steps(ages, 2)
    table.catch_up(torch.arange(30))
    table.flush()
    momentum = table.release_state()["momentum"]
    assert len(torch.unique(weights)) == weights.numel()
    assert len(torch.unique(momentum)) == momentum.numel()


def test_noise_is_finite_where_rates_are_zero() -> None:
    weights, ages, table = new_table()
    before = weights.clone()
    for _ in range(3):
        ages.end_step(0.0)
    table.flush()
    assert torch.equal(weights, before)
    ages.end_step(0.1)
    assert table.release_state()["momentum"].isfinite().all()
    assert weights.isfinite().all()


class DeviceNoise:
    def fill(self, values: Tensor, stddev: float) -> None:
        values.normal_(std=stddev)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_on_a_device_waits_for_no_value(momentum: float) -> None:
    """Tensors of the meta device have a device and no values, so asking for one fails."""
    weights = torch.zeros(NUM_ROWS, DIM, device="meta")
    ages = AgeTable(momentum=momentum, weight_decay=0.1, device="meta")
    table = LazyRows(weights, ages, noise=DeviceNoise(), noise_stddev=0.1)
    rows = torch.arange(5, device="meta")
    for _ in range(3):
        table.catch_up(rows)
        table.add_gradient(rows, torch.zeros(5, DIM, device="meta"))
        ages.end_step(0.1)
    table.flush()
    state = table.release_state()
    table.load_state(state)
    assert [values.device.type for values in state.values()] == ["meta"] * bool(momentum)
    # The check would fail on a step that asks for a value.
    with pytest.raises(RuntimeError, match="meta"):
        bool(weights.sum() > 0)


def test_a_gradient_for_a_row_that_was_not_caught_up_is_refused() -> None:
    _, ages, table = new_table()
    table.catch_up(rows_of(1))
    ages.end_step(0.1)
    table.catch_up(rows_of(2))
    with pytest.raises(RunStateError, match="catch_up"):
        table.add_gradient(rows_of(1, 2), torch.ones(2, DIM))


def test_no_state_is_released_while_a_gradient_has_no_noise() -> None:
    _, ages, table = new_table()
    table.catch_up(rows_of(1))
    table.add_gradient(rows_of(1), torch.ones(1, DIM))
    with pytest.raises(RunStateError, match="raw gradients"):
        table.release_state()
    ages.end_step(0.1)
    table.release_state()


def test_a_gradient_of_another_shape_is_refused() -> None:
    _, _, table = new_table()
    table.catch_up(rows_of(1))
    with pytest.raises(ConfigError, match="shape"):
        table.add_gradient(rows_of(1), torch.ones(2, DIM))


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"momentum": torch.zeros(NUM_ROWS, DIM), "more": torch.zeros(1)},
        {"momentum": torch.zeros(NUM_ROWS - 1, DIM)},
        {"momentum": torch.zeros(NUM_ROWS, DIM, dtype=torch.float64)},
    ],
)
def test_the_state_of_another_table_is_refused(state: dict[str, Tensor]) -> None:
    _, _, table = new_table()
    with pytest.raises(RunStateError):
        table.load_state(state)


@pytest.mark.parametrize(
    "weights",
    [torch.zeros(4), torch.zeros(4, 2, dtype=torch.int64), torch.zeros(2, 4).t()],
)
def test_what_is_no_table_is_refused(weights: Tensor) -> None:
    noise = TrainingNoise(SeededNoise(1))
    with pytest.raises(ConfigError, match="table"):
        LazyRows(weights, AgeTable(momentum=0.9), noise=noise, noise_stddev=0.1)


def test_a_negative_noise_stddev_is_refused() -> None:
    noise = TrainingNoise(SeededNoise(1))
    with pytest.raises(ConfigError, match="noise_stddev"):
        LazyRows(torch.zeros(2, 2), AgeTable(momentum=0.9), noise=noise, noise_stddev=-0.1)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("use", ["flush", "other rows", "same rows", "state"])
def test_a_gradient_that_comes_with_its_rows_counts_as_one_that_comes_alone(
    momentum: float, use: str
) -> None:
    """Means wait for the gradient of the same rows; nobody must see a table without them."""
    results = []
    for is_same_tensor in (True, False):
        weights, ages, table = new_table(momentum=momentum)
        for step in range(3):
            rows = rows_of(1, 4, 5)
            table.catch_up(rows)
            if step == 1 and use == "flush":
                table.flush()
            if step == 1 and use == "other rows":
                table.catch_up(rows_of(0, 4))
            if step == 1 and use == "same rows":
                table.catch_up(rows)
            gradient = torch.full((3, DIM), 0.5 + step)
            table.add_gradient(rows if is_same_tensor else rows.clone(), gradient)
            ages.end_step(0.1)
            if step == 1 and use == "state":
                table.load_state(table.release_state())
        table.flush()
        results.append((weights, table._mean, table._variance))
    for found, wanted in zip(*results, strict=True):
        assert torch.equal(found, wanted)


def test_a_gradient_of_another_step_is_refused_for_rows_that_wait() -> None:
    _, ages, table = new_table()
    rows = rows_of(1, 2)
    table.catch_up(rows)
    ages.end_step(0.1)
    with pytest.raises(RunStateError, match="catch_up"):
        table.add_gradient(rows, torch.ones(2, DIM))
