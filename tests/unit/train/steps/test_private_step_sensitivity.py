"""No unit moves the sums of a private step by more than the plan accounts for.

Sums are looked at as one vector: all trained parameters and the two coordinates of
the monitor. Models are in single precision, as in training.
"""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.train.losses import CrossEntropy
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.mlp import MLPForward
from tulle.train.settings.models import MLP, TOWERS, LogisticRegression
from tulle.train.steps.private_step import BatchUnits, PrivateStep, StepRelease
from tulle.train.steps.step_settings import LOSS_BOUND, StepSettings
from unit.train.models.test_tower_model import DATASETS, MODELS, feature
from unit.train.steps.step_reference import (
    EXPECTED_SIZE,
    Case,
    NoNoise,
    make_case,
    release_without_noise,
    step_settings,
    user_units,
)

FEATURES = DATASETS["two tables a role"]
# What adding up in single precision may be off by, for batches of so few rows.
SLACK = 1 + 1e-5

cases = st.builds(
    lambda model, seed, scale, size: make_case(
        MODELS[model], FEATURES, size=size, seed=seed, scale=scale, dtype=torch.float32
    ),
    model=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 2**31),
    scale=st.floats(-3, 3).map(lambda power: 10**power),
    size=st.integers(1, 6),
)
steps = st.builds(
    lambda power, share, towers: step_settings(
        clip_norm=10**power, monitor_share=share, towers=towers
    ),
    power=st.floats(-3, 3),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    towers=st.sampled_from([TOWERS, TOWERS - {"public"}, frozenset({"sensitive"})]),
)


def whole_vector(released: StepRelease, step: StepSettings) -> Tensor:
    """Gradients and monitor before division, as the noise sees them."""
    parts = [gradient.values.double().flatten() for gradient in released.gradients]
    if released.monitored is not None:
        scale = step.coordinates.scale
        loss, share = released.monitored.loss / LOSS_BOUND, released.monitored.clipped_share
        parts.append(scale * torch.tensor([loss, share], dtype=torch.float64))
    return EXPECTED_SIZE * torch.cat(parts)


def vector_of(
    case: Case, step: StepSettings, batch: ExampleBatch, units: BatchUnits | None
) -> Tensor:
    weights = torch.ones(len(batch.public_ids))
    here = dataclasses.replace(case, batch=batch)
    return whole_vector(release_without_noise(here, step, weights, units), step)


def replaced(case: Case, rows: list[int], seed: int) -> ExampleBatch:
    """The same batch with other labels and sensitive ids in some rows."""
    other = make_case(case.settings, case.features, size=len(case.labels), seed=seed).batch
    batch = case.batch
    assert batch.sensitive_ids is not None
    assert other.sensitive_ids is not None
    sensitive_ids, labels = batch.sensitive_ids.clone(), case.labels.clone()
    sensitive_ids[rows] = other.sensitive_ids[rows]
    labels[rows] = 1 - labels[rows]
    return dataclasses.replace(batch, sensitive_ids=sensitive_ids, labels=labels)


def kept(batch: ExampleBatch, rows: slice) -> ExampleBatch:
    assert batch.sensitive_ids is not None
    assert batch.labels is not None
    return ExampleBatch(
        public_ids=batch.public_ids[rows],
        sensitive_ids=batch.sensitive_ids[rows],
        labels=batch.labels[rows],
    )


@given(case=cases, step=steps, as_one_user=st.booleans())
@settings(max_examples=150)
def test_the_vector_of_one_unit_is_no_longer_than_the_clip_norm(
    case: Case, step: StepSettings, as_one_user: bool
) -> None:
    if as_one_user:
        batch, units = case.batch, user_units([len(case.labels)])
    else:
        batch, units = kept(case.batch, slice(1)), None
    assert vector_of(case, step, batch, units).norm() <= step.clip_norm


