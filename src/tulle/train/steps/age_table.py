"""What any number of missed steps does to one weight, for every number at once.

Between two reads a weight sees noise alone: for n steps of SGD with momentum mu, rates
eta and noise of deviation s, with u = mu times the momentum,

    w -> kept w - drift u + s W,      u -> memory u + s U,

where (W, U) is Gaussian of mean 0. "Now" is the same for all rows, so the five numbers
depend on the age n alone. They are sums over the last 1, 2, 3, ... steps, taken from now
backwards. Sums from the start of the run would need differences, and lose all digits of
the variance where the rate goes to 0: noise would be missing.
"""

import dataclasses
import math

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count, check_finite
from tulle.train.settings.optimizers import check_memory, check_weight_decay

_FORGOTTEN = 1e-18
"""Powers of the momentum below this count as 0; smaller ones would end in slow denormals."""
_BLOCK = 256
"""Long sums are made of sums of this many terms, so that few roundings add up."""
_FIRST_CAPACITY = 4 * _BLOCK  # Whole blocks, as `_sum_of_squares` needs; doubled when full.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgeMoments:
    """What missed steps do, one float64 entry for each age asked for."""

    kept: Tensor | None
    """Share of the weight that decay leaves; None if there is no decay."""
    drift: Tensor
    """How far u = 1 moves the weight."""
    memory: Tensor
    """Share of u that is left."""
    weight_variance: Tensor
    """Variance of W."""
    covariance: Tensor
    """Covariance of W and U; never above 0 unless decay turns signs."""
    momentum_variance: Tensor
    """Variance of U."""


