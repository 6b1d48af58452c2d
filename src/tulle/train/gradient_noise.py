"""The noise of clipped sums, step after step: what a private step asks of it."""

from typing import Protocol

from torch import Tensor

from tulle.train.noise import TrainingNoise


class GradientNoise(Protocol):
    """Adds the noise of a run to the sums of each step."""

    @property
    def description(self) -> str:
        """Where the noise comes from, in words for the card."""
        ...

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Adds the noise of this step to one sum, in place.

        Args:
          name: Of the sum. Each name comes once a step, always with the same shape.
          values: A float32 or float64 tensor: the clipped sum of a batch.
          stddev: Of the Gaussian that is accounted, e.g. noise_multiplier * clip_norm. The
            same in every step.

        Privacy:
          Unit, sensitivity: the caller's. Event: one Gaussian with noise_multiplier =
          stddev / L2 sensitivity of all sums of a step together, on the plan's sampler.
        """
        ...

    def end_step(self) -> None:
        """The sums of a step are complete; the next ones are of the step after it."""
        ...


class IndependentGradientNoise:
    """Fresh noise in every step."""

    def __init__(self, noise: TrainingNoise) -> None:
        self._noise = noise

    @property
    def description(self) -> str:
        """Where the noise comes from, in words for the card."""
        return self._noise.description

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        """Adds stddev * N(0, 1), independent for each entry, sum and step.

        Privacy:
          Event: one Gaussian with noise_multiplier = stddev / L2 sensitivity.
        """
        self._noise.add_to(values, stddev)

    def end_step(self) -> None:
        """Nothing is carried from step to step."""
