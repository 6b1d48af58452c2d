"""A private step sums what a loop of single-example autograd, clipped by hand, sums."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.settings.models import MLP, TOWERS, LogisticRegression
from tulle.train.settings.step_noise import IndependentNoise, LatticeNoise
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import PrivateStep, largest_weight, segment_pairs
from tulle.train.steps.step_settings import (
    CLIP_SLACK,
    LOSS_BOUND,
    MONITOR,
    MonitorCoordinates,
    StepSettings,
)
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.models.test_tower_model import DATASETS, MODELS, PUBLIC, feature
from unit.train.steps.step_reference import (
    EXPECTED_SIZE,
    Case,
    NoNoise,
    clipped,
    expected_rows,
    flat_sum,
    make_case,
    release_without_noise,
    step_settings,
    user_means,
    user_units,
)

SHARED = DATASETS["shared tables"]
MIXED = DATASETS["two tables a role"]
FROZEN = TOWERS - {"public"}
USERS = [1, 3, 5, 2, 1, 4]
LOGISTIC = LogisticRegression()

# Norms are cut to a hair less than the clip norm.
TOLERANCE = 3e-4


def assert_rows_are_summed(case: Case, settings: StepSettings, weights: Tensor) -> None:
    rows = expected_rows(case, settings.towers).gradients
    wanted = weights.double() @ clipped(rows, settings)
    found = flat_sum(release_without_noise(case, settings, weights), case.model)
    torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * settings.clip_norm)


def assert_users_are_summed(case: Case, settings: StepSettings, sizes: list[int]) -> None:
    units = user_units(sizes)
    means = user_means(expected_rows(case, settings.towers).gradients, units)
    found = flat_sum(release_without_noise(case, settings, units.weights, units), case.model)
    wanted = clipped(means, settings).sum(0)
    torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * settings.clip_norm)


def median_norm(case: Case, towers: frozenset[str] = TOWERS) -> float:
    return float(expected_rows(case, towers).gradients.norm(dim=1).median())


@pytest.mark.parametrize("towers", [TOWERS, FROZEN], ids=["all", "frozen public tower"])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("model", MODELS)
def test_clipped_sums_equal_autograd(model: str, dataset: str, towers: frozenset[str]) -> None:
    case = make_case(MODELS[model], DATASETS[dataset])
    clip_norm = median_norm(case, towers)
    assert_rows_are_summed(case, step_settings(clip_norm=clip_norm, towers=towers), torch.ones(9))


@pytest.mark.parametrize("towers", [TOWERS, FROZEN], ids=["all", "frozen public tower"])
@pytest.mark.parametrize("model", MODELS)
def test_clipped_users_equal_autograd(model: str, towers: frozenset[str]) -> None:
    case = make_case(MODELS[model], MIXED, size=sum(USERS))
    means = user_means(expected_rows(case, towers).gradients, user_units(USERS))
    clip_norm = float(means.norm(dim=1).median())
    assert_users_are_summed(case, step_settings(clip_norm=clip_norm, towers=towers), USERS)


@pytest.mark.parametrize("model", MODELS)
def test_without_clipping_sums_are_exact(model: str) -> None:
    case = make_case(MODELS[model], SHARED)
    found = flat_sum(
        release_without_noise(case, step_settings(clip_norm=1e6), torch.ones(9)), case.model
    )
    torch.testing.assert_close(found, expected_rows(case).gradients.sum(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("monitor_share", [0.0, 0.1, 0.5])
def test_every_clip_norm_is_kept(clip_norm: float, monitor_share: float) -> None:
    case = make_case(MODELS["semi-sensitive mlp"], SHARED)
    settings = step_settings(clip_norm=clip_norm, monitor_share=monitor_share)
    assert_rows_are_summed(case, settings, torch.ones(9))


@pytest.mark.parametrize("model", MODELS)
def test_padding_adds_nothing(model: str) -> None:
    case = make_case(MODELS[model], SHARED)
    weights = torch.tensor([1.0, 0, 1, 1, 0, 1, 0, 0, 0])
    settings = step_settings(clip_norm=median_norm(case))
    assert_rows_are_summed(case, settings, weights)
    padded = release_without_noise(case, settings, weights)
    kept = weights > 0
    alone = Case(case.settings, case.features, case.model, rows_of(case.batch, kept))
    without = release_without_noise(alone, settings, weights[kept])
    torch.testing.assert_close(flat_sum(padded, case.model), flat_sum(without, case.model))
    assert padded.monitored is not None
    assert without.monitored is not None
    assert padded.monitored.loss == pytest.approx(without.monitored.loss)
    assert padded.monitored.clipped_share == pytest.approx(without.monitored.clipped_share)


@pytest.mark.parametrize("sizes", [None, []], ids=["rows", "users"])
@pytest.mark.parametrize("model", MODELS)
def test_an_empty_batch_gives_zeros_for_every_parameter(
    model: str, sizes: list[int] | None
) -> None:
    case = make_case(MODELS[model], MIXED, size=0)
    units = None if sizes is None else user_units(sizes)
    released = release_without_noise(case, step_settings(), torch.zeros(0), units)
    assert {gradient.name for gradient in released.gradients} == set(case.model.parameters)
    assert not flat_sum(released, case.model).any()
    assert released.monitored is not None
    assert released.monitored.loss == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8, 9, 10])
def test_parts_of_a_batch_add_up(size: int) -> None:
    case = make_case(MODELS["hybrid mlp"], MIXED)
    clip_norm = median_norm(case)
    whole = step_settings(clip_norm=clip_norm)
    parts = dataclasses.replace(whole, rows_at_a_time=size)
    weights = torch.tensor([1.0, 1, 0, 1, 1, 1, 0, 1, 1])
    first = release_without_noise(case, whole, weights)
    second = release_without_noise(case, parts, weights)
    torch.testing.assert_close(flat_sum(first, case.model), flat_sum(second, case.model))
    assert first.monitored is not None
    assert second.monitored is not None
    assert first.monitored.loss == pytest.approx(second.monitored.loss)


def test_the_data_have_rows_that_are_clipped_rows_that_are_not_and_repeated_ids() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], SHARED)
    norms = expected_rows(case).gradients.norm(dim=1)
    assert 2 <= int((norms > median_norm(case)).sum()) <= 7
    assert any(len(set(row)) < len(row) for row in case.batch.public_ids.tolist())


@pytest.mark.parametrize("sizes", [None, [6, 3]], ids=["rows", "users"])
def test_sums_are_divided_by_the_public_size(sizes: list[int] | None) -> None:
    case = make_case(LOGISTIC, SHARED)
    units = None if sizes is None else user_units(sizes)
    few = step_settings(monitor_share=0.1)
    many = dataclasses.replace(few, expected_size=70.0)
    first = release_without_noise(case, few, torch.ones(9), units)
    second = release_without_noise(case, many, torch.ones(9), units)
    for one, other in zip(first.gradients, second.gradients, strict=True):
        torch.testing.assert_close(one.values, 10 * other.values)
    assert first.monitored is not None
    assert second.monitored is not None
    assert first.monitored.loss == pytest.approx(10 * second.monitored.loss)


def test_the_drawn_size_is_never_a_divisor() -> None:
    case = make_case(LOGISTIC, SHARED, size=1)
    once = flat_sum(release_without_noise(case, step_settings(), torch.ones(1)), case.model)
    rows = torch.zeros(50, dtype=torch.int64)
    often = Case(case.settings, case.features, case.model, rows_of(case.batch, rows))
    found = flat_sum(release_without_noise(often, step_settings(), torch.ones(50)), case.model)
    torch.testing.assert_close(found, 50 * once)


def test_rows_of_a_user_that_cancel_out_are_no_longer_than_their_sum() -> None:
    case = make_case(LOGISTIC, SHARED, size=1, scale=0.0)
    batch = rows_of(case.batch, torch.zeros(4, dtype=torch.int64))
    pairs = dataclasses.replace(batch, labels=torch.tensor([0.0, 1.0, 1.0, 0.0]))
    found = release_without_noise(
        Case(case.settings, case.features, case.model, pairs),
        step_settings(clip_norm=1e-3),
        torch.ones(4),
        user_units([4]),
    )
    assert flat_sum(found, case.model).norm() <= 1e-9


def test_a_user_counts_once_however_many_rows_there_are() -> None:
    case = make_case(LOGISTIC, SHARED, size=1)
    settings = step_settings(clip_norm=0.1)
    once = release_without_noise(case, settings, torch.ones(1), user_units([1]))
    wanted = flat_sum(once, case.model)
    many = Case(
        case.settings, case.features, case.model, rows_of(case.batch, torch.zeros(5).long())
    )
    found = release_without_noise(many, settings, torch.ones(5), user_units([5]))
    torch.testing.assert_close(flat_sum(found, case.model), wanted)


def test_pairs_are_all_pairs_within_a_segment() -> None:
    segments = torch.tensor([0, 0, 0, 1, 2, 2])
    left, right = segment_pairs(segments)
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == {(0, 1), (1, 2), (0, 2), (4, 5)}


@pytest.mark.parametrize("model", MODELS)
def test_frozen_towers_get_neither_gradient_nor_noise(model: str) -> None:
    case = make_case(MODELS[model], SHARED, dtype=torch.float32)
    before = {name: values.clone() for name, values in case.model.parameters.items()}
    noise = NoNoise()
    step = PrivateStep(case.model, step_settings(towers=FROZEN), noise)
    released = step.release(case.batch, torch.ones(9))
    trained = {name for name in before if not name.startswith("public.")}
    assert {gradient.name for gradient in released.gradients} == trained
    # One call for each trained parameter, and one for the monitor.
    assert len(noise.asked) == len(trained) + 1
    for name, values in case.model.parameters.items():
        assert torch.equal(values, before[name])


@pytest.mark.parametrize("size", [0, 1, 9])
@pytest.mark.parametrize("model", MODELS)
def test_every_entry_of_every_trained_parameter_gets_noise(model: str, size: int) -> None:
    case = make_case(MODELS[model], MIXED, size=size, dtype=torch.float32)
    raw = release_without_noise(case, step_settings(), torch.ones(size))
    step = PrivateStep(
        case.model, step_settings(), IndependentGradientNoise(TrainingNoise(SeededNoise(1)))
    )
    noisy = {
        gradient.name: gradient.values
        for gradient in step.release(case.batch, torch.ones(size)).gradients
    }
    for gradient in raw.gradients:
        assert bool((noisy[gradient.name] != gradient.values).all()), gradient.name


def test_noise_has_the_same_scale_on_every_parameter_and_the_monitor() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], SHARED)
    noise = NoNoise()
    settings = step_settings(clip_norm=3.0, noise_multiplier=0.5)
    PrivateStep(case.model, settings, noise).release(case.batch, torch.ones(9))
    assert {stddev for _, stddev in noise.asked} == {1.5}
    assert len({place for place, _ in noise.asked}) == len(case.model.parameters) + 1


class OneDeviation:
    """Moves every value by one standard deviation."""

    description = "one deviation"

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        values.add_(stddev)

    def end_step(self) -> None:
        pass


def test_noise_is_added_to_the_sum_before_it_is_divided() -> None:
    case = make_case(LOGISTIC, SHARED)
    settings = step_settings(clip_norm=3.0, noise_multiplier=0.5)
    raw = flat_sum(release_without_noise(case, settings, torch.ones(9)), case.model)
    moved = PrivateStep(case.model, settings, OneDeviation())
    found = flat_sum(moved.release(case.batch, torch.ones(9)), case.model)
    torch.testing.assert_close(found, raw + 1.5)


def test_nothing_of_a_batch_is_left_for_the_next() -> None:
    case = make_case(LOGISTIC, SHARED)
    step = PrivateStep(case.model, step_settings(), NoNoise())
    first = flat_sum(step.release(case.batch, torch.ones(9)), case.model)
    empty = step.release(rows_of(case.batch, slice(0)), torch.ones(0))
    assert not flat_sum(empty, case.model).any()
    again = flat_sum(step.release(case.batch, torch.ones(9)), case.model)
    torch.testing.assert_close(again, first)


@pytest.mark.parametrize("sizes", [None, [1, 2, 2, 4]], ids=["rows", "users"])
@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan, 1e30])
def test_a_unit_whose_gradient_is_no_number_is_left_out_alone(
    broken: float, sizes: list[int] | None
) -> None:
    case = make_case(
        MLP(embedding_dim=2, public_hidden=(), common_hidden=(3,)),
        [feature("a", "public", 10)],
        dtype=torch.float32,
    )
    ids = torch.arange(9)[:, None]
    case.batch = dataclasses.replace(case.batch, public_ids=ids)
    case.model.parameters["public.table.0"][8] = broken
    bad = [8] if sizes is None else [5, 6, 7, 8]
    good = [row for row in range(9) if row not in bad]
    units = None if sizes is None else user_units(sizes)
    found = release_without_noise(case, step_settings(), torch.ones(9), units)
    assert found.monitored is not None
    assert math.isfinite(found.monitored.loss)
    rest = Case(case.settings, case.features, case.model, rows_of(case.batch, torch.tensor(good)))
    others = None if sizes is None else user_units(sizes[:-1])
    wanted = release_without_noise(rest, step_settings(), torch.ones(len(good)), others)
    torch.testing.assert_close(flat_sum(found, case.model), flat_sum(wanted, case.model))


def test_a_batch_without_labels_is_refused() -> None:
    case = make_case(LOGISTIC, PUBLIC)
    case.batch = dataclasses.replace(case.batch, labels=None)
    with pytest.raises(ConfigError, match="labels"):
        release_without_noise(case, step_settings(), torch.ones(9))


def test_the_largest_weight_is_no_number_if_one_is_none() -> None:
    assert largest_weight([torch.tensor([1.0, -3.0]), torch.tensor([[2.0]])]) == 3.0
    assert math.isnan(largest_weight([torch.tensor([1.0, math.nan]), torch.tensor([2.0])]))
    assert math.isnan(largest_weight([torch.tensor([1.0]), torch.tensor([math.inf])]))


def rows_of(batch: ExampleBatch, rows: Tensor | slice) -> ExampleBatch:
    assert batch.labels is not None
    assert batch.sensitive_ids is not None
    return ExampleBatch(
        public_ids=batch.public_ids[rows],
        sensitive_ids=batch.sensitive_ids[rows],
        labels=batch.labels[rows],
    )


def test_the_public_size_of_these_tests_is_not_the_drawn_one() -> None:
    assert EXPECTED_SIZE not in (9, len(USERS), sum(USERS))


FEATURES = DATASETS["shared tables"]


@pytest.mark.parametrize("model", MODELS)
def test_without_noise_the_monitor_is_exact(model: str) -> None:
    case = make_case(MODELS[model], FEATURES)
    wanted = expected_rows(case)
    norms = wanted.gradients.norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()))
    found = release_without_noise(case, step, torch.ones(9)).monitored
    assert found is not None
    losses = wanted.losses.clamp(max=LOSS_BOUND)
    assert found.loss == pytest.approx(float(losses.sum()) / EXPECTED_SIZE, rel=1e-6)
    is_clipped = norms > step.coordinates.gradient_norm
    assert found.clipped_share == pytest.approx(float(is_clipped.sum()) / EXPECTED_SIZE)


def test_a_user_has_the_mean_loss_of_its_rows() -> None:
    case = make_case(MODELS["semi-sensitive mlp"], FEATURES)
    units = user_units([4, 1, 3, 1])
    wanted = expected_rows(case)
    losses = user_means(wanted.losses[:, None], units).clamp(max=LOSS_BOUND)
    norms = user_means(wanted.gradients, units).norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()) * 1.01)
    found = release_without_noise(case, step, units.weights, units).monitored
    assert found is not None
    assert found.loss == pytest.approx(float(losses.sum()) / EXPECTED_SIZE, rel=1e-6)
    is_clipped = norms > step.coordinates.gradient_norm
    assert found.clipped_share == pytest.approx(float(is_clipped.sum()) / EXPECTED_SIZE)


def test_noisy_figures_are_right_on_average_and_as_noisy_as_they_say() -> None:
    case = make_case(MODELS["logistic regression"], FEATURES)
    norms = expected_rows(case).gradients.norm(dim=1)
    step = step_settings(clip_norm=float(norms.median()), noise_multiplier=0.4)
    exact = release_without_noise(case, step, torch.ones(9)).monitored
    noisy_step = PrivateStep(
        case.model, step, IndependentGradientNoise(TrainingNoise(SeededNoise(5)))
    )
    released = [noisy_step.release(case.batch, torch.ones(9)).monitored for _ in range(2000)]
    assert exact is not None
    losses = np.array([r.loss for r in released if r is not None])
    shares = np.array([r.clipped_share for r in released if r is not None])
    stddev = exact.loss_noise
    assert stddev == pytest.approx(
        LOSS_BOUND * step.noise_stddev * math.sqrt(2) / (0.1 * step.clip_norm * EXPECTED_SIZE)
    )
    # Seven deviations of a mean and of a standard deviation of 2000 normals.
    for found, wanted, scale in (
        (losses, exact.loss, stddev),
        (shares, exact.clipped_share, stddev / LOSS_BOUND),
    ):
        assert abs(found.mean() - wanted) < 7 * scale / math.sqrt(2000)
        assert abs(found.std() / scale - 1) < 7 / math.sqrt(4000)
    assert abs(np.corrcoef(losses, shares)[0, 1]) < 7 / math.sqrt(2000)


def test_no_share_means_no_monitor_and_the_whole_clip_norm_for_the_gradient() -> None:
    coordinates = MonitorCoordinates(clip_norm=2.0, share=0.0)
    assert coordinates.gradient_norm == 2.0
    case = make_case(MODELS["logistic regression"], FEATURES)
    released = release_without_noise(case, step_settings(monitor_share=0.0), torch.ones(9))
    assert released.monitored is None


@given(
    loss=st.floats(allow_nan=True, allow_infinity=True, width=32),
    is_clipped=st.booleans(),
    share=st.floats(0, 0.5),
)
def test_the_coordinates_of_a_unit_stay_within_the_share(
    loss: float, is_clipped: bool, share: float
) -> None:
    coordinates = MonitorCoordinates(clip_norm=3.0, share=share)
    sums = coordinates.sums(torch.tensor([loss]), torch.tensor([is_clipped]), torch.ones(1))
    assert bool((sums >= 0).all())
    assert float(sums.double().norm()) <= 3.0 * share * (1 + 1e-6)


def test_gradient_and_monitor_share_the_clip_norm() -> None:
    coordinates = MonitorCoordinates(clip_norm=3.0, share=0.3)
    both = math.hypot(coordinates.gradient_norm, coordinates.scale, coordinates.scale)
    assert both == pytest.approx(3.0)


def test_large_and_missing_losses_count_as_the_bound() -> None:
    coordinates = MonitorCoordinates(clip_norm=1.0, share=0.1)
    losses = torch.tensor([100.0, math.inf, math.nan, LOSS_BOUND])
    sums = coordinates.sums(losses, torch.zeros(4, dtype=torch.bool), torch.ones(4))
    read = coordinates.read(sums, expected_size=4.0, noise_stddev=1.0)
    assert read.loss == pytest.approx(LOSS_BOUND)
    assert read.clipped_share == 0


class NotingNames:
    """Notes which sums a step asks noise for, and when it ends."""

    description = "none"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        self.asked.append(name)

    def end_step(self) -> None:
        self.asked.append("end")


@pytest.mark.parametrize("monitor_share", [0.0, 0.1])
@pytest.mark.parametrize("model", MODELS)
def test_every_sum_of_a_step_asks_once_and_then_the_step_ends(
    model: str, monitor_share: float
) -> None:
    case = make_case(MODELS[model], MIXED)
    noise = NotingNames()
    step = PrivateStep(case.model, step_settings(monitor_share=monitor_share), noise)
    wanted = [*case.model.parameters, *([MONITOR] if monitor_share else []), "end"]
    for _ in range(2):
        noise.asked.clear()
        step.release(case.batch, torch.ones(9))
        assert noise.asked == wanted
    assert MONITOR not in case.model.parameters


def test_a_larger_slack_clips_to_less_and_a_smaller_one_is_refused() -> None:
    case = make_case(LOGISTIC, SHARED, scale=0.1)
    usual = step_settings(clip_norm=1e-3, monitor_share=0.0)
    careful = dataclasses.replace(usual, clip_slack=0.04)
    sums = [
        flat_sum(release_without_noise(case, settings, torch.ones(9)), case.model)
        for settings in (usual, careful)
    ]
    torch.testing.assert_close(sums[1], sums[0] * (1 - 0.04) / (1 - CLIP_SLACK))
    for slack in (0.0, 0.9 * CLIP_SLACK, 0.06, math.nan):
        with pytest.raises(ConfigError, match="clip_slack"):
            dataclasses.replace(usual, clip_slack=slack)


@pytest.mark.parametrize("monitor_share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 7.0])
def test_a_lattice_leaves_room_for_rounding_of_all_entries(
    clip_norm: float, monitor_share: float
) -> None:
    noise = LatticeNoise(bits=16)
    settings = dataclasses.replace(
        step_settings(clip_norm=clip_norm, monitor_share=monitor_share), mechanism=noise
    )
    num_entries = 1_000_000
    limit = settings.gradient_limit(num_entries)
    room = noise.grid(clip_norm) * math.sqrt(num_entries + 2)
    assert room > 0.005 * clip_norm
    # Gradient and monitor together, and what rounding adds to both.
    whole = math.hypot(limit, monitor_share * clip_norm) + room
    assert 0.999 * clip_norm < whole <= clip_norm
    independent = dataclasses.replace(settings, mechanism=IndependentNoise())
    usual = independent.gradient_limit(num_entries)
    assert usual == pytest.approx(settings.coordinates.gradient_norm * (1 - CLIP_SLACK))
    assert limit < usual


def test_too_coarse_a_lattice_is_refused() -> None:
    settings = dataclasses.replace(step_settings(), mechanism=LatticeNoise(bits=16))
    with pytest.raises(ConfigError, match="too coarse a grid for 78000000 trained numbers"):
        settings.gradient_limit(78_000_000)
    finer = dataclasses.replace(settings, mechanism=LatticeNoise(bits=24))
    assert finer.gradient_limit(78_000_000) > 0.99
