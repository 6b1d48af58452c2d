"""With products of half precision no example adds more than the clip norm to all sums.

Looked at as one vector: all trained parameters and the two coordinates of the monitor.
"""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.train.models.batches import ExampleBatch
from tulle.train.settings.models import MLP, TOWERS
from tulle.train.steps.gpu import device_mlp, layer_ops
from tulle.train.steps.gpu.layer_ops import exact_product
from tulle.train.steps.gpu.row_ops import gather_rows
from tulle.train.steps.step_settings import CLIP_SLACK, StepSettings
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.steps.gpu.device_steps import (
    HALF_SLACK,
    flat_sums,
    quiet_settings,
    raw_norms,
    start_step,
    take,
)
from unit.train.steps.step_reference import Case, expected_rows, make_case

FEATURES = DATASETS["two tables a role"]
HALF = torch.bfloat16
LEAST_KEPT = 0.99
PERCEPTRONS = {name: model for name, model in MODELS.items() if isinstance(model, MLP)} | {
    "wide mlp": MLP(embedding_dim=16, public_hidden=(24,), common_hidden=(32, 32)),
    "mlp without layers": MLP(embedding_dim=7, public_hidden=(), common_hidden=()),
}

cases = st.builds(
    lambda model, seed, scale, size: make_case(
        PERCEPTRONS[model], FEATURES, size=size, seed=seed, scale=scale, dtype=torch.float32
    ),
    model=st.sampled_from(sorted(PERCEPTRONS)),
    seed=st.integers(0, 2**31),
    scale=st.floats(-2, 2).map(lambda power: 10**power),
    size=st.integers(1, 5),
)
steps = st.builds(
    lambda power, share, towers: quiet_settings(
        clip_norm=10**power, monitor_share=share, towers=towers, clip_slack=HALF_SLACK
    ),
    power=st.floats(-3, 3),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    towers=st.sampled_from([TOWERS, TOWERS - {"public"}]),
)


@dataclasses.dataclass
class Added:
    """What one example of a batch added, and the norm it was clipped by."""

    gradient: float
    """Norm over all parameters."""
    whole: float
    """Norm with the monitor."""
    raw: float


def added_by(case: Case, step: StepSettings, example: int = 0) -> Added:
    """All other rows of the batch are padding."""
    own = start_step(case.model, step, products=HALF)
    raw = float(raw_norms(own, case.batch)[example])
    weights = torch.zeros(len(case.labels))
    weights[example] = 1
    monitor = take(own, case.batch, weights)
    gradient = flat_sums(own, case.model)
    whole = torch.cat([gradient, monitor.double()])
    return Added(float(gradient.norm()), float(whole.norm()), raw)


@given(case=cases, step=steps)
@settings(max_examples=250)
def test_no_example_adds_more_than_the_clip_norm(case: Case, step: StepSettings) -> None:
    added = added_by(case, step)
    assert added.whole <= step.clip_norm
    limit = step.gradient_limit(1)
    if limit < added.raw < float("inf"):
        assert added.gradient >= LEAST_KEPT * step.coordinates.gradient_norm
    elif added.raw <= limit:
        # What is not clipped is added as it is stored.
        assert added.gradient == pytest.approx(added.raw, rel=1e-4)
    else:
        assert added.gradient == 0


@given(case=cases, step=steps)
@settings(max_examples=60)
def test_all_examples_together_add_no_more_than_each(case: Case, step: StepSettings) -> None:
    own = start_step(case.model, step, products=HALF)
    monitor = take(own, case.batch, torch.ones(len(case.labels)))
    whole = torch.cat([flat_sums(own, case.model), monitor.double()])
    assert float(whole.norm()) <= len(case.labels) * step.clip_norm * (1 + 1e-6)


def even_case() -> Case:
    """One layer has nearly all of the gradient, and all its entries are rounded alike."""
    layout = MLP(embedding_dim=16, public_hidden=(), common_hidden=(32,))
    case = make_case(layout, [feature("a", "public", 3)], size=1, dtype=torch.float32)
    fill(case, {"public.table.0": 4.0, "common.layer.1.weight": 4.0}, otherwise=0.001)
    return case


def fill(case: Case, values: dict[str, float], otherwise: float) -> None:
    case.labels.zero_()
    for name, parameter in case.model.parameters.items():
        parameter.fill_(values.get(name, otherwise))


def norms_over_clip_norms(case: Case, clip_slack: float) -> list[float]:
    """What is added over the clip norm, for 64 clip norms of one octave."""
    found = []
    for number in range(64):
        step = quiet_settings(
            clip_norm=2 ** (-2 - number / 64), monitor_share=0.0, clip_slack=clip_slack
        )
        found.append(added_by(case, step).whole / step.clip_norm)
    return found


def test_rounding_all_in_one_direction_stays_within_the_slack() -> None:
    shares = norms_over_clip_norms(even_case(), HALF_SLACK)
    assert max(shares) <= 1
    assert min(shares) >= LEAST_KEPT
    # The worst of them used up a good part of the slack, so this is a test.
    assert max(shares) - min(shares) > 2.0**-9


def test_the_slack_of_single_precision_would_be_too_little() -> None:
    assert max(norms_over_clip_norms(even_case(), CLIP_SLACK)) > 1 + 2.0**-10


def rounds_up(size: int = 16) -> Case:
    """Tables whose rows half precision makes longer by almost 2^-8."""
    layout = MLP(embedding_dim=size, public_hidden=(), common_hidden=(8,))
    case = make_case(layout, [feature("a", "public", 3)], size=1, dtype=torch.float32)
    case.model.parameters["public.table.0"].fill_(1 + 2.0**-8 + 2.0**-14)
    return case


