"""Numbers per slice, each slice on its own: counts, values, averages and rates."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tulle.measure.queries.answer_table import Answer, AnswerTable, FloatArray, answer_frame
from tulle.measure.queries.private_slices import chosen_slices, steps_of
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.queries.ratios import part_confidence, part_of_whole, quotient
from tulle.measure.queries.step_noise import StepNoise
from tulle.measure.slice_jobs import SliceJob, SliceTotals
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.key_selection import KeySelectionConfig
from tulle.privacy.events import Composed, Event


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyJob:
    """A table of totals and the noise that it gets."""

    job: SliceJob
    noise: StepNoise


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FlatQuery:
    """A query whose noise is fixed. Every field is public information."""

    query: Query
    main: NoisyJob
    base: NoisyJob | None
    """Of a rate: the impressions."""
    selection: KeySelectionConfig | None

    @property
    def jobs(self) -> tuple[SliceJob, ...]:
        """What the engine computes, in the order that `answer` takes it."""
        return tuple(part.job for part in self._parts)

    def event(self) -> Event:
        """What the table costs."""
        events: list[Event] = [] if self.selection is None else [self.selection.event()]
        return Composed(events=(*events, *(part.noise.event() for part in self._parts)))

    def answer(
        self, totals: Sequence[SliceTotals], *, confidence: float, rng: NoiseSource
    ) -> AnswerTable:
        """The released table.

        Privacy:
          Unit: that of the plan, add-or-remove. Event: `event()`. Relies on: totals were
          bounded as the jobs say.
        """
        deciding = totals[-1]  # of a rate the impressions: conversions come after them
        slices = chosen_slices(deciding.slices, deciding.raw_unit_counts, self.selection, rng=rng)
        noisy = [
            part.noise.release(steps_of(found, slices), rng=rng) / part.job.steps
            for part, found in zip(self._parts, totals, strict=True)
        ]
        frame = answer_frame(slices, self._answers(noisy, confidence))
        return AnswerTable(
            name=self.query.name, frame=frame, event=self.event(), confidence=confidence
        )

    @property
    def _parts(self) -> tuple[NoisyJob, ...]:
        return (self.main,) if self.base is None else (self.main, self.base)

    def _answers(self, noisy: list[FloatArray], confidence: float) -> list[Answer]:
        if self.base is not None:
            return _rate_answers(self.main, self.base, noisy, confidence)
        if self.query.quantity is Quantity.AVERAGE:
            return _average_answers(self.main, noisy[0], confidence)
        amount = self.main.job.amounts[0]
        return [_single(amount.name, self.main, noisy[0][:, 0], amount.clip, confidence)]


def _single(
    number: str, part: NoisyJob, noisy: FloatArray, unit_size: float, confidence: float
) -> Answer:
    size = unit_size / part.job.steps
    return Answer.around(
        number,
        noisy * unit_size,
        half_width=part.noise.half_width(confidence) * size,
        noise_stddev=part.noise.noise_stddev * size,
    )


def _rate_answers(
    main: NoisyJob, base: NoisyJob, noisy: list[FloatArray], confidence: float
) -> list[Answer]:
    def both(level: float) -> tuple[Answer, Answer]:
        return (
            _single("conversions", main, noisy[0][:, 0], 1.0, level),
            _single("impressions", base, noisy[1][:, 0], 1.0, level),
        )

    return [quotient("rate", *both(part_confidence(confidence))), *both(confidence)]


def _average_answers(part: NoisyJob, noisy: FloatArray, confidence: float) -> list[Answer]:
    """The count costs nothing: what a conversion lacks to its clip goes into "rest"."""
    each = part_confidence(confidence)
    answers = [_sum("conversions", part, noisy, confidence)]
    for place, amount in enumerate(part.job.amounts):
        size = amount.clip / amount.share
        own, others = noisy[:, [place]], np.delete(noisy, place, axis=1)
        average = part_of_whole(
            f"average {amount.name}",
            _sum(amount.name, part, own, each),
            _sum("others", part, others, each),
            largest=size,
        )
        answers += [_single(amount.name, part, own[:, 0], size, confidence), average]
    return answers


def _sum(number: str, part: NoisyJob, noisy: FloatArray, confidence: float) -> Answer:
    """The sum of several amounts, each with noise of its own."""
    num_parts = noisy.shape[1]
    return Answer.around(
        number,
        noisy.sum(axis=1),
        half_width=part.noise.sum_half_width(num_parts, confidence) / part.job.steps,
        noise_stddev=part.noise.noise_stddev * np.sqrt(num_parts) / part.job.steps,
    )
