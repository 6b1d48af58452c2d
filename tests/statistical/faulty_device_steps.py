"""Parts of recorded steps that are wrong on purpose. The checks must catch each one.

Each takes the place of the class that it is a child of.
"""

import torch
from torch import Tensor

from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.mechanisms.entropy import NoiseSource
from tulle.train.models.batches import ExampleBatch
from tulle.train.steps.gpu.device_keys import normal_pairs, random_words
from tulle.train.steps.gpu.device_rows import DeviceAges, DeviceRows
from tulle.train.steps.gpu.device_step import DeviceStep
from tulle.train.steps.gpu.place import DeviceBatches


class CatchUpWithoutNoise(DeviceRows):
    """Rows that are read get what they missed, but for the noise."""

    def catch_up(self, reads: Tensor, draw: Tensor) -> None:
        stddev, self.noise_stddev = self.noise_stddev, 0.0
        super().catch_up(reads, draw)
        self.noise_stddev = stddev


class VarianceNotUpdated(DeviceRows):
    """Keeps what was known about the momentum before the weight was seen."""

    def catch_up(self, reads: Tensor, draw: Tensor) -> None:
        before = self.variance.clone()
        super().catch_up(reads, draw)
        self.variance.copy_(before)


class NeverMarksRows(DeviceRows):
    """Adds noise that a row has already got."""

    def catch_up(self, reads: Tensor, draw: Tensor) -> None:
        before = self.exact_at.clone()
        super().catch_up(reads, draw)
        self.exact_at.copy_(before)


class ReleasesTheMean(DeviceRows):
    """Writes the mean of the momentum into a checkpoint, with too little noise in it."""

    def release_momentum(self) -> Tensor | None:
        self.variance.zero_()
        return super().release_momentum()


class DrawNotAdvanced(DeviceRows):
    """Every step is step 0, so a row gets the same normals at every read."""

    def catch_up(self, reads: Tensor, draw: Tensor) -> None:
        super().catch_up(reads, draw * 0)


class FlushWithTheKeyOfSteps(DeviceRows):
    """One key for reads and flushes, whose numbers both begin at 0."""

    def flush(self) -> None:
        self._flush_key = self._key
        super().flush()


class NoCovariance(DeviceAges):
    """Draws weight and momentum as if they did not share their noise."""

    def end_step(self, rate: Tensor) -> None:
        super().end_step(rate)
        self.covariance.zero_()


class ForgetsRatesOfOldSteps(DeviceAges):
    """Missed noise is that of the last step alone."""

    def end_step(self, rate: Tensor) -> None:
        self.weight_variance.zero_()
        super().end_step(rate)


class SkipsAStep(DeviceAges):
    """The first step of every block has no noise."""

    def end_step(self, rate: Tensor) -> None:
        super().end_step(rate * (self.now > 0))


class OneDrawForAllSteps(DeviceStep):
    """The number of the step stays where it was recorded, and layers get one noise for good."""

    def take(
        self, labels: Tensor, weights: Tensor, rate: Tensor, following: ExampleBatch | None
    ) -> Tensor:
        self._layer_draw.zero_()
        return super().take(labels, weights, rate, following)


class NoNoiseInTheFirstStep(DeviceStep):
    """Noise of layers is drawn after it was used."""

    def take(
        self, labels: Tensor, weights: Tensor, rate: Tensor, following: ExampleBatch | None
    ) -> Tensor:
        draw_noise = self._layers.draw_noise
        self._layers.draw_noise = lambda _: None  # type: ignore[method-assign, assignment]
        monitor = super().take(labels, weights, rate, following)
        self._layers.draw_noise = draw_noise  # type: ignore[method-assign]
        draw_noise(self._layer_draw)
        return monitor


class FixedSizeBatches(DeviceBatches):
    """A uniform batch that always has the expected size."""

    def draw(self, num_batches: int) -> tuple[Tensor, Tensor]:
        rows, weights = super().draw(num_batches)
        size = round(self._sampler.expected_size)
        order = torch.rand(num_batches, self._sampler.num_rows).argsort(1)
        rows[:, :size], weights[:] = order[:, :size], 0
        weights[:, :size] = 1
        return rows, weights


class LowestRowsStay(DeviceBatches):
    """Where more rows come than fit, the last ones are cut."""

    def draw(self, num_batches: int) -> tuple[Tensor, Tensor]:
        size = self._sampler.max_batch_size
        wide = TruncatedPoisson(
            num_rows=self._sampler.num_rows,
            sampling_prob=self._sampler.sampling_prob,
            max_batch_size=self._sampler.num_rows,
            steps=1,
        )
        self._sampler, kept = wide, self._sampler
        rows, weights = super().draw(num_batches)
        self._sampler = kept
        order = torch.where(weights > 0, rows, kept.num_rows).argsort(1)[:, :size]
        return rows.gather(1, order), weights.gather(1, order)


class TheSameBatchAgain(DeviceBatches):
    """Draws are not counted."""

    def draw(self, num_batches: int) -> tuple[Tensor, Tensor]:
        self._num_drawn.zero_()
        return super().draw(num_batches)


class FivePercentTooOften(DeviceBatches):
    def __init__(
        self, sampler: TruncatedPoisson, *, rng: NoiseSource, device: torch.device
    ) -> None:
        super().__init__(sampler, rng=rng, device=device)
        self._scale /= 1.05


def normals_of_small_uniforms(key: Tensor, size: int, draw: Tensor) -> Tensor:
    """A radius from 10 bits: the bulk is right, and there is no tail."""
    pair = torch.arange(-(-size // 2))
    words = random_words(key, entity=pair, part=torch.tensor(0), draw=draw)
    high = (words[0] >> 22) << 22
    both = normal_pairs([high + (1 << 21), torch.zeros_like(high), words[2], words[3]])
    return torch.cat(both)[:size]


def normals_of_one_angle(key: Tensor, size: int, draw: Tensor) -> Tensor:
    """Cosine and sine of words that the radius has used already."""
    pair = torch.arange(-(-size // 2))
    words = random_words(key, entity=pair, part=torch.tensor(0), draw=draw)
    both = normal_pairs([words[0], words[1], words[0], words[3]])
    return torch.cat(both)[:size]


def normals_that_repeat(key: Tensor, size: int, draw: Tensor) -> Tensor:
    """The second half is the first once more."""
    pair = torch.arange(-(-size // 2))
    words = random_words(key, entity=pair, part=torch.tensor(0), draw=draw)
    first, _ = normal_pairs(words)
    return torch.cat([first, first])[:size]
