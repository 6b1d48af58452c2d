"""The baseline: all columns and true labels without noise. Its model is raw data."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count
from tulle.train.methods.method import PlanWords, Target, TowerMethod, Trained
from tulle.train.methods.private_steps import model_settings
from tulle.train.settings.models import MLP, AnyModel
from tulle.train.settings.phases import PlainPhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, ExampleLevel, UnitLevel

if TYPE_CHECKING:
    from tulle.train.training_run import TrainingRun

PHASE = "plain"
"""Name of its steps in checkpoints and records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonPrivateConfig(TowerMethod):
    """All columns and true labels without noise: the baseline. Its model is raw data."""

    kind: ClassVar[str] = "nonprivate"
    is_private: ClassVar[bool] = False
    options: ClassVar[dict[str, str]] = {"model": "model"}

    model: AnyModel = dataclasses.field(default_factory=MLP)
    """Kind of model that is trained, with its settings."""
    phase: PlainPhase = dataclasses.field(default_factory=PlainPhase)
    initial_seed: int = 0

    def __post_init__(self) -> None:
        check_count("initial_seed", self.initial_seed, least=0)

    @property
    def unit(self) -> UnitLevel | None:  # type: ignore[override]
        """Nobody is protected; rows are counted one by one."""
        return ExampleLevel()

    @property
    def target(self) -> Target | None:  # type: ignore[override]
        """There is no guarantee to aim at."""
        return None

    def noisy_event(self, sampler: StepSampler | None, noise_multiplier: float) -> Event:
        """There is no noise, and so no event of it."""
        raise ConfigError(
            f"noise_multiplier={noise_multiplier} and sampler={sampler} have no meaning for "
            "NonPrivateConfig, which adds no noise; leave them out."
        )

    def reads_sensitive(self, shape: DataShape) -> bool:
        """A baseline looks at all columns."""
        del shape
        return True

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What the plan of a baseline says of itself."""
        del shape, noise_multiplier
        phase = self.phase
        return PlanWords(
            sentence="Ordinary training on all columns and true labels, without any noise.",
            settings=model_settings(self)
            | {"epochs": phase.epochs, "batch_size": phase.batch_size},
            bounds=(),
            assumptions=(),
        )

    def train(self, run: "TrainingRun") -> Trained:
        """Trains on raw labels."""
        from tulle.train.label_training import log_odds
        from tulle.train.losses import CrossEntropy
        from tulle.train.steps.plain_training import PlainTask, train_plain

        model = self.build(run)
        labels = run.examples.labels
        model.output_bias.fill_(log_odds(0.5 if labels is None else float(labels.mean())))
        task = PlainTask(
            name=PHASE,
            phase=self.phase,
            loss=CrossEntropy(),
            order_seed=self.initial_seed,
            epsilon=None,
        )
        train_plain(model, run.examples, task, run.step_context)
        return Trained(self.trained(model, run), run.step_context.rng.description)
