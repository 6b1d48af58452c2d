"""Trainings by the real updates without noise, where lazy and dense ones must agree."""

import dataclasses
import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.batches import ExampleBatch
from tulle.train.models.tower_model import TowerModel
from tulle.train.run_context import NoisePlacement
from tulle.train.settings.models import TOWERS
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import CosineDecay
from tulle.train.steps.host import ModelStep
from tulle.train.steps.places import host_step
from tulle.train.steps.step_settings import Monitored
from unit.train.models.reference_models import Settings
from unit.train.models.test_tower_model import random_ids
from unit.train.steps.step_reference import NoNoise, make_case, step_settings, user_units

LAZY, DENSE = NoisePlacement.LAZY, NoisePlacement.DENSE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Steps on random batches, every fifth of them empty."""

    settings: Settings
    features: list[PreparedFeature]
    num_steps: int = 24
    batch_size: int = 9
    momentum: float = 0.9
    weight_decay: float = 0.0
    towers: frozenset[str] = TOWERS
    rows_at_a_time: int = 16384
    user_sizes: tuple[int, ...] = ()
    """Rows of each user; empty for rows that are clipped each by itself."""
    has_padding: bool = False
    dtype: torch.dtype = torch.float64

    def start(self, model: TowerModel, placement: NoisePlacement) -> ModelStep:
        """Fresh updates without noise."""
        steps = step_settings(clip_norm=0.8, towers=self.towers, rows_at_a_time=self.rows_at_a_time)
        sgd = SGD(learning_rate=0.4, momentum=self.momentum, weight_decay=self.weight_decay)
        return host_step(model, steps, sgd, NoNoise(), placement, rng=SeededNoise(1))  # type: ignore[arg-type]

    def batches(self) -> list[ExampleBatch]:
        rng = torch.Generator().manual_seed(5)
        found = []
        for step in range(self.num_steps):
            size = 0 if step % 5 == 4 else sum(self.user_sizes) or self.batch_size
            found.append(
                ExampleBatch(
                    public_ids=random_ids(self.features, "public", size, rng),
                    sensitive_ids=random_ids(self.features, "sensitive", size, rng),
                    labels=torch.randint(2, (size,), generator=rng).float(),
                )
            )
        return found

    def take(self, updates: ModelStep, step: int, batch: ExampleBatch) -> Monitored | None:
        """One step of the schedule, which ends at zero."""
        assert batch.labels is not None
        size = len(batch.labels)
        units = user_units(list(self.user_sizes) if size else []) if self.user_sizes else None
        weights = torch.ones(size)
        if self.has_padding:
            weights[::3] = 0
        rate = 0.4 * CosineDecay().rate_factor(step, self.num_steps)
        return updates.take(batch, weights, units, rate)

    def new_model(self) -> TowerModel:
        return make_case(self.settings, self.features, dtype=self.dtype, size=0).model


@dataclasses.dataclass
class Trained:
    """What a training left behind."""

    weights: dict[str, Tensor]
    state: dict[str, Tensor]
    monitored: list[Monitored]


def train(
    training: Training, first: NoisePlacement, changes: Mapping[int, NoisePlacement] | None = None
) -> Trained:
    """All steps; before some of them the run goes on from its state in another way."""
    model = training.new_model()
    updates = training.start(model, first)
    monitored = []
    for step, batch in enumerate(training.batches()):
        if changes is not None and step in changes:
            state = {name: values.clone() for name, values in updates.state().items()}
            updates = training.start(model, changes[step])
            updates.load_state(state)
        found = training.take(updates, step, batch)
        assert found is not None
        monitored.append(found)
    state = {name: values.clone() for name, values in updates.state().items()}
    return Trained(dict(model.parameters), state, monitored)


def assert_same(one: Trained, other: Trained, tolerance: float = 1e-10) -> None:
    for left, right in ((one.weights, other.weights), (one.state, other.state)):
        assert left.keys() == right.keys()
        for name, values in left.items():
            assert values.dtype == right[name].dtype
            torch.testing.assert_close(
                values, right[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )
    for first, second in itertools.zip_longest(one.monitored, other.monitored):
        shares = [first.clipped_share - second.clipped_share, first.loss - second.loss]
        assert max(map(abs, shares)) <= 100 * tolerance
