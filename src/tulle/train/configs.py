"""The methods: Hybrid, two phases, randomized labels, DP-SGD, label projection, no privacy.

A config holds public settings. `calibrate` sets the target, `make` finds the noise for
data of a given shape and returns the plan that everything else follows from.
"""

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite
from tulle.train.budget_split import BudgetSplit, PaperSplit
from tulle.train.cells.cell_settings import CellSettings
from tulle.train.models.mlp import MLP
from tulle.train.models.tower_model import ModelSettings
from tulle.train.phases import LabelCorrection, LabelPhase, PlainPhase, PrivatePhase
from tulle.train.projected.projection import Projection
from tulle.train.step_noise import BandedNoise, IndependentNoise
from tulle.train.unit_level import UnitLevel, UserAccounting, UserLevel

if TYPE_CHECKING:
    from tulle.train.data_shape import DataShape
    from tulle.train.train_plan import TrainPlan


_MOST_DELTA = 0.01


class Accounting(enum.Enum):
    """Which account of the private steps sets the noise."""

    REPLACE_PLD = "replace, privacy loss distributions"
    """Sound for the adjacency that is claimed."""
    PAPER_RDP = "add-or-remove, Renyi"
    """As in the papers, to reproduce them. Says nothing sound about replaced rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The guarantee a config is calibrated to."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not check_finite("epsilon", self.epsilon) > 0:
            raise ConfigError(
                f"epsilon={self.epsilon} must be > 0; to train without privacy use "
                "NonPrivateConfig."
            )
        if not 0 <= check_finite("delta", self.delta) <= _MOST_DELTA:
            raise ConfigError(
                f"delta={self.delta} must be from 0 to {_MOST_DELTA}: more would allow to publish "
                "rows outright. Choose less than 1 over the number of rows, e.g. 1e-7."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HybridConfig:
    """Labels of public columns come cheaper than sensitive ones; nothing to tune but the target.

    Noisy sums over cells, which are combinations of values of one to three columns, make an
    additive model, without steps or batches. While only public columns are used the noise hides
    labels alone; afterwards it hides whole rows. Each row is protected on its own.
    """

    cells: CellSettings = dataclasses.field(default_factory=CellSettings)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    target: Target | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_hybrid(self)

    def calibrate(self, *, epsilon: float, delta: float) -> "HybridConfig":
        """The same settings with a target."""
        return dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape."""
        return _make(self, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoPhaseConfig:
    """Randomized labels train the public side; DP-SGD goes on from there with all columns.

    The Hybrid of the papers (Chua et al., 2024).
    """

    model: ModelSettings = dataclasses.field(default_factory=MLP)
    label_phase: LabelPhase = dataclasses.field(default_factory=LabelPhase)
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    split: BudgetSplit = dataclasses.field(default_factory=PaperSplit)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    accounting: Accounting = Accounting.REPLACE_PLD
    initial_seed: int = 0
    """Of the first weights, which are public."""
    target: Target | None = None

    def __post_init__(self) -> None:
        _check_shared(self)

    def calibrate(self, *, epsilon: float, delta: float) -> "TwoPhaseConfig":
        """The same settings with a target."""
        return dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape."""
        return _make(self, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomizedLabelsConfig:
    """Labels alone are used, randomized; sensitive columns are dropped."""

    model: ModelSettings = dataclasses.field(default_factory=MLP)
    label_phase: LabelPhase = dataclasses.field(default_factory=LabelPhase)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        _check_shared(self)

    def calibrate(self, *, epsilon: float, delta: float = 0.0) -> "RandomizedLabelsConfig":
        """The same settings with a target; delta is not needed and stays unused."""
        return dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape."""
        return _make(self, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpSgdConfig:
    """Clipped, noisy steps on all columns."""

    model: ModelSettings = dataclasses.field(default_factory=MLP)
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    accounting: Accounting = Accounting.REPLACE_PLD
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        _check_shared(self)

    def calibrate(self, *, epsilon: float, delta: float) -> "DpSgdConfig":
        """The same settings with a target."""
        return dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape."""
        return _make(self, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelProjectionConfig:
    """Noisy label gradients, projected on public ones; sensitive columns are dropped.

    LabelDP-Pro (Ghazi et al., ICLR 2024) for a binary label. It protects labels alone, and is
    meant for many rows and small epsilon.
    """

    model: ModelSettings = dataclasses.field(default_factory=MLP)
    private_phase: PrivatePhase = dataclasses.field(default_factory=PrivatePhase)
    """Its clip norm bounds the gradient of a logit, not of a loss."""
    projection: Projection = dataclasses.field(default_factory=Projection)
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    initial_seed: int = 0
    target: Target | None = None

    def __post_init__(self) -> None:
        _check_shared(self)
        _check_projection(self)

    @property
    def accounting(self) -> Accounting:
        """There is one account only, and it is sound for replaced labels."""
        return Accounting.REPLACE_PLD

    def calibrate(self, *, epsilon: float, delta: float) -> "LabelProjectionConfig":
        """The same settings with a target."""
        return dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape."""
        return _make(self, shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NonPrivateConfig:
    """All columns and true labels without noise: the baseline. Its model is raw data."""

    model: ModelSettings = dataclasses.field(default_factory=MLP)
    phase: PlainPhase = dataclasses.field(default_factory=PlainPhase)
    initial_seed: int = 0

    def __post_init__(self) -> None:
        check_count("initial_seed", self.initial_seed, least=0)

    def make(self, shape: "DataShape") -> "TrainPlan":
        """The plan for data of this shape; it promises nothing."""
        return _make(self, shape)


StepsConfig = TwoPhaseConfig | DpSgdConfig | LabelProjectionConfig
"""Those with a `private_phase`."""
PrivateConfig = HybridConfig | StepsConfig | RandomizedLabelsConfig
TowerConfig = StepsConfig | RandomizedLabelsConfig | NonPrivateConfig
"""Those with a `model` of towers and the seed of its first weights."""
TrainConfig = PrivateConfig | NonPrivateConfig

METHOD_NAMES: dict[type[TrainConfig], str] = {
    HybridConfig: "hybrid",
    TwoPhaseConfig: "two-phase",
    RandomizedLabelsConfig: "rr",
    DpSgdConfig: "dp-sgd",
    LabelProjectionConfig: "label-projection",
    NonPrivateConfig: "nonprivate",
}


_KINDS: dict[str, tuple[Any, str]] = {
    "label_phase": (LabelPhase, "a LabelPhase"),
    "private_phase": (PrivatePhase, "a PrivatePhase"),
    "projection": (Projection, "a Projection"),
    "cells": (CellSettings, "CellSettings()"),
    "split": (BudgetSplit, "PaperSplit(), RatioSplit() or ExplicitSplit()"),
    "unit": (UnitLevel | None, "ExampleLevel() or UserLevel()"),
    "accounting": (Accounting, "an Accounting"),
    "target": (Target | None, "set by calibrate()"),
}


def method_name(config: TrainConfig) -> str:
    """The word for a config's method on the command line and on cards."""
    return METHOD_NAMES[type(config)]


def _make(config: TrainConfig, shape: "DataShape") -> "TrainPlan":
    # Accounting takes a while to import, and a finished plan does without it.
    from tulle.train.planning import make_train_plan

    return make_train_plan(config, shape)


def _check_kinds(config: PrivateConfig) -> None:
    for field in dataclasses.fields(config):
        value, (kind, words) = getattr(config, field.name), _KINDS.get(field.name, (object, ""))
        if not isinstance(value, kind):
            raise ConfigError(f"{field.name}={value!r} must be {words}.")


def _check_shared(config: StepsConfig | RandomizedLabelsConfig) -> None:
    check_count("initial_seed", config.initial_seed, least=0)
    _check_kinds(config)
    if isinstance(config, TwoPhaseConfig) and (
        config.label_phase.correction is LabelCorrection.CALIBRATED
    ):
        raise ConfigError(
            "correction='calibrated' maps predictions after training, and the two-phase algorithm "
            "trains on: use 'forward' or 'debiased', or RandomizedLabelsConfig."
        )
    if isinstance(config, TwoPhaseConfig | DpSgdConfig):
        _check_noise(config)


def _check_noise(config: TwoPhaseConfig | DpSgdConfig) -> None:
    """Correlated noise is accounted for units of one row that may be replaced."""
    if not isinstance(config.private_phase.noise, BandedNoise):
        return
    if isinstance(config.unit, UserLevel):
        raise ConfigError(
            "BandedNoise() protects single examples: the rows of a user would be in several "
            "groups, whose noise is correlated. Use IndependentNoise() for users."
        )
    if config.accounting is Accounting.PAPER_RDP:
        raise ConfigError(
            "BandedNoise() needs accounting=Accounting.REPLACE_PLD: its groups follow the places "
            "of rows, so that adding or removing a row is not covered."
        )


def _check_projection(config: LabelProjectionConfig) -> None:
    """Noise is drawn where public rows are, and a label switches the part of one row."""
    noise = config.private_phase.noise
    if not isinstance(noise, IndependentNoise):
        raise ConfigError(
            f"{noise} does not go with label projection, which draws fresh noise where public "
            "rows are; use IndependentNoise(), or DpSgdConfig for other noise."
        )
    unit = config.unit
    if isinstance(unit, UserLevel) and unit.accounting is UserAccounting.CLIPPED_USERS:
        raise ConfigError(
            "accounting=UserAccounting.CLIPPED_USERS does not go with label projection: labels of "
            "one user switch several vectors at once. Use UserAccounting.SEVERAL_ROWS."
        )


def _check_hybrid(config: HybridConfig) -> None:
    """A row moves between cells, and Gaussian noise on their sums needs a delta."""
    if isinstance(config.unit, UserLevel):
        raise ConfigError(
            "unit='user' does not go with method hybrid, which protects each example: the rows of "
            "a user are in many cells. Use method two-phase or dp-sgd to protect users."
        )
    if config.target is not None and config.target.delta == 0:
        raise ConfigError("delta=0.0 is out of reach for noisy sums of cells; choose e.g. 1e-7.")
