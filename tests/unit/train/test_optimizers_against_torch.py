"""Every optimizer takes the steps of its reference: torch's own, or a loop over numbers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tulle.train.models.contributions import DenseGradient, RowGradient
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import SGD, Adam, Optimizer, RMSprop, Yogi

NUM_STEPS = 25
RATES = [0.05 * (1 + step % 3) for step in range(NUM_STEPS)]
SHAPES = {"table": (7, 3), "bias": (), "weight": (4,)}

TorchOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


def start_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in SHAPES.items()
    }


def random_gradients(seed: int = 1) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in SHAPES.items()
        }
        for _ in range(NUM_STEPS)
    ]


def run_ours(settings: Optimizer, gradients: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    weights = start_weights()
    optimizer = ParameterUpdates(weights, settings)
    for rate, step in zip(RATES, gradients, strict=True):
        given = [DenseGradient(name=name, values=values) for name, values in step.items()]
        optimizer.update(given, rate=rate)
    return weights


def run_torch(make: TorchOptimizer, gradients: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    weights = start_weights()
    optimizer = make(list(weights.values()))
    for rate, step in zip(RATES, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        for name, values in step.items():
            weights[name].grad = values.clone()
        optimizer.step()
    return weights


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, weights in expected.items():
        torch.testing.assert_close(found[name], weights.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(learning_rate=0.1, momentum=0.0), lambda p: torch.optim.SGD(p)),
        (SGD(learning_rate=0.1), lambda p: torch.optim.SGD(p, momentum=0.9)),
        (SGD(learning_rate=0.1, momentum=0.5), lambda p: torch.optim.SGD(p, momentum=0.5)),
        (Adam(learning_rate=0.1), lambda p: torch.optim.Adam(p)),
        (
            Adam(learning_rate=0.1, momentum=0.8, square_memory=0.95, stabilizer=1e-2),
            lambda p: torch.optim.Adam(p, betas=(0.8, 0.95), eps=1e-2),
        ),
        (
            Adam(learning_rate=0.1, weight_decay=0.3),
            lambda p: torch.optim.AdamW(p, weight_decay=0.3),
        ),
        (RMSprop(learning_rate=0.1), lambda p: torch.optim.RMSprop(p)),
        (
            RMSprop(learning_rate=0.1, square_memory=0.8, stabilizer=1e-2),
            lambda p: torch.optim.RMSprop(p, alpha=0.8, eps=1e-2),
        ),
    ],
)
def test_steps_equal_those_of_torch(ours: Optimizer, theirs: TorchOptimizer) -> None:
    gradients = random_gradients()
    assert_equal(run_ours(ours, gradients), run_torch(theirs, gradients))


def test_the_comparison_sees_another_place_of_the_stabilizer() -> None:
    gradients = random_gradients()
    expected = run_torch(lambda p: torch.optim.Adam(p, eps=1e-2), gradients)
    # Inside the root, as some libraries have it, an addend of the same effect at 0 is 1e-4.
    with pytest.raises(AssertionError):
        assert_equal(run_ours(Adam(learning_rate=0.1, stabilizer=1e-4), gradients), expected)


def yogi_by_hand(weight: float, gradients: list[float], settings: Yogi) -> float:
    """Zaheer et al. 2018, Algorithm 2, one number at a time, with corrected means."""
    first, second = settings.momentum, settings.square_memory
    mean, square = 0.0, settings.initial_square
    for step, (rate, gradient) in enumerate(zip(RATES, gradients, strict=True), start=1):
        weight *= 1 - rate * settings.weight_decay
        mean = first * mean + (1 - first) * gradient
        square = square - (1 - second) * np.sign(square - gradient**2) * gradient**2
        corrected = square / (1 - second**step)
        weight -= rate * mean / (1 - first**step) / (math.sqrt(corrected) + settings.stabilizer)
    return weight


@pytest.mark.parametrize(
    "settings",
    [
        Yogi(learning_rate=0.1),
        Yogi(learning_rate=0.1, momentum=0.5, square_memory=0.7, initial_square=0.3),
        Yogi(learning_rate=0.1, stabilizer=0.1, weight_decay=0.2),
    ],
)
def test_yogi_takes_the_steps_of_its_paper(settings: Yogi) -> None:
    gradients = random_gradients()
    found = run_ours(settings, gradients)
    for name, weights in start_weights().items():
        columns = torch.stack([step[name].reshape(-1) for step in gradients], dim=1).tolist()
        expected = [
            yogi_by_hand(weight, column, settings)
            for weight, column in zip(weights.reshape(-1).tolist(), columns, strict=True)
        ]
        assert found[name].reshape(-1).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("optimizer", [SGD, RMSprop])
def test_weight_decay_is_taken_off_the_weights_and_not_added_to_the_gradient(
    optimizer: Callable[..., Optimizer],
) -> None:
    still = [{name: torch.zeros_like(w) for name, w in start_weights().items()}] * NUM_STEPS
    found = run_ours(optimizer(learning_rate=0.1, weight_decay=0.3), still)
    factor = math.prod(1 - 0.3 * rate for rate in RATES)
    assert_equal(found, {name: factor * weights for name, weights in start_weights().items()})


def row_gradients(num_rows: int) -> list[RowGradient]:
    generator = torch.Generator().manual_seed(5)
    result = []
    for _ in range(NUM_STEPS):
        rows = torch.randperm(num_rows, generator=generator)[:3].sort().values
        values = torch.randn(3, 2, generator=generator, dtype=torch.float64)
        result.append(RowGradient(name="table", rows=rows, values=values))
    return result


def run_on_rows(settings: Optimizer, gradients: list[RowGradient]) -> Tensor:
    table = torch.ones(9, 2, dtype=torch.float64)
    optimizer = ParameterUpdates({"table": table}, settings)
    for rate, gradient in zip(RATES, gradients, strict=True):
        optimizer.update([gradient], rate=rate)
    return table


def test_row_steps_of_adam_equal_those_of_sparse_adam() -> None:
    gradients = row_gradients(9)
    table = torch.ones(9, 2, dtype=torch.float64)
    # SparseAdam adds its epsilon before the correction, Adam after it: next to 0 they agree.
    reference = torch.optim.SparseAdam([table], eps=1e-100)
    for rate, gradient in zip(RATES, gradients, strict=True):
        reference.param_groups[0]["lr"] = rate
        table.grad = torch.sparse_coo_tensor(
            gradient.rows[None], gradient.values, table.shape, check_invariants=True
        )
        reference.step()
    found = run_on_rows(Adam(learning_rate=0.1, stabilizer=1e-100), gradients)
    torch.testing.assert_close(found, table.detach(), rtol=0, atol=1e-12)


def test_row_steps_of_plain_descent_equal_dense_steps() -> None:
    gradients = row_gradients(9)
    expected = torch.ones(9, 2, dtype=torch.float64)
    for rate, gradient in zip(RATES, gradients, strict=True):
        dense = torch.zeros_like(expected).index_add_(0, gradient.rows, gradient.values)
        expected -= rate * dense
    found = run_on_rows(SGD(learning_rate=0.1, momentum=0.0), gradients)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        SGD(learning_rate=0.1, weight_decay=0.1),
        Adam(learning_rate=0.1, weight_decay=0.1),
        RMSprop(learning_rate=0.1, weight_decay=0.1),
        Yogi(learning_rate=0.1, weight_decay=0.1),
    ],
)
def test_a_row_gradient_over_all_rows_takes_the_dense_step(settings: Optimizer) -> None:
    dense, by_rows = torch.ones(9, 2), torch.ones(9, 2)
    optimizers = (
        ParameterUpdates({"table": dense}, settings),
        ParameterUpdates({"table": by_rows}, settings),
    )
    for step, rate in enumerate(RATES):
        values = torch.randn(9, 2, generator=torch.Generator().manual_seed(step))
        optimizers[0].update([DenseGradient(name="table", values=values)], rate=rate)
        rows = RowGradient(name="table", rows=torch.arange(9), values=values)
        optimizers[1].update([rows], rate=rate)
    assert torch.equal(dense, by_rows)
