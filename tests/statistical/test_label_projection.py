"""Projected label steps have the stated noise, and move what public rows read, not the sample."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from statistical import faulty_label_projection as faulty
from statistical.noise_checks import assert_gaussian
from tulle.data.prepared.feature import PreparedFeature
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.plan import ColumnRoles
from tulle.runs.records import StopRequest
from tulle.train.examples import ExampleSet
from tulle.train.fitting import make_plan
from tulle.train.methods.label_projection.label_sums import LabelSums, fitting_settings, logit_pass
from tulle.train.methods.label_projection.method import LabelProjectionConfig, Projection
from tulle.train.methods.label_projection.projected_step import ProjectedStep, ProjectionEngine
from tulle.train.methods.private_training import step_settings
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import TOWERS, LogisticRegression
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import ConstantRate, PrivatePhase
from tulle.train.settings.units import ExampleLevel
from tulle.train.steps.step_context import MemoryJournal, StepContext
from tulle.train.steps.step_settings import CLIP_SLACK, StepSettings
from tulle.train.steps.training_noise import TrainingNoise

Values = NDArray[np.float64]

NOISE, CLIP = 1.4, 0.5
SETTINGS = StepSettings(
    clip_norm=CLIP, noise_multiplier=NOISE, expected_size=30.0, monitor_share=0.1, towers=TOWERS
)
NUM_IDS = 20_000


def features(num_ids: int, count: int = 2) -> tuple[PreparedFeature, ...]:
    return tuple(
        PreparedFeature(name=f"f{i}", role="public", num_ids=num_ids, table=f"f{i}")
        for i in range(count)
    )


def every_id() -> ExampleBatch:
    ids = torch.arange(NUM_IDS)[:, None].expand(NUM_IDS, 2)
    return ExampleBatch(public_ids=ids, sensitive_ids=None, labels=None)


def some_rows() -> ExampleBatch:
    ids = torch.arange(40)[:, None].expand(40, 2)
    return ExampleBatch(public_ids=ids, sensitive_ids=None, labels=torch.ones(40))


def noise_of_steps(sums: type[LabelSums], num_steps: int = 1) -> list[Values]:
    """What each step adds to the sums of one batch, over all rows of the tables."""
    model = build_model(LogisticRegression(), features(NUM_IDS), seed=0)
    public = logit_pass(model, every_id(), TOWERS)
    settings = fitting_settings(SETTINGS, public)
    assert settings.clip_norm == CLIP
    batch, weights = some_rows(), torch.ones(40)
    quiet = dataclasses.replace(settings, noise_multiplier=1e-30)
    raw = sums(model, TrainingNoise(SeededNoise(1))).release(batch, weights, public, quiet)
    noisy = sums(model, TrainingNoise(SeededNoise(2)))
    found = []
    for _ in range(num_steps):
        released = noisy.release(batch, weights, public, settings)
        difference = released.values["public.table.0"] - raw.values["public.table.0"]
        found.append(difference.double().numpy().ravel())
    return found


def check_scale(sums: type[LabelSums]) -> None:
    (noise,) = noise_of_steps(sums)
    assert len(noise) == 2 * NUM_IDS
    halves = iter(np.array_split(noise, 2))
    assert_gaussian(lambda _, __: next(halves), stddev=NOISE * CLIP, num_draws=len(noise))


def check_freshness(sums: type[LabelSums]) -> None:
    first, second = noise_of_steps(sums, 2)
    assert float(stats.pearsonr(first, second).pvalue) > 1e-9
    halves = iter([first, second])
    assert_gaussian(lambda _, __: next(halves), stddev=NOISE * CLIP, num_draws=2 * len(first))


def check_sensitivity(sums: type[LabelSums]) -> None:
    """One label moves the sums by the clip norm at most, monitor and all, whatever the rows."""
    model = build_model(LogisticRegression(), features(50), seed=0)
    public = logit_pass(model, some_rows(), TOWERS)
    settings = dataclasses.replace(SETTINGS, noise_multiplier=1e-30, monitor_share=0.0)
    found = []
    for label in (0.0, 1.0):
        labels = torch.zeros(40)
        labels[3] = label
        batch = dataclasses.replace(some_rows(), labels=labels)
        noisy = sums(model, TrainingNoise(SeededNoise(1)))
        released = noisy.release(batch, torch.ones(40), public, settings)
        found.append(torch.cat([values.flatten() for values in released.values.values()]))
    assert float((found[1] - found[0]).double().norm()) <= CLIP


def test_the_noise_has_the_stated_scale_at_every_number_that_is_seen() -> None:
    check_scale(LabelSums)


def test_every_step_has_noise_of_its_own() -> None:
    check_freshness(LabelSums)


def test_a_label_moves_the_sums_by_the_clip_norm() -> None:
    check_sensitivity(LabelSums)


FAULTS = {
    "noise drawn once for two steps": (faulty.ReusesItsNoise, check_freshness),
    "five percent less noise": (faulty.FivePercentLessNoise, check_scale),
    "clipped after summing": (faulty.ClipsAfterSumming, check_sensitivity),
    "gradients that turn round": (faulty.TurnsGradientsRound, check_sensitivity),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_in_the_sums_are_caught(fault: str) -> None:
    wrong, check = FAULTS[fault]
    with pytest.raises(AssertionError):
        check(wrong)


def test_a_whole_step_has_the_stated_noise_in_what_it_moves() -> None:
    """Every public row has a weight of its own, and label chances well inside their bounds.

    Then the projection keeps the noise of these weights, up to what moves all of them alike.
    """
    num_ids, copies, num_steps, noise = 500, 5, 80, 0.35
    model = build_model(LogisticRegression(), features(num_ids, 1), seed=0)
    expected_size = 2.0 * copies * num_ids
    settings = StepSettings(
        clip_norm=100.0,
        noise_multiplier=noise,
        expected_size=expected_size,
        monitor_share=0.0,
        towers=TOWERS,
    )
    step = ProjectedStep(
        model,
        settings,
        Projection(smoothing=0.0, max_iterations=10_000),
        SGD(learning_rate=1.0, momentum=0.0),
        TrainingNoise(SeededNoise(4)),
    )
    ids = torch.arange(num_ids)[:, None]
    public = ExampleBatch(public_ids=ids, sensitive_ids=None, labels=None)
    private = ExampleBatch(
        public_ids=ids.repeat(copies, 1),
        sensitive_ids=None,
        labels=torch.ones(copies * num_ids),
    )
    table, bias = model.parameters["public.table.0"], model.output_bias
    found = []
    for _ in range(num_steps):
        table.zero_()
        bias.zero_()
        step.take(private, torch.ones(copies * num_ids), public, 1.0)
        moved = table.double().squeeze(1).numpy()
        found.append(moved - moved.mean())
    # A row adds its clipped part over the expected size; the clip norm fits the rows.
    stated = noise * math.sqrt(2) / (1 - CLIP_SLACK) / expected_size
    shrunk = math.sqrt(1 - 1 / num_ids)
    draws = np.concatenate(found)
    halves = iter(np.array_split(draws, 2))
    assert_gaussian(lambda _, __: next(halves), stddev=stated * shrunk, num_draws=len(draws))


NUM_ROWS, STEPS = 2_000, 30


def rows_moved(engine_class: type[ProjectionEngine]) -> tuple[list[set[int]], list[set[int]]]:
    """Which rows each step drew, and which rows it moved; every row has an id of its own."""
    ids = np.arange(NUM_ROWS, dtype=np.int32)[:, None]
    examples = ExampleSet(
        features=features(NUM_ROWS, 1),
        columns=ColumnRoles(label="y", public=("f0",)),
        public_features=ids,
        sensitive_features=None,
        labels=(ids[:, 0] % 2).astype(np.float32),
    )
    phase = PrivatePhase(
        epochs=STEPS / 20,
        batch_size=160,
        clip_norm=2.0,
        noise_multiplier=2.0,
        optimizer=SGD(learning_rate=1.0, momentum=0.0),
        schedule=ConstantRate(),
    )
    config = LabelProjectionConfig(
        model=LogisticRegression(),
        private_phase=phase,
        projection=Projection(public_batch_size=100),
        unit=ExampleLevel(),
    ).calibrate(epsilon=8.0, delta=1e-5)
    plan = make_plan(examples, config)
    assert isinstance(plan.sampler, TruncatedPoisson)
    drawn: list[set[int]] = []
    model = build_model(config.model, plan.shape.features, seed=0)
    context = StepContext(
        device=torch.device("cpu"),
        rng=SeededNoise(9),
        journal=MemoryJournal(),
        stop=StopRequest(),
    )
    engine = engine_class(model, examples, plan, step_settings(plan), context)
    engine.begin(0)
    batches = list(plan.sampler.batches(SeededNoise(10)))
    engine._batches = iter(batches)
    moved = []
    for batch in batches[:STEPS]:
        before = model.parameters["public.table.0"].clone()
        engine.take([1.0])
        changed = (model.parameters["public.table.0"] != before).squeeze(1)
        moved.append(set(changed.nonzero().squeeze(1).tolist()))
        drawn.append(set(batch.indices[batch.weights > 0].tolist()))
    return drawn, moved


def check_moved_rows_are_independent_of_the_sample(engine_class: type[ProjectionEngine]) -> None:
    drawn, moved = rows_moved(engine_class)
    both = sum(len(d & m) for d, m in zip(drawn, moved, strict=True))
    assert sum(map(len, moved)) > 1000
    expected = sum(len(d) * len(m) for d, m in zip(drawn, moved, strict=True)) / NUM_ROWS
    # Hypergeometric counts have less variance than Poisson ones of the same mean.
    law = stats.poisson(expected)
    assert min(law.cdf(both), law.sf(both - 1)) > 1e-9 / 2


def test_rows_that_move_tell_nothing_about_who_was_sampled() -> None:
    check_moved_rows_are_independent_of_the_sample(ProjectionEngine)


def test_projecting_on_the_sample_itself_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_moved_rows_are_independent_of_the_sample(faulty.ProjectsOnTheSample)
