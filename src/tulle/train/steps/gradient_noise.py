"""The noise of the sums of private steps, made from the settings that a plan names.

Where steps run is no part of it: see `places`. Adding a kind of noise is a class of settings in
`settings.step_noise`, what draws it, and a line in `start_noise`.
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.run_context import NoiseMemory
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.step_mechanism import StepMechanism
from tulle.train.settings.step_noise import BandedNoise, IndependentNoise, LatticeNoise
from tulle.train.steps.banded import BandedGradientNoise, fitting_memory
from tulle.train.steps.lattice import LatticeGradientNoise
from tulle.train.steps.training_noise import TrainingNoise


class GradientNoise(Protocol):
    """Adds the noise of a run to the sums of each step."""

    @property
    def description(self) -> str:
        """Source of the noise, in words for the card."""
        ...

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Adds the noise of this step to one sum, in place.

        Args:
          name: Name of the sum. Each name comes once a step, always with the same shape.
          values: A float32 or float64 tensor: the clipped sum of a batch.
          stddev: Standard deviation of the Gaussian that is accounted, e.g.
            noise_multiplier * clip_norm. The same in every step.

        Privacy:
          Unit, sensitivity: the caller's. Event: one Gaussian with noise_multiplier =
          stddev / L2 sensitivity of all sums of a step together, on the plan's sampler.
        """
        ...

    def end_step(self) -> None:
        """Ends a step whose sums are complete; the next sums are of the step after it."""
        ...

    def restart(self) -> None:
        """Forgets all earlier noise, where a run goes on from a state."""
        ...


class SumNeeds(NamedTuple):
    """What the noise of the sums of a run is made from."""

    clip_norm: float
    num_steps: int
    """Steps of the whole run; correlated noise is tuned for them."""
    model_bytes: int
    """Size of all trained parameters; it decides what of correlated noise is kept."""
    noise: TrainingNoise
    """Source of fresh normals."""
    rng: NoiseSource
    """Source of all other noise. Sensitive: never log or save its state."""
    memory: NoiseMemory


def start_noise(mechanism: StepMechanism, needs: SumNeeds) -> GradientNoise:
    """Starts the noise of dense sums of a run, step after step.

    Args:
      mechanism: The kind of noise.
      needs: What it is made from.

    Privacy:
      Event: that of the mechanism, on sums that clipping bounded. Relies on: added once a step;
      with several processes the leader adds it to the whole sums.

    Raises:
      ConfigError: The noise is not added to sums.
    """
    if isinstance(mechanism, IndependentNoise):
        return IndependentGradientNoise(needs.noise)
    if isinstance(mechanism, LatticeNoise):
        return LatticeGradientNoise(needs.rng, grid=mechanism.grid(needs.clip_norm))
    if isinstance(mechanism, BandedNoise):
        matrix = BandMatrix(num_bands=mechanism.num_bands, num_steps=needs.num_steps)
        memory = fitting_memory(needs.memory, mechanism.num_bands, needs.model_bytes)
        return BandedGradientNoise(matrix, needs.rng, memory)
    # Rows that are selected get theirs before anything is summed, see `selected`.
    raise ConfigError(f"{mechanism} is not added to sums; choose another noise.")


class IndependentGradientNoise:
    """Fresh noise in every step."""

    def __init__(self, noise: TrainingNoise) -> None:
        self._noise = noise

    @property
    def description(self) -> str:
        """Source of the noise, in words for the card."""
        return self._noise.description

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        """Adds stddev * N(0, 1), independent for each entry, sum and step.

        Args:
          name: Name of the sum; not needed here.
          values: The clipped sum of a batch, changed in place.
          stddev: Standard deviation of the noise on each entry.

        Privacy:
          Event: one Gaussian with noise_multiplier = stddev / L2 sensitivity.
        """
        self._noise.add_to(values, stddev)

    def end_step(self) -> None:
        """Does nothing: nothing is carried from step to step."""

    def restart(self) -> None:
        """Does nothing: nothing is carried from step to step."""
