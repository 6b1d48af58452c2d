"""Projected label steps that are wrong on purpose. The checks of the right ones must catch each.

Each class takes the place of `LabelSums` or of `ProjectionEngine`.
"""

import dataclasses

import torch
from torch import Tensor

from tulle.data.samplers.batch import Batch
from tulle.train.methods.label_projection.label_sums import LabelSums, LogitPass, NoisySums
from tulle.train.methods.label_projection.projected_step import ProjectionEngine
from tulle.train.models.batches import ExampleBatch
from tulle.train.steps.step_settings import Monitored, StepSettings


class ReusesItsNoise(LabelSums):
    """Draws noise in the first step and adds it again in all others."""

    _kept: dict[str, Tensor] | None = None

    def release(
        self, batch: ExampleBatch, weights: Tensor, public: LogitPass, settings: StepSettings
    ) -> NoisySums:
        quiet = dataclasses.replace(settings, noise_multiplier=1e-30)
        raw = super().release(batch, weights, public, quiet)
        if self._kept is None:
            self._kept = {name: torch.zeros_like(values) for name, values in raw.values.items()}
            for values in self._kept.values():
                self._noise.add_to(values, settings.noise_stddev)
        noisy = {name: values + self._kept[name] for name, values in raw.values.items()}
        return dataclasses.replace(raw, values=noisy)


class ClipsAfterSumming(LabelSums):
    """Clips the sum of the batch instead of each row's gradient."""

    def release(
        self, batch: ExampleBatch, weights: Tensor, public: LogitPass, settings: StepSettings
    ) -> NoisySums:
        huge = dataclasses.replace(settings, clip_norm=1e9, noise_multiplier=1e-30)
        raw = super().release(batch, weights, public, huge)
        flat = torch.cat([values.flatten() for values in raw.values.values()])
        factor = min(1.0, settings.clip_norm * settings.expected_size / float(flat.norm()))
        for values in raw.values.values():
            values.mul_(factor)
            self._noise.add_to(values, settings.noise_stddev)
        return raw


class TurnsGradientsRound(LabelSums):
    """Sums (2 y - 1) J: a replaced label turns its gradient round, by twice the clip norm."""

    def release(
        self, batch: ExampleBatch, weights: Tensor, public: LogitPass, settings: StepSettings
    ) -> NoisySums:
        if batch.labels is not None:
            batch = dataclasses.replace(batch, labels=2 * batch.labels - 1)
        return super().release(batch, weights, public, settings)


class FivePercentLessNoise(LabelSums):
    def release(
        self, batch: ExampleBatch, weights: Tensor, public: LogitPass, settings: StepSettings
    ) -> NoisySums:
        less = dataclasses.replace(settings, noise_multiplier=0.95 * settings.noise_multiplier)
        return super().release(batch, weights, public, less)


class ProjectsOnTheSample(ProjectionEngine):
    """Uses the private batch in the place of the public one: it moves the rows it drew."""

    def _take(self, batch: Batch, rate: float) -> Monitored | None:
        drawn = self._source.batch(batch.indices[batch.weights > 0])
        self._public_batch = lambda: drawn  # type: ignore[method-assign]
        return super()._take(batch, rate)
