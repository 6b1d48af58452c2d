"""What a private step must release, from a loop of single-example autograd in float64.

Clipping is written out here once more: a unit's gradients are weighted, added up over
all its rows and scaled down as one vector.
"""

import dataclasses
import itertools
import math

import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.models.trained_towers import build_model
from tulle.train.settings.models import TOWERS
from tulle.train.steps.private_step import BatchUnits, PrivateStep, StepRelease
from tulle.train.steps.step_settings import StepSettings
from unit.train.models.reference_models import Batch, Settings, reference_gradients
from unit.train.models.test_tower_model import random_ids

EXPECTED_SIZE = 7.0


class NoNoise:
    """Takes the place of any noise and notes what it was asked for."""

    description = "none"

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    def add_to(self, values: Tensor, stddev: float) -> None:
        self.asked.append((values.data_ptr(), stddev))

    def fill(self, values: Tensor, stddev: float) -> None:
        self.add_to(values.zero_(), stddev)

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        self.add_to(values, stddev)

    def end_step(self) -> None:
        pass

    def restart(self) -> None:
        pass


@dataclasses.dataclass
class Case:
    """A model with weights of ordinary size and a batch for it."""

    settings: Settings
    features: list[PreparedFeature]
    model: TowerModel
    batch: ExampleBatch

    @property
    def labels(self) -> Tensor:
        assert self.batch.labels is not None
        return self.batch.labels


def make_case(
    settings: Settings,
    features: list[PreparedFeature],
    *,
    size: int = 9,
    seed: int = 0,
    scale: float = 0.7,
    dtype: torch.dtype = torch.float64,
) -> Case:
    rng = torch.Generator().manual_seed(seed)
    model = build_model(settings, features, seed=1, dtype=dtype)
    for parameter in model.parameters.values():
        values = torch.randn(parameter.shape, generator=rng, dtype=torch.float64) * scale
        parameter.copy_(values)
    batch = ExampleBatch(
        public_ids=random_ids(features, "public", size, rng),
        sensitive_ids=random_ids(features, "sensitive", size, rng),
        labels=torch.randint(2, (size,), generator=rng).float(),
    )
    return Case(settings, features, model, batch)


def step_settings(
    *,
    clip_norm: float = 1.0,
    noise_multiplier: float = 1.0,
    monitor_share: float = 0.1,
    towers: frozenset[str] = TOWERS,
    rows_at_a_time: int = 16384,
) -> StepSettings:
    return StepSettings(
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        expected_size=EXPECTED_SIZE,
        monitor_share=monitor_share,
        towers=towers,
        rows_at_a_time=rows_at_a_time,
    )


def release_without_noise(
    case: Case, settings: StepSettings, weights: Tensor, units: BatchUnits | None = None
) -> StepRelease:
    step = PrivateStep(case.model, settings, NoNoise())
    return step.release(case.batch, weights, units)


def flat_sum(released: StepRelease, model: TowerModel) -> Tensor:
    """The sums of all parameters side by side, zero for frozen ones."""
    found = {gradient.name: gradient.values for gradient in released.gradients}
    parts = [
        found[name].flatten() if name in found else torch.zeros_like(values).flatten()
        for name, values in model.parameters.items()
    ]
    return torch.cat(parts).double() * EXPECTED_SIZE


@dataclasses.dataclass
class Expected:
    """Raw gradients of rows, and losses, by autograd."""

    gradients: Tensor
    losses: Tensor


def expected_rows(case: Case, towers: frozenset[str] = TOWERS) -> Expected:
    probe = Batch(case.batch.public_ids, case.batch.sensitive_ids, torch.ones(len(case.labels)))
    raw = reference_gradients(case.settings, case.features, case.model.parameters, probe, towers)
    labels = case.labels.double()
    errors = torch.sigmoid(raw.logits) - labels
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        raw.logits, labels, reduction="none"
    )
    return Expected(errors[:, None] * raw.gradients, losses)


def clipped(vectors: Tensor, settings: StepSettings) -> Tensor:
    """Each row shortened to what the monitor leaves of the clip norm."""
    limit = settings.clip_norm * math.sqrt(1 - settings.monitor_share**2)
    norms = vectors.norm(dim=1, keepdim=True)
    return vectors * torch.clamp(limit / norms, max=1)


def user_units(sizes: list[int]) -> BatchUnits:
    """Users with these numbers of rows, side by side, each a mean."""
    segments = [user for user, size in enumerate(sizes) for _ in range(size)]
    weights = itertools.chain.from_iterable([1 / size] * size for size in sizes)
    return BatchUnits(
        segments=torch.tensor(segments, dtype=torch.int64),
        weights=torch.tensor(list(weights), dtype=torch.float32),
        num_segments=len(sizes),
    )


def user_means(rows: Tensor, units: BatchUnits) -> Tensor:
    means = torch.zeros(units.num_segments, rows.shape[1], dtype=rows.dtype)
    for row, segment, weight in zip(rows, units.segments, units.weights, strict=True):
        means[segment] += weight.double() * row
    return means
