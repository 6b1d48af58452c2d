"""The events of training: DP-SGD, label randomization, and both together.

The commands and the training plans build their events here, so that a noise
multiplier that was calibrated is accounted by the same event when it is used.
"""

import dataclasses
import math

from tulle.errors import ConfigError
from tulle.privacy.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    TruncatedPoissonSampled,
)
from tulle.privacy.fields import MOST_COUNTED, check_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSampling:
    """How rows come into the batches of DP-SGD. Every field is public information."""

    num_examples: int
    batch_size: int
    """Expected rows in a batch; exactly that many if `fixed_size`."""
    steps: int
    max_batch_size: int | None = None
    """Truncates larger Poisson batches to this size."""
    fixed_size: bool = False
    max_rows_per_unit: int = 1
    """Most rows that one unit owns."""

    def __post_init__(self) -> None:
        for name in ("num_examples", "batch_size", "steps", "max_rows_per_unit"):
            check_size(name, getattr(self, name))
        if self.max_batch_size is not None:
            check_size("max_batch_size", self.max_batch_size)
        if self.batch_size > self.num_examples:
            raise ConfigError(
                f"batch_size={self.batch_size} must be <= num_examples={self.num_examples}; "
                "lower it or give the right number of examples."
            )
        if self.max_batch_size is not None and self.max_batch_size < self.batch_size:
            raise ConfigError(
                f"max_batch_size={self.max_batch_size} must be >= batch_size={self.batch_size}; "
                "leave at least 6 standard deviations of room."
            )
        if self.fixed_size and (self.max_batch_size is not None or self.max_rows_per_unit > 1):
            raise ConfigError(
                "fixed_size=True goes with neither max_batch_size nor max_rows_per_unit > 1; "
                "use Poisson sampling."
            )

    @property
    def sampling_prob(self) -> float:
        """Probability of one row to enter one batch."""
        return self.batch_size / self.num_examples


def steps_of_epochs(epochs: float, *, num_examples: int, batch_size: int) -> int:
    """Number of batches that make so many passes over the rows.

    Args:
      epochs: Passes over the rows.
      num_examples: Rows of the training data.
      batch_size: Expected rows in a batch.
    """
    if not 0 < epochs < math.inf:
        raise ConfigError(f"epochs={epochs} must be a finite number > 0.")
    steps = epochs * num_examples / batch_size
    if not steps <= MOST_COUNTED:
        raise ConfigError(f"epochs={epochs} are more than {MOST_COUNTED} steps; train for less.")
    return math.ceil(steps)


def dpsgd_event(sampling: BatchSampling, noise_multiplier: float) -> Event:
    """All steps of one DP-SGD run. The noise is relative to one row's clipped gradient."""
    return Repeated(event=_step_event(sampling, noise_multiplier), count=sampling.steps)


def two_phase_event(
    sampling: BatchSampling, noise_multiplier: float, label_epsilon: float
) -> Event:
    """Randomized labels, each row's once, then DP-SGD on the same rows.

    Args:
      sampling: The batches of DP-SGD.
      noise_multiplier: Noise over one row's clipped gradient.
      label_epsilon: Epsilon of the response of one row.
    """
    labels: Event = RandomizedResponse(epsilon=label_epsilon)
    if sampling.max_rows_per_unit > 1:
        labels = Repeated(event=labels, count=sampling.max_rows_per_unit)
    return Composed((labels, dpsgd_event(sampling, noise_multiplier)))


def _step_event(sampling: BatchSampling, noise_multiplier: float) -> Event:
    noise = Gaussian(noise_multiplier=noise_multiplier)
    if sampling.fixed_size:
        return FixedSizeSampled(
            batch_size=sampling.batch_size, num_rows=sampling.num_examples, event=noise
        )
    if sampling.max_batch_size is None:
        return PoissonSampled(
            sampling_prob=sampling.sampling_prob,
            event=noise,
            max_rows_per_unit=sampling.max_rows_per_unit,
        )
    return TruncatedPoissonSampled(
        sampling_prob=sampling.sampling_prob,
        num_rows=sampling.num_examples,
        max_batch_size=sampling.max_batch_size,
        event=noise,
        max_rows_per_unit=sampling.max_rows_per_unit,
    )
