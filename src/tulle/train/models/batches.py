"""Rows as tensors where the model is, and what a model predicts for many of them.

On the CPU rows are gathered as they come; another device holds them all. Predictions and losses
are computed in bounded memory.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.errors import DataError
from tulle.train.examples import ExampleSet, IntArray
from tulle.train.losses import Loss, ReportLoss, loss_of_batch
from tulle.train.models.tower_model import TowerModel

_ROWS_AT_A_TIME = 1 << 15
"""Rows that are predicted together; more would not be faster and take more memory."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExampleBatch:
    """Some rows as tensors. Sensitive: never log or save it."""

    public_ids: Tensor
    sensitive_ids: Tensor | None
    labels: Tensor | None
    report_probs: Tensor | None = None
    """[rows, 2]: see `ExampleSet.report_probs`."""

    def part(self, rows: slice | Tensor) -> "ExampleBatch":
        """Some of the rows, for a step, which needs no probabilities of reports."""
        return ExampleBatch(
            public_ids=self.public_ids[rows],
            sensitive_ids=None if self.sensitive_ids is None else self.sensitive_ids[rows],
            labels=None if self.labels is None else self.labels[rows],
        )


def batch_source(examples: ExampleSet, device: torch.device) -> "BatchSource":
    """A source of batches: it gathers rows as they come on a CPU, and holds all on a device."""
    return _Gathered(examples) if device.type == "cpu" else _Resident(examples, device)


def predict(model: TowerModel, examples: ExampleSet, device: torch.device) -> NDArray[np.float64]:
    """The probability of label 1 for each row.

    Args:
      model: The model, on `device`.
      examples: Rows to predict.
      device: Device to compute on.

    Privacy:
      A prediction depends on the row's own columns, sensitive ones too if the set has
      them: it is for whoever may see the row.
    """
    parts = [
        # In double precision: in single, probabilities near 1 would be tied that are not.
        torch.sigmoid(model.forward(batch.public_ids, batch.sensitive_ids).logits.double()).cpu()
        for batch in _batches(examples, device)
    ]
    return torch.cat(parts).numpy() if parts else np.empty(0)


def mean_loss(
    model: TowerModel, examples: ExampleSet, loss: Loss | ReportLoss, device: torch.device
) -> float:
    """The mean loss over all rows, on the labels of the set.

    Args:
      model: The model, on `device`.
      examples: Rows with labels or reports.
      loss: The loss of each row.
      device: Device to compute on.
    """
    total = 0.0
    for batch in _batches(examples, device):
        if batch.labels is None:
            raise DataError("there are no labels to compute a loss with.")
        logits = model.forward(batch.public_ids, batch.sensitive_ids).logits
        # Summed in double precision: with very many rows a sum of floats would lose the small
        # losses.
        total += float(loss_of_batch(loss, batch).values(logits, batch.labels).double().sum())
    return total / examples.num_rows


def batch_of(examples: ExampleSet, indices: IntArray) -> ExampleBatch:
    """Rows of a set by their place in it, as tensors in the memory of the host."""
    rows = indices if examples.rows is None else examples.rows[indices]
    sensitive, labels = examples.sensitive_features, examples.labels
    probs = examples.report_probs
    return ExampleBatch(
        public_ids=_ids(examples.public_features, rows),
        sensitive_ids=None if sensitive is None else _ids(sensitive, rows),
        labels=None if labels is None else torch.from_numpy(labels[indices]),
        report_probs=None if probs is None else torch.from_numpy(probs[indices]),
    )


class _Gathered:
    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples

    def batch(self, indices: IntArray) -> ExampleBatch:
        return batch_of(self._examples, indices)


class _Resident:
    def __init__(self, examples: ExampleSet, device: torch.device) -> None:
        rows = examples.rows
        sensitive, labels = examples.sensitive_features, examples.labels
        probs = examples.report_probs
        self._device = device
        self._public = _on_device(examples.public_features, rows, device)
        self._sensitive = None if sensitive is None else _on_device(sensitive, rows, device)
        self._labels = None if labels is None else torch.from_numpy(np.array(labels)).to(device)
        self._probs = None if probs is None else torch.from_numpy(np.array(probs)).to(device)

    def batch(self, indices: IntArray) -> ExampleBatch:
        places = torch.from_numpy(indices).to(self._device)
        return ExampleBatch(
            public_ids=self._public[places].long(),
            sensitive_ids=None if self._sensitive is None else self._sensitive[places].long(),
            labels=None if self._labels is None else self._labels[places],
            report_probs=None if self._probs is None else self._probs[places],
        )


BatchSource = _Gathered | _Resident
"""Rows by their place, as tensors on the device of the model."""


def _on_device(ids: NDArray[np.int32], rows: IntArray | None, device: torch.device) -> Tensor:
    # A mapped file is read-only; torch wants an array of its own.
    return torch.from_numpy(np.array(ids if rows is None else ids[rows])).to(device)


def _batches(examples: ExampleSet, device: torch.device) -> Iterator[ExampleBatch]:
    source = batch_source(examples, device)
    for start in range(0, examples.num_rows, _ROWS_AT_A_TIME):
        yield source.batch(np.arange(start, min(start + _ROWS_AT_A_TIME, examples.num_rows)))


def _ids(ids: NDArray[np.int32], rows: IntArray) -> Tensor:
    return torch.from_numpy(ids[rows]).to(torch.int64)
