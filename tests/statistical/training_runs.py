"""Many independent runs of the real private step on two neighbouring data sets.

A run has a few rows; row 0 is the canary, whose label is 0 in one data set and 1 in
the other. A flipped label turns its clipped gradient round. The other rows either
touch other weights, or are aligned: their gradients are the canary's.

`runs_side_by_side` gives every run rows of its own in the tables of one logistic
regression, so that one step on one Poisson batch is a step of all runs, each with coins,
clipping and noise of its own. `runs_one_by_one` takes a whole step a run, with a small
perceptron: slower, but it also has what rows of a batch share.
"""

import dataclasses
import enum
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.parameter_updates import ParameterUpdates
from tulle.train.settings.models import MLP, TOWERS, LogisticRegression
from tulle.train.settings.optimizers import SGD
from tulle.train.steps.gradient_noise import IndependentGradientNoise
from tulle.train.steps.private_step import PrivateStep, StepRelease
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

Scores = NDArray[np.float64]
MakeStep = Callable[[TowerModel, StepSettings, TrainingNoise], PrivateStep]
Draw = Callable[[int], NDArray[np.int64]]

ROWS_PER_RUN = 4
NUM_SENSITIVE = 3
NOISE_MULTIPLIER = 1.0
CLIP_NORM = 0.5
ROWS_OF_A_SINGLE_RUN = 64
SINGLE_RUN_NOISE = 0.7
"""Many rows and little noise: what a drawn size gives away then shows in few runs."""
_DRIFT = 0.2


class Background(enum.Enum):
    """Where the other rows' gradients point."""

    APART = "apart"
    ALIGNED = "aligned"


def features(num_ids: int) -> list[PreparedFeature]:
    """One public feature, and sensitive ones that share a table."""
    sensitive = [
        PreparedFeature(name=f"s{i}", role="sensitive", num_ids=num_ids, table="sensitive")
        for i in range(NUM_SENSITIVE)
    ]
    public = PreparedFeature(name="p", role="public", num_ids=num_ids, table="public")
    return [public, *sensitive]


