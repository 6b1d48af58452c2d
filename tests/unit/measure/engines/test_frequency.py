"""Frequency histograms against loops over dicts."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import SliceJob, frequency_job
from tulle.privacy.units import Unit
from unit.measure.engines.log_oracle import md5, slice_of, unit_of
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    COLUMNS,
    IMPRESSION_DAY,
    ONE_IMPRESSION,
    SALT,
    TYPE,
    impressions,
    log_of,
)

KEYS = pl.DataFrame({"campaign": ["zz", "b", "(null)"]})


def oracle_cells(rows, job: SliceJob, unit: Unit) -> Counter:
    seen = Counter()
    for row in rows:
        if not job.only_kinds or row["kind"] in job.only_kinds:
            seen[unit_of(unit, COLUMNS, row), slice_of(job, row, None)] += 1
    numbers = None if job.keys is None else {key: n for n, key in enumerate(job.keys.iter_rows())}
    cells: Counter = Counter()
    for owner in {owner for owner, _ in seen}:
        own = [key for other, key in seen if other == owner and (numbers is None or key in numbers)]
        own.sort(
            key=lambda key: md5(SALT.hex(), *owner, *(key if numbers is None else [numbers[key]]))
        )
        for key in own[: job.bounds.max_slices_per_unit]:
            cells[key, min(seen[owner, key], job.num_columns)] += 1
    return cells


@pytest.mark.parametrize("unit", [Unit.user(), Unit.user(days=1), Unit.user_publisher()], ids=str)
@settings(max_examples=15)
@given(
    rows=impressions(max_size=25),
    slices=st.sampled_from([(), (CAMPAIGN,), (CAMPAIGN, IMPRESSION_DAY)]),
    max_frequency=st.integers(1, 4),
    max_slices=st.integers(1, 3),
    only_kinds=st.sampled_from([(), ("click", "view")]),
    has_keys=st.booleans(),
)
def test_histograms_agree_with_the_oracle(
    engine, unit, rows, slices, max_frequency, max_slices, only_kinds, has_keys
) -> None:
    job = frequency_job(
        name="reach",
        slices=slices,
        max_frequency=max_frequency,
        max_slices_per_unit=max_slices,
        keys=KEYS if has_keys and len(slices) == 1 else None,
        only_kinds=only_kinds,
    )
    (result,) = slice_totals(engine, log_of(rows, []), None, [job], unit=unit, salt=SALT)
    keys = list(result.slices.iter_rows()) if slices else [()]
    found = {
        (key, column + 1): int(count)
        for key, counts in zip(keys, result.raw_steps, strict=True)
        for column, count in enumerate(counts)
        if count
    }
    assert found == oracle_cells(rows, job, unit)
    if job.keys is not None:
        assert result.slices.equals(KEYS)


def test_what_has_no_frequency_is_refused(engine: DuckDBEngine) -> None:
    log = log_of([], [])
    settings_ = {"name": "reach", "max_frequency": 3, "keys": None}
    job = frequency_job(slices=(CAMPAIGN,), max_slices_per_unit=1, **settings_)
    with pytest.raises(ConfigError, match="one row"):
        slice_totals(engine, log, None, [job], unit=Unit.impression(), salt=SALT)
    with pytest.raises(ConfigError, match="max_slices_per_unit"):
        frequency_job(slices=(CAMPAIGN,), max_slices_per_unit=None, **settings_)
    of_sales = frequency_job(slices=(TYPE,), max_slices_per_unit=1, **settings_)
    with pytest.raises(ConfigError, match="counts impressions"):
        slice_totals(engine, log, None, [of_sales], unit=Unit.user(), salt=SALT)


def test_a_job_of_totals_and_one_of_frequencies_have_the_same_reach(engine) -> None:
    rows = [ONE_IMPRESSION | {"user": user} for user in (1, 1, 2, 3, 3, 3)]
    job = frequency_job(
        name="reach", slices=(), max_frequency=2, max_slices_per_unit=None, keys=None
    )
    (result,) = slice_totals(engine, log_of(rows, []), None, [job], unit=Unit.user(), salt=SALT)
    assert result.raw_steps.tolist() == [[1, 2]]