@given(case=cases, step=steps, seed=st.integers(0, 2**31), as_users=st.booleans())
@settings(max_examples=150)
def test_a_replaced_unit_moves_the_sums_by_at_most_twice_the_clip_norm(
    case: Case, step: StepSettings, seed: int, as_users: bool
) -> None:
    size = len(case.labels)
    sizes = [(size + 1) // 2, size // 2] if size > 1 else [1]
    units = user_units(sizes) if as_users else None
    neighbour = replaced(case, list(range(sizes[0])) if as_users else [0], seed)
    moved = vector_of(case, step, case.batch, units) - vector_of(case, step, neighbour, units)
    assert moved.norm() <= 2 * step.clip_norm * SLACK


@given(case=cases, step=steps, as_users=st.booleans())
@settings(max_examples=150)
def test_a_removed_unit_moves_the_sums_by_at_most_the_clip_norm(
    case: Case, step: StepSettings, as_users: bool
) -> None:
    size = len(case.labels)
    sizes = [size // 2, size - size // 2] if size > 1 else [1]
    units = user_units(sizes) if as_users else None
    fewer = user_units(sizes[1:]) if as_users else None
    rest = kept(case.batch, slice(sizes[0] if as_users else 1, None))
    moved = vector_of(case, step, case.batch, units) - vector_of(case, step, rest, fewer)
    assert moved.norm() <= step.clip_norm * SLACK


def test_a_flipped_label_comes_near_twice_the_clip_norm() -> None:
    case = make_case(MODELS["logistic regression"], FEATURES, size=3, scale=0.1)
    step = step_settings(clip_norm=1e-2)
    neighbour = dataclasses.replace(case.batch, labels=1 - case.labels)
    first, second = (kept(batch, slice(1)) for batch in (case.batch, neighbour))
    moved = vector_of(case, step, first, None) - vector_of(case, step, second, None)
    assert moved.norm() > 1.98 * step.clip_norm


@pytest.mark.parametrize("num_rows", [100, 300, 1000])
def test_a_user_of_many_rows_is_clipped_as_tightly_as_one_of_few(num_rows: int) -> None:
    # All rows alike: the mean is one of them, and very many products are added up.
    case = make_case(LogisticRegression(), FEATURES, size=1, scale=0.3, dtype=torch.float32)
    rows = torch.zeros(num_rows, dtype=torch.int64)
    assert case.batch.sensitive_ids is not None
    batch = ExampleBatch(
        public_ids=case.batch.public_ids[rows],
        sensitive_ids=case.batch.sensitive_ids[rows],
        labels=case.labels[rows],
    )
    step = step_settings(clip_norm=1e-2, monitor_share=0.0)
    norm = float(vector_of(case, step, batch, user_units([num_rows])).norm())
    assert 0.999 * step.clip_norm < norm <= step.clip_norm


@pytest.mark.parametrize("weight", [0.3, 0.77])
def test_very_wide_layers_are_clipped_as_tightly_as_narrow_ones(weight: float) -> None:
    features = [feature("a", "public", 2)]
    case = make_case(
        MLP(embedding_dim=20_000, public_hidden=(), common_hidden=()),
        features,
        size=1,
        dtype=torch.float32,
    )
    for parameter in case.model.parameters.values():
        parameter.fill_(weight)
    step = step_settings(clip_norm=1e-2, monitor_share=0.0)
    norm = float(vector_of(case, step, case.batch, None).norm())
    assert 0.999 * step.clip_norm < norm <= step.clip_norm


@pytest.mark.parametrize("seed", range(10))
def test_rows_that_nearly_cancel_are_still_clipped(seed: int) -> None:
    # What is left of two long gradients is less than rounding makes of their products.
    layout = MLP(embedding_dim=64, public_hidden=(), common_hidden=())
    case = make_case(layout, [feature("a", "public", 2)], seed=seed, dtype=torch.float32)
    table = case.model.parameters["public.table.0"]
    table[0] *= 100
    table[1] = table[0] + 0.01 * table[1]
    case.model.parameters["common.layer.0.weight"].zero_()
    case.model.parameters["common.layer.0.bias"].zero_()
    batch = ExampleBatch(
        public_ids=torch.tensor([[0], [1]]),
        sensitive_ids=torch.zeros(2, 0, dtype=torch.int64),
        labels=torch.tensor([0.0, 1.0]),
    )
    left = 0.25 * float((table[0] - table[1]).double().norm())
    step = step_settings(clip_norm=left / 5, monitor_share=0.0, towers=frozenset({"common"}))
    assert vector_of(case, step, batch, user_units([2])).norm() <= step.clip_norm


@pytest.mark.parametrize("seed", [12, 28, 43, 47])
def test_rows_without_a_norm_do_not_change_how_others_are_rounded(seed: int) -> None:
    # The logit of one row is all rounding, and what it is rounded to may depend on the length of
    # the batch. Taking other rows out after its norm was taken let it through unclipped.
    case = make_case(
        MLP(embedding_dim=32, public_hidden=(256,), common_hidden=(256, 256, 256)),
        [feature("a", "public", 200)],
        size=200,
        seed=seed,
        scale=800.0,
        dtype=torch.float32,
    )
    step = step_settings(clip_norm=1.0, monitor_share=0.0)
    has_norm = torch.isfinite(squared_norms(case))
    assert not has_norm.all()
    cancel_logit(case, int(has_norm.nonzero()[0]))
    assert vector_of(case, step, case.batch, None).norm() <= len(case.labels) * step.clip_norm


def squared_norms(case: Case) -> Tensor:
    """Of the gradient of each row; no numbers where single precision does not reach."""
    forward = case.model.forward(case.batch.public_ids, case.batch.sensitive_ids)
    grads = CrossEntropy().gradients(forward.logits, case.labels)
    parts = [part.squared_norms() for part in forward.backward(grads, towers=TOWERS)]
    return torch.stack(parts).sum(0)


def cancel_logit(case: Case, row: int) -> None:
    """Changes an output weight so that the logit of a row is zero but for rounding."""
    forward = case.model.forward(case.batch.public_ids, case.batch.sensitive_ids)
    assert isinstance(forward, MLPForward)
    inputs = forward.values[-2][row].double()
    weights = case.model.parameters["common.layer.3.weight"][0]
    place = int(inputs.argmax())
    weights[place] = 0
    weights[place] = -(weights.double() @ inputs) / inputs[place]


def test_the_property_would_see_a_clip_norm_one_percent_too_long() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], FEATURES, size=1, dtype=torch.float32)
    step = step_settings(clip_norm=1e-3)
    longer = dataclasses.replace(step, clip_norm=1.01 * step.clip_norm)
    released = PrivateStep(case.model, longer, NoNoise()).release(case.batch, torch.ones(1))
    assert whole_vector(released, longer).norm() > step.clip_norm
