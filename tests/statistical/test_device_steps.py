"""The noise of recorded steps has the law that is accounted for.

Checked on the twins of the kernels; the kernels equal them word by word.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from statistical import faulty_device_steps as faulty
from statistical.law_checks import worst_score_against
from statistical.noise_checks import assert_gaussian
from statistical.test_lazy_noise import (
    START,
    TRAINING,
    WITH_CHECKPOINTS,
    WITH_DECAY,
    exact_law,
    random_training,
)
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.settings.models import MLP
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gpu import device_keys as random_ops
from tulle.train.steps.gpu import device_rows, row_ops
from tulle.train.steps.gpu.device_keys import device_key, fill_normals, row_normals
from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.lazy_rows import Normals
from unit.train.models.test_tower_model import feature
from unit.train.steps.gpu.device_steps import CPU, SIZE, quiet_settings, rate_of, take
from unit.train.steps.small_trainings import SmallTraining, dense_run
from unit.train.steps.step_reference import Case, make_case

Values = NDArray[np.float64]
FALSE_ALARM = 1e-9
NORMAL_FAULTS = [
    faulty.normals_of_small_uniforms,
    faulty.normals_of_one_angle,
    faulty.normals_that_repeat,
]


def filled(size: int, key: Tensor, draw: int = 0) -> Tensor:
    values = torch.empty(size)
    fill_normals(values, key=key, draw=torch.tensor([draw]))
    return values


class OneKey:
    """Normals of one key, draw after draw."""

    def __init__(self) -> None:
        self._key: Tensor | None = None
        self._draw = 0

    def __call__(self, rng: NoiseSource, size: int) -> Values:
        self._key = device_key(rng, CPU) if self._key is None else self._key
        self._draw += 1
        return filled(size, self._key, self._draw).double().numpy()


def of_new_keys(rng: NoiseSource, size: int) -> Values:
    return filled(size, device_key(rng, CPU)).double().numpy()


def of_rows(rng: NoiseSource, size: int) -> Values:
    dim = 5
    key = device_key(rng, CPU)
    values = row_normals(key, torch.arange(-(-size // dim)) * 977, dim, torch.tensor([3]))
    return values.flatten()[:size].double().numpy()


@pytest.mark.parametrize("sampler", [OneKey(), of_new_keys, of_rows])
def test_normals_have_their_law(sampler: Callable[[NoiseSource, int], Values]) -> None:
    assert_gaussian(sampler, stddev=1.0)


def tail_p_value(num_draws: int = 2_000_000, limit: float = 4.0) -> float:
    values = filled(num_draws, device_key(SeededNoise(3), CPU))
    count = int((values.abs() > limit).sum())
    law = stats.binom(num_draws, 2 * stats.norm.sf(limit))
    return float(2 * min(law.cdf(count), law.sf(count - 1)))


def test_as_many_normals_are_far_out_as_should_be() -> None:
    assert tail_p_value() > FALSE_ALARM


def dependence_score(first: Tensor, second: Tensor) -> float:
    """The largest of the correlations of values and of squares, in deviations."""
    one, other = first.double(), second.double()
    products = one * other
    squares = (one.square() - 1) * (other.square() - 1) / 2
    return max(abs(float(p.sum())) / math.sqrt(len(p)) for p in (products, squares))


# The skew of products of squares makes the far normal tail too light by less than a factor 10.
MOST_DEPENDENCE = float(stats.norm.isf(FALSE_ALARM / 100))


def pairs_of_normals() -> dict[str, tuple[Tensor, Tensor]]:
    size = 200_000
    key, other_key = (device_key(SeededNoise(seed), CPU) for seed in (5, 6))
    values = filled(size, key)
    rows = row_normals(key, torch.arange(size // 8), 8, torch.tensor([0]))
    later = row_normals(key, torch.arange(size // 8), 8, torch.tensor([1]))
    return {
        "cosine and sine": (values[: size // 2], values[size // 2 :]),
        "neighbours": (values[:-1], values[1:]),
        "draws": (values, filled(size, key, 1)),
        "far draws": (values, filled(size, key, 2**31)),
        "keys": (values, filled(size, other_key)),
        "entries of a row": (rows[:, :-1].flatten(), rows[:, 1:].flatten()),
        "cosine and sine of a row": (rows[:, :4].flatten(), rows[:, 4:].flatten()),
        "neighbouring rows": (rows[:-1].flatten(), rows[1:].flatten()),
        "steps of a row": (rows.flatten(), later.flatten()),
    }


def test_normals_of_different_places_and_steps_are_independent() -> None:
    for name, pair in pairs_of_normals().items():
        assert dependence_score(*pair) < MOST_DEPENDENCE, name


@pytest.mark.parametrize("fault", NORMAL_FAULTS)
def test_wrong_normals_are_caught(
    fault: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_ops, "_normals", fault)
    worst = max(dependence_score(*pair) for pair in pairs_of_normals().values())
    has_wrong_law = False
    try:
        assert_gaussian(of_new_keys, stddev=1.0)
    except AssertionError:
        has_wrong_law = True
    assert has_wrong_law or worst > MOST_DEPENDENCE or tail_p_value() < FALSE_ALARM


def device_run(
    training: SmallTraining,
    weights: Tensor,
    noise: Normals | None,
    rows_class: type[DeviceRows] = DeviceRows,
    ages_class: type[DeviceAges] = DeviceAges,
) -> Tensor:
    """As `lazy_run`, with rows of a device; None for their own noise."""
    ages = ages_class(
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        max_steps=len(training.rates),
        device=CPU,
    )
    table = rows_class(
        weights,
        ages,
        noise_stddev=training.noise_stddev,
        max_reads=len(weights),
        rng=SeededNoise(1),
    )
    with given_normals(noise):
        return torch.stack([v.flatten() for v in seen_values(training, weights, ages, table)])


@contextlib.contextmanager
def given_normals(noise: Normals | None) -> Iterator[None]:
    """Takes normals from `noise` wherever rows draw theirs."""
    if noise is None:
        yield
        return

    def for_rows(key: Tensor, rows: Tensor, dim: int, draw: Tensor) -> Tensor:
        del key, draw
        values = torch.zeros(len(rows), dim, dtype=torch.float64)
        if len(rows):
            noise.fill(values, 1.0)
        return values

    def fill(out: Tensor, *, key: Tensor, draw: Tensor) -> None:
        del key, draw
        noise.fill(out, 1.0)

    with (
        mock.patch.object(row_ops, "row_normals", for_rows),
        mock.patch.object(device_rows, "fill_normals", fill),
    ):
        yield


def seen_values(
    training: SmallTraining, weights: Tensor, ages: DeviceAges, table: DeviceRows
) -> Iterator[Tensor]:
    reads = torch.arange(len(weights)).unsqueeze(1)
    ones = torch.ones(len(weights), dtype=weights.dtype)
    for step, rate in enumerate(training.rates):
        if step in training.saves:
            yield from saved(weights, ages, table)
        if step in training.reads or step in training.looks:
            table.catch_up(reads, torch.tensor([step]))
            yield weights.clone()
        if step in training.reads:
            table.add_gradient(training.gradient(weights, step), reads, ones, ones[:1])
        ages.expect(1)
        ages.end_step(rate_of(rate))
    yield from saved(weights, ages, table)


def saved(weights: Tensor, ages: DeviceAges, table: DeviceRows) -> Iterator[Tensor]:
    """What a checkpoint says; the run goes on from it."""
    table.flush()
    ages.reset()
    momentum = table.release_momentum()
    table.load_momentum(momentum)
    yield weights.clone()
    if momentum is not None:
        yield momentum.clone()


def largest_difference(training: SmallTraining, *classes: type) -> float:
    """Of the exact laws of dense and of device runs, in deviations."""
    mean, covariance = exact_law(dense_run, training)
    own_mean, own_covariance = exact_law(device_run, training, *classes)
    deviations = np.sqrt(np.diag(covariance)) + 1e-12
    differences = np.abs(own_covariance - covariance) / np.outer(deviations, deviations)
    return float(max((np.abs(own_mean - mean) / deviations).max(), differences.max()))


@pytest.mark.parametrize("seed", range(30))
def test_any_training_has_the_mean_and_covariance_of_the_dense_one(seed: int) -> None:
    assert largest_difference(random_training(seed)) < 1e-9


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("training", [TRAINING, WITH_CHECKPOINTS, WITH_DECAY])
def test_schedules_checkpoints_and_decay_keep_the_law(
    training: SmallTraining, momentum: float
) -> None:
    assert largest_difference(dataclasses.replace(training, momentum=momentum)) < 1e-9


EXACT_FAULTS = [
    (faulty.CatchUpWithoutNoise, DeviceAges),
    (faulty.VarianceNotUpdated, DeviceAges),
    (faulty.NeverMarksRows, DeviceAges),
    (faulty.ReleasesTheMean, DeviceAges),
    (DeviceRows, faulty.NoCovariance),
    (DeviceRows, faulty.ForgetsRatesOfOldSteps),
    (DeviceRows, faulty.SkipsAStep),
]


def names_of(classes: tuple[type, type]) -> str:
    return "-".join(one.__name__ for one in classes)


@pytest.mark.parametrize("classes", EXACT_FAULTS, ids=names_of)
def test_the_exact_law_shows_every_planted_fault(classes: tuple[type, type]) -> None:
    assert largest_difference(WITH_CHECKPOINTS, *classes) > 0.05


def many(training: SmallTraining, *classes: type) -> Values:
    """[numbers seen, trainings], in float32 and with noise of the device."""
    seen = device_run(training, torch.full((4096, 33), START), None, *classes)
    return seen.double().numpy()


SHORT = SmallTraining(
    rates=(0.1, 0.3, 0.3, 0.2, 0.2, 0.1, 0.3, 0.1, 0.05, 0.05, 0.05, 0.02),
    reads=(0, 3, 4, 8),
    looks=(6,),
    saves=(5, 11),
)


def test_trainings_with_real_noise_have_the_exact_law() -> None:
    mean, covariance = exact_law(dense_run, SHORT)
    sample = many(SHORT)
    assert worst_score_against(sample, mean, covariance) < 1
    for wrong_factor in (0.95, 1.05):
        assert worst_score_against(sample, mean, wrong_factor**2 * covariance) > 1


SAMPLED_FAULTS = [
    *EXACT_FAULTS,
    (faulty.DrawNotAdvanced, DeviceAges),
    (faulty.FlushWithTheKeyOfSteps, DeviceAges),
]


@pytest.mark.parametrize("classes", SAMPLED_FAULTS, ids=names_of)
def test_trainings_with_a_planted_fault_are_caught(classes: tuple[type, type]) -> None:
    mean, covariance = exact_law(dense_run, SHORT)
    assert worst_score_against(many(SHORT, *classes), mean, covariance) > 1


WIDE = MLP(embedding_dim=100, public_hidden=(), common_hidden=(220,))
RATES = (0.5, 0.25, 0.5)


def quiet_step(rng: NoiseSource, kind: type[DeviceStep] = DeviceStep) -> tuple[DeviceStep, Case]:
    """All weights 0 and three steps of padding alone: what moves is noise."""
    case = make_case(WIDE, [feature("a", "public", 210)], size=2, dtype=torch.float32, scale=0.0)
    step = kind(
        case.model,
        quiet_settings(noise_multiplier=2.0, clip_norm=0.5),
        SGD(learning_rate=1.0, momentum=0.0),
        rng=rng,
        max_reads=10,
        max_steps=10,
    )
    for rate in RATES:
        take(step, case.batch, torch.zeros(2), rate)
    return step, case


NOISE_OF_A_WEIGHT = 2.0 * 0.5 / SIZE * math.sqrt(sum(rate**2 for rate in RATES))


def check_noise_of_layers(kind: type[DeviceStep] = DeviceStep) -> None:
    def sampler(rng: NoiseSource, size: int) -> Values:
        _, case = quiet_step(rng, kind)
        return case.model.parameters["common.layer.0.weight"].flatten()[:size].double().numpy()

    assert_gaussian(sampler, stddev=NOISE_OF_A_WEIGHT)


def test_layers_get_the_stated_noise_in_every_step() -> None:
    check_noise_of_layers()


@pytest.mark.parametrize("kind", [faulty.OneDrawForAllSteps, faulty.NoNoiseInTheFirstStep])
def test_steps_with_wrong_noise_of_layers_are_caught(kind: type[DeviceStep]) -> None:
    with pytest.raises(AssertionError, match="is wrong for scale"):
        check_noise_of_layers(kind)


def test_tables_get_the_stated_noise_in_every_step() -> None:
    def sampler(rng: NoiseSource, size: int) -> Values:
        step, case = quiet_step(rng)
        step.state()
        return case.model.parameters["public.table.0"].flatten()[:size].double().numpy()

    assert_gaussian(sampler, stddev=NOISE_OF_A_WEIGHT)


def test_the_monitor_gets_the_stated_noise_in_every_step() -> None:
    step, case = quiet_step(SeededNoise(4))
    found = []
    for _ in range(400):
        step.ages.reset()
        found.append(take(step, case.batch, torch.zeros(2)))
    noise = torch.stack(found).double().flatten() / (2.0 * 0.5)
    # 800 normals: 6.5 deviations of their mean square and of their mean.
    assert abs(float(noise.square().mean()) - 1) < 6.5 * math.sqrt(2 / 800)
    assert abs(float(noise.mean())) < 6.5 / math.sqrt(800)
    assert len(set(noise.tolist())) == 800
