"""Wanted slices on their way to an engine, and slices on their way back."""

import numpy as np
import polars as pl

from tulle.errors import ConfigError
from tulle.measure.engines.contributions import KEY_NUMBER, key_columns
from tulle.measure.engines.engine import Rows
from tulle.measure.slice_jobs import FrequencyJob, IntArray, SliceJob


def check_keys(job: SliceJob | FrequencyJob) -> None:
    """Refuses keys that are not exactly one distinct text for each slice column."""
    names = [column.name for column in job.slices]
    if len({name.casefold() for name in names}) < len(names):
        raise ConfigError(
            f"job {job.name!r} names a slice twice in {names}, where case makes no difference; "
            "rename one."
        )
    if job.keys is None:
        return
    if list(job.keys.columns) != names:
        raise ConfigError(
            f"job {job.name!r}: its keys have columns {job.keys.columns}, its slices are {names}; "
            "they must be the same, in the same order."
        )
    if not names:
        return
    if any(kind != pl.String for kind in job.keys.dtypes) or any(
        column.null_count() for column in job.keys
    ):
        raise ConfigError(f"job {job.name!r}: keys must be text without nulls; cast them.")
    if job.keys.height == 0 or job.keys.is_duplicated().any():
        raise ConfigError(f"job {job.name!r}: keys must be distinct, and at least one.")


def keys_frame(job: SliceJob | FrequencyJob) -> pl.DataFrame:
    """Keys with their number, for the engine, under names of our own."""
    check_keys(job)
    if job.keys is None:
        raise ConfigError(f"job {job.name!r} has no keys.")
    texts = job.keys.rename(dict(zip(job.keys.columns, key_columns(job), strict=True)))
    return texts.with_columns(pl.Series(KEY_NUMBER, np.arange(job.keys.height)))


def result_slices(job: SliceJob | FrequencyJob, rows: Rows) -> tuple[pl.DataFrame, IntArray]:
    """The slices of a result, and the place of each row among them.

    With keys exactly these, else those that occur, sorted; without slices one place.
    """
    names = [column.name for column in job.slices]
    if not names:
        return pl.DataFrame(), np.zeros(len(next(iter(rows.values()))), np.int64)
    if job.keys is not None:
        return job.keys, np.asarray(rows[KEY_NUMBER], np.int64)
    own = key_columns(job)
    texts = pl.DataFrame(
        {
            name: pl.Series(name, list(rows[f"s{index}"]), pl.String)
            for index, name in enumerate(own)
        }
    )
    distinct = texts.unique().sort(own)
    numbered = distinct.with_row_index(KEY_NUMBER)
    places = texts.join(numbered, on=own, how="left", maintain_order="left")
    slices = distinct.rename(dict(zip(own, names, strict=True)))
    return slices, places[KEY_NUMBER].to_numpy().astype(np.int64)
