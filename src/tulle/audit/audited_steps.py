"""Private steps that are audited, the data they run on, and what an attacker makes of weights.

All take the steps of a plan for a logistic regression under plain SGD, so that weights give back
the noisy sums of the steps. A processor runs each of them; steps that stay on a GPU, and those of
several processes, are not here.

The data are two neighbouring data sets of a few rows, many times over, as one training set. Every
run has a canary and some other rows, and ids of its own in the tables of a logistic regression. One
private step on all rows is then a step of every run, with coins, clipping and noise of its own. The
canary's label is 0 in one data set and 1 in the other: that turns its clipped gradient round, which
is as far as a replaced row can move a clipped sum.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.feature import PreparedFeature
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.fields import did_you_mean
from tulle.privacy.plan import ColumnRoles
from tulle.train.examples import ExampleSet
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import NoisePlacement
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.models import LogisticRegression
from tulle.train.settings.optimizers import SGD
from tulle.train.settings.phases import ConstantRate, PrivatePhase
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)

FloatArray = NDArray[np.float64]
CLIP_NORM = 0.5
"""Clip norm, far below the gradient of any row, so that every row is clipped."""
NUM_STEPS = 2
"""Steps of a run: noise that repeats itself shows in the second."""
ROWS_PER_RUN = 4
"""The canary and three others."""
_BATCH_SHARE = 0.5
"""Share of the rows that enter a batch: half, so that sampling and not sampling both show."""
_IDS_PER_RUN = 2
"""One row of each table for the canary, and one for the others."""
_NUM_SENSITIVE = 8
"""Features that read the same row of a table: next to them the bias, which all runs share and
nobody can read a run off, takes little of the clip norm."""
_PUBLIC_TABLE, _SENSITIVE_TABLE = "public.table.0", "sensitive.table.0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditedSteps:
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


AUDITED_STEPS = (
    AuditedSteps(name="dense", placement=NoisePlacement.DENSE),
    AuditedSteps(name="lazy", placement=NoisePlacement.LAZY, sees_every_step=False),
    AuditedSteps(name="lattice", noise=LatticeNoise()),
    AuditedSteps(name="banded", noise=BandedNoise(num_bands=NUM_STEPS)),
    # Rows that are not selected show nothing, so about half of all rows are.
    AuditedSteps(name="selected", noise=SelectedRows(threshold=0.01)),
)


def find_steps(name: str) -> AuditedSteps:
    """The steps of a name.

    Raises:
      ConfigError: There are none of this name.
    """
    by_name = {steps.name: steps for steps in AUDITED_STEPS}
    if name not in by_name:
        raise ConfigError(
            f"engine {name} is unknown{did_you_mean(name, by_name)}; use one of "
            f"{', '.join(by_name)}."
        )
    return by_name[name]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Turns:
    """Steps in which a canary may be in a batch. Public."""

    steps: tuple[int, ...]
    prob: float
    """Probability to be in the batch at each of these steps."""
    is_audited: NDArray[np.bool_] | None
    """[canaries]: the canaries whose turns these are; None for all."""


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


class Background(enum.Enum):
    """Direction of the gradients of the other rows of a run."""

    APART = "apart"
    """They point into rows of the tables that the canary does not touch."""
    ALIGNED = "aligned"
    """They point where the canary's does, which shows what depends on others in the batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeighbourRows:
    """The rows of many runs. Synthetic: nothing in them is about anybody."""

    num_runs: int
    background: Background

    @property
    def num_rows(self) -> int:
        """Number of rows of all runs."""
        return self.num_runs * ROWS_PER_RUN

    @property
    def canaries(self) -> NDArray[np.int64]:
        """[runs]: the place of each run's canary."""
        return np.arange(self.num_runs, dtype=np.int64) * ROWS_PER_RUN

    def examples(self, canary_label: int) -> ExampleSet:
        """The training set in which every canary has this label, as `fit` would take it."""
        row = np.arange(self.num_rows)
        is_canary = row % ROWS_PER_RUN == 0
        is_apart = ~is_canary & (self.background is Background.APART)
        ids = (_IDS_PER_RUN * (row // ROWS_PER_RUN) + is_apart).astype(np.int32)[:, None]
        examples = ExampleSet(
            features=self._features(),
            columns=ColumnRoles(
                label="y", public=("p",), sensitive=tuple(f"s{i}" for i in range(_NUM_SENSITIVE))
            ),
            public_features=ids,
            sensitive_features=np.repeat(ids, _NUM_SENSITIVE, axis=1),
            labels=np.where(is_canary, canary_label, 0).astype(np.float32),
        )
        examples.check()
        return examples

    def _features(self) -> tuple[PreparedFeature, ...]:
        num_ids = _IDS_PER_RUN * self.num_runs
        sensitive = (
            PreparedFeature(name=f"s{i}", role="sensitive", num_ids=num_ids, table="sensitive")
            for i in range(_NUM_SENSITIVE)
        )
        public = PreparedFeature(name="p", role="public", num_ids=num_ids, table="public")
        return (public, *sensitive)


def along_canaries(weights: Mapping[str, Tensor]) -> FloatArray:
    """[runs]: the weights of each run along the way that a canary of label 1 moves them."""
    public = weights[_PUBLIC_TABLE][::_IDS_PER_RUN, 0].double()
    sensitive = weights[_SENSITIVE_TABLE][::_IDS_PER_RUN, 0].double()
    length = math.hypot(1, _NUM_SENSITIVE)
    return np.asarray((public + _NUM_SENSITIVE * sensitive).numpy() / length)
