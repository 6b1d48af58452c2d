"""Batches of examples where the model is: gathered from memory, or held on a device."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.train.examples import ExampleBatch, ExampleSet, IntArray


class BatchSource(Protocol):
    """Gives rows by their place."""

    def batch(self, indices: IntArray) -> ExampleBatch:
        """These rows as tensors on the device."""
        ...


def batch_source(examples: ExampleSet, device: torch.device) -> BatchSource:
    """On the CPU rows are gathered as they come; another device holds them all."""
    return _Gathered(examples) if device.type == "cpu" else _Resident(examples, device)


class _Gathered:
    def __init__(self, examples: ExampleSet) -> None:
        self._examples = examples

    def batch(self, indices: IntArray) -> ExampleBatch:
        return self._examples.batch(indices, torch.device("cpu"))


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


def _on_device(ids: NDArray[np.int32], rows: IntArray | None, device: torch.device) -> Tensor:
    # A mapped file is read-only; torch wants an array of its own.
    return torch.from_numpy(np.array(ids if rows is None else ids[rows])).to(device)
