"""Mosaic, the default method: an additive model of tables of cells, learnt from noisy sums.

A cell is one combination of values of one to three columns. The model adds up one weight for each
table of cells, and the weights come from noisy sums over the cells, without gradients, steps or
batches. While only public columns are used, the noise hides labels alone, which takes less of it;
afterwards it hides whole rows. Rows are protected each on its own, or all rows of a user together
(`row_parts`). There is nothing to tune but the target.

The settings are in `CellSettings`. Their defaults were chosen on a part of the training rows of one
real and two synthetic logs, for all epsilons together. Results change little around them: nothing
needs to be tuned to data. Every share is a fraction of the run's one noise budget (`noise_shares`).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Event, Gaussian
from tulle.privacy.fields import Scalar, canonical_json, check_count, check_finite
from tulle.train.methods.method import Method, PlanWords, Target, Trained, check_kinds
from tulle.train.methods.mosaic.earlier_model import (
    EarlierModel,
    StartModel,
    check_earlier,
    check_output,
)
from tulle.train.methods.mosaic.few_rows import check_hope, is_hopeless, warning_of_few
from tulle.train.methods.mosaic.label_parts import check_classes, check_clip
from tulle.train.methods.mosaic.plan_words import (
    ARITHMETIC,
    ASSUMPTIONS,
    CLASSES,
    KNOWN_CLASSES,
    SENTENCE,
    VALUES,
    WEIGHTED,
    bounds_of_sums,
    sentence_of_users,
)
from tulle.train.settings.step_mechanism import StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserLevel

if TYPE_CHECKING:
    from tulle.train.training_run import TrainingRun


RELEASES_FILE = "released-sums.bin"
"""File of a run's folder with the noisy sums that were released, until the model is kept."""
STAGES = ("public_values", "public_pairs", "sensitive_values", "sensitive_pairs", "triples")
"""Names of the stages, in the order in which a run goes through them."""


def stages_of(features: Sequence[PreparedFeature]) -> list[str]:
    """Names of the stages that features allow."""
    roles = {feature.role for feature in features}
    return [name for name in STAGES if name.partition("_")[0] in (*roles, "triples")]


