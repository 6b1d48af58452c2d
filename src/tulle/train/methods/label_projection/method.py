"""Label projection: noisy label gradients, projected on public ones (LabelDP-Pro).

Ghazi et al., ICLR 2024, for a binary label. It protects labels alone, and is meant for many rows
and small epsilon.
"""

import dataclasses
import enum
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.events import Event, SwitchedGaussian
from tulle.privacy.fields import check_count, check_finite
from tulle.privacy.plan import Bound
from tulle.train.methods.method import PlanWords, Target, Trained, check_kinds, enforced
from tulle.train.methods.private_steps import (
    StepsMethod,
    check_steps_method,
    model_settings,
    rows_bounds,
    steps_assumptions,
    steps_settings,
)
from tulle.train.settings.models import MLP, AnyModel
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_noise import IndependentNoise
from tulle.train.settings.units import DataShape, UnitLevel, UserAccounting, UserLevel

if TYPE_CHECKING:
    from tulle.train.examples import ExampleSet
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.models.tower_model import TowerModel
    from tulle.train.steps.places import StepPlace
    from tulle.train.steps.step_context import StepContext
    from tulle.train.steps.step_settings import StepSettings
    from tulle.train.training_run import TrainingRun

_MOST_PUBLIC_ROWS = 8192
"""Inner products of all pairs of public rows are kept: 256 MiB for so many."""
# Bounds the time of a step, each of which runs a projection. One that converges ends earlier, so
# that a larger number is taken for a mistake.
_MOST_ITERATIONS = 10_000


class SmoothingPrior(enum.Enum):
    """What the label probabilities that a projection finds are drawn towards."""

    MODEL = "model"
    """Each row's own prediction. Where these are right nothing moves, so that the model stays
    calibrated; a step gets shorter by the share of the prior."""
    HALF = "half"
    """A fair coin, as in the paper. Predictions of rare labels come out too high."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection:
    """Settings of the projection. They cost nothing: it works on noisy sums and public rows."""

    options: ClassVar[dict[str, str]] = {
        "public_batch_size": "public_batch_size",
        "smoothing": "smoothing",
        "smoothing_prior": "prior",
    }

    public_batch_size: int = 1024
    """Number of public rows that a step projects on, drawn apart from the private ones."""
    smoothing: float = 0.25
    """Share of the prior in the label probabilities that are used."""
    prior: SmoothingPrior = SmoothingPrior.MODEL
    """What label probabilities are drawn towards."""
    max_iterations: int = 200
    """Most iterations of the solver in each step; it ends earlier where little is left to gain."""

    def __post_init__(self) -> None:
        check_count("public_batch_size", self.public_batch_size, least=2)
        if self.public_batch_size > _MOST_PUBLIC_ROWS:
            raise ConfigError(
                f"public_batch_size={self.public_batch_size} must be <= {_MOST_PUBLIC_ROWS}: inner "
                "products of all its pairs of rows are kept; 256 to 4096 are useful."
            )
        if not 0 <= check_finite("smoothing", self.smoothing) < 1:
            raise ConfigError(
                f"smoothing={self.smoothing} must be in [0, 1), e.g. 0.25: at 1 nothing of the "
                "labels would be left."
            )
        if not isinstance(self.prior, SmoothingPrior):
            raise ConfigError(f"prior={self.prior!r} must be a SmoothingPrior.")
        if check_count("max_iterations", self.max_iterations) > _MOST_ITERATIONS:
            raise ConfigError(
                f"max_iterations={self.max_iterations} must be <= {_MOST_ITERATIONS}, e.g. 200."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelProjectionConfig(StepsMethod):
    """Noisy label gradients, projected on public ones; sensitive columns are dropped."""

    kind: ClassVar[str] = "label-projection"
    needs_public: ClassVar[bool] = True
    reads_labels_alone: ClassVar[bool] = True
    is_shareable: ClassVar[bool] = False

    model: AnyModel = dataclasses.field(default_factory=MLP)
    """Kind of model that is trained, with its settings."""
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    """Steps whose clip norm bounds the gradient of a logit, not of a loss."""
    projection: Projection = dataclasses.field(default_factory=Projection)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        check_kinds(self, {"projection": (Projection, "a Projection")})
        check_steps_method(self)
        # Noise is drawn where public rows are, and a label switches the part of one row.
        noise, unit = self.private_phase.noise, self.unit
        if not isinstance(noise, IndependentNoise):
            raise ConfigError(
                f"{noise} does not go with label projection, which draws fresh noise where public "
                "rows are; use IndependentNoise(), or DpSgdConfig for other noise."
            )
        if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.CLIPPED_USERS:
            raise ConfigError(
                "accounting=UserAccounting.CLIPPED_USERS does not go with label projection: labels "
                "of one user switch several vectors at once. Use UserAccounting.SEVERAL_ROWS."
            )

    def step_event(self, noise_multiplier: float) -> Event:
        """What one step releases: a label switches the gradient of its logit on or off."""
        return SwitchedGaussian(noise_multiplier=noise_multiplier)

    def reads_sensitive(self, shape: DataShape) -> bool:
        """Sensitive columns are dropped."""
        del shape
        return False

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan of label projection says of itself."""
        sampler = self.sampler(shape)
        if sampler is None:
            return PlanWords("There are no steps.", model_settings(self), (), ())
        switched = Bound(
            what="L2 norm of what one label switches in a step",
            limit=self.private_phase.clip_norm,
            where="gradient of the logit, clipped over all trained parameters and the monitored "
            "loss together",
        )
        return PlanWords(
            sentence="Steps on public columns: the clipped gradients of labels that are 1 are "
            "summed with Gaussian noise and projected on what labels of public rows can give "
            "(LabelDP-Pro). Sensitive columns are not used.",
            settings={
                **model_settings(self),
                **steps_settings(self, sampler, noise_multiplier),
                "public_batch_size": self.projection.public_batch_size,
                "smoothing": self.projection.smoothing,
                "smoothing_prior": self.projection.prior.value,
                "projection_iterations": self.projection.max_iterations,
            },
            bounds=(*rows_bounds(self, has_labels=False, has_steps=True), switched),
            assumptions=(
                *steps_assumptions(self, sampler),
                enforced(
                    "Steps read no sensitive column.",
                    "they are handed the public part of the data, from which the rest cannot be "
                    "reached",
                ),
                enforced(
                    "Labels decide which gradients are summed, and nothing else about a sum.",
                    "gradients, clip norms and batches follow from public columns and noisy "
                    "weights",
                ),
                enforced(
                    "Public batches tell nothing about private ones.",
                    "each is drawn apart, by a generator with a key of its own",
                ),
            ),
        )

    def train(self, run: "TrainingRun") -> Trained:
        """Takes the projected steps of the run's plan."""
        return self.take_private_steps(self.build(run), run)

    def start_steps(
        self,
        model: "TowerModel",
        examples: "ExampleSet",
        plan: "TrainPlan",
        settings: "StepSettings",
        context: "StepContext",
    ) -> "StepPlace":
        """Starts projected steps: the projection solves for all rows of a step at once.

        Args:
          model: The model, which is trained in place.
          examples: The rows that the plan's sampler draws from.
          plan: A plan of this method.
          settings: What every step does.
          context: Device and randomness of the run.
        """
        from tulle.train.methods.label_projection.projected_step import ProjectionEngine

        return ProjectionEngine(model, examples, plan, settings, context)
