"""A model after training: what it predicts, which columns it looks at, and how it is written."""

import abc
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.format import PreparedFeature
from tulle.errors import DataError
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.train.examples import ExampleSet

if TYPE_CHECKING:
    from tulle.data.features.encoder import Encoder


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel(abc.ABC):
    """Weights with what belongs to them. Each kind of model has a class of its own."""

    features: tuple[PreparedFeature, ...]
    """Features of the data it was trained on; public ones first."""
    is_truncated: bool
    """True if it never looks at a sensitive column."""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Plain data that were written with it, such as the fingerprint of its plan."""
    encoder: "Encoder | Path | None" = None
    """What makes ids of columns, or the folder of its files; None: the model takes ids alone."""

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The word for the kind of model, in its folder and on the command line."""

    @abc.abstractmethod
    def predicted(self, rows: ExampleSet) -> NDArray[np.float64]:
        """The probability of label 1 for each row, whose features are those of the model."""

    @abc.abstractmethod
    def write(self, folder: Path, facts: Mapping[str, object], *, keep_cut: bool = False) -> None:
        """Writes the model into a new folder, see `model_folder`.

        Args:
          folder: Path of the folder, which must not exist.
          facts: Plain data to keep with the model.
          keep_cut: Leave what was written under its hidden name if the export fails half-way.

        Privacy:
          The parameters become public as they are. They must be those of a finished private
          training, with all noise in them; nothing is added here.
        """

    def with_encoder(self, encoder: "Encoder | Path | None") -> Self:
        """Returns the model with what makes ids of columns, which is then written with it."""
        return dataclasses.replace(self, encoder=encoder)

    def predict_proba(self, examples: ExampleSet | PreparedDataset) -> NDArray[np.float64]:
        """The probability of label 1 for each row.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        return self.predicted(self._matching(examples))

    def evaluate(self, examples: ExampleSet | PreparedDataset) -> QualityMetrics:
        """Figures of quality on labelled rows that training has not seen.

        Privacy:
          Figures are exact statistics of these rows, which the guarantee of the training rows
          does not cover: evaluate on rows that may show, and say so on the card.
        """
        rows = self._matching(examples)
        if rows.labels is None:
            raise DataError("the test rows have no label column; name one in the schema.")
        if rows.report_probs is not None:
            raise DataError(
                "the test labels are randomized reports; predict the rows, and give predictions "
                "and reports to tulle.quality.evaluate_on_reports()."
            )
        return evaluate_predictions(rows.labels, self.predicted(rows))

    def _matching(self, examples: ExampleSet | PreparedDataset) -> ExampleSet:
        if isinstance(examples, PreparedDataset):
            examples = ExampleSet.of(examples)
        if examples.features != self.features:
            raise DataError(
                "these rows have other features than the model was trained on; prepare them with "
                "the encoder of the training data (tulle data prepare --like)."
            )
        seen = examples.without_sensitive(examples.labels) if self.is_truncated else examples
        if not seen.fingerprint:  # Rows of a prepared dataset were checked when they were taken.
            seen.check()
        return seen
