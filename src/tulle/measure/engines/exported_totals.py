"""Totals that another engine computed by the emitted script, read back for their noise.

Each result is a file named after its job, with the columns that the script gives it. That the
script ran as it was printed, over the right rows and with a secret salt, nobody here can see.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tulle.data.source_files import content_sha256
from tulle.errors import ConfigError, DataError
from tulle.measure.slice_jobs import Frequencies, FrequencyJob, IntArray, SliceJob, SliceTotals
from tulle.measure.small_tables import file_stem, read_table

_FORMS = (".parquet", ".csv")
_UNITS = "num_units"
_FREQUENCY = "frequency"


def result_name(job: SliceJob | FrequencyJob) -> str:
    """What the file with a job's result is called, without its ending."""
    return file_stem(job.name)


def check_result_names(jobs: Sequence[SliceJob | FrequencyJob]) -> None:
    """Refuses jobs whose results would be one file, or have one name for two columns."""
    for job in jobs:
        numbers = (_FREQUENCY,) if isinstance(job, FrequencyJob) else job.amount_names
        columns = [*(column.name for column in job.slices), *numbers, _UNITS]
        folded = [column.casefold() for column in columns]
        for column in columns:
            if folded.count(column.casefold()) > 1:
                raise ConfigError(
                    f"the result of {job.name!r} would have two columns {column!r}; rename the "
                    "slice."
                )
    names = [result_name(job) for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two results would be called {name!r}; give the queries names that differ in "
                "letters or digits."
            )


@dataclasses.dataclass(frozen=True)
class ExportedTotals:
    """A folder of results. Sensitive: they are exact."""

    folder: Path

    def sha256(self, jobs: Sequence[SliceJob | FrequencyJob]) -> list[str]:
        """Of the file of each job."""
        return [content_sha256(self._file(job)) for job in jobs]

    def slice_totals(self, job: SliceJob) -> SliceTotals:
        """The totals of a job.

        Raises:
          DataError: The file is not what the script returns, or breaks a bound.
        """
        frame, slices, places = self._placed(job, (*job.amount_names, _UNITS))
        num_slices = slices.height if job.slices else 1
        raw_steps = np.zeros((num_slices, len(job.amount_names)), np.int64)
        raw_unit_counts = np.zeros(num_slices, np.int64)
        for place, name in enumerate(job.amount_names):
            raw_steps[places, place] = self._whole(job, frame, name)
        raw_unit_counts[places] = self._whole(job, frame, _UNITS)
        if job.bounds is not None:
            limit = raw_unit_counts * job.bounds.max_steps_per_slice(job.steps)
            if np.any(raw_steps.sum(axis=1) > limit):
                raise DataError(
                    f"{self._file(job).name} has more than its units may add; run the script "
                    "that these settings print."
                )
        return SliceTotals(slices=slices, raw_steps=raw_steps, raw_unit_counts=raw_unit_counts)

    def frequencies(self, job: FrequencyJob) -> Frequencies:
        """The histograms of a job.

        Raises:
          DataError: The file is not what the script returns.
        """
        frame, slices, places = self._placed(job, (_FREQUENCY, _UNITS))
        buckets = self._whole(job, frame, _FREQUENCY)
        if np.any((buckets < 1) | (buckets > job.max_frequency)):
            raise DataError(
                f"{self._file(job).name}: frequency must be from 1 to {job.max_frequency}."
            )
        raw_counts = np.zeros((slices.height if job.slices else 1, job.max_frequency), np.int64)
        raw_counts[places, buckets - 1] = self._whole(job, frame, _UNITS)
        return Frequencies(slices=slices, raw_counts=raw_counts)

    def _file(self, job: SliceJob | FrequencyJob) -> Path:
        for form in _FORMS:
            path = self.folder / f"{result_name(job)}{form}"
            if path.exists():
                return path
        raise DataError(
            f"{self.folder.name} has no {result_name(job)}.parquet or .csv; save the result of "
            f"{job.name!r} under that name."
        )

    def _placed(
        self, job: SliceJob | FrequencyJob, numbers: Sequence[str]
    ) -> tuple[pl.DataFrame, pl.DataFrame, IntArray]:
        """The rows, the slices of the result, and the place of each row among them."""
        path = self._file(job)
        frame = read_table(path, as_text=True)
        names = [column.name for column in job.slices]
        for name in (*names, *numbers):
            if name not in frame.columns:
                raise DataError(f"{path.name} has no column {name!r}, which the script returns.")
        distinct = (*names, _FREQUENCY) if isinstance(job, FrequencyJob) else tuple(names)
        keyed = frame.select(pl.col(name).cast(pl.String) for name in distinct)
        is_repeated = keyed.is_duplicated().any() if distinct else frame.height > 1
        if is_repeated:
            raise DataError(f"{path.name} has a slice twice; export the whole result once.")
        if not names:
            return frame, pl.DataFrame(), np.zeros(frame.height, np.int64)
        texts = keyed.select(names)
        slices = texts.unique().sort(names) if job.keys is None else job.keys
        numbered = slices.with_row_index("row of slice")
        places = texts.join(numbered, on=names, how="left", maintain_order="left")["row of slice"]
        if places.null_count():
            raise DataError(f"{path.name} has slices that are not among the keys.")
        return frame, slices, places.to_numpy().astype(np.int64)

    def _whole(self, job: SliceJob | FrequencyJob, frame: pl.DataFrame, name: str) -> IntArray:
        numbers = frame[name].cast(pl.Int64, strict=False)
        if numbers.null_count() or (numbers < 0).any():
            raise DataError(f"{self._file(job).name}: {name} must be whole numbers >= 0.")
        return np.asarray(numbers.to_numpy(), np.int64)
