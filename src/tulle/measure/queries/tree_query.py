"""Numbers of a hierarchy: every level is measured with its share, and then all add up."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from tulle.measure.queries.answer_table import (
    MEASURED_COLUMNS,
    Answer,
    AnswerTable,
    FloatArray,
    answer_frame,
)
from tulle.measure.queries.private_slices import chosen_slices, steps_of
from tulle.measure.queries.query import Query
from tulle.measure.queries.step_noise import StepNoise
from tulle.measure.slice_jobs import IntArray, SliceJob, SliceTotals
from tulle.measure.trees.consistency import (
    TreeEstimate,
    consistent_estimate,
    consistent_variances,
)
from tulle.measure.trees.day_tree import day_tree, running_totals
from tulle.measure.trees.nonnegative import NonnegativeEstimate, nonnegative_estimate
from tulle.measure.trees.slice_tree import SliceTree
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.key_selection import KeySelectionConfig
from tulle.privacy.events import Composed, Event

_LEAST_STDDEV = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TreeQuery:
    """A query by levels whose noise is fixed. Every field is public information."""

    query: Query
    job: SliceJob
    """Of the leaves; the levels above are sums of them."""
    level_noise: tuple[StepNoise | None, ...]
    """From the top; None for a level that is not measured."""
    selection: KeySelectionConfig | None

    @property
    def jobs(self) -> tuple[SliceJob, ...]:
        """What the engine computes."""
        return (self.job,)

    def event(self) -> Event:
        """What the table costs."""
        events: list[Event] = [] if self.selection is None else [self.selection.event()]
        measured = (noise.event() for noise in self.level_noise if noise is not None)
        return Composed(events=(*events, *measured))

    def tree(self, slices: pl.DataFrame) -> SliceTree:
        """The tree over these leaves."""
        if self.query.levels is not None:
            return SliceTree.from_keys(slices, self.query.levels.columns)
        return day_tree(slices.height)

    def node_variances(self, tree: SliceTree) -> FloatArray:
        """[nodes], of the noise of each number after all add up."""
        return consistent_variances(tree, self._noise_variances(tree)) * self._size**2

    def running_variances(self, tree: SliceTree) -> FloatArray:
        """[leaves], of the noise of each running total after all add up."""
        nothing = consistent_estimate(tree, np.zeros(tree.num_nodes), self._noise_variances(tree))
        return running_totals(nothing)[1] * self._size**2

    def half_widths(self, stddev: FloatArray, confidence: float) -> FloatArray:
        """Of the intervals of numbers with these standard deviations, after all add up."""
        measured = [noise for noise in self.level_noise if noise is not None]
        noise = min(measured, key=lambda noise: noise.noise_stddev)
        return noise.combined_half_width(stddev / self._size, confidence) * self._size

    def measured_noise(self, level: int, confidence: float) -> tuple[float, float] | None:
        """Standard deviation and half-width of a number as measured; None if it is not."""
        noise = self.level_noise[level]
        if noise is None:
            return None
        return noise.noise_stddev * self._size, noise.half_width(confidence) * self._size

    def answer(
        self, totals: Sequence[SliceTotals], *, confidence: float, rng: NoiseSource
    ) -> AnswerTable:
        """The released table.

        Privacy:
          Unit: that of the plan, add-or-remove. Event: `event()`. Relies on: totals were
          bounded as the job says; sums over leaves keep the L1 bound at every level.
        """
        (found,) = totals
        slices = chosen_slices(found.slices, found.raw_unit_counts, self.selection, rng=rng)
        if slices.height == 0:  # no slice passed the private choice
            frame = answer_frame(slices, [_no_answer(self._number)])
            floats = [pl.lit(0.0).alias(name) for name in ("nonnegative", *MEASURED_COLUMNS)]
            frame = frame.with_columns(pl.lit(0, pl.Int64).alias("level"), *floats)
        else:
            estimate = self._estimate(self.tree(slices), steps_of(found, slices)[:, 0], rng)
            frame = self._frame(slices, estimate, confidence)
        return AnswerTable(
            name=self.query.name, frame=frame, event=self.event(), confidence=confidence
        )

    @property
    def _number(self) -> str:
        return self.job.amounts[0].name

    def _estimate(
        self, tree: SliceTree, leaf_steps: IntArray, rng: NoiseSource
    ) -> NonnegativeEstimate:
        raw_steps = tree.node_totals(leaf_steps)
        noisy = np.zeros(tree.num_nodes)
        for noise, nodes in zip(self.level_noise, tree.level_slices, strict=True):
            if noise is not None:
                noisy[nodes] = noise.release(raw_steps[nodes].astype(np.int64), rng=rng)
        return nonnegative_estimate(tree, noisy, self._noise_variances(tree))

    def _noise_variances(self, tree: SliceTree) -> FloatArray:
        """[nodes], in steps, infinite where nothing is measured."""
        by_level = [np.inf if n is None else n.noise_stddev**2 for n in self.level_noise]
        return np.array(by_level)[tree.levels]

    def _frame(
        self, slices: pl.DataFrame, estimate: NonnegativeEstimate, confidence: float
    ) -> pl.DataFrame:
        unbiased = estimate.unbiased
        if self.query.has_running_totals:
            return self._day_frame(slices, unbiased, confidence)
        keys = unbiased.tree.keys
        answer = self._answer(self._number, unbiased.values, unbiased.variances, confidence)
        return answer_frame(slices if keys is None else keys, [answer]).with_columns(
            pl.Series("level", unbiased.tree.levels),
            pl.Series("nonnegative", estimate.values * self._size),
            *self._as_measured(unbiased.noisy_totals, unbiased.noise_variances),
        )

    def _day_frame(
        self, slices: pl.DataFrame, unbiased: TreeEstimate, confidence: float
    ) -> pl.DataFrame:
        days = unbiased.tree.leaf_nodes
        by_day = unbiased.values[days], unbiased.variances[days]
        answers = [
            self._answer(self._number, *by_day, confidence),
            self._answer(f"running {self._number}", *running_totals(unbiased), confidence),
        ]
        # Every other row is a running total, which nobody measured.
        noisy, variances = np.full(2 * len(days), np.nan), np.full(2 * len(days), np.inf)
        noisy[::2], variances[::2] = unbiased.noisy_totals[days], unbiased.noise_variances[days]
        return answer_frame(slices, answers).with_columns(self._as_measured(noisy, variances))

    def _as_measured(self, noisy: FloatArray, variances: FloatArray) -> list[pl.Series]:
        """Numbers in front of consistency: post-processing of the same noise, so public."""
        values = (noisy * self._size, np.sqrt(variances) * self._size)
        return [pl.Series(name, v) for name, v in zip(MEASURED_COLUMNS, values, strict=True)]

    @property
    def _size(self) -> float:
        """What one step is worth."""
        return self.job.amounts[0].clip / self.job.steps

    def _answer(
        self, number: str, steps: FloatArray, variances: FloatArray, confidence: float
    ) -> Answer:
        stddev = np.sqrt(np.maximum(variances, _LEAST_STDDEV**2)) * self._size
        return Answer.around(
            number,
            steps * self._size,
            half_width=self.half_widths(stddev, confidence),
            noise_stddev=stddev,
        )


def _no_answer(number: str) -> Answer:
    nothing = np.zeros(0)
    return Answer.around(number, nothing, half_width=nothing, noise_stddev=nothing)
