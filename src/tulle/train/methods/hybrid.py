"""Hybrid, the papers' algorithm: randomized labels first, then private steps (Chua et al. 2024).

Randomized labels train the public part of the model; DP-SGD goes on from there with all columns.
Epsilon is split between the two phases.
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.train.methods.method import Accounting, PlanWords, Target, Trained, check_kinds
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
from tulle.train.methods.randomized_labels import (
    LABELS_SENTENCE,
    labels_assumptions,
    labels_event,
    labels_settings,
    one_label,
    train_on_labels,
)
from tulle.train.settings.models import MLP, AnyModel
from tulle.train.settings.phases import (
    BudgetSplit,
    LabelCorrection,
    LabelPhase,
    PaperSplit,
    PrivatePhase,
)
from tulle.train.settings.units import DataShape, UnitLevel

if TYPE_CHECKING:
    from tulle.train.training_run import TrainingRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class HybridConfig(StepsMethod):
    """Randomized labels train the public side; DP-SGD goes on from there with all columns.

    The Hybrid of the papers (Chua et al., 2024), also known here as two-phase.
    """

    kind: ClassVar[str] = "hybrid"
    former_kinds: ClassVar[tuple[str, ...]] = ("two-phase",)
    needs_public: ClassVar[bool] = True
    options: ClassVar[dict[str, str]] = StepsMethod.options | {
        "split": "split",
        "accounting": "accounting",
        "public_tower": "private_phase.public_tower",
    }

    model: AnyModel = dataclasses.field(default_factory=MLP)
    """Kind of model that is trained, with its settings."""
    label_phase: LabelPhase = dataclasses.field(default_factory=LabelPhase)
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    split: BudgetSplit = dataclasses.field(default_factory=PaperSplit)
    """Part of epsilon that goes to the labels: paper for min(0.6 epsilon, 3), or e.g. ratio:0.25 or
    epsilon:1.2."""
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    accounting: Accounting = Accounting.REPLACE_PLD
    """Account that sets the noise: replace; or paper, to reproduce one, which is not private."""
    initial_seed: int = 0
    """Seed of the first weights, which are public."""
    target: Target | None = None

    def __post_init__(self) -> None:
        check_kinds(
            self,
            {
                "label_phase": (LabelPhase, "a LabelPhase"),
                "split": (BudgetSplit, "PaperSplit(), RatioSplit() or ExplicitSplit()"),
            },
        )
        if self.label_phase.correction is LabelCorrection.CALIBRATED:
            raise ConfigError(
                "correction='calibrated' maps predictions after training, and the hybrid algorithm "
                "trains on: use 'forward' or 'debiased', or RandomizedLabelsConfig."
            )
        check_steps_method(self)

    @property
    def label_epsilon(self) -> float | None:
        """Epsilon of one randomized label; None if labels get nothing of the target."""
        if self.target is None:
            return None
        return one_label(self.split.label_epsilon(self.target.epsilon), self.unit)

    @property
    def has_steps(self) -> bool:
        """False if labels get all of epsilon."""
        if self.target is None:
            return True
        return self.split.label_epsilon(self.target.epsilon) < self.target.epsilon

    def label_steps(self) -> LabelPhase | None:
        """Settings of the steps on randomized labels; None if labels get nothing."""
        return None if self.label_epsilon is None else self.label_phase

    def labels_event(self) -> Event | None:
        """What the randomized labels of one unit cost, each drawn once."""
        return labels_event(self.label_epsilon, self.unit)

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan of Hybrid says of itself."""
        sampler, has_labels = self.sampler(shape), self.label_epsilon is not None
        settings = model_settings(self)
        if has_labels:
            settings |= labels_settings(self.label_phase, self.label_epsilon)
        bounds = rows_bounds(self, has_labels=has_labels, has_steps=sampler is not None)
        assumptions = labels_assumptions() if has_labels else ()
        if sampler is None:
            sentence = f"{LABELS_SENTENCE} Sensitive columns are not used."
            return PlanWords(sentence, settings, bounds, assumptions)
        sentence = steps_sentence(self.private_phase)
        if has_labels:
            sentence = f"{LABELS_SENTENCE} {sentence.replace('Steps', 'Then steps')}"
        return PlanWords(
            sentence=sentence,
            settings=settings | steps_settings(self, sampler, noise_multiplier),
            bounds=(*bounds, *steps_bounds(self, sampler)),
            assumptions=(*assumptions, *steps_assumptions(self, sampler)),
        )

    def train(self, run: "TrainingRun") -> Trained:
        """Trains on randomized labels, then takes the private steps that epsilon is left for."""
        model = self.build(run)
        train_on_labels(self, model, run)
        if run.plan.sampler is None:
            return Trained(self.trained(model, run), run.step_context.rng.description)
        return self.take_private_steps(model, run)
