"""A model after training: what it predicts, and which columns it looks at."""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.format import PreparedFeature
from tulle.errors import DataError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.quality.metrics import QualityMetrics
from tulle.train.evaluation import evaluate_on_labels, predict
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.models.tower_model import ModelSettings, TowerModel


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel:
    """Weights with what belongs to them."""

    model: TowerModel | CellModel
    settings: ModelSettings | None
    """That towers were built with; a model of cells has none."""
    features: tuple[PreparedFeature, ...]
    """Of the data it was trained on; public ones first."""
    is_truncated: bool
    """True if it never looks at a sensitive column."""
    device: torch.device
    report_channel: BinaryChannel | None = None
    """Set if the weights predict randomized reports; predictions are turned into those of
    labels by it. One pair of chances."""

    def predict_proba(self, examples: ExampleSet | PreparedDataset) -> NDArray[np.float64]:
        """The chance of label 1 for each row.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        return self._predicted(self._matching(examples))

    def evaluate(self, examples: ExampleSet | PreparedDataset) -> QualityMetrics:
        """Figures of quality on labelled rows, which they do not protect."""
        rows = self._matching(examples)
        return evaluate_on_labels(rows, self._predicted(rows))

    def _predicted(self, rows: ExampleSet) -> NDArray[np.float64]:
        chances = predict(self.model, rows, self.device)
        return chances if self.report_channel is None else self.report_channel.label_probs(chances)

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
