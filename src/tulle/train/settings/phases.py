"""Settings of the phases of a training run: what is optimised, on which batches, how long."""

import dataclasses
import enum
import math
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite
from tulle.train.settings.optimizers import Adam, AnyOptimizer
from tulle.train.settings.step_noise import IndependentNoise, StepNoise


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """The full learning rate in every step."""

    kind: ClassVar[str] = "constant"

    def rate_factor(self, step: int, num_steps: int) -> float:
        """What to multiply the learning rate with in this step: 1."""
        _check_step(step, num_steps)
        return 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineDecay:
    """A straight rise over the first steps, then half a cosine down towards 0."""

    kind: ClassVar[str] = "cosine"

    warmup_share: float = 0.0
    """Share of the steps that the rise takes."""

    def __post_init__(self) -> None:
        if not 0 <= check_finite("warmup_share", self.warmup_share) < 1:
            raise ConfigError(
                f"warmup_share={self.warmup_share} must be in [0, 1); 0 starts at the full rate."
            )

    def rate_factor(self, step: int, num_steps: int) -> float:
        """What to multiply the learning rate with in this step, the first being 0."""
        _check_step(step, num_steps)
        warmup = int(self.warmup_share * num_steps)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))


Schedule = CosineDecay | ConstantRate
"""The factor of every step. It depends on public numbers only."""


class LabelCorrection(enum.Enum):
    """How a loss makes up for randomized labels."""

    FORWARD = "forward"
    """Likelihood of the randomized label. Stays bounded, so it can be trained for long."""
    DEBIASED = "debiased"
    """Unbiased for the loss on true labels; without bound where a model can memorise rows."""
    CALIBRATED = "calibrated"
    """No correction in the loss. Predicted probabilities of a report are turned into those of a
    label after training."""
    NAIVE = "naive"
    """No correction at all, for comparison. Rows are ranked, and their probabilities are wrong."""

    @property
    def corrects_loss(self) -> bool:
        """True if the model learns the probability of the label, not that of the report."""
        return self in (LabelCorrection.FORWARD, LabelCorrection.DEBIASED)


class PublicTower(enum.Enum):
    """What private steps do with the tower that randomized labels have trained."""

    FINE_TUNE = "fine-tune"
    FREEZE = "freeze"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Ends a phase when the loss on rows that are held back no longer falls.

    On randomized labels this looks at released data only, so it spends nothing.
    """

    validation_share: float = 0.02
    """Share of the rows that is held back."""
    patience: int = 1
    """Epochs without improvement until the phase ends; the best weights are kept."""

    def __post_init__(self) -> None:
        if not 0 < check_finite("validation_share", self.validation_share) <= 0.5:
            raise ConfigError(f"validation_share={self.validation_share} must be in (0, 0.5].")
        check_count("patience", self.patience)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainPhase:
    """Steps without noise: on public features with released labels, or a baseline."""

    options: ClassVar[dict[str, str]] = {
        "epochs": "epochs",
        "batch_size": "batch_size",
        "optimizer": "optimizer",
        "learning_rate": "optimizer.learning_rate",
        "early_stopping": "early_stopping",
    }

    epochs: float = 1.0
    """Number of passes over the rows."""
    batch_size: int = 1024
    """Number of rows in a batch."""
    optimizer: AnyOptimizer = dataclasses.field(default_factory=lambda: Adam(learning_rate=1e-3))
    """Optimizer of the steps."""
    schedule: Schedule = dataclasses.field(default_factory=CosineDecay)
    early_stopping: EarlyStopping | None = None
    """Stop when the loss on rows that are held back no longer falls; costs no privacy."""

    def __post_init__(self) -> None:
        _check_epochs(self.epochs)
        check_count("batch_size", self.batch_size)

    def num_steps(self, num_rows: int) -> int:
        """Steps over all epochs."""
        return math.ceil(self.epochs * math.ceil(num_rows / self.batch_size))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPhase(PlainPhase):
    """Steps on randomized labels and public features: the first of two phases, or all of `rr`."""

    options: ClassVar[dict[str, str]] = {
        "label_epochs": "epochs",
        "label_batch_size": "batch_size",
        "label_learning_rate": "optimizer.learning_rate",
        "correction": "correction",
        "early_stopping": "early_stopping",
    }

    correction: LabelCorrection = LabelCorrection.FORWARD
    """How the loss makes up for randomized labels."""
    max_logit: float | None = None
    """Bound on log odds in the debiased loss: beyond it they are pushed back, which bounds the loss
    from below and changes nothing for smaller ones. None: no bound."""
    weight_rows: bool = False
    """Weigh rows whose labels have less noise more, in the debiased loss. Matters where users
    share their labels' epsilon by their own number of rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.correction, LabelCorrection):
            raise ConfigError(f"correction={self.correction!r} must be a LabelCorrection.")
        check_max_logit(self.max_logit)
        if not isinstance(self.weight_rows, bool):
            raise ConfigError(f"weight_rows={self.weight_rows!r} must be true or false.")
        is_changed = self.max_logit is not None or self.weight_rows
        if is_changed and self.correction is not LabelCorrection.DEBIASED:
            raise ConfigError(
                f"max_logit={self.max_logit} and weight_rows={self.weight_rows} are of the "
                f"debiased loss, not of correction={self.correction.value!r}; leave them out, or "
                "use LabelCorrection.DEBIASED."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivatePhase:
    """DP-SGD. The sampler, the clip, the noise and the event are bound by the plan."""

    options: ClassVar[dict[str, str]] = {
        "epochs": "epochs",
        "batch_size": "batch_size",
        "clip_norm": "clip_norm",
        "optimizer": "optimizer",
        "learning_rate": "optimizer.learning_rate",
        "noise": "noise",
        "bands": "noise.num_bands",
        "lattice_bits": "noise.bits",
        "selection_share": "noise.selection_share",
        "selection_threshold": "noise.threshold",
    }

    epochs: float = 4.0
    """Number of passes over the rows, in private steps."""
    batch_size: int | None = None
    """Number of rows that fit into a batch. The expected number leaves room of 6 deviations,
    and more where users have several rows, so that cut batches cost next to nothing. With clipped
    users: the expected number of users. None: 16,384, or a quarter of the rows or users where
    those are few; the plan says which."""
    clip_norm: float = 10.0
    """L2 norm to which the gradient of each unit is clipped, over all trained parameters."""
    optimizer: AnyOptimizer = dataclasses.field(default_factory=lambda: Adam(learning_rate=2e-3))
    """Optimizer of the private steps."""
    schedule: Schedule = dataclasses.field(default_factory=CosineDecay)
    public_tower: PublicTower = PublicTower.FINE_TUNE
    """What private steps do with the tower that randomized labels have trained."""
    noise_multiplier: float | None = None
    """Noise standard deviation divided by `clip_norm`; None: found by
    `calibrate(epsilon=…, delta=…)`."""
    monitor_share: float = 0.1
    """Share of the clip norm that carries loss and clipped share with the gradient, under the
    same noise; 0 releases neither. The gradient keeps sqrt(1 - share^2): 99.5% at 0.1."""
    noise: StepNoise = dataclasses.field(default_factory=IndependentNoise)
    """Kind of noise of a step: fresh in every entry, on a lattice, correlated over steps, or in
    few table rows."""

    def __post_init__(self) -> None:
        _check_epochs(self.epochs)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        # Squares of single-precision gradients that are far smaller vanish, and would not be seen.
        if not 1e-6 <= check_finite("clip_norm", self.clip_norm) <= 1e4:
            raise ConfigError(f"clip_norm={self.clip_norm} must be from 1e-6 to 10000, e.g. 10.")
        if not isinstance(self.public_tower, PublicTower):
            raise ConfigError(f"public_tower={self.public_tower!r} must be a PublicTower.")
        if self.noise_multiplier is not None and not (
            check_finite("noise_multiplier", self.noise_multiplier) > 0
        ):
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier} must be > 0; "
                "to train without noise use NonPrivateConfig."
            )
        if not 0 <= check_finite("monitor_share", self.monitor_share) <= 0.5:
            raise ConfigError(f"monitor_share={self.monitor_share} must be from 0 to 0.5.")
        if not isinstance(self.noise, StepNoise):
            raise ConfigError(
                f"noise={self.noise!r} must be IndependentNoise(), LatticeNoise(), BandedNoise() "
                "or SelectedRows()."
            )


