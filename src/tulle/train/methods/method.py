"""What a training method is: settings, cost, the words of its plan, and how it trains.

One class a method, in a file or folder of its own beside this one. Everything else asks the
method: a plan derives its event and its words from it, a run lets it train, the command line finds
it by its word. Adding a method is a class here and one entry in `catalogue.METHODS`.
"""

import abc
import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.fields import Scalar, check_finite
from tulle.privacy.plan import Assumption, Bound, Status
from tulle.train.settings.models import AnyModel
from tulle.train.settings.phases import LabelPhase, PrivatePhase
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserLevel, chosen_level

if TYPE_CHECKING:
    from tulle.train.examples import TrainingRows
    from tulle.train.methods.mosaic.earlier_model import EarlierModel
    from tulle.train.methods.train_plan import TrainPlan
    from tulle.train.models.tower_model import TowerModel
    from tulle.train.models.trained_towers import TrainedTowers
    from tulle.train.trained_model import TrainedModel
    from tulle.train.training_run import TrainingRun

_MOST_DELTA = 0.01
"""A larger delta would allow to publish one row in a hundred outright."""


class Accounting(enum.Enum):
    """Which account of the private steps sets the noise."""

    REPLACE_PLD = "replace, privacy loss distributions"
    """Sound for the adjacency that is claimed."""
    PAPER_RDP = "add-or-remove, Renyi"
    """The account of the papers, to reproduce them. It says nothing sound about replaced rows."""

    @property
    def word(self) -> str:
        """The word for the account on the command line."""
        return "replace" if self is Accounting.REPLACE_PLD else "paper"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The guarantee a method is calibrated to."""

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


class PlanWords(NamedTuple):
    """What a plan says of itself to a reader who knows neither papers nor code."""

    sentence: str
    settings: dict[str, Scalar]
    """Sampler, clip, noise, steps and all else that decides what runs."""
    bounds: tuple[Bound, ...]
    """Most that one unit adds to each phase."""
    assumptions: tuple[Assumption, ...]
    """What the claims rest on, each with what makes it true."""


class Trained(NamedTuple):
    """A model fresh from training, and how it came about."""

    model: "TrainedModel"
    noise_description: str
    num_private_steps: int = 0
    """Private steps in the weights; all others were charged and lost to interruptions."""


class Method(abc.ABC):
    """A frozen dataclass of public settings that knows how it calibrates, costs and trains."""

    kind: ClassVar[str]
    """The word for the method on the command line, in settings files and on cards."""
    former_kinds: ClassVar[tuple[str, ...]] = ()
    """Words that earlier versions used for it, or that stand for it too."""
    kind_key: ClassVar[str] = "method"
    is_private: ClassVar[bool] = True
    needs_delta: ClassVar[bool] = True
    """False if the guarantee holds with delta 0."""
    needs_public: ClassVar[bool] = False
    """True if the method trains on public columns and can do nothing without them."""
    reads_labels_alone: ClassVar[bool] = False
    """True if no sensitive column is ever read, so that predictions need none either."""
    is_shareable: ClassVar[bool] = False
    """True if several processes can take its private steps together."""

    uses_facts: ClassVar[bool] = False
    """True if public facts about the values of sensitive columns help; else they are ignored."""
    weighs_rows: ClassVar[bool] = False
    """True if rows may count differently, as a public column of weights says."""
    chooses_rows: ClassVar[bool] = True
    """False if all rows of a user take part, so that none have to be chosen."""
    needs_torch: ClassVar[bool] = True
    """False if the method trains and predicts with numpy alone."""
    has_steps_to_resume: ClassVar[bool] = True
    """False if nothing is kept before the model is done, so that there are no checkpoints."""

    options: ClassVar[dict[str, str]] = {"unit": "unit"}
    """Options of the command line, and the setting that each is; see `privacy.options`."""

    unit: UnitLevel | None
    """What is protected together; None: all rows of a user if the data name users, else a row."""
    target: Target | None

    def calibrate(self, *, epsilon: float, delta: float) -> Self:
        """Returns the same settings with a target."""
        # Every method is a dataclass; the abstract class cannot say so.
        changed: Any = dataclasses.replace(self, target=Target(epsilon=epsilon, delta=delta))  # type: ignore[type-var]
        return changed  # type: ignore[no-any-return]

    def with_unit(self, unit: UnitLevel) -> Self:
        """Returns the same settings for another unit."""
        changed: Any = dataclasses.replace(self, unit=unit)  # type: ignore[type-var]
        return changed  # type: ignore[no-any-return]

    def make(self, shape: DataShape) -> "TrainPlan":
        """Returns the plan for data of this shape.

        Raises:
          ConfigError: The method has no target, or one that it cannot meet on such data.
        """
        # A plan is read back with the help of all methods, so this cannot be loaded with them.
        from tulle.train.methods.train_plan import make_train_plan

        return make_train_plan(self, shape)

    @property
    def accounting(self) -> Accounting:
        """The account of the noise: for most methods there is one, sound for replaced rows."""
        return Accounting.REPLACE_PLD

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the labels that it learns; None if they are values from 0 on."""
        return 2

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes that labels are; None if they are 0 and 1, or values."""
        return None

    @property
    def label_epsilon(self) -> float | None:
        """Epsilon of one randomized label; None if labels are not randomized."""
        return None

    def label_steps(self) -> LabelPhase | None:
        """Settings of the steps on randomized labels; None if there are none."""
        return None

    def private_steps(self) -> PrivatePhase | None:
        """Settings of the clipped and noisy steps; None if there are none."""
        return None

    @property
    def fixed_noise(self) -> float | None:
        """The noise multiplier, if the settings give it; None if the target decides it."""
        return None

    def fitted_to(self, shape: DataShape) -> Self:
        """Returns the settings with what was left to the plan: the unit, the size of batches."""
        if not self.is_private:
            return self
        unit = chosen_level(self.unit, shape.columns.unit)
        # Every method is a dataclass; the abstract class cannot say so.
        return dataclasses.replace(self, unit=unit)  # type: ignore[type-var]

    def sampler(self, shape: DataShape) -> StepSampler | None:
        """What draws the batches of private steps; None if there are none."""
        del shape
        return None

    def has_noise(self, shape: DataShape) -> bool:
        """True if a noise multiplier has to be found."""
        return self.sampler(shape) is not None

    def labels_event(self) -> Event | None:
        """What the randomized labels of one unit cost, each drawn once."""
        return None

    @abc.abstractmethod
    def noisy_event(self, sampler: StepSampler | None, noise_multiplier: float) -> Event:
        """What all private steps, or all noisy sums, cost the unit.

        Args:
          sampler: What `sampler` gave, possibly with fewer steps.
          noise_multiplier: Noise standard deviation divided by the sensitivity.
        """

    @abc.abstractmethod
    def reads_sensitive(self, shape: DataShape) -> bool:
        """True if a sensitive column is ever read."""

    @abc.abstractmethod
    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan of this method says of itself."""

    def all_words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """What a plan says of itself and of which sets of values the schema declares public."""
        words = self.words(shape, noise_multiplier)
        known = [feature for feature in shape.features if feature.num_known]
        if not known or not self.reads_sensitive(shape):
            return words
        assumed = " and ".join(_known_words(feature) for feature in known)
        settings: dict[str, Scalar] = {"assumed public": assumed}
        for feature in known:
            settings[f"known values of {feature.name}"] = f"sha256:{feature.known_digest}"
        if not self.uses_facts and any(feature.facts for feature in known):
            settings["facts about values"] = f"not used by method {self.kind}"
        return words._replace(
            sentence=f"{words.sentence} Assumed to be public, as the schema declares: {assumed}.",
            settings={**words.settings, **settings},
            assumptions=(*words.assumptions, _KNOWN),
        )

    def check_steps(self, *, device: str, checkpoint_every: int | None) -> None:
        """Refuses what only methods with steps know, before anything is read or paid.

        Args:
          device: "cpu", or a GPU.
          checkpoint_every: Number of steps between checkpoints; None if nothing was said.

        Raises:
          ConfigError: The method has no steps.
        """
        if self.has_steps_to_resume:
            return
        if checkpoint_every is not None:
            raise ConfigError(
                f"checkpoint_every={checkpoint_every} has no meaning for method {self.kind}, which "
                "keeps every sum that it releases; leave it out."
            )
        if device != "cpu":
            raise ConfigError(
                f"device={device!r} has no meaning for method {self.kind}, which sums on the CPU; "
                "leave it out."
            )

    def continued(self, earlier: "EarlierModel") -> Self:
        """Returns the same settings, to continue from a released model.

        Raises:
          ConfigError: The method cannot continue, or predicts something else than the model.
        """
        self.check_start(earlier)
        return self

    def check_start(
        self, earlier: "EarlierModel | None", features: Sequence[PreparedFeature] | None = None
    ) -> None:
        """Refuses a model to continue from that the settings do not name.

        Args:
          earlier: The model that was handed in; None: there is none.
          features: Features of the rows; None if they are not known yet.

        Raises:
          ConfigError: The method starts from nothing, or from another model.
        """
        del features
        if earlier is not None:
            raise ConfigError(
                f"method {self.kind} cannot continue from a model; leave out "
                "from_model=…, or use method mosaic."
            )

    def check_noise(self, shape: DataShape, noise_multiplier: float | None) -> None:
        """Refuses noise under which nothing can be learnt from data of this shape.

        Raises:
          ConfigError: The budget would be spent on nothing.
        """
        del shape, noise_multiplier

    def remark(self, shape: DataShape, noise_multiplier: float | None) -> str:
        """What a user should know before such a run, for one line; empty if nothing."""
        del shape, noise_multiplier
        return ""

    def check_rows(self, rows: "TrainingRows") -> None:
        """Refuses rows, as they were bounded, that training could not finish with."""
        del rows

    @abc.abstractmethod
    def train(self, run: "TrainingRun") -> Trained:
        """Trains the model of a run that has been planned, checked and paid.

        Privacy:
          Unit, event and guarantee: those of the run's plan.
        """

    def check_shape(self, shape: DataShape) -> None:
        """Refuses data that the method cannot train on.

        Raises:
          ConfigError: There are no public features, no users where those are protected, or weights
            that the method has no use for.
        """
        if self.needs_public and not shape.public_features:
            raise ConfigError(
                f"method {self.kind} trains on public features and there are none; use "
                "MosaicConfig or DpSgdConfig."
            )
        if shape.columns.weight is not None and not self.weighs_rows:
            raise ConfigError(
                f"column {shape.columns.weight!r} says how much each row counts, and for method "
                f"{self.kind} every row counts once; take the weight out of the schema (leave out "
                "sample_weight), or use method mosaic."
            )
        if not isinstance(self.unit, UserLevel):
            return
        if shape.columns.unit is None or shape.num_users is None:
            raise ConfigError(
                "unit='user' needs data with a unit column that says whose each row is; "
                "name it in the schema, or protect each example."
            )
        if shape.vocabulary_event is not None:
            raise ConfigError(
                "the vocabularies of this data were paid for one example, not for one user; "
                "hash sensitive columns instead, or protect each example."
            )