def rows_of_runs(
    num_runs: int, rows_per_run: int, background: Background, canary_label: int
) -> ExampleBatch:
    """All rows of all runs; run r has the ids 2r and 2r + 1."""
    row = torch.arange(num_runs * rows_per_run)
    is_canary = row % rows_per_run == 0
    is_apart = ~is_canary if background is Background.APART else torch.zeros_like(is_canary)
    ids = (2 * (row // rows_per_run) + is_apart.long())[:, None]
    return ExampleBatch(
        public_ids=ids,
        sensitive_ids=ids.repeat(1, NUM_SENSITIVE),
        labels=torch.where(is_canary, float(canary_label), 0.0),
    )


def sampler_of(num_runs: int, steps: int) -> TruncatedPoisson:
    """Truncated Poisson batches of about half of the rows, as training has them."""
    num_rows = num_runs * ROWS_PER_RUN
    return TruncatedPoisson.with_headroom(
        num_rows=num_rows, max_batch_size=num_rows // 2, steps=steps
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What runs are made of."""

    background: Background
    make_step: MakeStep = PrivateStep
    steps: int = 1
    draw: Draw | None = None
    """Takes the place of the sampler; gets a seed and returns rows."""


def runs_side_by_side(trial: Trial, num_runs: int, canary_label: int, seed: int) -> Scores:
    """One score a run: how much likelier its releases are with label 0 than with 1."""
    sampler = sampler_of(num_runs, trial.steps)
    model = build_model(LogisticRegression(), features(2 * num_runs), seed=0)
    settings = StepSettings(
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        expected_size=sampler.expected_size,
        monitor_share=0.1,
        # All runs share the bias, so it is not trained.
        towers=TOWERS - {"common"},
    )
    rng = SeededNoise(seed)
    step = trial.make_step(model, settings, IndependentGradientNoise(TrainingNoise(rng)))
    trained = {n: v for n, v in model.parameters.items() if not n.startswith("common.")}
    optimizer = ParameterUpdates(trained, SGD(learning_rate=1.0, momentum=0.0))
    rows = rows_of_runs(num_runs, ROWS_PER_RUN, trial.background, canary_label)
    scores = np.zeros(num_runs)
    for batch in sampler.batches(rng):
        indices, weights = batch.indices, batch.weights
        if trial.draw is not None:
            indices = trial.draw(seed)
            weights = np.ones(len(indices), np.float32)
        released = step.release(_gather(rows, indices), torch.from_numpy(weights))
        along = _along_canaries(released, settings)
        scores += _log_likelihood_ratio(along, sampler.sampling_prob) if trial.steps > 1 else along
        optimizer.update(released.gradients, rate=_DRIFT / CLIP_NORM * settings.expected_size)
    return scores


def runs_one_by_one(trial: Trial, num_runs: int, canary_label: int, seed: int) -> Scores:
    """The same for a perceptron of 7 weights, a step at a time."""
    sampler = one_by_one_sampler(num_runs)
    model = build_model(
        MLP(embedding_dim=1, public_hidden=(), common_hidden=(), initial_stddev=1.0),
        features(2)[:2],
        seed=0,
    )
    settings = StepSettings(
        clip_norm=CLIP_NORM / 2,
        noise_multiplier=SINGLE_RUN_NOISE,
        expected_size=sampler.expected_size,
        monitor_share=0.1,
        towers=TOWERS,
    )
    rows = _single_run(trial.background, canary_label)
    direction = _direction(model, settings)
    rng = SeededNoise(seed)
    step = trial.make_step(model, settings, IndependentGradientNoise(TrainingNoise(rng)))
    scores = []
    # A run is one step from the same weights, so the steps of one sampler are many runs.
    for batch in sampler.batches(rng):
        weights = torch.from_numpy(batch.weights)
        released = step.release(_gather(rows, batch.indices), weights)
        scores.append(float(_flat(released) @ direction))
    return np.array(scores) * settings.expected_size / settings.clip_norm


def one_by_one_sampler(num_runs: int) -> TruncatedPoisson:
    """Batches of a data set with so few rows that all of them fit."""
    return TruncatedPoisson(
        num_rows=ROWS_OF_A_SINGLE_RUN,
        sampling_prob=0.5,
        max_batch_size=ROWS_OF_A_SINGLE_RUN,
        steps=num_runs,
    )


def _single_run(background: Background, canary_label: int) -> ExampleBatch:
    rows = rows_of_runs(1, ROWS_OF_A_SINGLE_RUN, background, canary_label)
    return dataclasses.replace(rows, sensitive_ids=rows.public_ids)


class _Silent:
    description = "none"

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Adds nothing."""

    def end_step(self) -> None:
        pass


def _direction(model: TowerModel, settings: StepSettings) -> Tensor:
    """Of the canary's gradient."""
    row = _gather(_single_run(Background.APART, 0), np.array([0]))
    silent = PrivateStep(model, settings, _Silent())
    flat = _flat(silent.release(row, torch.ones(1)))
    return flat / flat.norm()


def _flat(released: StepRelease) -> Tensor:
    return torch.cat([gradient.values.flatten() for gradient in released.gradients]).double()


def _along_canaries(released: StepRelease, settings: StepSettings) -> Scores:
    """Each run's sum along its canary's gradient, in clip norms."""
    by_name = {gradient.name: gradient.values[::2, 0].double() for gradient in released.gradients}
    along = by_name["public.table.0"] + NUM_SENSITIVE * by_name["sensitive.table.0"]
    length = math.hypot(1, NUM_SENSITIVE)
    return (along / length * settings.expected_size / settings.clip_norm).numpy()


def _log_likelihood_ratio(along: Scores, sampling_prob: float) -> Scores:
    """Of a canary that adds 1, with this chance, against one that subtracts 1."""

    def log_density(sign: int) -> Scores:
        shifted = (2 * sign * along - 1) / (2 * NOISE_MULTIPLIER**2)
        return np.logaddexp(math.log1p(-sampling_prob), math.log(sampling_prob) + shifted)

    return log_density(1) - log_density(-1)


def _gather(rows: ExampleBatch, indices: NDArray[np.int64]) -> ExampleBatch:
    places = torch.from_numpy(indices)
    assert rows.sensitive_ids is not None
    assert rows.labels is not None
    return ExampleBatch(
        public_ids=rows.public_ids[places],
        sensitive_ids=rows.sensitive_ids[places],
        labels=rows.labels[places],
    )