def check_max_logit(max_logit: object) -> None:
    """Refuses a bound on logits that is no positive number; None is no bound."""
    if max_logit is not None and not check_finite("max_logit", max_logit) > 0:
        raise ConfigError(
            f"max_logit={max_logit} must be > 0, e.g. 8 for probabilities above 0.0003."
        )


def _check_epochs(epochs: object) -> None:
    if check_finite("epochs", epochs) <= 0:
        raise ConfigError(f"epochs={epochs} must be > 0.")


def _check_step(step: int, num_steps: int) -> None:
    check_count("num_steps", num_steps)
    if check_count("step", step, least=0) >= num_steps:
        raise ConfigError(f"step={step} must be < num_steps={num_steps}; steps are counted from 0.")


# The split that Chua et al. (2024, PPAI) chose: above epsilon 5 all that is left goes to the steps.
_PAPER_SHARE, _PAPER_MOST = 0.6, 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperSplit:
    """Labels get min(0.6 epsilon, 3), private steps the rest (Chua et al. 2024, PPAI)."""

    kind: ClassVar[str] = "paper"

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        return min(_PAPER_SHARE * epsilon, _PAPER_MOST)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatioSplit:
    """Labels get a fixed share: 0 is DP-SGD alone, 1 is randomized labels alone."""

    kind: ClassVar[str] = "ratio"

    label_share: float

    def __post_init__(self) -> None:
        if not 0 <= check_finite("label_share", self.label_share) <= 1:
            raise ConfigError(f"label_share={self.label_share} must be from 0 to 1.")

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        return self.label_share * epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplicitSplit:
    """Labels get exactly this much, private steps the rest."""

    kind: ClassVar[str] = "explicit"
    word: ClassVar[str] = "epsilon"
    """The word for the split on the command line: --split epsilon:1.2."""

    epsilon_of_labels: float

    def __post_init__(self) -> None:
        if check_finite("epsilon_of_labels", self.epsilon_of_labels) < 0:
            raise ConfigError(f"epsilon_of_labels={self.epsilon_of_labels} must be >= 0.")

    def label_epsilon(self, epsilon: float) -> float:
        """The part of the labels."""
        if self.epsilon_of_labels > epsilon:
            raise ConfigError(
                f"epsilon_of_labels={self.epsilon_of_labels} must be <= epsilon={epsilon}; "
                "lower it or raise epsilon."
            )
        return self.epsilon_of_labels


BudgetSplit = PaperSplit | RatioSplit | ExplicitSplit
