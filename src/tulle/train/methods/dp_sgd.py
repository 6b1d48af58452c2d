"""DP-SGD: clipped, noisy steps on all columns (Abadi et al. 2016)."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tulle.train.methods.method import Accounting, PlanWords, Target, Trained
from tulle.train.methods.private_steps import (
    StepsMethod,
    check_steps_method,
    model_settings,
    rows_bounds,
    steps_assumptions,
    steps_bounds,
    steps_sentence,
    steps_settings,
)
from tulle.train.settings.models import MLP, AnyModel
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.units import DataShape, UnitLevel

if TYPE_CHECKING:
    from tulle.train.training_run import TrainingRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSgdConfig(StepsMethod):
    """Clipped, noisy steps on all columns."""

    kind: ClassVar[str] = "dp-sgd"
    options: ClassVar[dict[str, str]] = StepsMethod.options | {"accounting": "accounting"}

    model: AnyModel = dataclasses.field(default_factory=MLP)
    """Kind of model that is trained, with its settings."""
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    accounting: Accounting = Accounting.REPLACE_PLD
    """Account that sets the noise: replace; or paper, to reproduce one, which is not private."""
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        check_steps_method(self)

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan of DP-SGD says of itself."""
        sampler = self.sampler(shape)
        if sampler is None:
            return PlanWords("There are no steps.", model_settings(self), (), ())
        return PlanWords(
            sentence=steps_sentence(self.private_phase),
            settings=model_settings(self) | steps_settings(self, sampler, noise_multiplier),
            bounds=(
                *rows_bounds(self, has_labels=False, has_steps=True),
                *steps_bounds(self, sampler),
            ),
            assumptions=steps_assumptions(self, sampler),
        )

    def train(self, run: "TrainingRun") -> Trained:
        """Takes the private steps of the run's plan."""
        return self.take_private_steps(self.build(run), run)
