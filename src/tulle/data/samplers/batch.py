"""What a sampler hands to one training step, and what every sampler offers."""

import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event

IntArray = NDArray[np.int64]
WeightArray = NDArray[np.float32]

PADDING_INDEX = 0
"""Row that padding points at: it can always be gathered, and its weight is zero."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """The rows of one step. Who is in it is secret: never log, save or release it."""

    indices: IntArray
    """Rows in ascending order, then padding, which points at row 0."""
    weights: WeightArray
    """1 for a row of the batch, 0 for padding. A gradient that is not finite stays so
    when it is multiplied by 0: select by weight instead."""
    expected_size: float
    """Expected number of rows, public and the same in every step: divide by this."""

    def __post_init__(self) -> None:
        if self.indices.shape != self.weights.shape or self.indices.ndim != 1:
            raise ConfigError(
                f"indices of shape {self.indices.shape} and weights of shape "
                f"{self.weights.shape} must be two vectors of the same length."
            )

    @property
    def num_sampled(self) -> int:
        """Rows in the batch without padding. Secret, and never a divisor.

        Given its size, a Poisson batch is a uniform batch of fixed size, which
        costs several times more: a mean over the drawn size gives that away.
        """
        return int(np.count_nonzero(self.weights))

    def __repr__(self) -> str:
        return f"Batch(expected_size={self.expected_size})"


class Sampler(Protocol):
    """Settings that know both their batches and what all steps on them cost."""

    @property
    def steps(self) -> int:
        """Number of batches."""

    @property
    def expected_size(self) -> float:
        """Expected rows in a batch; public."""

    @property
    def physical_size(self) -> int | None:
        """Length of every batch with its padding; None if it varies."""

    def event(self, noise: Event) -> Event:
        """What all steps cost if each of them releases `noise`."""

    def batches(self, rng: NoiseSource, *, first_step: int = 0) -> Iterator[Batch]:
        """The batches from `first_step` on.

        Privacy:
          Which rows come is secret: the amplification that `event` counts relies on it.
        """


def padded_batch(rows: IntArray, physical_size: int, expected_size: float) -> Batch:
    """A batch of fixed length: the rows, then padding of weight zero.

    Args:
      rows: Rows that were drawn, at most `physical_size`.
      physical_size: Length of the batch with its padding.
      expected_size: Public divisor of sums over the batch, the same in every step.
    """
    indices = np.full(physical_size, PADDING_INDEX, np.int64)
    indices[: rows.size] = rows
    weights = np.zeros(physical_size, np.float32)
    weights[: rows.size] = 1
    return Batch(indices=indices, weights=weights, expected_size=expected_size)


def unpadded_batch(rows: IntArray, expected_size: float) -> Batch:
    """A batch that is as long as it has rows."""
    return Batch(indices=rows, weights=np.ones(rows.size, np.float32), expected_size=expected_size)
