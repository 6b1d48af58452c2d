"""Reach and frequency per slice, all from one noisy histogram a slice."""

import dataclasses

import numpy as np
import polars as pl

from tulle.measure.queries.answer_table import AnswerTable
from tulle.measure.queries.private_slices import chosen_slices, rows_of
from tulle.measure.queries.query import Query
from tulle.measure.reach.frequency_config import FrequencyConfig
from tulle.measure.reach.frequency_release import release_frequencies
from tulle.measure.slice_jobs import Frequencies, FrequencyJob
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.key_selection import KeySelectionConfig
from tulle.privacy.events import Composed, Event


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReachQuery:
    """A query about reach whose noise is fixed. Every field is public information."""

    query: Query
    job: FrequencyJob
    config: FrequencyConfig
    selection: KeySelectionConfig | None

    def event(self) -> Event:
        """What the table costs."""
        events: list[Event] = [] if self.selection is None else [self.selection.event()]
        return Composed(events=(*events, self.config.event()))

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

    def answer(self, found: Frequencies, *, confidence: float, rng: NoiseSource) -> AnswerTable:
        """The released table.

        Privacy:
          Unit: that of the plan, add-or-remove. Event: `event()`. Relies on: a unit is in at
          most `max_slices_per_unit` slices and in one bucket of each.
        """
        raw_unit_counts = found.raw_counts.sum(axis=1)
        slices = chosen_slices(found.slices, raw_unit_counts, self.selection, rng=rng)
        if self.selection is not None:
            raw_counts = found.raw_counts[rows_of(found.slices, slices).to_numpy()]
            found = Frequencies(slices=slices, raw_counts=raw_counts)
        released = release_frequencies(found, self.config, rng=rng, confidence=confidence)
        number = (
            pl.when(pl.col("k").is_null() | (pl.col("metric") == "reach"))
            .then(pl.col("metric").str.replace_all("_", " "))
            .when(pl.col("metric") == "k_plus_reach")
            .then(pl.format("{}+ reach", "k"))
            .when(pl.col("k") == self.config.max_frequency)
            .then(pl.format("{}+ frequency", "k"))
            .otherwise(pl.format("{} frequency", "k"))
        )
        frame = released.table().with_columns(number=number)
        columns = (*found.slices.columns, "number", "value", "low", "high", "noise_stddev")
        return AnswerTable(
            name=self.query.name,
            frame=frame.select(columns),
            event=self.event(),
            confidence=confidence,
        )
