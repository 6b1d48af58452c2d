"""Many independent small steps on selected rows, side by side in the table of one model.

Every run has four rows of its own: one that one example reads, one that three read, and two
that nobody reads. One step on all examples is a step of all runs, each with its own counts,
coins and noise.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import RowGradient
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import SGD, Optimizer
from tulle.train.settings.step_noise import SelectedRows
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

Values = NDArray[np.float64]
MakeStep = Callable[[TowerModel, StepSettings, Optimizer, TrainingNoise, NoiseSource], SelectedStep]
PLAIN = SGD(learning_rate=0.1)

TABLE = "public.table.0"
READS = np.array([1, 3, 0, 0])
LABELS = (1.0, 0.0)
"""Of the examples that read the first row of a run, and of those that read the second."""
CLIP_NORM = 0.25
SHARE = 0.4
THRESHOLD = 0.8
NOISE_MULTIPLIER = 1.2
COUNT_STDDEV = NOISE_MULTIPLIER / math.sqrt(SHARE)
GRADIENT_STDDEV = CLIP_NORM * NOISE_MULTIPLIER / math.sqrt(1 - SHARE)
SETTINGS = StepSettings(
    clip_norm=CLIP_NORM,
    noise_multiplier=NOISE_MULTIPLIER,
    expected_size=1.0,
    monitor_share=0.0,
    # All runs share the bias, so it is not trained.
    towers=frozenset({"public"}),
    mechanism=SelectedRows(selection_share=SHARE, threshold=THRESHOLD),
)
CHANCES = stats.norm.sf(THRESHOLD - READS / COUNT_STDDEV)
# A gradient of a logistic regression at 0 is 1/2 long, and so always clipped.
MEANS = CLIP_NORM * (1 - SETTINGS.clip_slack) * READS * np.array([-1, 1, 0, 0])


@dataclasses.dataclass(frozen=True)
class Seen:
    """[rows of a run, runs]: what steps of many runs gave away."""

    is_selected: NDArray[np.bool_]
    gradients: Values
    """0 where a row was not selected."""

    @property
    def numbers(self) -> Values:
        """All of it, one run a column."""
        return np.concatenate([self.is_selected.astype(np.float64), self.gradients])


def table_model(num_rows: int) -> TowerModel:
    """A logistic regression on one feature, with all weights 0."""
    feature = PreparedFeature(name="p", role="public", num_ids=num_rows, table="p")
    model = build_model(LogisticRegression(), [feature], seed=0)
    for values in model.parameters.values():
        values.zero_()
    return model


def batch_of(rows: Tensor, labels: Tensor) -> ExampleBatch:
    return ExampleBatch(
        public_ids=rows[:, None],
        sensitive_ids=torch.zeros(len(rows), 0, dtype=torch.int64),
        labels=labels,
    )


def released_rows(step: SelectedStep, batch: ExampleBatch, weights: Tensor) -> RowGradient:
    (gradient,) = step.release(batch, weights).gradients
    assert isinstance(gradient, RowGradient)
    return gradient


def seen_by_step(make_step: MakeStep, num_runs: int, num_steps: int, seed: int) -> list[Seen]:
    """Steps one after another, each from the same weights, for all runs at once."""
    size = len(READS)
    first = size * torch.arange(num_runs)
    rows = torch.cat([first, *[first + 1] * 3])
    labels = torch.cat([torch.full((num_runs,), LABELS[0]), torch.full((3 * num_runs,), LABELS[1])])
    rng = SeededNoise(seed)
    step = make_step(table_model(size * num_runs), SETTINGS, PLAIN, TrainingNoise(rng), rng)
    seen = []
    for _ in range(num_steps):
        gradient = released_rows(step, batch_of(rows, labels), torch.ones(len(rows)))
        is_selected = np.zeros(size * num_runs, dtype=np.bool_)
        values = np.zeros(size * num_runs)
        is_selected[gradient.rows.numpy()] = True
        values[gradient.rows.numpy()] = gradient.values[:, 0].double().numpy()
        seen.append(Seen(is_selected.reshape(-1, size).T, values.reshape(-1, size).T))
    return seen


def seen_with_noise_on_every_row(num_runs: int, seed: int) -> Seen:
    """The same by the definition: noise on all counts and all gradients, then a selection."""
    rng = np.random.default_rng(seed)
    shape = (len(READS), num_runs)
    counts = READS[:, None] + COUNT_STDDEV * rng.standard_normal(shape)
    gradients = MEANS[:, None] + GRADIENT_STDDEV * rng.standard_normal(shape)
    is_selected = counts > THRESHOLD * COUNT_STDDEV
    return Seen(is_selected, np.where(is_selected, gradients, 0.0))
