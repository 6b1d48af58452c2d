"""The noise of the sums of private steps: fresh normals, or normals on a lattice.

Where steps run is no part of it: see `places`. Adding a kind of noise is a class of settings in
`settings.step_noise`, what draws it, and a line in `places.sum_noise`.
"""

import math

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import MAX_SCALE
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.privacy.fields import check_finite
from tulle.train.steps.banded import BandedGradientNoise
from tulle.train.steps.training_noise import TrainingNoise, check_noisy_tensor


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


_MOST_STEPS = 2.0**62
"""Largest sum in grid widths: up to here sums and their noise are exact in 64-bit integers. Larger
sums are refused."""
_LEAST_NOISE = 1e-3
"""Least standard deviation of the noise in grid widths; with less, nearly all rounded noise would
be 0."""
_CHUNK_ON_CPU = 1 << 18
"""Entries that get their noise together on a CPU, to bound temporary memory."""
_CHUNK_ON_DEVICE = 1 << 24
"""Entries that get their noise together on another device."""


class LatticeGradientNoise:
    """The noise of clipped sums, step after step, on one lattice.

    The gaps between floats depend on the sum that they are added to, so with float noise the
    low-order bits of a released number can rule out a sum (Mironov 2012; Haney et al. 2022). Here
    the clipped sum s is rounded to a multiple of a grid width g, and the noise is g * round(z / g)
    for a normal z. As s is on the grid, s + g * round(z / g) = g * round((s + z) / g): what is
    released is the output of the continuous Gaussian mechanism, rounded, which is post-processing.
    So the event stays that of the Gaussian, and whatever the sum is, every multiple of g can come
    out.

    One gap remains: gradients are added up in floats before they come here, so one unit may move a
    sum by its clipped gradient plus the rounding errors of that addition. The grid does not bound
    those; the slack of clipping is for the rounding to the grid.

    On a CPU the noise is the exactly rounded normal of tulle.mechanisms, so that its distribution
    is exact and not only its support. On a GPU it is a rounded float64 normal: the support
    is the same, and the distribution is right to the precision of float64.
    """

    def __init__(self, rng: NoiseSource, *, grid: float) -> None:
        """Takes random bits from `rng` itself, 64 of them for each entry on a CPU.

        Args:
          rng: Source of the noise. Sensitive: never log or save its state.
          grid: Width of the lattice, from `lattice_grid`.
        """
        mantissa, _ = math.frexp(check_finite("grid", grid))
        if mantissa != 0.5:
            raise ConfigError(
                f"grid={grid} must be a power of two: other multiples are not exact in floats. "
                "Take it from lattice_grid()."
            )
        self._rng, self._grid = rng, grid
        self._device_noise: TrainingNoise | None = None

    @property
    def description(self) -> str:
        """Source of the noise, in words for the card."""
        return (
            f"{self._rng.description}, normals on a lattice: rounded exactly on a CPU; float64 "
            "normals expanded by Philox (fast, not cryptographic) and rounded on a GPU"
        )

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Rounds a sum to the grid and adds rounded normals, in place.

        Args:
          name: Name of the sum, for messages.
          values: A float32 or float64 tensor. Holds multiples of the grid afterwards. A number
            that the dtype cannot hold exactly becomes the nearest one that it can.
          stddev: Standard deviation of the normals before they are rounded.

        Raises:
          RunStateError: An entry is NaN, infinite, or too large to be exact. Clipping allows
            none of these, so the error tells nothing about any unit.

        Privacy:
          Unit: the caller's. L2 sensitivity: the caller's plus the slack of the grid. Event: one
          Gaussian with noise_multiplier = stddev / that sum. Relies on: `values` as floats
          are what the caller's sensitivity says.
        """
        check_noisy_tensor(values)
        noise_in_steps = self._noise_in_steps(stddev)
        if not values.numel():
            return
        # The whole sum, before its first part is changed: no part may be released if another cannot
        # be.
        self._check_range(name, values)
        flat = values.detach().reshape(-1)
        size = _CHUNK_ON_CPU if flat.device.type == "cpu" else _CHUNK_ON_DEVICE
        for chunk in torch.split(flat, size):
            # Dividing by a power of two is exact, and whole numbers up to 2^62 fit into int64
            # together with their noise.
            steps = chunk.double().div_(self._grid).round_().long()
            steps += self._rounded_normals(len(steps), noise_in_steps, flat.device)
            chunk.copy_(steps.double().mul_(self._grid))
        # A tensor that is not contiguous was copied by `reshape`.
        if flat.data_ptr() != values.data_ptr():
            values.detach().copy_(flat.view(values.shape))

    def end_step(self) -> None:
        """Does nothing: nothing is carried from step to step."""

    def restart(self) -> None:
        """Does nothing: nothing is carried from step to step."""

    def _rounded_normals(self, num_draws: int, stddev: float, device: torch.device) -> Tensor:
        if device.type == "cpu":
            return torch.from_numpy(sample_rounded_normal(stddev, num_draws, rng=self._rng))
        if self._device_noise is None:
            self._device_noise = TrainingNoise(self._rng)
        # With 24 bits the noise is some 2^24 grid widths large, where normals in single precision
        # would skip grid points.
        normals = torch.zeros(num_draws, dtype=torch.float64, device=device)
        self._device_noise.add_to(normals, stddev)
        return normals.round_().long()

    def _noise_in_steps(self, stddev: float) -> float:
        in_steps = check_finite("stddev", stddev) / self._grid
        if not _LEAST_NOISE <= in_steps <= MAX_SCALE:
            raise ConfigError(
                f"noise of stddev={stddev} is {in_steps:.3g} grid widths; it must be from "
                f"{_LEAST_NOISE:g} to {MAX_SCALE:.3g}. Choose other bits for the lattice."
            )
        return in_steps

    def _check_range(self, name: str, values: Tensor) -> None:
        # Written so that NaN is refused, too: a comparison with NaN is false.
        largest = float(torch.linalg.vector_norm(values.detach(), ord=math.inf))
        if not largest / self._grid <= _MOST_STEPS:
            raise RunStateError(
                f"the sum of {name!r} has entries that are no numbers, or beyond 2^62 grid widths "
                "of the lattice; clipped sums never are. Lower bits or the batch size."
            )


GradientNoise = IndependentGradientNoise | LatticeGradientNoise | BandedGradientNoise
"""Noise of a run, added to the sums of each step in place.

`add_to_sum` gets each sum by its name, which comes once a step and always with the same shape, and
the standard deviation of the Gaussian that is accounted, the same in every step. The event is one
Gaussian with noise_multiplier = stddev / L2 sensitivity of all sums of a step together.
"""