def norms_before_rounding(
    table: Tensor, reads: Tensor, out: Tensor, squares: Tensor, *, has_one: bool
) -> None:
    """Planted fault: the norm of a row is that of the table, not of what is stored."""
    gather_rows(table, reads, out, squares, has_one=has_one)
    exact = torch.empty_like(out, dtype=table.dtype)
    gather_rows(table, reads, exact, squares, has_one=has_one)


@pytest.mark.parametrize("seed", range(5))
def test_norms_are_those_of_what_is_stored(seed: int) -> None:
    case = rounds_up()
    case.model.parameters["common.layer.0.weight"].mul_(1 + seed / 7)
    for clip_norm in (1e-3, 1e-2, 0.1):
        step = quiet_settings(clip_norm=clip_norm, monitor_share=0.0, clip_slack=HALF_SLACK)
        added = added_by(case, step)
        assert LEAST_KEPT * clip_norm <= added.whole <= clip_norm


def test_norms_from_before_rounding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    step = quiet_settings(clip_norm=1e-2, monitor_share=0.0)
    case = rounds_up(64)
    monkeypatch.setattr(device_mlp, "gather_rows", norms_before_rounding)
    added = added_by(case, step)
    assert added.whole > step.clip_norm * (1 + 2.0**-9)


def unrounded_squares(values: Tensor, bias: Tensor, squares: Tensor) -> None:
    """Planted fault: norms of layer outputs from before they are stored."""
    exact = (values.to(bias.dtype) + bias).relu()
    values.copy_(exact)
    squares.copy_(exact.norm(dim=1).square())


def test_norms_of_layers_from_before_rounding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = MLP(embedding_dim=4, public_hidden=(), common_hidden=(64, 8))
    case = make_case(layout, [feature("a", "public", 3)], size=1, dtype=torch.float32)
    # Every output of the first layer is 1 + 2^-8 and a bit, which is rounded to 1 + 2^-7.
    given = {"common.layer.0.bias": 1 + 2.0**-8 + 2.0**-14, "common.layer.2.weight": 4.0}
    fill(case, given | {"public.table.0": 0.0}, otherwise=0.001)
    assert max(norms_over_clip_norms(case, HALF_SLACK)) <= 1
    monkeypatch.setattr(device_mlp, "relu_rows", unrounded_squares)
    assert max(norms_over_clip_norms(case, HALF_SLACK)) > 1
    assert max(norms_over_clip_norms(case, CLIP_SLACK)) > 1 + 2.0**-8


def test_a_product_adds_up_in_single_precision() -> None:
    rng = torch.Generator().manual_seed(0)
    left, right = (torch.randn(4096, 5, generator=rng).to(HALF) for _ in range(2))
    found = exact_product(left, right)
    assert found.dtype == torch.float32
    expected = left.double().t() @ right.double()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("model", PERCEPTRONS)
def test_half_precision_comes_near_autograd(model: str) -> None:
    case = make_case(PERCEPTRONS[model], FEATURES, dtype=torch.float32, scale=0.3)
    step = quiet_settings(clip_norm=1e6, clip_slack=HALF_SLACK)
    own = start_step(case.model, step, products=HALF)
    take(own, case.batch, torch.ones(9))
    expected = expected_rows(case).gradients.sum(0)
    error = float((flat_sums(own, case.model) - expected).norm() / expected.norm())
    assert 1e-5 < error < 0.03


def test_padding_behind_rows_stays_zero_but_for_the_one() -> None:
    """All matrices are padded; what is there must never reach a sum."""
    rng = torch.Generator().manual_seed(0)
    for width, has_one in itertools.product((3, 7, 8), (True, False)):
        values = torch.full((2, 16), 9.0, dtype=HALF)
        table = torch.randn(4, width, generator=rng)
        squares = torch.empty(2)
        reads = torch.tensor([[1], [3]])
        gather_rows(table, reads, values, squares, has_one=has_one)
        assert torch.equal(values[:, :width], table[[1, 3]].to(HALF))
        behind = torch.zeros(2, 16 - width, dtype=HALF)
        behind[:, 0] = float(has_one)
        assert torch.equal(values[:, width:], behind)
        torch.testing.assert_close(squares, values.float().square().sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_cleared_rows_are_not_looked_at(dtype: torch.dtype) -> None:
    grads, inputs = (torch.ones(3, 8, dtype=dtype) for _ in range(2))
    grads[1], inputs[1] = float("nan"), float("inf")
    factors = torch.tensor([0.5, 0.0, 1.0])
    assert torch.equal(layer_ops.weighted_rows(grads, factors), torch.full((8,), 1.5))
    layer_ops.scale_rows(grads, inputs, factors)
    assert torch.equal(grads[:, 0].float(), factors)
    assert torch.equal(inputs[:, 0].float(), torch.tensor([1.0, 0.0, 1.0]))


def test_half_precision_changes_batches_that_are_prepared_ahead_in_nothing() -> None:
    case = make_case(PERCEPTRONS["wide mlp"], FEATURES, dtype=torch.float32)
    other = make_case(PERCEPTRONS["wide mlp"], FEATURES, dtype=torch.float32, seed=9)
    found = []
    for is_ahead in (True, False):
        again = make_case(PERCEPTRONS["wide mlp"], FEATURES, dtype=torch.float32)
        own = start_step(again.model, quiet_settings(clip_slack=HALF_SLACK), products=HALF)
        following: ExampleBatch | None = other.batch if is_ahead else None
        take(own, case.batch, torch.ones(9), 0.1, following)
        take(own, other.batch, torch.ones(9), 0.1)
        own.state()
        found.append(torch.cat([v.flatten() for v in again.model.parameters.values()]))
    assert torch.equal(*found)
