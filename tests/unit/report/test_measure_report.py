"""What pages and plots of measurements show.

A hierarchy is shown before and after consistency, and only what was measured is compared. Plans
are drawn with one dot for each slice.
"""

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tulle.measure import ExpectedErrors
from tulle.report.html.chart_svg import charts_svg
from tulle.report.html.charts import Bar, BarChart
from tulle.report.html.page import Figure
from tulle.report.measure_report import expected_error_chart, tree_figures
from unit.measure.queries.small_measurements import config_of, run_measure, settings, write_log


def figures_of(rows: list[dict[str, Any]], slices: list[str]) -> dict[str, Figure]:
    found = {}
    for block in tree_figures("clicks", rows, slices):
        assert isinstance(block, Figure)
        found[block.chart.name.removeprefix("clicks: ")] = block
    return found


def bars_of(figure: Figure) -> dict[str, Bar]:
    assert isinstance(figure.chart, BarChart)
    return {bar.label: bar for bar in figure.chart.bars}


def row(geo: str | None, level: int, measured: float | None, value: float) -> dict[str, Any]:
    """A number of a tree; level 0 has noise of 3, level 1 of 4 before consistency."""
    stddev = None if measured is None else (3.0, 4.0)[level]
    return {
        "geo": geo,
        "level": level,
        "value": value,
        "noise_stddev": 2.0,
        "nonnegative": max(value, 0.0),
        "measured_value": measured,
        "measured_stddev": stddev,
    }


TREE = [row(None, 0, 30.0, 24.0), row("n", 1, 12.0, 14.0), row("s", 1, 8.0, 10.0)]


def test_gaps_are_parts_less_the_whole_with_the_noise_of_all() -> None:
    figure = figures_of(TREE, ["geo"])["sum of the parts less the whole, as measured"]
    (bar,) = bars_of(figure).values()
    assert bar.value == 12.0 + 8.0 - 30.0
    spread = math.sqrt(3**2 + 4**2 + 4**2)
    assert (bar.low, bar.high) == (pytest.approx(-10 - spread), pytest.approx(-10 + spread))
    assert "the largest gap is 0." in figure.caption


def test_a_gap_that_is_left_is_told() -> None:
    rows = [*TREE[:2], row("s", 1, 8.0, 10.5)]
    figure = figures_of(rows, ["geo"])["sum of the parts less the whole, as measured"]
    assert "the largest gap is 0.5." in figure.caption


def test_levels_have_noise_before_and_after() -> None:
    bars = bars_of(figures_of(TREE, ["geo"])["noise by level, before and after"])
    assert {label: bar.value for label, bar in bars.items()} == {
        "(sum), as measured": 3.0,
        "(sum), consistent": 2.0,
        "by geo, as measured": 4.0,
        "by geo, consistent": pytest.approx(2.0),
    }
    assert [bar.is_muted for bar in bars.values()] == [True, False, True, False]


def test_consistent_levels_sum_to_the_same_with_the_noise_of_the_top() -> None:
    bars = bars_of(figures_of(TREE, ["geo"])["total of each level, before and after"])
    assert bars["by geo, as measured"].value == 20.0
    assert bars["by geo, as measured"].high == pytest.approx(20 + math.sqrt(32))
    for label in ("(sum), consistent", "by geo, consistent"):
        assert (bars[label].value, bars[label].low, bars[label].high) == (24.0, 22.0, 26.0)


def test_a_level_that_was_not_measured_has_nothing_before() -> None:
    rows = [row(None, 0, None, 24.0), *TREE[1:]]
    found = figures_of(rows, ["geo"])
    assert "sum of the parts less the whole, as measured" not in found
    assert "(sum), as measured" not in bars_of(found["noise by level, before and after"])


def test_rows_of_the_first_version_of_the_file_have_what_they_know() -> None:
    rows = [
        {name: value for name, value in found.items() if not name.startswith("measured")}
        for found in TREE
    ]
    bars = bars_of(figures_of(rows, ["geo"])["noise by level, before and after"])
    assert list(bars) == ["(sum), consistent", "by geo, consistent"]


def test_numbers_of_no_hierarchy_have_no_such_figure() -> None:
    assert tree_figures("clicks", [{"geo": "n", "value": 1.0, "noise_stddev": 1.0}], ["geo"]) == []


def test_measured_numbers_come_from_the_release(tmp_path: Path) -> None:
    write_log(tmp_path)
    config = config_of(tmp_path, settings("levels", "running", epsilon=4.0))
    levels, running = run_measure(config, tmp_path / "out").record.tables
    rows = list(levels.plain_rows())
    assert all(row["measured_stddev"] > row["noise_stddev"] for row in rows)
    figure = figures_of(rows, levels.slice_columns)["sum of the parts less the whole, as measured"]
    tops = {row["geo"]: row["measured_value"] for row in rows if row["level"] == 1}
    (whole,) = (row["measured_value"] for row in rows if row["level"] == 0)
    assert bars_of(figure)["(sum), 2 parts"].value == pytest.approx(sum(tops.values()) - whole)
    assert len(bars_of(figure)) == 3
    assert "the largest gap is 0." in figure.caption
    days = [row for row in running.plain_rows() if row["metric"] == "conversions"]
    sums = [row for row in running.plain_rows() if row["metric"] != "conversions"]
    assert all(row["measured_value"] is not None for row in days)
    assert all(row["measured_value"] is None for row in sums)
    assert tree_figures("running", sums, ["day"]) == []
    assert list(figures_of(days, ["day"])) == ["noise by level, before and after"]


def expected(query: str, slices: pl.DataFrame | None) -> ExpectedErrors:
    return ExpectedErrors(
        query=query,
        metric="conversions",
        level="",
        noise_stddev=2.8,
        least_noise_stddev=2.8,
        is_as_measured=False,
        smallest_within=28,
        slices=slices,
    )


def test_a_plan_is_drawn_with_one_dot_for_each_slice_and_a_line_at_tau() -> None:
    sizes = pl.DataFrame({"expected": [0, 12, 340], "relative_error": [0.56, 0.23, 0.008]})
    chart = expected_error_chart([expected("days", sizes), expected("new", None)], tau=5)
    dots, limit = chart.curves
    assert (dots.label, dots.xs, dots.ys) == (
        "days: conversions",
        (1.0, 12.0, 340.0),
        (0.56, 0.23, 0.008),
    )
    assert (limit.label, limit.xs, limit.is_reference) == ("tau = 5", (5, 5), True)
    assert charts_svg([chart]).count("<circle") == 3 + 1  # one in the legend


def test_a_plan_without_sizes_is_drawn_as_tau_alone() -> None:
    chart = expected_error_chart([expected("days", None)], tau=5)
    assert [curve.label for curve in chart.curves] == ["tau = 5"]
