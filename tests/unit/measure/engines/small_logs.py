"""Small logs with many ties, for engines: rows as dicts, and the same as an AdLog."""

from typing import Any

import polars as pl
from hypothesis import strategies as st

from tulle.measure.ad_log import AdLog, FrameTable, LogColumns, Side
from tulle.measure.slice_jobs import FINE_STEPS, Amount, Bounds, SliceColumn, SliceJob, Subject

Row = dict[str, Any]
SALT = b"sixteen bytes ok"

IMPRESSION_SCHEMA = {
    "user": pl.Int64,
    "timestamp": pl.Int64,
    "advertiser": pl.String,
    "publisher": pl.String,
    "campaign": pl.String,
    "kind": pl.String,
    "priority": pl.Int64,
    "impression_id": pl.Int64,
}
CONVERSION_SCHEMA = {
    "user": pl.Int64,
    "timestamp": pl.Int64,
    "advertiser": pl.String,
    "type": pl.String,
    "value": pl.Float64,
    "conversion_id": pl.Int64,
}

CAMPAIGN = SliceColumn(name="campaign", side=Side.IMPRESSION, column="campaign")
TYPE = SliceColumn(name="kind of sale", side=Side.CONVERSION, column="type")
DAY = SliceColumn(name="day", side=Side.CONVERSION, column="timestamp", is_day=True)
IMPRESSION_DAY = SliceColumn(name="seen", side=Side.IMPRESSION, column="timestamp", is_day=True)

COLUMNS = LogColumns(kind="kind", priority="priority", value="value", publisher="publisher")
HALF_DAY = 43_200
HALF_VALUE = (Amount(name="value", share=0.5, column="value", clip=10.0),)

ONE_IMPRESSION = {
    "user": 1,
    "timestamp": 0,
    "advertiser": "A",
    "publisher": "p",
    "campaign": "a",
    "kind": "view",
    "priority": 0,
    "impression_id": 0,
}
ONE_CONVERSION = {
    "user": 1,
    "timestamp": 5,
    "advertiser": "A",
    "type": "x",
    "value": 1.0,
    "conversion_id": 0,
}


def impressions(max_size: int = 14) -> st.SearchStrategy[list[Row]]:
    """Rows of few users at few times, so that times of one user often tie."""
    row = st.fixed_dictionaries(
        {
            "user": st.integers(1, 3),
            "timestamp": st.integers(0, 5).map(lambda number: number * HALF_DAY),
            "advertiser": st.sampled_from(["A", "B"]),
            "publisher": st.sampled_from(["p", "q"]),
            "campaign": st.sampled_from(["a", "b", "c", "d|", None]),
            "kind": st.sampled_from(["click", "view", "other"]),
            "priority": st.integers(0, 2),
        }
    )
    return st.lists(row, min_size=1, max_size=max_size).map(_numbered("impression_id"))


def conversions(max_size: int = 6) -> st.SearchStrategy[list[Row]]:
    """Rows at times of impressions and between them."""
    row = st.fixed_dictionaries(
        {
            "user": st.integers(1, 3),
            "timestamp": st.integers(0, 12).map(lambda number: number * HALF_DAY // 2),
            "advertiser": st.sampled_from(["A", "B"]),
            "type": st.sampled_from(["x", "y"]),
            "value": st.sampled_from([0.0, 0.25, 1.0, 3.0, 50.0]),
        }
    )
    return st.lists(row, min_size=1, max_size=max_size).map(_numbered("conversion_id"))


def log_of(
    impression_rows: list[Row], conversion_rows: list[Row], columns: LogColumns = COLUMNS
) -> AdLog:
    """The rows as tables in memory."""
    return AdLog(
        impressions=FrameTable(frame=pl.DataFrame(impression_rows, schema=IMPRESSION_SCHEMA)),
        conversions=FrameTable(frame=pl.DataFrame(conversion_rows, schema=CONVERSION_SCHEMA)),
        columns=columns,
    )


def quoted_log() -> AdLog:
    """A few users, with a campaign whose name needs quoting."""
    users = [number % 5 for number in range(40)]
    impression_frame = pl.DataFrame(
        {
            "user": users,
            "timestamp": [1000 + 13 * (number % 17) for number in range(40)],
            "campaign": ["it's" if number % 3 else "b" for number in range(40)],
            "kind": ["click" if number % 2 else "view" for number in range(40)],
            "priority": [number % 4 for number in range(40)],
        }
    )
    conversion_frame = pl.DataFrame(
        {
            "user": [number % 6 for number in range(12)],
            "timestamp": [1100 + 29 * number for number in range(12)],
            "type": ["xy"[number % 2] for number in range(12)],
            "value": [float(number) for number in range(12)],
        }
    )
    return AdLog(
        impressions=FrameTable(frame=impression_frame),
        conversions=FrameTable(frame=conversion_frame),
        columns=LogColumns(kind="kind", priority="priority"),
    )


def job_of(
    *slices: SliceColumn,
    amounts: tuple[Amount, ...] = (Amount(name="conversions"),),
    bounds: Bounds | None = None,
    steps: int = 1,
    **others: Any,
) -> SliceJob:
    """A job over conversions, unless told otherwise."""
    settings = {"name": "job", "subject": Subject.CONVERSIONS, "keys": None} | others
    return SliceJob(slices=slices, amounts=amounts, bounds=bounds, steps=steps, **settings)


def all_settings_job(bounds: Bounds) -> SliceJob:
    """A job with a value, a rest, conversions without impressions and three slice columns."""
    return job_of(
        CAMPAIGN,
        TYPE,
        DAY,
        amounts=HALF_VALUE,
        has_rest=True,
        bounds=bounds,
        steps=FINE_STEPS,
        counts_unattributed=True,
    )


def _numbered(name: str) -> Any:
    return lambda rows: [row | {name: number} for number, row in enumerate(rows)]
