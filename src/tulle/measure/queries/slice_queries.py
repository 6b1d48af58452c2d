"""Numbers per slice, each slice on its own: counts, values, averages, rates, reach and frequency.

The noises of the two parts of a rate are independent, so both intervals hold at once with the
product of their confidences. The raw quotient then lies between the extreme quotients: nothing is
assumed about the size of the numbers, and intervals stay right where noise is larger than they are.
Reach and frequency of a slice all come from one noisy histogram.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from tulle.measure.queries.answers import (
    METRIC_COLUMNS,
    AnswerTable,
    FloatArray,
    SliceNumbers,
    answer_frame,
    chosen_slices,
    steps_of,
)
from tulle.measure.queries.query import Quantity, Query
from tulle.measure.queries.query_noise import StepNoise
from tulle.measure.reach import FrequencyConfig, Range, divided, release_frequencies, share_range
from tulle.measure.slice_jobs import Frequencies, IntArray, SliceJob, SliceTotals
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.key_selection import KeySelectionConfig
from tulle.privacy.events import Composed, Event


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyJob:
    """A table of totals and the noise that it gets."""

    job: SliceJob
    noise: StepNoise


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyQuery(abc.ABC):
    """A query whose noise is fixed. Every field is public information."""

    query: Query
    selection: KeySelectionConfig | None
    """How its slices are found privately; None if they are given."""

    @property
    @abc.abstractmethod
    def jobs(self) -> tuple[SliceJob, ...]:
        """What the engine computes, in the order that `answer` takes it."""

    def event(self) -> Event:
        """What the table costs."""
        events: list[Event] = [] if self.selection is None else [self.selection.event()]
        return Composed(events=(*events, *self._noise_events()))

    def answer(
        self, totals: Sequence[SliceTotals], *, confidence: float, rng: NoiseSource
    ) -> AnswerTable:
        """The released table.

        Args:
          totals: Exact totals, in the order of the jobs.
          confidence: Probability with which each interval holds its number.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: that of the plan, add-remove. Event: `event()`. Relies on: totals were bounded as
          the jobs say, so that a unit is in few slices and in one bucket of a histogram's slice.
        """
        deciding = totals[-1]  # of a rate the impressions: conversions come after them
        # Slices are chosen before the totals are looked at: noise is drawn for those alone, and no
        # number of a slice that stays hidden takes part in anything.
        slices = chosen_slices(deciding.slices, deciding.raw_unit_counts, self.selection, rng=rng)
        raw_steps = [steps_of(found, slices) for found in totals]
        frame = self._noisy_frame(slices, raw_steps, confidence, rng)
        return AnswerTable(
            name=self.query.name, frame=frame, event=self.event(), confidence=confidence
        )

    @abc.abstractmethod
    def _noise_events(self) -> Sequence[Event]:
        """What the noise of its totals costs."""

    @abc.abstractmethod
    def _noisy_frame(
        self,
        slices: pl.DataFrame,
        raw_steps: Sequence[IntArray],
        confidence: float,
        rng: NoiseSource,
    ) -> pl.DataFrame:
        """Draws the noise: a row for each slice and number, from the totals of each job."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FlatQuery(NoisyQuery):
    """Counts, values, averages or rates, each slice on its own."""

    main: NoisyJob
    base: NoisyJob | None
    """The impressions of a rate; None for other queries."""

    @property
    def jobs(self) -> tuple[SliceJob, ...]:
        """The totals, and of a rate the impressions."""
        return tuple(part.job for part in self._parts)

    def _noise_events(self) -> list[Event]:
        return [part.noise.event() for part in self._parts]

    def _noisy_frame(
        self,
        slices: pl.DataFrame,
        raw_steps: Sequence[IntArray],
        confidence: float,
        rng: NoiseSource,
    ) -> pl.DataFrame:
        noisy = [
            part.noise.release(steps, rng=rng) / part.job.steps
            for part, steps in zip(self._parts, raw_steps, strict=True)
        ]
        return answer_frame(slices, self._answers(noisy, confidence))

    @property
    def _parts(self) -> tuple[NoisyJob, ...]:
        return (self.main,) if self.base is None else (self.main, self.base)

    def _answers(self, noisy: list[FloatArray], confidence: float) -> list[SliceNumbers]:
        if self.base is not None:
            return _rate_answers(self.main, self.base, noisy, confidence)
        if self.query.quantity is Quantity.AVERAGE:
            return _average_answers(self.main, noisy[0], confidence)
        amount = self.main.job.amounts[0]
        return [_single(amount.name, self.main, noisy[0][:, 0], amount.clip, confidence)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReachQuery(NoisyQuery):
    """Reach and frequency of each slice."""

    job: SliceJob
    """The histogram of each slice."""
    config: FrequencyConfig

    @property
    def jobs(self) -> tuple[SliceJob, ...]:
        """The histograms alone."""
        return (self.job,)

    def reach_noise(self, confidence: float) -> tuple[float, float]:
        """Standard deviation and half-width of the interval of one slice's reach."""
        nothing = Frequencies(
            slices=pl.DataFrame(), raw_counts=np.zeros((1, self.config.max_frequency), np.int64)
        )
        # Any noise will do: the width of an interval does not depend on it.
        released = release_frequencies(
            nothing, self.config, rng=SeededNoise(0), confidence=confidence
        ).reach(0)
        return released.noise_stddev, released.interval.high - released.value

    def _noise_events(self) -> list[Event]:
        return [self.config.event()]

    def _noisy_frame(
        self,
        slices: pl.DataFrame,
        raw_steps: Sequence[IntArray],
        confidence: float,
        rng: NoiseSource,
    ) -> pl.DataFrame:
        found = Frequencies(slices=slices, raw_counts=raw_steps[0])
        released = release_frequencies(found, self.config, rng=rng, confidence=confidence)
        metric = (
            pl.when(pl.col("k").is_null() | (pl.col("metric") == "reach"))
            .then(pl.col("metric").str.replace_all("_", " "))
            .when(pl.col("metric") == "k_plus_reach")
            .then(pl.format("{}+ reach", "k"))
            .when(pl.col("k") == self.config.max_frequency)
            .then(pl.format("{}+ frequency", "k"))
            .otherwise(pl.format("{} frequency", "k"))
        )
        frame = released.table().with_columns(metric=metric)
        return frame.select(*slices.columns, *METRIC_COLUMNS)


def quotient(metric: str, top: SliceNumbers, bottom: SliceNumbers) -> SliceNumbers:
    """top / bottom for raw numbers >= 0 with independent noise, given at `part_confidence`.

    Where the divisor is not above 0 there is no value (NaN).

    Args:
      metric: Name of the result.
      top: The dividend.
      bottom: The divisor. Its noise is independent of that of the dividend.
    """
    # The noisy divisor decides: whether the raw one is 0 would be a bit that nothing pays for.
    is_known = bottom.value > 0
    divisor = np.where(is_known, bottom.value, 1.0)
    ratio = top.value / divisor
    stddev = np.hypot(top.noise_stddev, ratio * bottom.noise_stddev) / divisor
    return SliceNumbers(
        metric=metric,
        value=np.where(is_known, np.maximum(ratio, 0.0), np.nan),
        low=divided(np.maximum(top.low, 0.0), bottom.high, if_empty=0.0),
        high=divided(np.maximum(top.high, 0.0), bottom.low, if_empty=np.inf),
        noise_stddev=np.where(is_known, stddev, np.inf),
    )


def part_of_whole(
    metric: str, part: SliceNumbers, others: SliceNumbers, *, largest: float
) -> SliceNumbers:
    """largest * part / (part + others) for raw numbers >= 0, given at `part_confidence`.

    Args:
      metric: Name of the result.
      part: The part. Its noise is independent of that of the others.
      others: What makes the whole together with it.
      largest: The result if the part is all.
    """
    whole = part.value + others.value
    is_known = whole > 0
    divisor = np.where(is_known, whole, 1.0)
    share = np.clip(part.value / divisor, 0.0, 1.0)
    # To first order: share * (1 - share) of the relative changes of both.
    stddev = np.hypot((1 - share) * part.noise_stddev, share * others.noise_stddev) / divisor
    limits = share_range(*map(_counts_of, (part, others)))
    return SliceNumbers(
        metric=metric,
        value=np.where(is_known, largest * share, np.nan),
        low=largest * limits.lows,
        high=largest * limits.highs,
        noise_stddev=np.where(is_known, largest * stddev, np.inf),
    )


def part_confidence(confidence: float) -> float:
    """The confidence that each of two independent intervals needs."""
    return math.sqrt(confidence)


def _single(
    metric: str, part: NoisyJob, noisy: FloatArray, unit_size: float, confidence: float
) -> SliceNumbers:
    size = unit_size / part.job.steps
    return SliceNumbers.around(
        metric,
        noisy * unit_size,
        half_width=part.noise.half_width(confidence) * size,
        noise_stddev=part.noise.noise_stddev * size,
    )


def _rate_answers(
    main: NoisyJob, base: NoisyJob, noisy: list[FloatArray], confidence: float
) -> list[SliceNumbers]:
    def both(level: float) -> tuple[SliceNumbers, SliceNumbers]:
        return (
            _single("conversions", main, noisy[0][:, 0], 1.0, level),
            _single("impressions", base, noisy[1][:, 0], 1.0, level),
        )

    return [quotient("rate", *both(part_confidence(confidence))), *both(confidence)]


def _average_answers(part: NoisyJob, noisy: FloatArray, confidence: float) -> list[SliceNumbers]:
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


def _sum(metric: str, part: NoisyJob, noisy: FloatArray, confidence: float) -> SliceNumbers:
    """The sum of several amounts, each with noise of its own."""
    num_parts = noisy.shape[1]
    return SliceNumbers.around(
        metric,
        noisy.sum(axis=1),
        half_width=part.noise.sum_half_width(num_parts, confidence) / part.job.steps,
        noise_stddev=part.noise.noise_stddev * np.sqrt(num_parts) / part.job.steps,
    )


def _counts_of(numbers: SliceNumbers) -> Range:
    """The intervals of numbers that cannot be below 0."""
    return Range(lows=np.maximum(numbers.low, 0.0), highs=np.maximum(numbers.high, 0.0))
