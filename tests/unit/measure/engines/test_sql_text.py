"""Choices by keyed md5 are fair, follow the salt, and tell all rows apart."""

import hashlib
import math
import statistics
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, FileTable, FrameTable
from tulle.measure.engines import totals
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.engine import Program, Step
from tulle.measure.engines.sql_text import keyed_draw, keyed_md5, salt_frame
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import Bounds, Subject
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import CAMPAIGN, SALT, job_of

NUM_USERS = 40_000
MAX_SLICES = 2
LARGEST_SCORE = 6.2
"""Two-sided chance of a larger normal score: below 1e-9."""


def crowded_log() -> tuple[AdLog, list[int]]:
    """Users with 1 to 8 consecutive campaigns of 16, and the number of campaigns of each."""
    users = np.arange(NUM_USERS)
    sizes = users % 8 + 1
    user = np.repeat(users, sizes)
    place = np.arange(len(user)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    campaign = (user // 8 + place) % 16
    frame = pl.DataFrame({"user": user, "timestamp": user * 0, "campaign": campaign})
    return AdLog(impressions=FrameTable(frame=frame), conversions=None), sizes.tolist()


def scores(engine: DuckDBEngine, salt: bytes = SALT) -> list[float]:
    """Distance of each campaign's kept units from their exact expectation, in deviations."""
    log, sizes = crowded_log()
    job = job_of(
        CAMPAIGN,
        subject=Subject.IMPRESSIONS,
        bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=MAX_SLICES),
    )
    (result,) = slice_totals(engine, log, None, [job], unit=Unit.user(), salt=salt)
    counts = dict(zip(result.slices["campaign"], result.raw_unit_counts, strict=True))
    expected = dict.fromkeys(counts, 0.0)
    variance = dict.fromkeys(counts, 0.0)
    for user, size in enumerate(sizes):
        chance = min(1.0, MAX_SLICES / size)
        for place in range(size):
            name = str((user // 8 + place) % 16)
            expected[name] += chance
            variance[name] += chance * (1 - chance)
    return [(counts[name] - expected[name]) / math.sqrt(variance[name]) for name in counts]


def test_kept_slices_have_their_exact_expectation(engine: DuckDBEngine) -> None:
    assert max(abs(score) for score in scores(engine)) < LARGEST_SCORE


def test_an_arithmetic_key_fails_the_same_test(engine, monkeypatch) -> None:
    def congruential(expressions: list[str]) -> str:
        unit, number = expressions
        seed = f"CAST({unit} AS BIGINT) * 31 + CAST({number} AS BIGINT)"
        return f"(({seed}) * 1103515245 + 12345) % 65536"

    monkeypatch.setattr(totals, "keyed_draw", congruential)
    assert max(abs(score) for score in scores(engine)) > LARGEST_SCORE


def test_scores_spread_like_those_of_fair_choices(engine: DuckDBEngine) -> None:
    every = [score for number in range(4) for score in scores(engine, bytes([number]) * 16)]
    # A choice that followed the values would leave all scores near zero, or far from it.
    assert 0.5 < statistics.pstdev(every) < 1.5


def test_the_salt_changes_the_choice(engine: DuckDBEngine) -> None:
    assert scores(engine) == scores(engine)
    assert scores(engine) != scores(engine, b"another salt, 16")


def test_a_short_salt_is_refused() -> None:
    with pytest.raises(ConfigError, match="8 bytes"):
        salt_frame(bytes(8))


def test_no_two_rows_have_one_text(engine: DuckDBEngine, tmp_path: Path) -> None:
    values = ["", "1:", "a", "a1:b", "b", None, "-", "1:a", ":"]
    pairs = pl.DataFrame(
        [(left, right) for left in values for right in values],
        schema={"x": pl.String, "y": pl.String},
        orient="row",
    )
    pairs.write_parquet(tmp_path / "pairs.parquet")
    program = Program(
        tables={"pairs": FileTable(paths=(tmp_path / "pairs.parquet",))},
        frames={"tulle_salt": salt_frame(SALT)},
        steps=(Step("drawn", f"SELECT {keyed_md5(['x', 'y'])} AS draw FROM pairs"),),  # noqa: S608
        outputs=("drawn",),
    )
    (rows,) = engine.run(program)
    assert len(set(rows["draw"])) == pairs.height


def test_the_salt_stands_in_no_sql() -> None:
    assert SALT.hex() not in keyed_md5(["u", "s0"])
    program = Program(tables={}, frames={"tulle_salt": salt_frame(SALT)}, steps=(), outputs=())
    assert SALT.hex() not in repr(program)


def test_a_draw_is_the_head_of_the_md5_of_salt_and_row(engine: DuckDBEngine) -> None:
    program = Program(
        tables={},
        frames={"tulle_salt": salt_frame(SALT)},
        steps=(Step("drawn", f"SELECT {keyed_draw(['42', chr(39) + 'ab' + chr(39)])} AS draw"),),
        outputs=("drawn",),
    )
    (rows,) = engine.run(program)
    digest = hashlib.md5(f"{SALT.hex()}2:422:ab".encode()).hexdigest()  # noqa: S324
    assert list(rows["draw"]) == [digest[:12]]


def test_an_engine_forgets_the_salt_after_each_program(engine: DuckDBEngine) -> None:
    scores(engine)
    forgotten = Program(
        tables={},
        steps=(Step("remains", "SELECT GETVARIABLE('tulle_salt') IS NULL AS is_forgotten"),),
        outputs=("remains",),
    )
    (rows,) = engine.run(forgotten)
    assert list(rows["is_forgotten"]) == [True]
