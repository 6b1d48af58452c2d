"""Correlated noise of private steps: C^-1 z, with C a band matrix and z independent normals.

Step t adds noise xi_t to its sum x_t, with z_t = sum_k c_k xi_{t-k}. All sums x_t + xi_t together
show as much as C x + z, which is one Gaussian mechanism with independent noise. A row of the data
has its turns `num_bands` steps apart. The columns of C that belong to these steps are nonzero in
different rows of C, and each has norm 1 at most, so every turn is a sampled Gaussian of its own
(Choquette-Choo et al. 2023, arXiv 2306.08153). This holds also if x_t depends on what was released
before it.

Checkpoints hold no noise. Where a run goes on from one, the correlation starts again, and that is
as private: C becomes block diagonal, which only sets entries to 0, so its columns get shorter and
still have no row in common.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.train.run_context import NoiseMemory
from tulle.train.settings.band_matrix import BandMatrix, short_inverse
from tulle.train.steps.normal_stream import Floats, NormalStream, SecretNoise
from tulle.train.steps.training_noise import check_noisy_tensor

_NUM_WORDS = 4
"""Secret words of 64 bits for each name: two of key and two that start the counter."""
_CHUNK = 1 << 18
"""Entries of a chunk on a CPU. The chunk is part of the address of a normal, so that another size
would change which normal an entry gets."""
_CHUNK_ON_DEVICE = 1 << 24
"""Entries of a chunk on another device, with the same meaning."""
# torch moves on by 4 for each round of its threads. One block of threads makes 512 normals in a
# round, so a chunk moves on by 2^17 at most.
_OFFSETS_PER_CHUNK = 1 << 20
"""Distance in the stream between the starts of two chunks, which must not overlap."""
_MOST_OFFSETS = 1 << 62
"""Largest offset that is used in a stream; a step beyond it is refused."""
# Words of a counter have 64 bits. Addition that wraps around keeps different steps apart.
_WORD_SIZE = 1 << 64
# Threads are started anew for every sum, so that more of them cost time. Normals go by their
# address: how many threads draw them changes nothing.
_MOST_THREADS = 8

Terms = Sequence[tuple[int, float]]
"""Steps, and the factor of the normals of each."""


class AddressedNormals(SecretNoise):
    """The normals of one run, by address: name and step always give the same ones.

    So noise of the past can be drawn again rather than kept. On a CPU each name has a secret
    key of its own for numpy's Philox 4x64, and step and chunk are words of its counter. On a
    GPU each name has a secret seed, and step and chunk say where in its stream to start. Make one
    object for each run and process.
    """

    def __init__(self, rng: NoiseSource) -> None:
        """Takes 256 bits from `rng` for each name."""
        super().__init__()
        self._rng = rng
        self._keys: dict[str, Words] = {}

    def add_to(self, values: Tensor, name: str, terms: Terms) -> None:
        """Adds the sum of factor * N(0, 1) over steps, in place.

        The same name, step, type and size give the same normals on the same device.

        Args:
          values: A contiguous float32 or float64 tensor.
          name: Name of the tensor, which has a key of its own.
          terms: Steps from 0 on, each with its factor.

        Privacy:
          Normals of different names or steps are independent, and independent of all else.
          Relies on: the keys staying secret.
        """
        self.check_own_process()
        _check_tensor(values)
        key = self._key(name)
        flat = values.detach().view(-1)
        if flat.device.type == "cpu":
            _add_on_cpu(flat.numpy(), key, terms)
        else:
            _add_on_device(flat, key, terms)

    def _key(self, name: str) -> Words:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = self._rng.words(_NUM_WORDS)
        return key


def device_offset(step: int, chunk: int, num_chunks: int) -> int:
    """Offset in the stream of its tensor at which a chunk of a step starts. No two overlap.

    Args:
      step: Number of the step, from 0 on.
      chunk: Number of the chunk within the tensor, from 0 on.
      num_chunks: Number of chunks of the tensor.

    Raises:
      ConfigError: The step is beyond what one stream can address.
    """
    offset = (step * num_chunks + chunk) * _OFFSETS_PER_CHUNK
    if offset >= _MOST_OFFSETS:
        raise ConfigError(f"step={step} is beyond what one stream of normals can address.")
    return offset


def _add_on_cpu(values: Floats, key: Words, terms: Terms) -> None:
    starts = range(0, values.size, _CHUNK)

    def add(start: int) -> None:
        _add_chunk(values[start : start + _CHUNK], key, start // _CHUNK, terms)

    if len(starts) <= 1:
        for start in starts:
            add(start)
        return
    # numpy releases the interpreter lock while it draws, so threads run side by side.
    with ThreadPoolExecutor(min(_MOST_THREADS, torch.get_num_threads())) as pool:
        list(pool.map(add, starts))


def _add_chunk(values: Floats, key: Words, chunk: int, terms: Terms) -> None:
    for step, factor in terms:
        # The step is added to a secret word: every address still has a counter of its own, and an
        # outsider does not know where the counter starts.
        counter = [0, chunk, (int(key[2]) + step) % _WORD_SIZE, int(key[3])]
        generator = np.random.Philox(key=key[:2], counter=np.array(counter, np.uint64))
        NormalStream(generator).add_to(values, factor)


def _add_on_device(values: Tensor, key: Words, terms: Terms) -> None:
    stream = torch.Generator(values.device).manual_seed(int(key[0]))
    num_chunks = -(-len(values) // _CHUNK_ON_DEVICE)
    for chunk in range(num_chunks):
        start = chunk * _CHUNK_ON_DEVICE
        part = values[start : start + _CHUNK_ON_DEVICE]
        normals = torch.empty_like(part)
        for step, factor in terms:
            stream.set_offset(device_offset(step, chunk, num_chunks))
            part.add_(normals.normal_(generator=stream), alpha=factor)


def _check_tensor(values: Tensor) -> None:
    check_noisy_tensor(values)
    if not values.is_contiguous():
        raise ConfigError("noise needs a contiguous tensor; use .contiguous() first.")


MOST_STORED_BYTES = 8 * 2**30
"""Bytes of past noise that AUTO keeps at most; more is drawn again in every step."""

_ENTRIES_AT_A_TIME = 1 << 22
"""Entries of past noise that are combined together, so that temporary memory stays small."""


def fitting_memory(memory: NoiseMemory, num_bands: int, model_bytes: int) -> NoiseMemory:
    """How past noise is known: what was asked for, or what AUTO means for a model of this size.

    Args:
      memory: The choice of the user; anything but AUTO is returned as it is.
      num_bands: Number of bands; noise of one step fewer is kept.
      model_bytes: Bytes of all trained parameters.
    """
    if memory is not NoiseMemory.AUTO:
        return memory
    is_small = (num_bands - 1) * model_bytes <= MOST_STORED_BYTES
    return NoiseMemory.STORED if is_small else NoiseMemory.REGENERATED


class BandedGradientNoise:
    """The noise of all steps of a run, one step after the other.

    It is as sensitive as what it protects: never save it, and make a new one in each process.
    """

    def __init__(self, matrix: BandMatrix, rng: NoiseSource, memory: NoiseMemory) -> None:
        """Takes keys of the normals from `rng`, 256 bits for each sum.

        Args:
          matrix: The band matrix C.
          rng: Source of the keys. Sensitive: never log or save its state.
          memory: STORED to keep the noise of the last steps, REGENERATED to draw it again.
        """
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
            # The inverse is cut where little is left. Noise that is larger by 1 / (1 - lost) makes
            # up for it, see `short_inverse`.
            self._inverse = (inverse / (1 - lost)).tolist()
        self._past: dict[str, Tensor] = {}
        self._step, self._start = 0, 0
        self._stddevs: dict[str, float] = {}
        self._done: set[str] = set()

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        """Adds the noise of this step to one sum, in place.

        Args:
          name: Name of the sum. Every step has the same sums, each once, of the same shape.
          values: A contiguous float32 or float64 tensor: the clipped sum of a batch.
          stddev: Standard deviation of each entry of z, the same in every step.

        Privacy:
          Unit: the owner of one row; replace. Event: `CyclicPoisson.event` of a Gaussian with
          noise_multiplier = stddev / largest L2 norm of a row's part, and num_bands bands.
          Relies on: batches of `CyclicPoisson` with num_bands groups, and fresh keys.
        """
        self._check(name, stddev)
        # Noted before noise is drawn: after an error halfway nobody may add the same normals again.
        self._done.add(name)
        if self._inverse is None:
            self._add_and_store(name, values.detach().view(-1), stddev)
            return
        # Steps before a restart are of another block of C, and none of their noise is taken back.
        num_terms = min(len(self._inverse), self._step - self._start + 1)
        terms = [(self._step - k, stddev * self._inverse[k]) for k in range(num_terms)]
        self._normals.add_to(values, name, terms)

    def end_step(self) -> None:
        """Ends the step: the next sums belong to the step after it."""
        if self._done != self._stddevs.keys():
            missing = sorted(self._stddevs.keys() - self._done)[0]
            raise RunStateError(f"a step has no sum {missing!r}, which earlier ones had.")
        self._done.clear()
        self._step += 1

    def restart(self) -> None:
        """Starts the correlation again from the next step, e.g. after a checkpoint was loaded."""
        if self._done:
            raise RunStateError("correlated noise cannot start again within a step.")
        # The step goes on counting: a number that came twice would give the same normals twice.
        self._start = self._step
        self._past.clear()

    def _check(self, name: str, stddev: float) -> None:
        if name in self._done:
            raise RunStateError(
                f"sum {name!r} has its noise of this step; the same noise again would not hide it."
            )
        # Noise takes back noise of earlier steps, which fits only if all of it has one scale.
        if self._stddevs.setdefault(name, stddev) != stddev:
            raise RunStateError(f"the noise of sum {name!r} changed its scale during the run.")

    def _add_and_store(self, name: str, values: Tensor, stddev: float) -> None:
        """Solves C xi = z for the newest xi by forward substitution, and keeps it."""
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
        # Kept in units of z, before it is scaled: the recursion is over these.
        past[newest] = normals
        values.add_(normals, alpha=stddev)

    def _factors_by_place(self, newest: int) -> Tensor:
        """The factor of each kept step. They are kept in a ring: the newest replaces the oldest."""
        num_kept = len(self._past_factors)
        ages = [(newest - 1 - place) % num_kept for place in range(num_kept)]
        return torch.tensor([self._past_factors[age] for age in ages], dtype=torch.float64)
