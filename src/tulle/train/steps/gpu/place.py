"""Private steps that stay on a GPU: rows, coins, noise and updates, recorded and replayed.

A step is recorded once as a CUDA graph. From then on the processor only says "again", and
looks at the noisy figures of many steps at once.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tulle.data.samplers.poisson import skip_scale
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.examples import ExampleSet
from tulle.train.models.batches import ExampleBatch
from tulle.train.steps.gpu.device_keys import KeyHolder, device_key, uniforms, words
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.step_settings import Monitored, StepSettings

# Bound on the relative error of a row's probability, see `DeviceBatches`. Rows are drawn with a
# probability that is smaller by this much, so that the accounted one is never exceeded.
_CHANCE_ERROR = 1e-9
# Room for batches: a normal is beyond 13 deviations less than once in 10^38, and the 64 more rows
# are for small batches, whose tails are heavier.
_DEVIATIONS = 13
_LAST = torch.iinfo(torch.int64).max


class DeviceBatches(KeyHolder):
    """Draws the batches of a truncated Poisson sampler on the device, without waiting for it.

    The distance from one sampled row to the next is geometric, so the coins of all rows cost
    what the sampled ones cost. A fixed number of distances is drawn, so many that they reach
    past the last row but for a probability below 1e-30. If more rows come than fit, those with the
    smallest of independent random numbers stay, which is a uniform subset.

    Distances are float64 logarithms of 64 random bits: the probability of a row differs from the
    one asked for by less than 1e-9 of it. Rows are drawn with a probability that is smaller by as
    much, so that the accounted one bounds it.

    Privacy:
      The same as for `TruncatedPoisson.batches`: same distribution, each batch used in one step,
      indices stay on the device. Relies on: the key staying secret.
    """

    def __init__(
        self, sampler: TruncatedPoisson, *, rng: NoiseSource, device: torch.device
    ) -> None:
        if sampler.sampling_prob >= 1:
            raise ConfigError(
                "sampling_prob=1 takes every row in every step; draw such batches on the CPU."
            )
        self._sampler = sampler
        self._scale = skip_scale(sampler.sampling_prob * (1 - _CHANCE_ERROR))
        expected = sampler.expected_size
        room = math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + 64
        self._num_gaps = max(room, sampler.max_batch_size)
        self._key = device_key(rng, device)
        self._num_drawn = torch.zeros(1, dtype=torch.int64, device=device)

    def draw(self, num_batches: int) -> tuple[Tensor, Tensor]:
        """The next batches.

        Returns:
          [batches, max_batch_size]: rows, in any order; and their weights, 1 for a row of
          the batch and 0 for padding, which is row 0.
        """
        random = words(self._key, self._num_drawn, num_batches, self._num_gaps)
        self._num_drawn += num_batches
        rows = self._rows(random)
        is_row = rows < self._sampler.num_rows
        # 62 bits of two words that the gaps have not used up.
        tickets = (random[:, :, 2] << 30) ^ random[:, :, 3]
        tickets = torch.where(is_row, tickets, _LAST)
        order = tickets.argsort(dim=1)[:, : self._sampler.max_batch_size]
        chosen, weights = rows.gather(1, order), is_row.gather(1, order)
        return torch.where(weights, chosen, 0), weights.float()

    def _rows(self, random: Tensor) -> Tensor:
        uniform = uniforms(random[:, :, 0], random[:, :, 1])
        gaps = (uniform.log() * -self._scale).floor().clamp_(max=self._sampler.num_rows)
        return torch.cumsum(gaps.long() + 1, dim=1) - 1


# Steps between two looks at the device. Fewer would wait for it more often; with more, progress and
# requests to stop would come later.
_STEPS_AT_A_TIME = 32


class GpuPlace:
    """Takes steps in one go; a `StepPlace`.

    Privacy:
      The same as for `DeviceStep.take`, on batches of the sampler, each used once. Nothing but
      noisy figures and settled weights comes back from the device.
    """

    steps_at_a_time = _STEPS_AT_A_TIME
    noise_description = (
        "Philox on the GPU, keyed with 128 bits a parameter (fast, not cryptographic)"
    )

    def __init__(
        self,
        examples: ExampleSet,
        sampler: TruncatedPoisson,
        step: DeviceStep,
        *,
        settings: StepSettings,
        rng: NoiseSource,
        device: torch.device,
    ) -> None:
        """Takes the rows that the sampler draws from, and what a step does to the model."""
        self.noise_description = f"{rng.description}, {self.noise_description}"
        self._step, self._settings, self._device = step, settings, device
        self._rows = _DeviceExamples(examples, device)
        self._batches = DeviceBatches(sampler, rng=rng, device=device)
        # One batch more than steps: the last step prepares rows for nobody.
        shape = (_STEPS_AT_A_TIME + 1, sampler.max_batch_size)
        self._indices = torch.zeros(shape, dtype=torch.int64, device=device)
        self._weights = torch.zeros(shape, device=device)
        self._rates = torch.zeros(_STEPS_AT_A_TIME, dtype=torch.float64, device=device)
        self._monitored = torch.zeros((_STEPS_AT_A_TIME, 2), device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def settled(self) -> list[Tensor]:
        """Parameters whose weights are private right after every step."""
        return self._step.settled

    def begin(self, first_step: int) -> None:
        """Every step draws its batch alike, so it does not matter which is the first."""
        del first_step
        if self._device.type == "cuda":
            with _fast_products():
                self._record()

    def take(self, rates: Sequence[float]) -> list[Monitored | None]:
        """The next steps, one for each learning rate."""
        count = len(rates)
        if not 0 < count <= _STEPS_AT_A_TIME:
            raise ConfigError(f"{count} steps at once must be 1 to {_STEPS_AT_A_TIME}.")
        self._step.count(count)
        self._indices[:count], self._weights[:count] = self._batches.draw(count)
        self._rates[:count] = torch.tensor(rates, dtype=torch.float64)
        self._place.zero_()
        # Each step prepares the rows of the next one; nobody did so for the first.
        self._step.prepare(self._rows.ids(self._indices[0]))
        for _ in range(count):
            if self._graph is None:
                self._take_one()
            else:
                self._graph.replay()
        return self._read(count)

    def state(self) -> dict[str, Tensor]:
        """The state of the step, see `DeviceStep.state`."""
        return self._step.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from a state, see `DeviceStep.load_state`."""
        self._step.load_state(state)

    def _take_one(self) -> None:
        now = self._indices.index_select(0, self._place).squeeze(0)
        weights = self._weights.index_select(0, self._place).squeeze(0)
        rate = self._rates.index_select(0, self._place)
        self._place += 1
        following = self._rows.ids(self._indices.index_select(0, self._place).squeeze(0))
        noisy = self._step.take(self._rows.labels(now), weights, rate, following)
        self._monitored.index_copy_(0, self._place - 1, noisy.unsqueeze(0))

    def _record(self) -> None:
        rehearsal = self._rows.ids(self._indices[0])
        # What is recorded must have run before, on a stream beside the default one, as torch asks
        # for.
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step.rehearse(rehearsal, self._rates[:1])
        torch.cuda.current_stream(self._device).wait_stream(side)
        self._place.zero_()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._take_one()

    def _read(self, count: int) -> list[Monitored | None]:
        settings = self._settings
        if settings.monitor_share == 0:
            return [None] * count
        return [
            settings.coordinates.read(
                sums,
                expected_size=settings.expected_size,
                noise_stddev=settings.noise_stddev,
            )
            for sums in self._monitored[:count].cpu()
        ]


class _DeviceExamples:
    """All rows, where the model is."""

    def __init__(self, examples: ExampleSet, device: torch.device) -> None:
        rows = slice(None) if examples.rows is None else examples.rows
        sensitive, labels = examples.sensitive_features, examples.labels
        self._public = torch.from_numpy(np.array(examples.public_features[rows])).to(device)
        self._sensitive = (
            None if sensitive is None else torch.from_numpy(np.array(sensitive[rows])).to(device)
        )
        if labels is None:
            raise DataError("the data have no labels to train on.")
        self._labels = torch.from_numpy(np.array(labels)).to(device)

    def ids(self, places: Tensor) -> ExampleBatch:
        """The features of some rows."""
        sensitive = self._sensitive
        return ExampleBatch(
            public_ids=self._public.index_select(0, places).long(),
            sensitive_ids=None if sensitive is None else sensitive.index_select(0, places).long(),
            labels=None,
        )

    def labels(self, places: Tensor) -> Tensor:
        """The labels of some rows."""
        return self._labels.index_select(0, places)


@contextlib.contextmanager
def _fast_products() -> Iterator[None]:
    """Matrix products on TF32 units; `StepSettings.clip_slack` must allow for their rounding."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
