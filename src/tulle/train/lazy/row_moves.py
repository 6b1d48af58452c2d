"""What a catch-up does to each row: one step of a Kalman filter that sees the weight."""

import dataclasses

import torch
from torch import Tensor

from tulle.train.lazy.age_table import AgeMoments

_SMALLEST = 1e-200


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowMoves:
    """Factors of each row, as columns; all entries of a row go the same way."""

    lost: Tensor | None
    """Share of the weight that decay takes."""
    minus_drift: Tensor
    memory: Tensor
    weight_noise: Tensor
    mean_noise: Tensor
    variance: Tensor
    """[rows]: of the momentum, over noise_stddev^2, once the weight has been seen."""

    @property
    def coefficients(self) -> tuple[Tensor | None, ...]:
        """In the order in which kernels take them."""
        return (self.lost, self.minus_drift, self.memory, self.weight_noise, self.mean_noise)


def row_moves(
    aged: AgeMoments, variance: Tensor, noise_stddev: float, dtype: torch.dtype
) -> RowMoves:
    """The moves of rows from what missed steps do to them; computed in float64.

    Args:
      aged: Of each row; written over.
      variance: [rows]: of the momentum, over noise_stddev^2, given the weights seen so far.
      noise_stddev: Of one step.
      dtype: Of the table.
    """

    def column(values: Tensor) -> Tensor:
        return values.to(dtype).unsqueeze(1)

    variance = variance.double()
    carried = aged.drift * variance
    weight_deviation = aged.weight_variance.addcmul_(aged.drift, carried).sqrt_()
    shared = aged.covariance.addcmul_(aged.memory, carried, value=-1)
    # Where the weight did not move (no step, or rates of 0) it tells nothing: 0 / 0 is 0.
    learned = shared.div_(weight_deviation.clamp(min=_SMALLEST))
    left = aged.momentum_variance.addcmul_(aged.memory.square(), variance)
    left.addcmul_(learned, learned, value=-1).clamp_(min=0)
    return RowMoves(
        lost=None if aged.kept is None else column(1 - aged.kept),
        minus_drift=column(aged.drift.neg_()),
        memory=column(aged.memory),
        weight_noise=column(weight_deviation.mul_(noise_stddev)),
        mean_noise=column(learned.mul_(noise_stddev)),
        variance=left.to(dtype),
    )