class AgeTable:
    """The clock of a run, and the moments of every age at its present step.

    One table serves all parameters that share momentum, decay and rates. All of it is
    public. It only looks at past rates, so a schedule need not be known beforehand.
    """

    def __init__(
        self,
        *,
        momentum: float,
        weight_decay: float = 0.0,
        step: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Starts at `step`; no row may be older than this."""
        check_memory("momentum", momentum)
        check_weight_decay(weight_decay)
        self._momentum, self._decay, self._device = momentum, weight_decay, device
        self._step = self._first_step = check_count("step", step, least=0)
        # From this age on, memory is 0 and what depends on it changes no more.
        self._horizon = math.ceil(math.log(_FORGOTTEN) / math.log(momentum)) if momentum else 1
        # Ages lie in order and grow to the left: the entry of age 0 is at `start`.
        self._start = _FIRST_CAPACITY - 1
        self._drift = self._zeros(_FIRST_CAPACITY)
        self._kept = self._ones(_FIRST_CAPACITY) if weight_decay else None
        self._memory = self._powers(_FIRST_CAPACITY)
        self._sums: _Sums | None = None

    @property
    def step(self) -> int:
        """The step that has begun and not ended; as many have ended as this says."""
        return self._step

    @property
    def momentum(self) -> float:
        """Share of the momentum that stays in each step."""
        return self._momentum

    def end_step(self, rate: float) -> None:
        """The present step is over; all rows are one step older.

        Args:
          rate: The learning rate of the step that ends.
        """
        if check_finite("rate", rate) < 0:
            raise ConfigError(f"rate={rate} must be >= 0; check learning_rate.")
        if self._start == 0:
            self._grow()
        if self._kept is not None:
            # Decay comes before the step's own move, as in the dense optimizer: the term that is
            # added below is not decayed by its own step.
            left = 1 - rate * self._decay
            self._drift[self._start :].mul_(left)
            self._kept[self._start :].mul_(left)
        # Old noise moves the weight by what is left of it in the momentum. A sum of positive
        # terms, one a step, until it is forgotten.
        recent = self._drift[self._start : self._start + self._horizon]
        recent.add_(self._memory[: len(recent)], alpha=rate)
        self._start -= 1
        self._step += 1
        self._sums = None  # Moments are counted back from now: the kept ones hold no more.

    def forget_past(self) -> None:
        """Drops all ages but 0, for runs of very many steps.

        Only where every row of every parameter that uses the table has just been flushed:
        an older row can't be brought up to date any more.
        """
        self._first_step = self._step
        self._start = len(self._drift) - 1
        self._drift.zero_()
        if self._kept is not None:
            self._kept.fill_(1.0)
        self._sums = None

    def moments(self, ages: Tensor) -> AgeMoments:
        """The moments of these ages (whole numbers of missed steps, up to all steps so far)."""
        sums = self._present_sums()
        recent = ages.clamp(max=len(sums.covariance) - 1)  # Later ones are alike.
        kept = self._kept
        return AgeMoments(
            kept=None if kept is None else kept[self._start :].index_select(0, ages),
            drift=self._drift[self._start :].index_select(0, ages),
            memory=self._memory.index_select(0, recent),
            weight_variance=sums.weight_variance.index_select(0, ages),
            covariance=sums.covariance.index_select(0, recent),
            momentum_variance=sums.momentum_variance.index_select(0, recent),
        )

    def _present_sums(self) -> "_Sums":
        if self._sums is None:
            num_ages = self._step - self._first_step + 1
            num_recent = min(self._horizon + 1, num_ages)
            memory = self._memory[:num_recent]
            drift = self._drift[self._start : self._start + num_recent]
            # U of age n has a term mu^k for each k = 1 ... n; the entry of age 0 adds none.
            squares = memory.square()
            squares[:1].zero_()
            self._sums = _Sums(
                weight_variance=self._sum_of_squares(),
                covariance=torch.cumsum(drift * memory, 0).neg_(),
                momentum_variance=torch.cumsum(squares, 0),
            )
        return self._sums

    def _sum_of_squares(self) -> Tensor:
        # Entries left of age 0 are zero and add nothing.
        first = self._start - self._start % _BLOCK
        blocks = self._drift[first:].square().view(-1, _BLOCK)
        sums = torch.cumsum(blocks, 1)
        sums[1:] += torch.cumsum(sums[:-1, -1], 0).unsqueeze(1)
        return sums.view(-1)[self._start - first :]

    def _grow(self) -> None:
        added = len(self._drift)
        self._drift = torch.cat([self._zeros(added), self._drift])
        if self._kept is not None:
            self._kept = torch.cat([self._ones(added), self._kept])
        self._memory = self._powers(2 * added)
        self._start += added

    def _powers(self, most: int) -> Tensor:
        """mu^n for n = 0, 1, ... as far as needed; 0 at the horizon."""
        num_powers = min(self._horizon + 1, most)
        ages = torch.arange(num_powers, dtype=torch.float64, device=self._device)
        powers = torch.pow(self._momentum, ages)
        powers[self._horizon :].zero_()
        return powers

    def _zeros(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64, device=self._device)

    def _ones(self, size: int) -> Tensor:
        return torch.ones(size, dtype=torch.float64, device=self._device)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Sums:
    weight_variance: Tensor
    covariance: Tensor
    momentum_variance: Tensor


_SMALLEST = 1e-200  # A divisor in place of a deviation of 0, whose dividend is 0, too.


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
    """[rows]: variance of the momentum, divided by noise_stddev^2, once the weight was seen."""

    @property
    def coefficients(self) -> tuple[Tensor | None, ...]:
        """Factors in the order in which kernels take them."""
        return (self.lost, self.minus_drift, self.memory, self.weight_noise, self.mean_noise)


def row_moves(
    aged: AgeMoments, variance: Tensor, noise_stddev: float, dtype: torch.dtype
) -> RowMoves:
    """The moves of rows from what missed steps do to them; computed in float64.

    A catch-up is one step of a Kalman filter that sees the weight.

    Args:
      aged: Moments of what each row has missed; written over.
      variance: [rows]: variance of the momentum, divided by noise_stddev^2, given the weights seen
        so far.
      noise_stddev: Standard deviation of the noise of one step.
      dtype: Type of the numbers of the table.
    """

    def column(values: Tensor) -> Tensor:
        return values.to(dtype).unsqueeze(1)

    # `left` is a difference of variances, which nearly cancel where the weight told much: in single
    # precision noise could vanish.
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
