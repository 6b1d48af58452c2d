"""Randomized labels: each label is randomized once, and public columns are trained on them.

The papers' Hybrid begins in the same way, so what the two share is here.
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Event, RandomizedResponse, Repeated
from tulle.privacy.fields import Scalar, canonical_json, check_count
from tulle.privacy.plan import Assumption
from tulle.train.methods.method import (
    PlanWords,
    Target,
    TowerMethod,
    Trained,
    check_kinds,
    enforced,
)
from tulle.train.methods.private_steps import model_settings, rows_bounds
from tulle.train.settings.models import MLP, AnyModel
from tulle.train.settings.phases import LabelCorrection, LabelPhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserLevel

if TYPE_CHECKING:
    from tulle.train.examples import TrainingRows
    from tulle.train.methods.hybrid import HybridConfig
    from tulle.train.models.tower_model import TowerModel
    from tulle.train.training_run import TrainingRun

PHASE = "labels"
"""Name of the steps on randomized labels in checkpoints and records."""
LABELS_SENTENCE = "Labels are randomized once; public columns are trained on them."


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedLabelsConfig(TowerMethod):
    """Labels alone are used, randomized; sensitive columns are dropped."""

    kind: ClassVar[str] = "rr"
    needs_delta: ClassVar[bool] = False
    needs_public: ClassVar[bool] = True
    reads_labels_alone: ClassVar[bool] = True

    model: AnyModel = dataclasses.field(default_factory=MLP)
    """Kind of model that is trained, with its settings."""
    label_phase: LabelPhase = dataclasses.field(default_factory=LabelPhase)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        check_count("initial_seed", self.initial_seed, least=0)
        check_kinds(
            self,
            {
                "label_phase": (LabelPhase, "a LabelPhase"),
                "unit": (UnitLevel | None, "ExampleLevel() or UserLevel()"),
                "target": (Target | None, "set by calibrate()"),
            },
        )

    def calibrate(self, *, epsilon: float, delta: float = 0.0) -> "RandomizedLabelsConfig":
        """Returns the same settings with a target; delta is not needed and stays unused."""
        return super().calibrate(epsilon=epsilon, delta=delta)

    @property
    def label_epsilon(self) -> float | None:
        """Epsilon of one randomized label: all of it, shared by the labels of a user."""
        return None if self.target is None else one_label(self.target.epsilon, self.unit)

    def label_steps(self) -> LabelPhase | None:
        """Settings of the steps on randomized labels."""
        return self.label_phase

    def labels_event(self) -> Event | None:
        """What the randomized labels of one unit cost, each drawn once."""
        return labels_event(self.label_epsilon, self.unit)

    def noisy_event(self, sampler: StepSampler | None, noise_multiplier: float) -> Event:
        """There is no noise beside that of the labels."""
        raise ConfigError(
            f"noise_multiplier={noise_multiplier} and sampler={sampler} have no meaning for "
            "RandomizedLabelsConfig, which has no private steps; leave them out."
        )

    def reads_sensitive(self, shape: DataShape) -> bool:
        """Sensitive columns are dropped."""
        del shape
        return False

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan of randomized labels says of itself."""
        del shape, noise_multiplier
        return PlanWords(
            sentence=f"{LABELS_SENTENCE} Sensitive columns are not used.",
            settings=model_settings(self) | labels_settings(self.label_phase, self.label_epsilon),
            bounds=rows_bounds(self, has_labels=True, has_steps=False),
            assumptions=labels_assumptions(),
        )

    def check_rows(self, rows: "TrainingRows") -> None:
        """Refuses a correction of predictions that needs the same noise on all labels."""
        _report_channel(self, rows)

    def train(self, run: "TrainingRun") -> Trained:
        """Randomizes labels once, keeps them, and trains on them."""
        model = self.build(run)
        train_on_labels(self, model, run)
        trained = dataclasses.replace(
            self.trained(model, run), report_channel=_report_channel(self, run.rows)
        )
        return Trained(trained, run.step_context.rng.description)


