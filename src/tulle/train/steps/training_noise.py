"""Gaussian noise for training: fast, from a generator whose key nobody knows.

The operating system draws the key, once a run; a counter-based generator (Philox,
Salmon et al. 2011) expands it. Philox has no proof of security: what it noises
rests on its key being secret. Normals and sums are floats, so the noise has no
exact support; released counts use tulle.mechanisms instead.
"""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.train.steps.compiled_kernels import Kernels, compiled_kernels
from tulle.train.steps.normal_stream import Floats, NormalStream, SecretNoise, expanded_description

# Streams share the key and differ in a word of the counter, so that they never meet.
# How many there are decides which normal an entry gets; how many threads there are does not.
_NUM_STREAMS = 8
# Philox 4x64 has a key of two words and a counter of four. Two words of the counter start at secret
# places, too; the others count blocks and streams.
_NUM_KEY_WORDS = 2
_NUM_START_WORDS = 2
_SMALL = 1 << 17
"""Number of entries up to which starting threads takes longer than it saves."""
_BLOCK = 1 << 20
"""Number of entries that are filled together, few enough to stay in the cache."""
# Bounds the normals that are held before they are added to 256 MiB of float32.
_CHUNK_ON_DEVICE = 1 << 26
_DTYPES = (torch.float32, torch.float64)


class TrainingNoise(SecretNoise):
    """The Gaussian noise of one run. One object a run and a process."""

    def __init__(self, rng: NoiseSource) -> None:
        """Takes 256 bits from `rng` for the CPU, and 64 more for each device used."""
        super().__init__()
        words = rng.words(_NUM_KEY_WORDS + _NUM_START_WORDS)
        self._kernels = compiled_kernels()
        self._states = _states(words, self._kernels)
        self._streams = [self._stream(words, number) for number in range(_NUM_STREAMS)]
        self._device_streams: dict[torch.device, torch.Generator] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._space: Tensor | None = None
        self._rng = rng
        self.is_secure = rng.is_secure
        self.description = expanded_description(rng)

    def add_to(self, values: Tensor, stddev: float) -> None:
        """Adds stddev * N(0, 1) in place, independent for each entry and each call.

        A CPU tensor gets normals from numpy's Philox 4x64. A tensor on a GPU gets those of
        its own generator, Philox 4x32 with a key of 64 bits.

        Args:
          values: A float32 or float64 tensor, e.g. a sum of clipped gradients.
          stddev: Noise standard deviation. 0 adds nothing and makes nothing private.

        Privacy:
          Unit, sensitivity: the caller's; this is the noise of one Gaussian event with
          noise_multiplier = stddev / L2 sensitivity of `values`. Relies on: the key
          staying secret, and on floats coming close enough to real numbers.
        """
        self._check(values, stddev)
        if stddev == 0 or values.numel() == 0:
            return
        if not values.is_contiguous():
            noise = torch.empty(values.shape, dtype=values.dtype, device=values.device)
            self.fill(noise, stddev)
            values.detach().add_(noise)
        elif values.device.type == "cpu":
            self._add_on_cpu(values.detach().view(-1), stddev)
        else:
            _add_on_device(values.detach().view(-1), stddev, self._device_stream(values.device))

    def fill(self, values: Tensor, stddev: float) -> None:
        """Overwrites with stddev * N(0, 1); as `add_to` to zeros, without writing those first.

        Args:
          values: A contiguous float32 or float64 tensor.
          stddev: Noise standard deviation. 0 leaves zeros.

        Privacy:
          The same as for `add_to`, for values that the caller adds to what is to be protected.
        """
        self._check(values, stddev)
        if not values.is_contiguous():
            raise ConfigError("noise fills contiguous tensors alone; use add_to for a view.")
        if stddev == 0 or values.numel() == 0:
            values.detach().zero_()
        elif values.device.type == "cpu":
            self._fill_on_cpu(values.detach().view(-1), stddev)
        else:
            stream = self._device_stream(values.device)
            values.detach().normal_(0, stddev, generator=stream)

    def _add_on_cpu(self, values: Tensor, stddev: float) -> None:
        size = min(len(values), _BLOCK)
        if self._space is None or self._space.dtype != values.dtype or len(self._space) < size:
            self._space = torch.empty(size, dtype=values.dtype)
        for block in torch.split(values, _BLOCK):
            noise = self._space[: len(block)]
            self._fill_block(noise)
            block.add_(noise, alpha=stddev)

    def _fill_on_cpu(self, values: Tensor, stddev: float) -> None:
        for block in torch.split(values, _BLOCK):
            self._fill_block(block)
            if stddev != 1:
                block.mul_(stddev)

    def _fill_block(self, values: Tensor) -> None:
        floats = values.numpy()
        if floats.size <= _SMALL:
            self._streams[0].fill(floats, 1.0)
        elif self._states is not None and self._kernels is not None and floats.dtype == np.float32:
            self._kernels.fill_streams(floats, self._states)
        else:
            self._fill_in_threads(floats)

    def _fill_in_threads(self, floats: Floats) -> None:
        ends = [floats.size * place // _NUM_STREAMS for place in range(_NUM_STREAMS + 1)]
        parts = [floats[first:last] for first, last in itertools.pairwise(ends)]
        # numpy lets go of the interpreter while it draws: two threads are twice as fast.
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(_NUM_STREAMS, torch.get_num_threads()))
        list(self._threads.map(NormalStream.fill, self._streams, parts, [1.0] * _NUM_STREAMS))

    def _stream(self, words: Words, number: int) -> NormalStream:
        doubles = np.random.Philox(key=words[:_NUM_KEY_WORDS], counter=_counter(words, number, 1))
        if self._states is None or self._kernels is None:
            counter = _counter(words, number, 0)
            floats = np.random.Philox(key=words[:_NUM_KEY_WORDS], counter=counter)
            return NormalStream(doubles, words=floats.random_raw)
        draw = self._kernels.words(self._states[number])
        return NormalStream(doubles, words=draw, make_pairs=self._kernels.fill_pairs)

    def _check(self, values: Tensor, stddev: float) -> None:
        self.check_own_process()
        check_noisy_tensor(values)
        _check_stddev(stddev, values.dtype)

    def _device_stream(self, device: torch.device) -> torch.Generator:
        stream = self._device_streams.get(device)
        if stream is None:
            # A key for each device: with one key two devices would draw the same normals.
            stream = torch.Generator(device).manual_seed(int(self._rng.words(1)[0]))
            self._device_streams[device] = stream
        return stream


def _counter(words: Words, number: int, kind: int) -> Words:
    """Counter at which a stream of floats (kind 0) or doubles (kind 1) begins."""
    place = np.array([0, number + kind * _NUM_STREAMS], np.uint64)
    return np.concatenate([place, words[_NUM_KEY_WORDS:]])


def _states(words: Words, kernels: Kernels | None) -> Words | None:
    """[streams, state] of all streams of floats, for kernels."""
    if kernels is None:
        return None
    key = words[:_NUM_KEY_WORDS]
    states = [kernels.stream(key, _counter(words, n, 0)) for n in range(_NUM_STREAMS)]
    return np.stack(states)


def _add_on_device(values: Tensor, stddev: float, stream: torch.Generator) -> None:
    for first in range(0, len(values), _CHUNK_ON_DEVICE):
        chunk = values[first : first + _CHUNK_ON_DEVICE]
        chunk.add_(torch.empty_like(chunk).normal_(generator=stream), alpha=stddev)


def check_noisy_tensor(values: Tensor) -> None:
    """Refuses types and devices that no noise is made for, and entries that share memory."""
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
