"""What one impression changes in the totals of the engine, for many conversions at once.

Each log is one user with one conversion. Its neighbours are users of their own, in slices of
their own, so that one run gives the totals of all of them.
"""

import collections
import itertools

import numpy as np
import polars as pl
import pytest

from tulle.measure.ad_log import AdLog, FrameTable, LogColumns
from tulle.measure.attribution.rules import (
    Attribution,
    LastTouch,
    Linear,
    PositionBased,
    Rule,
    TimeDecay,
)
from tulle.measure.attribution.sensitivity import sensitivity_steps
from tulle.measure.engines.engine import open_engine
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import SliceJob
from tulle.privacy.units import Unit
from unit.measure.attribution.tiny_logs import CAMPAIGN, COUNT_AND_VALUE, slice_job

NUM_LOGS = 60
CONVERSION_TIME = 1_020
COLUMNS = LogColumns(kind="kind", value="value")
Cells = dict[str, list[int]]


def log_with_neighbours() -> AdLog:
    rng = np.random.default_rng(3)
    impressions, conversions = [], []
    for log in range(NUM_LOGS):
        times = np.sort(rng.choice(20, size=rng.integers(1, 7), replace=False)).tolist()
        rows = [(t, "xyz"[rng.integers(3)], ("click", "view")[rng.integers(2)]) for t in times]
        value = float(rng.choice([0.0, 0.5, 1.0, 3.0]))
        for left_out in range(-1, len(rows)):
            user = f"{log}/{left_out}"
            conversions.append((user, CONVERSION_TIME, value))
            for place, (time, campaign, kind) in enumerate(rows):
                if place != left_out:
                    impressions.append((user, 1_000 + time, f"{user}/{campaign}", kind))
    return AdLog(
        impressions=FrameTable(
            frame=pl.DataFrame(
                impressions, schema=["user", "timestamp", "campaign", "kind"], orient="row"
            )
        ),
        conversions=FrameTable(
            frame=pl.DataFrame(conversions, schema=["user", "timestamp", "value"], orient="row")
        ),
        columns=COLUMNS,
    )


def totals_by_user(job: SliceJob, attribution: Attribution) -> dict[str, Cells]:
    with open_engine("duckdb") as engine:
        (totals,) = slice_totals(
            engine,
            log_with_neighbours(),
            attribution,
            [job],
            unit=Unit.impression(),
            salt=b"0123456789abcdef",
        )
    by_user: dict[str, Cells] = collections.defaultdict(dict)
    for (key,), steps in zip(totals.slices.rows(), totals.raw_steps.tolist(), strict=True):
        user, campaign = key.rsplit("/", 1)
        by_user[user][campaign] = steps
    return by_user


def furthest_neighbour(by_user: dict[str, Cells]) -> int:
    furthest = 0
    for user, other in by_user.items():
        whole = by_user[f"{user.split('/')[0]}/-1"]
        moved = [
            abs(a - b)
            for campaign in "xyz"
            for a, b in itertools.zip_longest(
                whole.get(campaign, []), other.get(campaign, []), fillvalue=0
            )
        ]
        furthest = max(furthest, sum(moved))
    return furthest


@pytest.mark.parametrize(
    "rule",
    [LastTouch(), Linear(), PositionBased(), TimeDecay(half_life_seconds=10)],
    ids=lambda rule: rule.name,
)
def test_the_engine_moves_as_far_as_stated_and_no_further(rule: Rule) -> None:
    attribution = Attribution(
        rule=rule,
        lookback_seconds=20,
        kind_lookback_seconds={"view": 12},
        max_touches=3,
        max_conversions_per_user=1,
    )
    job = slice_job(
        steps=1000, bounds=None, amounts=COUNT_AND_VALUE, slices=(CAMPAIGN,), has_rest=True
    )
    stated = sensitivity_steps(
        job, unit=Unit.impression(), attribution=attribution, columns=COLUMNS
    )
    furthest = furthest_neighbour(totals_by_user(job, attribution))
    assert 0.7 * stated < furthest <= stated
