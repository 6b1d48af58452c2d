"""Correlated noise of private steps: C^-1 z, with C a band matrix and z independent normals.

What step t adds is xi_t with z_t = sum_k c_k xi_{t-k}. Whoever sees all sums x_t + xi_t sees
as much as from C x + z, one Gaussian of independent noise. A row has its turns `num_bands`
steps apart, so that in C x they meet columns without a row in common, each of norm 1 at
most: every turn is a sampled Gaussian of its own (Choquette-Choo et al. 2023, arXiv
2306.08153), also if x_t depends on what was released before it.

Checkpoints hold no noise. Where a run goes on, the correlation starts again, and that is as
private: C becomes block diagonal, what it loses are entries, so its columns only get shorter
and still have no row in common.
"""

import enum

import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.banded.addressed_normals import AddressedNormals
from tulle.train.banded.band_matrix import BandMatrix, short_inverse

MOST_STORED_BYTES = 8 * 2**30
"""More noise of the past than this is drawn again rather than kept, unless asked for."""

_ENTRIES_AT_A_TIME = 1 << 22


class NoiseMemory(enum.Enum):
    """How correlated noise knows its past. The same noise; changes speed and memory alone."""

    AUTO = "auto"
    """Stored up to 8 GiB."""
    STORED = "stored"
    """The noise of the last `num_bands` - 1 steps is kept: that many times the trained model."""
    REGENERATED = "regenerated"
    """Nothing is kept. Each step draws the normals of hundreds of earlier steps again."""


def fitting_memory(memory: NoiseMemory, num_bands: int, model_bytes: int) -> NoiseMemory:
    """What AUTO comes to for a trained model of this size."""
    if memory is not NoiseMemory.AUTO:
        return memory
    is_small = (num_bands - 1) * model_bytes <= MOST_STORED_BYTES
    return NoiseMemory.STORED if is_small else NoiseMemory.REGENERATED


class BandedGradientNoise:
    """The noise of all steps of a run, one step after the other.

    Sensitive as what it protects: never save it, and make a new one in each process.
    """

    def __init__(self, matrix: BandMatrix, rng: NoiseSource, memory: NoiseMemory) -> None:
        """Takes keys of the normals from `rng`, 256 bits for each sum."""
        if memory is NoiseMemory.AUTO:
            raise ConfigError("memory=AUTO needs the size of the model; use fitting_memory().")
        self._normals = AddressedNormals(rng)
        self.description = f"{rng.description}, correlated over {matrix.num_bands} steps"
        first, *later = matrix.coefficients.tolist()
        self._first = first
        self._past_factors = [-value / first for value in later]
        self._inverse: list[float] | None = None
        if memory is NoiseMemory.REGENERATED:
            inverse, lost = short_inverse(matrix.coefficients, matrix.num_steps)
            self._inverse = (inverse / (1 - lost)).tolist()
        self._past: dict[str, Tensor] = {}
        self._step, self._start = 0, 0
        self._stddevs: dict[str, float] = {}
        self._done: set[str] = set()

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Adds the noise of this step to one sum, in place.

        Args:
          name: Of the sum. Every step has the same sums, each once, of the same shape.
          values: A contiguous float32 or float64 tensor: the clipped sum of a batch.
          stddev: Of z. The same in every step.

        Privacy:
          Unit: the owner of one row; replace. Event: `CyclicPoisson.event` of a Gaussian with
          noise_multiplier = stddev / largest L2 norm of a row's part, and num_bands bands.
          Relies on: batches of `CyclicPoisson` with num_bands groups, and fresh keys.
        """
        self._check(name, stddev)
        self._done.add(name)
        if self._inverse is None:
            self._add_and_store(name, values.detach().view(-1), stddev)
            return
        num_terms = min(len(self._inverse), self._step - self._start + 1)
        terms = [(self._step - k, stddev * self._inverse[k]) for k in range(num_terms)]
        self._normals.add_to(values, name, terms)

    def end_step(self) -> None:
        """The next sums are of the step after this one."""
        if self._done != self._stddevs.keys():
            missing = sorted(self._stddevs.keys() - self._done)[0]
            raise RunStateError(f"a step has no sum {missing!r}, which earlier ones had.")
        self._done.clear()
        self._step += 1

    def restart(self) -> None:
        """Starts the correlation again from the next step, e.g. after a checkpoint was loaded."""
        if self._done:
            raise RunStateError("correlated noise cannot start again within a step.")
        self._start = self._step
        self._past.clear()

    def _check(self, name: str, stddev: float) -> None:
        if name in self._done:
            raise RunStateError(
                f"sum {name!r} has its noise of this step; the same noise again would not hide it."
            )
        if self._stddevs.setdefault(name, stddev) != stddev:
            raise RunStateError(f"the noise of sum {name!r} changed its scale during the run.")

    def _add_and_store(self, name: str, values: Tensor, stddev: float) -> None:
        normals = torch.zeros_like(values)
        self._normals.add_to(normals, name, [(self._step, 1 / self._first)])
        num_kept = len(self._past_factors)
        if num_kept == 0:
            values.add_(normals, alpha=stddev)
            return
        past = self._past.get(name)
        if past is None:
            past = self._past[name] = values.new_zeros(num_kept, len(values))
        newest = self._step % num_kept
        factors = self._factors_by_place(newest).to(past)
        for start in range(0, len(values), _ENTRIES_AT_A_TIME):
            part = slice(start, start + _ENTRIES_AT_A_TIME)
            normals[part] += factors @ past[:, part]
        past[newest] = normals
        values.add_(normals, alpha=stddev)

    def _factors_by_place(self, newest: int) -> Tensor:
        """The factor of each kept step; the oldest is where the newest will be."""
        num_kept = len(self._past_factors)
        ages = [(newest - 1 - place) % num_kept for place in range(num_kept)]
        return torch.tensor([self._past_factors[age] for age in ages], dtype=torch.float64)
