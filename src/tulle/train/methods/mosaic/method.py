"""Mosaic, the default method: an additive model of tables of cells, learnt from noisy sums.

A cell is one combination of values of one to three columns. The model adds up one weight for each
table of cells, and the weights come from noisy sums over the cells, without gradients, steps or
batches. While only public columns are used, the noise hides labels alone, which takes less of it;
afterwards it hides whole rows. Each row is protected on its own, and there is nothing to tune but
the target.
"""

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tulle.errors import ConfigError
from tulle.privacy.codec import plain_data
from tulle.privacy.events import Event, Gaussian
from tulle.privacy.fields import canonical_json
from tulle.privacy.plan import Bound
from tulle.train.methods.method import Method, PlanWords, Target, Trained, check_kinds, enforced
from tulle.train.methods.mosaic.cell_settings import CellSettings
from tulle.train.methods.mosaic.cell_sums import LABEL_SENSITIVITY, ROW_SENSITIVITY
from tulle.train.settings.step_mechanism import FLOATING_POINT, StepSampler
from tulle.train.settings.units import DataShape, UnitLevel, UserLevel

if TYPE_CHECKING:
    from tulle.train.training_run import TrainingRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class MosaicConfig(Method):
    """Settings of Mosaic, an additive model of tables of cells; only the target must be chosen."""

    kind: ClassVar[str] = "mosaic"
    protects_users: ClassVar[bool] = False
    has_steps_to_resume: ClassVar[bool] = False
    needs_torch: ClassVar[bool] = False

    cells: CellSettings = dataclasses.field(default_factory=CellSettings)
    """How the noise budget is divided and what tables may be like."""
    unit: UnitLevel | None = None
    """What is protected together; None: a row, if the data have no unit column."""
    target: Target | None = None
    """Epsilon and delta of the guarantee; None until `calibrate` sets them."""

    def __post_init__(self) -> None:
        check_kinds(
            self,
            {
                "cells": (CellSettings, "CellSettings()"),
                "unit": (UnitLevel | None, "ExampleLevel() or UserLevel()"),
                "target": (Target | None, "set by calibrate()"),
            },
        )
        # The proof bounds what one row adds, which is in one cell of each table. The rows of a
        # user are in many. And Gaussian noise has no guarantee with delta = 0.
        if isinstance(self.unit, UserLevel):
            raise ConfigError(
                "unit='user' does not go with method mosaic, which protects each example: the rows "
                "of a user are in many cells. Use method hybrid or dp-sgd to protect users."
            )
        if self.target is not None and self.target.delta == 0:
            raise ConfigError(
                "delta=0.0 is out of reach for noisy sums of cells; choose e.g. 1e-7."
            )

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

    def words(self, shape: DataShape, noise_multiplier: float | None) -> PlanWords:
        """The sentence, settings, bounds and assumptions of a plan of Mosaic."""
        del shape
        return PlanWords(
            sentence=_SENTENCE,
            settings={
                "method": self.kind,
                "cells": canonical_json(plain_data(self.cells)),
                "noise": "shares of one gaussian",
                "noise_arithmetic": FLOATING_POINT,
                "noise_multiplier": noise_multiplier,
                "accounting": self.accounting.value,
            },
            bounds=_BOUNDS,
            assumptions=_ASSUMPTIONS,
        )

    def train(self, run: "TrainingRun") -> Trained:
        """Trains the model, or reads back the one that an earlier try of this run has kept."""
        from tulle.train.methods.mosaic.cell_training import train_on_cells
        from tulle.train.methods.mosaic.trained_cells import TrainedCells
        from tulle.train.steps.normal_stream import expanded_description

        def train() -> TrainedCells:
            model = train_on_cells(run.seen, run.plan, run.context)
            return TrainedCells.of(model, run.plan.shape.features)

        return Trained(run.keep_model(train), expanded_description(run.context.rng))


_SENTENCE = (
    "Rows are grouped into cells by the values of one to three columns. Labels and "
    "predictions are summed over each cell with Gaussian noise, grouping after grouping, "
    "and what the sums differ by corrects the predictions of the cell. Public columns come "
    "first, with noise that hides labels; from the first sensitive column on the noise hides "
    "labels and sensitive columns together. There are no batches: every sum is over all rows."
)
_WEIGHTS = "squares of the weights of a row in all tables of a round add up to at most its share"
_BOUNDS = (
    Bound(
        what="cells of each table that one row adds to",
        limit=1,
        where="a row has one value of each column, and a cell is one combination of values",
    ),
    Bound(
        what="L2 distance of the sums of all tables of a round of share 1 together, before a "
        "sensitive column was used, if the label of one row is replaced",
        limit=LABEL_SENSITIVITY,
        where="labels are 0 or 1; cells and predictions depend on public columns until then; "
        + _WEIGHTS,
    ),
    Bound(
        what="L2 distance of the sums of all tables of a later round of share 1 together, or "
        "of the counts of the values of one sensitive column, if one row is replaced",
        limit=ROW_SENSITIVITY,
        where="rows with high predictions count less, so that what a row adds to both sums "
        "of its cell is bounded together; " + _WEIGHTS,
    ),
)
_ASSUMPTIONS = (
    enforced(
        "All noisy sums and counts together cost one Gaussian release.",
        "each has a share of it, and more noise the smaller the share; one object counts the "
        "shares and refuses to draw once they add up to 1",
    ),
    enforced(
        "Which cells there are tells nothing about sensitive values but by noisy counts.",
        "values of sensitive columns are chosen by counts that have their noise, and every "
        "possible cell of a table gets noise, whether a row is in it or not",
    ),
    enforced(
        "A run that was interrupted releases one model.",
        "nothing that was summed is written before the model is done; it is then kept before "
        "anything else and read back when the run goes on, and never made twice",
    ),
)
