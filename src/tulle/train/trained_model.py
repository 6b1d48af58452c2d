"""A model after training: what it predicts, and which columns it looks at."""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.format import PreparedFeature
from tulle.errors import DataError
from tulle.train.evaluation import evaluate, predict
from tulle.train.examples import ExampleSet
from tulle.train.metrics import QualityMetrics
from tulle.train.models.tower_model import ModelSettings, TowerModel


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel:
    """Weights with what belongs to them."""

    model: TowerModel
    settings: ModelSettings
    features: tuple[PreparedFeature, ...]
    """Of the data it was trained on; public ones first."""
    is_truncated: bool
    """True if it never looks at a sensitive column."""
    device: torch.device

    def predict_proba(self, examples: ExampleSet | PreparedDataset) -> NDArray[np.float64]:
        """The chance of label 1 for each row.

        Privacy:
          A prediction depends on the row's own columns: it is for whoever may see the row.
        """
        return predict(self.model, self._matching(examples), self.device)

    def evaluate(self, examples: ExampleSet | PreparedDataset) -> QualityMetrics:
        """Figures of quality on labelled rows, which they do not protect."""
        return evaluate(self.model, self._matching(examples), self.device)

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
