"""Predictions and losses of a model over many rows, in bounded memory."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tulle.errors import DataError
from tulle.quality.metrics import QualityMetrics, evaluate_predictions
from tulle.train.batch_source import batch_source
from tulle.train.examples import ExampleBatch, ExampleSet
from tulle.train.label_losses import ReportLoss, loss_of_batch
from tulle.train.losses import Loss
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.models.tower_model import TowerModel

_ROWS_AT_A_TIME = 1 << 15


def predict(
    model: TowerModel | CellModel, examples: ExampleSet, device: torch.device
) -> NDArray[np.float64]:
    """The chance of label 1 for each row.

    Privacy:
      A prediction depends on the row's own columns, sensitive ones too if the set has
      them: it is for whoever may see the row.
    """
    parts = [
        torch.sigmoid(model.forward(batch.public_ids, batch.sensitive_ids).logits.double()).cpu()
        for batch in _batches(examples, device)
    ]
    return torch.cat(parts).numpy() if parts else np.empty(0)


def evaluate_on_labels(examples: ExampleSet, probabilities: NDArray[np.float64]) -> QualityMetrics:
    """How good predictions are on rows that training has not seen.

    Privacy:
      Figures are exact statistics of these rows, which the guarantee of the training
      rows does not cover: evaluate on rows that may show, and say so on the card.
    """
    if examples.labels is None:
        raise DataError("the test rows have no label column; name one in the schema.")
    if examples.report_probs is not None:
        raise DataError(
            "the test labels are randomized reports; predict the rows, and give predictions and "
            "reports to tulle.quality.evaluate_on_reports()."
        )
    return evaluate_predictions(examples.labels, probabilities)


def mean_loss(
    model: TowerModel, examples: ExampleSet, loss: Loss | ReportLoss, device: torch.device
) -> float:
    """The mean loss over all rows, on the labels of the set."""
    total = 0.0
    for batch in _batches(examples, device):
        if batch.labels is None:
            raise DataError("there are no labels to compute a loss with.")
        logits = model.forward(batch.public_ids, batch.sensitive_ids).logits
        total += float(loss_of_batch(loss, batch).values(logits, batch.labels).double().sum())
    return total / examples.num_rows


def _batches(examples: ExampleSet, device: torch.device) -> Iterator[ExampleBatch]:
    source = batch_source(examples, device)
    for start in range(0, examples.num_rows, _ROWS_AT_A_TIME):
        yield source.batch(np.arange(start, min(start + _ROWS_AT_A_TIME, examples.num_rows)))
