"""The engines of private steps that are audited, each with what an attacker makes of its weights.

All take the steps of a plan for a logistic regression under plain SGD, so that weights give back
the noisy sums of the steps. A processor runs each of them; steps that stay on a GPU, and those of
several processes, are not here.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean
from tulle.train.banded.band_matrix import BandMatrix
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.models.logistic_regression import LogisticRegression
from tulle.train.optimizers.sgd import SGD
from tulle.train.phases import PrivatePhase
from tulle.train.private_updates import NoisePlacement
from tulle.train.schedules import ConstantRate
from tulle.train.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.train_plan import TrainPlan

FloatArray = NDArray[np.float64]

CLIP_NORM = 0.5
"""Far below the gradient of any row, so that every row is clipped."""
NUM_STEPS = 2
_BATCH_SHARE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditedEngine:
    """One way in which training takes private steps."""

    name: str
    noise: StepNoise = dataclasses.field(default_factory=IndependentNoise)
    placement: NoisePlacement = NoisePlacement.AUTO
    sees_every_step: bool = True
    """False: weights are private at the end only, and only then does the attacker look."""

    def config(self, num_rows: int) -> DpSgdConfig:
        """Two private steps with batches of about half of the rows that have a turn."""
        share = _BATCH_SHARE
        if isinstance(self.noise, BandedNoise):
            share /= self.noise.num_bands
        batch_size = max(1, math.floor(share * num_rows))
        return DpSgdConfig(
            model=LogisticRegression(),
            private_phase=PrivatePhase(
                epochs=NUM_STEPS * batch_size / num_rows,
                batch_size=batch_size,
                clip_norm=CLIP_NORM,
                optimizer=SGD(learning_rate=1.0, momentum=0.0),
                schedule=ConstantRate(),
                noise=self.noise,
            ),
        )

    def whitening(self) -> FloatArray:
        """[looks, steps]: what turns the sums seen into ones with independent noise.

        Each row of the product has the standard deviation of the plan's noise.
        """
        if isinstance(self.noise, BandedNoise):
            first, later = BandMatrix(
                num_bands=self.noise.num_bands, num_steps=NUM_STEPS
            ).coefficients
            return np.array([[first, 0.0], [later, first]])
        if self.sees_every_step:
            return np.eye(NUM_STEPS)
        return np.full((1, NUM_STEPS), 1 / math.sqrt(NUM_STEPS))


ENGINES = (
    AuditedEngine(name="dense", placement=NoisePlacement.DENSE),
    AuditedEngine(name="lazy", placement=NoisePlacement.LAZY, sees_every_step=False),
    AuditedEngine(name="lattice", noise=LatticeNoise()),
    AuditedEngine(name="banded", noise=BandedNoise(num_bands=NUM_STEPS)),
    # Rows that are not selected show nothing, so about half of all rows are.
    AuditedEngine(name="selected", noise=SelectedRows(threshold=0.01)),
)


def find_engine(name: str) -> AuditedEngine:
    """The engine of a name."""
    by_name = {engine.name: engine for engine in ENGINES}
    if name not in by_name:
        raise ConfigError(
            f"engine {name} is unknown{did_you_mean(name, by_name)}; use one of "
            f"{', '.join(by_name)}."
        )
    return by_name[name]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """When a canary may be in a batch. Public."""

    steps: tuple[int, ...]
    prob: float
    """At each of these steps."""
    is_audited: NDArray[np.bool_] | None
    """[canaries]: whose turns these are; None for all."""


def turns_of(plan: TrainPlan, canaries: NDArray[np.int64]) -> Turns:
    """The turns that show most.

    Under correlated noise rows take turns in groups that everybody knows, and those of the
    first group have their whole column of the matrix before the steps end.
    """
    sampler = plan.sampler
    if isinstance(sampler, CyclicPoisson):
        return Turns(
            steps=tuple(range(0, sampler.steps, sampler.num_groups)),
            prob=sampler.group_sampling_prob,
            is_audited=sampler.groups.groups_of(canaries) == 0,
        )
    if isinstance(sampler, TruncatedPoisson):
        steps = tuple(range(sampler.steps))
        return Turns(steps=steps, prob=sampler.sampling_prob, is_audited=None)
    raise ConfigError(f"batches of {sampler} are not audited; use rows that are sampled.")