def one_label(epsilon: float, unit: UnitLevel | None) -> float | None:
    """The part of one label in what all randomized labels of a unit have together."""
    num_labels = unit.max_labels_per_user if isinstance(unit, UserLevel) else 1
    return epsilon / num_labels if epsilon > 0 else None


def labels_event(label_epsilon: float | None, unit: UnitLevel | None) -> Event | None:
    """What the randomized labels of one unit cost, each drawn once."""
    if label_epsilon is None:
        return None
    report = RandomizedResponse(epsilon=label_epsilon)
    if isinstance(unit, UserLevel) and unit.max_labels_per_user > 1:
        return Repeated(event=report, count=unit.max_labels_per_user)
    return report


def labels_settings(phase: LabelPhase, label_epsilon: float | None) -> dict[str, Scalar]:
    """Noise of the labels and the steps on them."""
    return {
        "label_epsilon": label_epsilon,
        "label_correction": phase.correction.value,
        "label_epochs": phase.epochs,
        "label_batch_size": phase.batch_size,
        "label_optimizer": canonical_json(plain_data(phase.optimizer)),
    }


def labels_assumptions() -> tuple[Assumption, ...]:
    """Assumptions that the claim about randomized labels rests on."""
    return (
        enforced(
            "Each label is randomized once and the report is kept.",
            "reports are written to the run before training and read back when it goes on",
        ),
        enforced(
            "Training on randomized labels reads no sensitive column.",
            "it is handed the public part of the data, from which the rest cannot be reached",
        ),
    )


def _report_channel(method: RandomizedLabelsConfig, rows: "TrainingRows") -> BinaryChannel | None:
    """What takes predictions from reports to labels, if the model saw reports as they were.

    Raises:
      ConfigError: Predictions cannot be taken back: the probabilities differ between rows.
    """
    from tulle.train.label_training import LabelReports, calibrating_channel

    phase, epsilon = method.label_phase, method.label_epsilon
    if epsilon is None or phase.correction is not LabelCorrection.CALIBRATED:
        return None
    drawn = LabelReports(epsilon=epsilon, num_sharing=rows.labels_sharing)
    return calibrating_channel(drawn.channel(), phase)


def train_on_labels(
    method: "RandomizedLabelsConfig | HybridConfig", model: "TowerModel", run: "TrainingRun"
) -> None:
    """Randomizes labels once, keeps them, and trains the truncated model on them.

    Args:
      method: Settings of how labels are randomized and trained on.
      model: The model, which is trained in place, without its sensitive part.
      run: Rows, randomness and journal. A run whose private steps have begun is left alone.

    Privacy:
      Unit: that of the method. Event: `labels_event`. Training on the reports is post-processing.
    """
    from tulle.train.label_training import (
        LabelReports,
        first_log_odds,
        label_loss,
        label_loss_of_all,
        with_reports,
    )
    from tulle.train.methods.private_training import PHASE as PRIVATE
    from tulle.train.steps.plain_training import PlainTask, train_plain

    phase, epsilon, context = method.label_phase, method.label_epsilon, run.step_context
    if epsilon is None:
        return
    chosen = run.rows.label_rows
    owned = run.examples if chosen is None else run.examples.select(chosen)
    drawn = LabelReports(epsilon=epsilon, num_sharing=run.rows.labels_sharing)
    noisy = context.journal.labels(lambda: drawn.draw(owned, rng=context.rng))
    if len(noisy) != owned.num_rows:
        raise DataError("the kept labels are of other rows; give the data of this run.")
    latest = context.journal.latest()
    # Training on labels again would write over private steps that are paid for.
    if latest is not None and latest.phase == PRIVATE:
        return
    channel = drawn.channel()
    task = PlainTask(
        name=PHASE,
        phase=phase,
        loss=label_loss_of_all(phase, epsilon)
        if drawn.num_sharing is None
        else label_loss(noisy, channel, phase),
        order_seed=method.initial_seed,
        epsilon=epsilon * getattr(method.unit, "max_labels_per_user", 1),
    )
    # From reports alone: no event covers the share of the true labels.
    model.output_bias.fill_(first_log_odds(noisy, channel, phase))
    train_plain(model, with_reports(owned, noisy, channel), task, context)