def most_scans(num_stages: int) -> int:
    """Most scans of the rows for one set of tables: two rounds a stage, and the last level."""
    return 2 * num_stages + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageShares:
    """Fraction of the noise budget for each stage, after what counts and levels need is set aside.

    The fractions must add up to 1. Stages that the data do not allow leave theirs to the others.
    """

    public_values: float = 0.30
    """Fraction for tables of one public column."""
    public_pairs: float = 0.10
    """Fraction for tables of two public columns."""
    sensitive_values: float = 0.25
    """Fraction for tables of one sensitive column."""
    sensitive_pairs: float = 0.20
    """Fraction for tables of a sensitive column and another one."""
    triples: float = 0.15
    """Fraction for tables of three columns."""

    def __post_init__(self) -> None:
        _check_parts(self)
        total = math.fsum(getattr(self, name) for name in STAGES)
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ConfigError(f"the shares of the stages add up to {total}, must add up to 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScreeningParts:
    """Fraction of each stage's share that goes to tables that were not measured before.

    The rest goes to all tables that are known to tell something, of this stage or an earlier one.
    """

    public_values: float = 0.15
    """Fraction in the stage of one public column."""
    public_pairs: float = 0.5
    """Fraction in the stage of two public columns."""
    sensitive_values: float = 0.2
    """Fraction in the stage of one sensitive column."""
    sensitive_pairs: float = 0.5
    """Fraction in the stage of a sensitive column and another one."""
    triples: float = 0.4
    """Fraction in the stage of three columns."""

    def __post_init__(self) -> None:
        _check_parts(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellSettings:
    """How Mosaic trains its tables of cells. Every field is public information."""

    stages: StageShares = dataclasses.field(default_factory=StageShares)
    """How the noise budget is divided among the stages of training."""
    screening: ScreeningParts = dataclasses.field(default_factory=ScreeningParts)
    """How the share of each stage is divided between new tables and known ones."""
    level_share: float = 0.0015
    """Least share of the noise budget for the overall rate of labels at the start, and again at
    the end. Small data sets use more."""
    count_share: float = 0.06
    """Largest share of the noise budget for counts of values of all sensitive columns together."""
    most_count_share: float = 0.015
    """Largest share of the noise budget for counts of values of one sensitive column."""
    expected_spreads: tuple[float, float, float] = (0.5, 0.2, 0.15)
    """Guessed standard deviation of log odds between the cells of a table of one, two and three
    columns, before the table has been measured."""
    heredity: tuple[float, float] = (0.6, 1.0)
    """Factors that limit the expected spread of a table of two and three columns: it is at most
    the factor times the least spread that its columns (or its three pairs) showed alone."""
    most_screening_shares: tuple[float, float, float] = (0.03, 0.01, 0.01)
    """Largest share of the noise budget for the first measurement of a table of one, two and three
    columns."""
    least_evidence: float = 0.5
    """Nats of evidence that the cells of a table differ; with less, the table changes nothing."""
    even_evidence: float = 2.0
    """Nats of evidence at which it is as likely that the cells of a table differ as that they do
    not. Changes are multiplied by the probability that they do."""
    max_cells_per_table: int = 1 << 18
    """Most cells of a table. Rare values of a column are merged until a table has no more."""
    num_crossed_pairs: int = 8
    """Number of pairs of columns, those that showed most, that tables of three are made of."""
    full_rows_per_unit: int | None = None
    """Number of rows that a user may have before each of them counts less, where users are
    protected: each of k rows then weighs 1/max(k, this). None: 1, and labels of 0 and 1 are divided
    among the rows of a user where that tells more (`user_labels`)."""
    row_steps: int = 2
    """How often rows adapt the division of their share to the sizes of their cells; 0 lets all
    rows spend alike."""

    def __post_init__(self) -> None:
        for name, kind in _PARTS.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be {kind.__name__}().")
        for name in ("level_share", "count_share", "most_count_share"):
            _check_share(name, getattr(self, name))
        if 2 * self.level_share + self.count_share > _MOST_BESIDE_TABLES:
            raise ConfigError(
                f"level_share={self.level_share} and count_share={self.count_share} leave too "
                f"little for tables: together they may be at most {_MOST_BESIDE_TABLES}."
            )
        for name, length in _LISTS.items():
            numbers = getattr(self, name)
            if len(numbers) != length or not all(
                0 < check_finite(name, one) <= _MOST_FACTOR for one in numbers
            ):
                raise ConfigError(
                    f"{name}={numbers} must be {length} numbers above 0, at most {_MOST_FACTOR}."
                )
        for share in self.most_screening_shares:
            _check_share("most_screening_shares", share)
        for name in ("least_evidence", "even_evidence"):
            if not check_finite(name, getattr(self, name)) >= 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0.")
        check_count("max_cells_per_table", self.max_cells_per_table, least=16)
        check_count("num_crossed_pairs", self.num_crossed_pairs, least=0)
        if self.full_rows_per_unit is not None:
            check_count("full_rows_per_unit", self.full_rows_per_unit)
        check_count("row_steps", self.row_steps, least=0)
        if self.row_steps > _MOST_ROW_STEPS:
            raise ConfigError(f"row_steps={self.row_steps} must be at most {_MOST_ROW_STEPS}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MosaicConfig(Method):
    """Settings of Mosaic, an additive model of tables of cells; only the target must be chosen."""

    kind: ClassVar[str] = "mosaic"
    uses_facts: ClassVar[bool] = True
    weighs_rows: ClassVar[bool] = True
    chooses_rows: ClassVar[bool] = False
    has_steps_to_resume: ClassVar[bool] = False
    needs_torch: ClassVar[bool] = False
    options: ClassVar[dict[str, str]] = Method.options | {
        "clip": "clip",
        "classes": "classes",
        "allow_constant": "allow_constant",
    }

    clip: float | None = None
    """Learn the expected value of labels that are amounts or counts: the largest value that a label
    counts as, chosen without looking at the labels [default: labels are 0 or 1]."""
    rate_share: float | None = None
    """Learn how likely a label is above 0 and how large it is then, each by tables of its own, with
    this fraction of the noise budget for the first [default: both at once]."""
    classes: tuple[str, ...] | None = None
    """Learn the probability of each of these classes, which labels are one of: all of their names,
    said without looking at the labels [default: labels are 0 or 1]."""
    allow_constant: bool = False
    """Train also where rows are so few that no table can be expected to show an effect: the whole
    budget then goes to the overall rate of labels, and the model is a constant."""
    cells: CellSettings = dataclasses.field(default_factory=CellSettings)
    """How the noise budget is divided and what tables may be like."""
    start: StartModel | None = None
    """The released model that training continues from, by its digest; None: from nothing."""
    unit: UnitLevel | None = None
    """What is protected together; None: all rows of a user if the data name users, else a row."""
    target: Target | None = None
    """Epsilon and delta of the guarantee; None until `calibrate` sets them."""

    def __post_init__(self) -> None:
        check_kinds(
            self,
            {
                "cells": (CellSettings, "CellSettings()"),
                "start": (StartModel | None, "StartModel(), made of a model by from_model"),
                "unit": (UnitLevel | None, "ExampleLevel() or UserLevel()"),
                "target": (Target | None, "set by calibrate()"),
                "allow_constant": (bool, "True or False"),
            },
        )
        if self.clip is not None:
            object.__setattr__(self, "clip", check_clip(self.clip))
        if self.rate_share is not None:
            if self.clip is None:
                raise ConfigError(
                    f"rate_share={self.rate_share} divides the budget of two parts of a value, and "
                    "labels are 0 or 1; give clip=… too, or leave it out."
                )
            if not _LEAST_PART <= check_finite("rate_share", self.rate_share) <= 1 - _LEAST_PART:
                raise ConfigError(
                    f"rate_share={self.rate_share} must be from {_LEAST_PART} to {1 - _LEAST_PART}."
                )
        if self.classes is not None:
            if self.clip is not None:
                raise ConfigError(
                    f"clip={self.clip:g} is for labels that are values, and classes are given too; "
                    "leave one of them out."
                )
            object.__setattr__(self, "classes", check_classes(self.classes))
        if isinstance(self.unit, UserLevel) and (bounds := self.unit.bounds_of_rows):
            name, value = next(iter(bounds.items()))
            raise ConfigError(
                f"{name}={value} has no meaning for method mosaic, which uses all rows of a user; "
                "leave it out, or set full_rows_per_unit of its cells."
            )
        # Gaussian noise has no guarantee with delta = 0.
        if self.target is not None and self.target.delta == 0:
            raise ConfigError(
                "delta=0.0 is out of reach for noisy sums of cells; choose e.g. 1e-7."
            )

    @property
    def num_heads(self) -> int:
        """Number of sets of tables that are learnt."""
        if self.classes is not None and len(self.classes) > 2:
            return len(self.classes)
        return 1 if self.rate_share is None else 2

    @property
    def num_classes(self) -> int | None:
        """Two for labels of 0 and 1; None for values up to the clip."""
        if self.classes is not None:
            return len(self.classes)
        return 2 if self.clip is None else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes that labels are; None if they are 0 and 1, or values."""
        return self.classes

    def has_noise(self, shape: DataShape) -> bool:
        """True: every sum of Mosaic has noise, whatever the data are."""
        del shape
        return True

    def noisy_event(self, sampler: StepSampler | None, noise_multiplier: float) -> Event:
        """What all noisy sums together cost: each has a share of this one Gaussian."""
        if sampler is not None:
            raise ConfigError(f"sampler={sampler} has no meaning for mosaic, which has no batches.")
        # The sensitivities of the sums are distances between neighbours that replace a row, so
        # the accountant must not double them.
        return Gaussian(noise_multiplier=noise_multiplier, replace_factor=1.0)

    def reads_sensitive(self, shape: DataShape) -> bool:
        """True if the data have sensitive columns: Mosaic uses all that there are."""
        return shape.has_sensitive

    def learns_rate_alone(self, shape: DataShape, noise_multiplier: float) -> bool:
        """True if a constant was allowed and no more can be expected of such data."""
        # The levels of many classes have a fixed share each: nothing is won by asking for less.
        are_many = self.num_heads > 2 or self.start is not None
        return self.allow_constant and not are_many and is_hopeless(shape, noise_multiplier)

    def check_noise(self, shape: DataShape, noise_multiplier: float | None) -> None:
        """Refuses noise under which the model would be a constant that nobody asked for."""
        if noise_multiplier and self.target and not (self.allow_constant or self.start):
            check_hope(shape, noise_multiplier, self.target.delta)

    def remark(self, shape: DataShape, noise_multiplier: float | None) -> str:
        """What to know beforehand where rows are few for the noise; empty where they are not."""
        if not (noise_multiplier and self.target) or self.start is not None:
            return ""
        return warning_of_few(shape, noise_multiplier, self.target.delta)

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """The sentence, settings, bounds and assumptions of a plan of Mosaic."""
        are_users, weight = isinstance(self.unit, UserLevel), shape.columns.weight
        weighted = "" if weight is None else WEIGHTED.format(weight)
        values = "" if self.clip is None else VALUES.format(clip=self.clip)
        labels: dict[str, Scalar] = {} if self.clip is None else {"clip": self.clip}
        if self.classes is not None:
            labels = {"classes": canonical_json(list(self.classes))}
            if self.num_heads > 2:
                values = CLASSES.format(number=self.num_heads)
        start, divided = self.start, self._may_divide_labels
        continued = "" if start is None else start.sentence
        few = self.remark(shape, noise_multiplier)
        return PlanWords(
            sentence=SENTENCE
            + values
            + (
                sentence_of_users(self.cells.full_rows_per_unit, divided=divided)
                if are_users
                else ""
            )
            + weighted
            + continued,
            settings={
                "method": self.kind,
                **labels,
                "cells": canonical_json(plain_data(self.cells)),
                "noise": "shares of one gaussian",
                "noise_arithmetic": ARITHMETIC,
                "noise_multiplier": noise_multiplier,
                "accounting": self.accounting.value,
                "most_scans": self.num_heads * most_scans(len(stages_of(shape.features))),
                **({} if weight is None else {"row_weights": f"{weight}, over the largest"}),
                **({} if start is None else start.settings),
                **({"few_rows": few} if few else {}),
            },
            bounds=bounds_of_sums(
                are_users=are_users,
                weight=weight,
                clip=self.clip,
                num_heads=self.num_heads,
                divided=divided,
            ),
            assumptions=(
                *ASSUMPTIONS,
                *(() if self.classes is None else (KNOWN_CLASSES,)),
                *(() if start is None else start.assumptions),
            ),
        )

    def continued(self, earlier: EarlierModel) -> Self:
        """Returns the same settings, to continue from a released model of the same output."""
        check_output(
            earlier.model,
            clip=self.clip,
            num_heads=self.num_heads,
            has_classes=self.classes is not None,
        )
        return dataclasses.replace(self, start=earlier.start)

    def check_start(
        self, earlier: EarlierModel | None, features: Sequence[PreparedFeature] | None = None
    ) -> None:
        """Refuses another model to continue from than the one that the settings name."""
        check_earlier(self.start, earlier, features)

    @property
    def _may_divide_labels(self) -> bool:
        """True if labels of a user may be divided: some labels are 0 and 1, and nobody objected."""
        are_labels = self.clip is None or self.rate_share is not None
        return self.cells.full_rows_per_unit is None and are_labels and self.num_heads <= 2

    def train(self, run: "TrainingRun") -> Trained:
        """Trains the model, or reads back the one that an earlier try of this run has kept."""
        from tulle.train.methods.mosaic.cell_training import train_on_cells
        from tulle.train.methods.mosaic.kept_releases import KeptReleases
        from tulle.train.methods.mosaic.trained_cells import TrainedCells

        path = None if run.folder is None else run.folder.path_of(RELEASES_FILE)

        def train() -> TrainedCells:
            kept = None if path is None else KeptReleases(path)
            model = train_on_cells(run.seen, run.plan, run.context, run.options.earlier, kept)
            return TrainedCells.of(model, run.plan.shape.features)

        model = run.keep_model(train)
        if path is not None:
            path.unlink(missing_ok=True)
        return Trained(model, run.context.rng.description)


_PARTS: dict[str, type[StageShares] | type[ScreeningParts]] = {
    "stages": StageShares,
    "screening": ScreeningParts,
}
_LEAST_PART = 0.1
"""Least fraction of the budget for either part of a value: with less it could not be learnt."""
_MOST_BESIDE_TABLES = 0.5
"""Largest sum of count_share and twice level_share: the rest of the budget is for tables."""
_MOST_FACTOR = 100.0
"""Largest spread or factor that is accepted. Useful ones are near 1; more is a typing error."""
_MOST_ROW_STEPS = 10
"""Largest number of adaptations of what rows spend; more makes the division worse, not better."""
# One number for tables of one, two and three columns; tables of one column have nothing to inherit.
_LISTS = {"expected_spreads": 3, "heredity": 2, "most_screening_shares": 3}


def _check_parts(parts: StageShares | ScreeningParts) -> None:
    for name in STAGES:
        if not 0 <= check_finite(name, getattr(parts, name)) <= 1:
            raise ConfigError(f"{name}={getattr(parts, name)} must be from 0 to 1.")


def _check_share(name: str, share: float) -> None:
    if not 0 < check_finite(name, share) <= 0.5:
        raise ConfigError(f"{name}={share} must be above 0, at most 0.5.")
