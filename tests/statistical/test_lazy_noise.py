"""Lazy noise gives every weight that is ever read the law that dense noise gives it.

With a linear gradient all that a training shows is a linear function of its normals, so
one run for each normal gives the covariance without any chance. With another gradient, in
float32 and with real noise, many trainings are compared.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from statistical import faulty_lazy_rows as faulty
from statistical.law_checks import worst_score_against, worst_score_between
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.age_table import AgeTable
from tulle.train.steps.lazy_rows import LazyRows
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.steps.small_trainings import SmallTraining, dense_run, lazy_run, tanh_gradient

Values = NDArray[np.float64]
Run = Callable[..., Tensor]

NUM_TRAININGS = (4096, 64)
START = 0.25


def cosine(num_steps: int, warmup_share: float = 0.0) -> tuple[float, ...]:
    schedule = CosineDecay(warmup_share=warmup_share)
    return tuple(0.3 * schedule.rate_factor(step, num_steps) for step in range(num_steps))


TRAINING = SmallTraining(rates=cosine(30, 0.2), reads=(0, 1, 5, 6, 14, 27), looks=(9, 28))
WITH_CHECKPOINTS = dataclasses.replace(TRAINING, saves=(1, 10, 11))
WITH_DECAY = dataclasses.replace(TRAINING, weight_decay=0.5, saves=(10,))


class OneNormalEach:
    """Run number k gets a 1 in the k-th draw of normals, and 0 in all others."""

    def __init__(self) -> None:
        self.num_draws = 0

    def add_to(self, values: Tensor, stddev: float) -> None:
        assert self.num_draws < len(values) - 1, "more draws than runs"
        values[self.num_draws] += stddev
        self.num_draws += 1

    def fill(self, values: Tensor, stddev: float) -> None:
        self.add_to(values.zero_(), stddev)


def exact_law(run: Run, training: SmallTraining, *classes: type) -> tuple[Values, Values]:
    """Mean and covariance of all that a training with a linear gradient shows."""
    weights = torch.full((120, 1), START, dtype=torch.float64)
    seen = run(training, weights, OneNormalEach(), *classes).numpy()
    mean = seen[:, -1]
    response = seen[:, :-1] - mean[:, None]
    return mean, response @ response.T


def largest_difference(training: SmallTraining, *classes: type) -> float:
    """Of the exact laws, in deviations."""
    mean, covariance = exact_law(dense_run, training)
    lazy_mean, lazy_covariance = exact_law(lazy_run, training, *classes)
    deviations = np.sqrt(np.diag(covariance)) + 1e-12
    differences = np.abs(lazy_covariance - covariance) / np.outer(deviations, deviations)
    return float(max((np.abs(lazy_mean - mean) / deviations).max(), differences.max()))


def random_training(seed: int) -> SmallTraining:
    random = np.random.default_rng(seed)
    num_steps = int(random.integers(1, 60))

    def some_steps(most: float) -> tuple[int, ...]:
        share = random.uniform(0, most)
        return tuple(np.nonzero(random.random(num_steps) < share)[0].tolist())

    exponents = random.uniform(-4, 0, num_steps)
    return SmallTraining(
        rates=tuple((10**exponents * (random.random(num_steps) > 0.1)).tolist()),
        reads=some_steps(0.8),
        looks=some_steps(0.3),
        saves=some_steps(0.1),
        momentum=float(random.choice([0.0, 0.5, 0.9, 0.99])),
        weight_decay=float(random.choice([0.0, 0.3])),
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_training_has_the_mean_and_covariance_of_the_dense_one(seed: int) -> None:
    assert largest_difference(random_training(seed)) < 1e-9


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("training", [TRAINING, WITH_CHECKPOINTS, WITH_DECAY])
def test_schedules_checkpoints_and_decay_keep_the_law(
    training: SmallTraining, momentum: float
) -> None:
    assert largest_difference(dataclasses.replace(training, momentum=momentum)) < 1e-9


@pytest.mark.parametrize("looks", [(), (3,), (3, 4, 10, 20, 29), tuple(range(30))])
def test_other_reads_change_the_law_of_no_read(looks: tuple[int, ...]) -> None:
    few = dataclasses.replace(TRAINING, looks=())
    more = dataclasses.replace(TRAINING, looks=looks)
    is_common = [step in few.reads for step in sorted({*more.reads, *looks})] + [True, True]
    _, covariance = exact_law(lazy_run, few)
    _, with_looks = exact_law(lazy_run, more)
    common = with_looks[np.ix_(is_common, is_common)]
    np.testing.assert_allclose(common, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_row_that_is_never_read_ends_with_the_stated_variance(momentum: float) -> None:
    training = dataclasses.replace(TRAINING, reads=(), looks=(), momentum=momentum)
    rates, variance = training.rates, 0.0
    for first in range(len(rates)):
        move = sum(rate * momentum**age for age, rate in enumerate(rates[first:]))
        variance += (training.noise_stddev * move) ** 2
    mean, covariance = exact_law(lazy_run, training)
    assert mean[0] == START
    assert covariance[0, 0] == pytest.approx(variance, rel=1e-12)


class NoNoiseInTouchedSteps(faulty.NoNoiseInTouchedSteps):
    rates = TRAINING.rates


FAULTS = [
    (LazyRows, faulty.RootOfDelayTimesRate),
    (LazyRows, faulty.CurrentRateForTheMomentum),
    (LazyRows, faulty.NoCovariance),
    (LazyRows, faulty.NoNoiseInTheMomentum),
    (LazyRows, faulty.OneStepTooYoung),
    (LazyRows, faulty.OneStepTooOld),
    (NoNoiseInTouchedSteps, AgeTable),
    (faulty.ForgetsVariance, AgeTable),
    (faulty.ReleasesTheMean, AgeTable),
    (faulty.NeverMarksRows, AgeTable),
]


@pytest.mark.parametrize(
    "classes", FAULTS, ids=lambda classes: "-".join(c.__name__ for c in classes)
)
def test_the_exact_law_shows_every_planted_fault(classes: tuple[type, type]) -> None:
    assert largest_difference(TRAINING, *classes) > 0.05


def test_the_exact_law_shows_decay_that_is_forgotten() -> None:
    assert largest_difference(WITH_DECAY, LazyRows, faulty.ForgetsDecay) > 0.05


def many(run: Run, training: SmallTraining, seed: int, *classes: type) -> Values:
    """[numbers seen, trainings], in float32 and with the noise of a real run."""
    weights = torch.full(NUM_TRAININGS, START)
    seen = run(training, weights, TrainingNoise(SeededNoise(seed)), *classes)
    return seen.double().numpy()


def test_trainings_with_real_noise_have_the_exact_law() -> None:
    mean, covariance = exact_law(dense_run, WITH_CHECKPOINTS)
    sample = many(lazy_run, WITH_CHECKPOINTS, 1)
    assert worst_score_against(sample, mean, covariance) < 1
    for wrong_factor in (0.95, 1.05):
        assert worst_score_against(sample, mean, wrong_factor**2 * covariance) > 1


@pytest.fixture(scope="module")
def dense_tanh() -> Values:
    return many(dense_run, dataclasses.replace(TRAINING, gradient=tanh_gradient), 2)


@pytest.mark.parametrize("training", [TRAINING, WITH_CHECKPOINTS, WITH_DECAY])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_trainings_that_are_not_linear_have_the_law_of_dense_ones(
    training: SmallTraining, momentum: float
) -> None:
    bent = dataclasses.replace(training, gradient=tanh_gradient, momentum=momentum)
    assert worst_score_between(many(dense_run, bent, 2), many(lazy_run, bent, 3)) < 1


@pytest.mark.parametrize(
    "classes", FAULTS, ids=lambda classes: "-".join(c.__name__ for c in classes)
)
def test_trainings_with_a_planted_fault_are_caught(
    classes: tuple[type, type], dense_tanh: Values
) -> None:
    bent = dataclasses.replace(TRAINING, gradient=tanh_gradient)
    assert worst_score_between(dense_tanh, many(lazy_run, bent, 3, *classes)) > 1


def test_rows_of_one_table_with_reads_of_their_own_have_each_its_law() -> None:
    """Groups of rows are read in other steps; flushes and pieces cut across them."""
    patterns = [(), (0,), (4, 5, 20), tuple(range(30))]
    trainings = [dataclasses.replace(TRAINING, reads=reads, looks=()) for reads in patterns]
    num_rows, dim = 8192, 32
    weights = torch.full((num_rows, dim), START)
    ages = AgeTable(momentum=TRAINING.momentum)
    noise = TrainingNoise(SeededNoise(4))
    table = LazyRows(weights, ages, noise=noise, noise_stddev=TRAINING.noise_stddev)
    group_of = torch.arange(num_rows) % len(patterns)
    for step, rate in enumerate(TRAINING.rates):
        is_read = torch.tensor([step in reads for reads in patterns])[group_of]
        rows = is_read.nonzero().squeeze(1)
        table.catch_up(rows)
        table.add_gradient(rows, TRAINING.gradient(weights[rows], step))
        ages.end_step(rate)
        if step == 12:
            table.flush()
    state = [weights, table.release_state()["momentum"]]
    for group, training in enumerate(trainings):
        mean, covariance = exact_law(dense_run, training)
        sample = torch.stack([values[group_of == group].flatten() for values in state])
        score = worst_score_against(sample.double().numpy(), mean[-2:], covariance[-2:, -2:])
        assert score < 1


def test_a_long_run_misses_no_noise_where_the_rate_ends_at_zero() -> None:
    """Rows read shortly before the end, where sums from the start would lose their digits."""
    rates = cosine(3000)
    variance = sum(
        sum(rate * 0.99**age for age, rate in enumerate(rates[first:])) ** 2
        for first in range(2990, 3000)
    )
    weights = torch.zeros(2048, 64, dtype=torch.float64)
    ages = AgeTable(momentum=0.99)
    for rate in rates[:2990]:
        ages.end_step(rate)
    noise = TrainingNoise(SeededNoise(6))
    table = LazyRows(weights, ages, noise=noise, noise_stddev=1.0)
    for rate in rates[2990:]:
        ages.end_step(rate)
    table.flush()
    sample = weights.flatten().numpy()[None] / math.sqrt(variance)
    assert worst_score_against(sample, np.zeros(1), np.eye(1)) < 1
    assert worst_score_against(sample, np.zeros(1), 0.9 * np.eye(1)) > 1
