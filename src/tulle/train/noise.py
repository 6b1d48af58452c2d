"""Gaussian noise for training: fast, from a generator whose key nobody knows.

The operating system draws the key, once a run; a counter-based generator (Philox,
Salmon et al. 2011) expands it. Philox has no proof of security: what it noises
rests on its key being secret. Normals and sums are floats, so the noise has no
exact support; released counts use tulle.mechanisms instead.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.errors import ConfigError, RunStateError
from tulle.mechanisms.entropy import NoiseSource, Words

# Streams share the key and differ in a word of the counter, so that they never meet.
# How many there are decides which normal an entry gets; how many threads there are does not.
_NUM_STREAMS = 8
_NUM_KEY_WORDS = 2
_NUM_START_WORDS = 2
_CHUNK = 1 << 18
_CHUNK_ON_DEVICE = 1 << 26
_DTYPES = (torch.float32, torch.float64)

_Floats = NDArray[Any]


class TrainingNoise:
    """The Gaussian noise of one run. One object a run and a process.

    Its state is as secret as what it protects: it cannot be printed, copied, pickled
    or used in a forked process, which would add the same noise again.
    """

    def __init__(self, rng: NoiseSource) -> None:
        """Takes 256 bits from `rng` for the CPU, and 64 more for each device used."""
        words = rng.words(_NUM_KEY_WORDS + _NUM_START_WORDS)
        self._streams = [_stream(words, number) for number in range(_NUM_STREAMS)]
        self._device_streams: dict[torch.device, torch.Generator] = {}
        self._rng = rng
        self._process = os.getpid()
        self.is_secure = rng.is_secure
        self.description = f"{rng.description}, expanded by Philox (fast, not cryptographic)"

    def add_to(self, values: Tensor, stddev: float) -> None:
        """Adds stddev * N(0, 1) in place, independent for each entry and each call.

        A CPU tensor gets the normals of numpy's Philox 4x64. A tensor on a GPU gets
        those of its own generator, Philox 4x32 with a key of 64 bits.

        Args:
          values: A float32 or float64 tensor, e.g. a sum of clipped gradients.
          stddev: Noise standard deviation. 0 adds nothing and makes nothing private.

        Privacy:
          Unit, sensitivity: the caller's; this is the noise of one Gaussian event with
          noise_multiplier = stddev / L2 sensitivity of `values`. Relies on: the key
          staying secret, and on floats coming close enough to real numbers.
        """
        self._check_process()
        _check_tensor(values)
        _check_stddev(stddev, values.dtype)
        if stddev == 0 or values.numel() == 0:
            return
        if not values.is_contiguous():
            noise = torch.zeros(values.shape, dtype=values.dtype, device=values.device)
            self.add_to(noise, stddev)
            values.detach().add_(noise)
        elif values.device.type == "cpu":
            self._add_on_cpu(values.detach().view(-1).numpy(), stddev)
        else:
            _add_on_device(values.detach().view(-1), stddev, self._device_stream(values.device))

    def __repr__(self) -> str:
        return "TrainingNoise()"

    def __reduce__(self) -> NoReturn:
        raise RunStateError(
            "training noise must not be copied or saved: whoever has it can take the noise off. "
            "Make a new one from release_rng() in each process."
        )

    def _add_on_cpu(self, values: _Floats, stddev: float) -> None:
        if values.size <= _CHUNK:
            _add_normals(self._streams[0], values, stddev)
            return
        # numpy lets go of the interpreter while it draws: two threads are twice as fast.
        with ThreadPoolExecutor(min(_NUM_STREAMS, torch.get_num_threads())) as pool:
            parts = np.array_split(values, _NUM_STREAMS)
            list(pool.map(_add_normals, self._streams, parts, [stddev] * _NUM_STREAMS))

    def _device_stream(self, device: torch.device) -> torch.Generator:
        stream = self._device_streams.get(device)
        if stream is None:
            stream = torch.Generator(device).manual_seed(int(self._rng.words(1)[0]))
            self._device_streams[device] = stream
        return stream

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RunStateError(
                "training noise was made in another process, which would add the same noise. "
                "Make a new one from release_rng() in each process."
            )


def _stream(words: Words, number: int) -> np.random.Generator:
    key, start = words[:_NUM_KEY_WORDS], words[_NUM_KEY_WORDS:]
    counter = np.concatenate([np.array([0, number], np.uint64), start])
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _add_normals(stream: np.random.Generator, values: _Floats, stddev: float) -> None:
    buffer = np.empty(min(_CHUNK, values.size), values.dtype)
    for first in range(0, values.size, _CHUNK):
        chunk = values[first : first + _CHUNK]
        normals = buffer[: chunk.size]
        stream.standard_normal(out=normals, dtype=values.dtype)
        normals *= stddev
        chunk += normals


def _add_on_device(values: Tensor, stddev: float, stream: torch.Generator) -> None:
    for first in range(0, len(values), _CHUNK_ON_DEVICE):
        chunk = values[first : first + _CHUNK_ON_DEVICE]
        chunk.add_(torch.empty_like(chunk).normal_(generator=stream), alpha=stddev)


def _check_tensor(values: Tensor) -> None:
    if values.dtype not in _DTYPES:
        raise ConfigError(
            f"noise needs float32 or float64 values, not {values.dtype}; convert them first."
        )
    if values.device.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"noise is made on the CPU or a CUDA device, not on {values.device.type!r}; "
            "move the values first."
        )
    steps = zip(values.stride(), values.shape, strict=True)
    if any(step == 0 and size > 1 for step, size in steps):
        raise ConfigError(
            "noise needs a tensor of its own memory: entries of an expanded tensor would share "
            "their noise. Use .clone() or .contiguous() first."
        )


def _check_stddev(stddev: float, dtype: torch.dtype) -> None:
    if not (math.isfinite(stddev) and stddev >= 0):
        raise ConfigError(f"stddev={stddev} must be finite and >= 0.")
    limits = torch.finfo(dtype)
    # Normals stay below 100 in size, also those of float64.
    if stddev and not limits.tiny <= stddev <= limits.max / 100:
        raise ConfigError(
            f"stddev={stddev} is outside what {dtype} can hold, from {limits.tiny:.2g} to "
            f"{limits.max / 100:.2g}; rescale the values."
        )
