"""Updates change what they are told to and nothing else, and go on exactly after a break."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.train import parameter_updates
from tulle.train.models.contributions import DenseGradient, Gradient, RowGradient
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.optimizers import SGD, Adam, Optimizer, RMSprop, Yogi

ALL = [
    SGD(learning_rate=0.1),
    SGD(learning_rate=0.1, momentum=0.0),
    Adam(learning_rate=0.1, weight_decay=0.01),
    RMSprop(learning_rate=0.1),
    Yogi(learning_rate=0.1, weight_decay=0.01),
]
every_optimizer = pytest.mark.parametrize("settings", ALL, ids=lambda s: repr(s))


def fresh_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "public.table.0": torch.randn(20, 4, generator=generator),
        "public.layer.0.weight": torch.randn(3, 4, generator=generator),
        "common.bias": torch.randn((), generator=generator),
    }


def gradients_of_step(step: int) -> list[Gradient]:
    generator = torch.Generator().manual_seed(100 + step)
    rows = torch.randperm(20, generator=generator)[:6].sort().values
    return [
        RowGradient(
            name="public.table.0", rows=rows, values=torch.randn(6, 4, generator=generator)
        ),
        DenseGradient(name="public.layer.0.weight", values=torch.randn(3, 4, generator=generator)),
        DenseGradient(name="common.bias", values=torch.randn((), generator=generator)),
    ]


def take_steps(optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.update(gradients_of_step(step), rate=0.1 / (1 + step))


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@every_optimizer
def test_a_run_goes_on_exactly_from_saved_weights_and_state(settings: Optimizer) -> None:
    straight = fresh_weights()
    whole = ParameterUpdates(straight, settings)
    take_steps(whole, range(10))

    first = fresh_weights()
    optimizer = ParameterUpdates(first, settings)
    take_steps(optimizer, range(5))
    saved_weights, saved_state = copies(first), copies(optimizer.state())
    take_steps(optimizer, range(5, 7))

    second = ParameterUpdates(saved_weights, settings)
    second.load_state(saved_state)
    take_steps(second, range(5, 10))
    assert_same(saved_weights, straight)
    assert_same(second.state(), whole.state())


@every_optimizer
def test_loaded_state_is_a_copy(settings: Optimizer) -> None:
    optimizer = ParameterUpdates(fresh_weights(), settings)
    take_steps(optimizer, range(2))
    state = copies(optimizer.state())
    other = ParameterUpdates(fresh_weights(), settings)
    other.load_state(state)
    take_steps(other, range(2))
    assert_same(state, copies(optimizer.state()))


@every_optimizer
def test_only_named_rows_of_weights_and_state_change(settings: Optimizer) -> None:
    weights = fresh_weights()
    optimizer = ParameterUpdates(weights, settings)
    take_steps(optimizer, range(3))
    before = copies(weights | optimizer.state())
    rows = torch.tensor([2, 11])
    gradient = RowGradient(name="public.table.0", rows=rows, values=torch.ones(2, 4))
    optimizer.update([gradient], rate=0.1)
    for name, tensor in (weights | optimizer.state()).items():
        if name == "num_steps":
            assert int(tensor) == 4
        elif name.endswith("public.table.0"):
            changed = (tensor != before[name]).any(dim=1).nonzero().reshape(-1)
            assert changed.tolist() == rows.tolist()
        else:
            assert torch.equal(tensor, before[name])


@every_optimizer
def test_a_gradient_is_left_alone(settings: Optimizer) -> None:
    gradients = gradients_of_step(0)
    before = [gradient.values.clone() for gradient in gradients]
    ParameterUpdates(fresh_weights(), settings).update(gradients, rate=0.1)
    for gradient, values in zip(gradients, before, strict=True):
        assert torch.equal(gradient.values, values)


@every_optimizer
def test_pieces_change_nothing(settings: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fresh_weights()
    take_steps(ParameterUpdates(whole, settings), range(4))
    for limit in (1, 7):
        monkeypatch.setattr(parameter_updates, "_PIECE_ON_CPU", limit)
        pieces = fresh_weights()
        take_steps(ParameterUpdates(pieces, settings), range(4))
        assert_same(pieces, whole)


@every_optimizer
def test_an_empty_step_counts_and_changes_nothing_else(settings: Optimizer) -> None:
    weights = fresh_weights()
    optimizer = ParameterUpdates(weights, settings)
    empty = RowGradient(
        name="public.table.0", rows=torch.zeros(0, dtype=torch.int64), values=torch.zeros(0, 4)
    )
    optimizer.update([empty], rate=0.1)
    assert_same(weights, fresh_weights())
    assert int(optimizer.state()["num_steps"]) == 1


@every_optimizer
def test_a_rate_of_zero_moves_no_weight(settings: Optimizer) -> None:
    weights = fresh_weights()
    ParameterUpdates(weights, settings).update(gradients_of_step(0), rate=0.0)
    assert_same(weights, fresh_weights())


def test_state_is_as_large_as_the_table_and_momentum_zero_needs_none() -> None:
    state = ParameterUpdates(fresh_weights(), Adam(learning_rate=0.1)).state()
    assert state["mean.public.table.0"].shape == state["mean_square.public.table.0"].shape
    assert state["mean.public.table.0"].shape == (20, 4)
    assert len(state) == 7
    assert list(
        ParameterUpdates(fresh_weights(), SGD(learning_rate=0.1, momentum=0.0)).state()
    ) == ["num_steps"]


def without_an_entry(state: dict[str, Tensor]) -> None:
    del state["mean.common.bias"]


def with_another_entry(state: dict[str, Tensor]) -> None:
    state["mean.common.biass"] = torch.zeros(())


def with_another_shape(state: dict[str, Tensor]) -> None:
    state["mean.public.table.0"] = torch.zeros(20, 5)


def with_another_type(state: dict[str, Tensor]) -> None:
    state["mean.public.table.0"] = torch.zeros(20, 4, dtype=torch.float64)


def without_steps(state: dict[str, Tensor]) -> None:
    del state["num_steps"]


def with_steps_below_zero(state: dict[str, Tensor]) -> None:
    state["num_steps"] = torch.tensor(-1)


def with_a_list_of_steps(state: dict[str, Tensor]) -> None:
    state["num_steps"] = torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_an_entry, "no entry 'mean.common.bias'"),
        (with_another_entry, "did you mean 'mean.common.bias'"),
        (with_another_shape, r"shape \(20, 5\)"),
        (with_another_type, "float64"),
        (without_steps, "no entry 'num_steps'"),
        (with_steps_below_zero, "num_steps=-1"),
        (with_a_list_of_steps, r"shape \(2,\)"),
    ],
)
def test_state_of_another_run_is_refused_and_nothing_changes(
    spoil: Callable[[dict[str, Tensor]], None], message: str
) -> None:
    optimizer = ParameterUpdates(fresh_weights(), Adam(learning_rate=0.1))
    take_steps(optimizer, range(3))
    before = copies(optimizer.state())
    state = copies(ParameterUpdates(fresh_weights(), Adam(learning_rate=0.1)).state())
    spoil(state)
    with pytest.raises(RunStateError, match=message):
        optimizer.load_state(state)
    assert_same(optimizer.state(), before)


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ([DenseGradient(name="common.bia", values=torch.zeros(()))], "did you mean 'common.bias'"),
        ([DenseGradient(name="common.bias", values=torch.zeros(1))], r"shape \(1,\)"),
        ([DenseGradient(name="public.table.0", values=torch.zeros(4))], r"needs \(20, 4\)"),
        (
            [
                RowGradient(
                    name="public.table.0", rows=torch.tensor([1, 2]), values=torch.zeros(1, 4)
                )
            ],
            r"needs \(2, 4\)",
        ),
        ([DenseGradient(name="common.bias", values=torch.zeros(()))] * 2, "two gradients"),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused_and_nothing_changes(
    gradients: list[Gradient], message: str
) -> None:
    weights = fresh_weights()
    optimizer = ParameterUpdates(weights, Adam(learning_rate=0.1))
    with pytest.raises(ConfigError, match=message):
        optimizer.update([*gradients_of_step(0)[1:2], *gradients], rate=0.1)
    assert_same(weights, fresh_weights())
    assert int(optimizer.state()["num_steps"]) == 0


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate="):
        ParameterUpdates(fresh_weights(), SGD(learning_rate=0.1)).update([], rate=rate)
