"""Numbers with next to no noise are those of a computation in polars alone."""

from pathlib import Path

import polars as pl
import pytest

from unit.measure.queries.small_measurements import (
    DAY,
    NUM_DAYS,
    config_of,
    run_measure,
    settings,
    small_log,
    write_log,
)

EPSILON = 5e5  # the limit of what is accepted is above; noise is far below one step
WIDE = (
    ("max_per_slice = 2", "max_per_slice = 300"),
    ("max_per_slice = 5", "max_per_slice = 500"),
    ("max_per_slice = 4", "max_per_slice = 500"),
    ("max_slices_per_unit = 3", "max_slices_per_unit = 8"),
    ("max_slices_per_unit = 2", "max_slices_per_unit = 8"),
)


def answers(folder: Path, *names: str, epsilon: float = EPSILON) -> dict[str, pl.DataFrame]:
    """Tables of these queries with bounds that cut nothing."""
    write_log(folder)
    text = settings(*names, epsilon=epsilon)
    for old, new in WIDE:
        text = text.replace(old, new)
    result = run_measure(config_of(folder, text), folder / f"out {epsilon}")
    return {table.name: table.frame for table in result.record.tables}


def last_touches() -> pl.DataFrame:
    """Each conversion with the last impression of its user within three days before it."""
    impressions, conversions = small_log()
    pairs = conversions.with_row_index("sale").join(impressions, on="user", suffix="_seen")
    age = pl.col("timestamp") - pl.col("timestamp_seen")
    return (
        pairs.filter(age >= 0, age <= 3 * DAY)
        .sort("timestamp_seen")
        .group_by("sale")
        .last()
        .with_columns(value=pl.min_horizontal(pl.col("value"), 20.0))
    )


def by_slice(frame: pl.DataFrame, number: str, *columns: str) -> dict[tuple[str, ...], float]:
    rows = frame.filter(pl.col("metric") == number)
    return {tuple(row[name] for name in columns): row["value"] for row in rows.to_dicts()}


def grouped(frame: pl.DataFrame, what: pl.Expr, *columns: str) -> dict[tuple[str, ...], float]:
    found = frame.group_by(*columns).agg(what.alias("it"))
    return {tuple(row[name] for name in columns): row["it"] for row in found.to_dicts()}


def test_counts_values_averages_and_rates_by_campaign(tmp_path: Path) -> None:
    found = answers(tmp_path, "conversions", "rate", "impressions")
    found |= answers(tmp_path, "value", "average", epsilon=1e9)  # their steps are smaller
    impressions, _ = small_log()
    touches = last_touches().filter(pl.col("campaign") != "d")
    counts = grouped(touches, pl.len(), "campaign")
    assert len(counts) == 3
    assert min(counts.values()) > 5
    assert by_slice(found["conversions"], "conversions", "campaign") == pytest.approx(counts)
    values = grouped(touches, pl.col("value").sum(), "campaign")
    assert by_slice(found["value"], "value", "campaign") == pytest.approx(values, abs=0.01)
    assert by_slice(found["average"], "value", "campaign") == pytest.approx(values, abs=0.01)
    averages = grouped(touches, pl.col("value").mean(), "campaign")
    assert by_slice(found["average"], "average value", "campaign") == pytest.approx(
        averages, abs=0.01
    )
    shown = grouped(impressions.filter(pl.col("campaign") != "d"), pl.len(), "campaign")
    assert by_slice(found["impressions"], "impressions", "campaign") == pytest.approx(shown)
    rates = {key: counts[key] / shown[key] for key in counts}
    assert by_slice(found["rate"], "rate", "campaign") == pytest.approx(rates)


def test_levels_and_running_totals(tmp_path: Path) -> None:
    found = answers(tmp_path, "levels", "running")
    touches = last_touches()
    kept = touches.filter(pl.col("campaign") != "d")
    leaves = grouped(kept, pl.len(), "geo", "campaign")
    tops = {(geo, None): n for (geo,), n in grouped(kept, pl.len(), "geo").items()}
    every = leaves | tops | {(None, None): kept.height}
    assert by_slice(found["levels"], "conversions", "geo", "campaign") == pytest.approx(
        every, abs=1e-3
    )
    days = [touches.filter(pl.col("timestamp") // DAY == day).height for day in range(NUM_DAYS)]
    running = by_slice(found["running"], "running conversions", "day")
    assert list(running) == [(f"1970-01-0{day + 1}",) for day in range(NUM_DAYS)]
    assert list(running.values()) == pytest.approx([sum(days[: n + 1]) for n in range(8)], abs=1e-2)


def test_reach_and_frequency(tmp_path: Path) -> None:
    text = settings("reach", epsilon=500).replace(
        "max_slices_per_unit = 2", "max_slices_per_unit = 4"
    )
    write_log(tmp_path)
    (table,) = run_measure(config_of(tmp_path, text), tmp_path / "out").record.tables
    impressions, _ = small_log()
    seen = impressions.group_by("campaign", "user").len()
    for campaign in ("a", "b", "c"):
        own = seen.filter(pl.col("campaign") == campaign)["len"]
        for number, expected in (
            ("reach", own.len()),
            ("2+ reach", (own >= 2).sum()),
            ("4+ reach", (own >= 4).sum()),
        ):
            release = table.release(number, campaign=campaign)
            assert release.value == pytest.approx(expected, abs=0.2), (campaign, number)


def test_bounds_cut_what_one_user_adds(tmp_path: Path) -> None:
    # One user has all of it: two contributions to each slice, then three slices.
    impressions, conversions = small_log(num_users=1)
    write_log(tmp_path, (impressions, conversions))
    text = settings("conversions", "impressions", epsilon=500)
    first, second = run_measure(config_of(tmp_path, text), tmp_path / "out").record.tables
    assert first.frame["value"].to_list() == pytest.approx([2.0, 2.0, 2.0])
    assert sorted(second.frame["value"]) == pytest.approx([0.0, 4.0, 4.0])


def test_conversions_of_slices_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    found = answers(tmp_path, "conversions", "levels")
    assert set(found["conversions"]["campaign"]) == {"a", "b", "c"}
    kept = last_touches().filter(pl.col("campaign") != "d").height
    top = found["levels"].filter(pl.col("level") == 0)
    assert top["value"].to_list() == pytest.approx([kept], abs=1e-3)


def test_private_slices_are_found_where_many_users_are(tmp_path: Path) -> None:
    impressions, conversions = small_log(num_users=3000, num_rows=20_000)
    lonely = impressions.head(1).with_columns(campaign=pl.lit("only me"))
    write_log(tmp_path, (pl.concat([impressions, lonely]), conversions))
    text = settings("found rate", "found reach", epsilon=8)
    for table in run_measure(config_of(tmp_path, text), tmp_path / "out").record.tables:
        assert set(table.frame["campaign"]) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("name", ["row", "count", "user", "unit"])
def test_slices_may_have_the_names_of_other_things(tmp_path: Path, name: str) -> None:
    impressions, conversions = small_log(num_users=3000, num_rows=20_000)
    if name != "user":
        impressions = impressions.with_columns(pl.col("campaign").alias(name))
    write_log(tmp_path, (impressions, conversions))
    text = settings("found rate", "found reach", epsilon=8)
    text = text.replace('["campaign"]', f'["{name}"]')
    for table in run_measure(config_of(tmp_path, text), tmp_path / "out").record.tables:
        # Single users are never published.
        assert set(table.frame[name]) == (set() if name == "user" else {"a", "b", "c", "d"})