class TowerMethod(Method):
    """A method that trains a model of towers by steps."""

    options: ClassVar[dict[str, str]] = Method.options | {"model": "model"}

    model: AnyModel
    """Settings of the model."""
    initial_seed: int
    """Seed of the first weights, which are public."""

    def build(self, run: "TrainingRun") -> "TowerModel":
        """The model with its first weights, on the device of the run."""
        from tulle.train.models.trained_towers import build_model

        features, device = run.plan.shape.features, run.step_context.device
        return build_model(self.model, features, seed=self.initial_seed, device=device)

    def trained(self, model: "TowerModel", run: "TrainingRun") -> "TrainedTowers":
        """The model with what belongs to it, after training."""
        from tulle.train.models.trained_towers import TrainedTowers

        return TrainedTowers(
            model=model,
            settings=self.model,
            features=run.plan.shape.features,
            is_truncated=not run.plan.reads_sensitive,
            device=run.step_context.device,
        )


def check_kinds(method: Method, kinds: dict[str, tuple[Any, str]]) -> None:
    """Refuses a setting of another type with the words for what it must be."""
    for name, (kind, words) in kinds.items():
        value = getattr(method, name)
        if not isinstance(value, kind):
            raise ConfigError(f"{name}={value!r} must be {words}.")


def enforced(statement: str, evidence: str) -> Assumption:
    """An assumption that the code itself makes true."""
    return Assumption(statement=statement, status=Status.ENFORCED, evidence=evidence)


def _known_words(feature: PreparedFeature) -> str:
    """What is public about the values of a feature, in words."""
    facts = ", ".join(fact.name for fact in feature.facts)
    about = f" and the facts about them ({facts})" if facts else ""
    return f"the set of values of {feature.name}{about}"


_KNOWN = enforced(
    "Known values, and facts about them, come from a table that the schema declares public, and "
    "not from the rows.",
    "the table is read before the rows and is part of schema and plan; one with the label, the "
    "unit or a value twice is refused, and a value of the rows that it lacks counts as other",
)
