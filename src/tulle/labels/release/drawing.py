"""One pass of noise over the labels of a table, after all of them were looked at."""

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from tulle.data.source_files import SourceFile
from tulle.errors import DataError, RunStateError
from tulle.labels.label_prior import raw_cell_counts, release_prior_of_counts
from tulle.labels.release.label_noise import LabelNoise, LearntPriorNoise, RowNoise, UnitNoise
from tulle.labels.release.label_table import FloatArray, LabelTable
from tulle.labels.release.noisy_table import with_noisy_labels
from tulle.labels.row_mechanism import NoisyLabels, RowMechanism
from tulle.labels.units.unit_labels import UnitNoisyLabels, check_binary_labels
from tulle.labels.units.unit_rows import UnitRows
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource
from tulle.runs.release_once import Watch


class Drawing:
    """Checks all labels, then gives the rows of the released table, once.

    Privacy:
      Unit: that of the table, replace. Event: that of the noise, for one call of `frames`,
      which refuses a second one. Relies on: the caller has paid before the first row, and
      `sources` were looked at before `unit_rows`.
    """

    def __init__(
        self,
        table: LabelTable,
        noise: LabelNoise,
        unit_rows: UnitRows | None,
        *,
        sources: tuple[SourceFile, ...],
        rng: NoiseSource,
        watch: Watch | None = None,
    ) -> None:
        self._table, self._noise, self._unit_rows, self._watch = table, noise, unit_rows, watch
        self._sources = sources
        self._raw_labels = np.zeros(0, np.uint8)
        self._raw_counts = np.zeros(0, np.int64)
        self._is_checked = self._is_drawn = False
        self.rng = rng
        self.num_rows = 0
        """Rows of the released table so far."""
        self.description: dict[str, Any] = {}
        """The mechanism in plain data, once the first row is drawn."""

    def check_labels(self) -> None:
        """Looks at all labels before anything is spent.

        Raises:
          DataError: A label is missing or outside of the declared values.
        """
        noise = self._noise
        blocks = self._table.label_blocks(self._check_block)
        if isinstance(noise, LearntPriorNoise):
            counts = [raw_cell_counts(labels, noise.prior) for labels in blocks]
            self._raw_counts = np.sum(counts, axis=0)
        elif isinstance(noise, UnitNoise):
            self._raw_labels = np.concatenate([labels.astype(np.uint8) for labels in blocks])
        else:
            for _ in blocks:
                pass
        self._is_checked = True

    def _check_block(self, labels: FloatArray) -> None:
        if isinstance(self._noise, UnitNoise):
            check_binary_labels(labels, len(labels))
        elif isinstance(self._noise, LearntPriorNoise):
            self._noise.fallback.check_labels(labels)
        else:
            self._noise.mechanism.check_labels(labels)

    def check_unchanged(self) -> None:
        """Refuses files that are not those which were checked."""
        if self._table.inspect_files() != self._sources:
            names = ", ".join(path.name for path in self._table.paths)
            raise DataError(f"{names} changed while it was read; start again.")

    def frames(self) -> Iterator[pl.DataFrame]:
        """The rows of the released table, with fresh noise."""
        if not self._is_checked or self._is_drawn:
            raise RunStateError("labels are checked first and then drawn once.")
        self._is_drawn = True
        for frame in self._unwatched():
            self.num_rows += len(frame)
            yield frame
            if self._watch is not None:
                self._watch(self.num_rows)

    def _unwatched(self) -> Iterator[pl.DataFrame]:
        if isinstance(self._noise, UnitNoise):
            yield from self._unit_frames(self._noise)
            return
        mechanism = self._row_mechanism(self._noise)
        for kept, labels in self._table.blocks():
            yield with_noisy_labels(kept, mechanism.release(labels, rng=self.rng))

    def _row_mechanism(self, noise: RowNoise | LearntPriorNoise) -> RowMechanism:
        if isinstance(noise, RowNoise):
            self.description = noise.mechanism.describe()
            return noise.mechanism
        prior = release_prior_of_counts(self._raw_counts, noise.prior, rng=self.rng)
        mechanism = noise.mechanism(prior)
        self.description = mechanism.describe() | {"prior_release": prior.describe()}
        return mechanism

    def _unit_frames(self, noise: UnitNoise) -> Iterator[pl.DataFrame]:
        if self._unit_rows is None:
            raise RunStateError("noise by units needs the rows of each unit.")
        self.description = noise.mechanism.describe()
        drawn = noise.mechanism.release(
            self._raw_labels, self._unit_rows, rng=self.rng, key=secrets.token_bytes(32)
        )
        weights = drawn.channel.weights(noise.base_rate)
        weights /= weights.max()
        first = 0
        for kept, labels in self._table.blocks():
            last = first + len(labels)
            start, stop = np.searchsorted(drawn.rows, (first, last))
            part = slice(int(start), int(stop))
            yield with_noisy_labels(
                kept[drawn.rows[part] - first], _part(drawn, part), weights[part]
            )
            first = last


def _part(drawn: UnitNoisyLabels, part: slice) -> NoisyLabels:
    channel = drawn.channel
    return NoisyLabels(
        labels=drawn.labels[part],
        targets=drawn.targets[part],
        noise_variance=drawn.noise_variance[part],
        channel=BinaryChannel(
            prob_if_negative=channel.prob_if_negative[part],
            prob_if_positive=channel.prob_if_positive[part],
        ),
    )
