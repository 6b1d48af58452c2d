"""Standard normals that have an address: name and step always give the same ones.

So noise of the past can be drawn again rather than kept. On a CPU each name has a secret
key of its own for numpy's Philox 4x64, and step and chunk are words of its counter. On a
GPU each name has a secret seed, and step and chunk say where in its stream to start.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.train.noise import SecretNoise, check_noisy_tensor
from tulle.train.normal_stream import Floats, NormalStream

_NUM_WORDS = 4
_CHUNK = 1 << 18
_CHUNK_ON_DEVICE = 1 << 24
# torch moves on by 4 for each round of its threads. One block of threads makes 512 normals in a
# round, so a chunk moves on by 2^17 at most.
_OFFSETS_PER_CHUNK = 1 << 20
_MOST_OFFSETS = 1 << 62
_WORD_SIZE = 1 << 64
_MOST_THREADS = 8

Terms = Sequence[tuple[int, float]]
"""Steps, and the factor of the normals of each."""


class AddressedNormals(SecretNoise):
    """The normals of one run. One object a run and a process."""

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
          name: Of the tensor.
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
    """Where in the stream of its tensor a chunk of a step starts. No two overlap."""
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
    # numpy lets go of the interpreter while it draws.
    with ThreadPoolExecutor(min(_MOST_THREADS, torch.get_num_threads())) as pool:
        list(pool.map(add, starts))


def _add_chunk(values: Floats, key: Words, chunk: int, terms: Terms) -> None:
    for step, factor in terms:
        # Added to a secret word, the step still gives every address a counter of its own.
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
