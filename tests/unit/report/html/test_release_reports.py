"""Pages of measurements, labels and selection show what was released, to the digit."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.labels.class_response import ClassResponse
from tulle.labels.units.unit_response import PerRowResponse
from tulle.report.html.charts import BarChart, Chart, CurveChart, MatrixChart
from tulle.report.html.page import Page
from tulle.report.html.page_html import render_html
from tulle.report.labels_report import labels_page
from tulle.report.measure_report import measure_page
from tulle.report.report_files import page_of, report_path, write_report
from tulle.report.select_report import choices_page, plan_page, simulation_page
from tulle.report.wording import NOT_PRIVATE
from tulle.select.market.epsilon_sweep import CLIPPED
from unit.report.html.sample_releases import (
    HOSTILE,
    labels_record,
    measure_record,
    selection_plan,
    selection_record,
    simulation,
    small_card,
)


def named(page: Page, name: str) -> Chart:
    return next(chart for chart in page.charts if name in chart.name)


def bars_of(page: Page, name: str) -> dict[str, tuple[float | None, ...]]:
    chart = named(page, name)
    assert isinstance(chart, BarChart)
    return {bar.label: (bar.value, bar.low, bar.high) for bar in chart.bars}


def points_of(page: Page, name: str) -> dict[str, list[tuple[float, float]]]:
    chart = named(page, name)
    assert isinstance(chart, CurveChart)
    return {c.label: list(zip(c.xs, c.ys, strict=True)) for c in chart.curves}


def test_released_values_stand_with_their_intervals() -> None:
    page = measure_page(measure_record(), small_card())
    assert bars_of(page, ": conversions") == {
        "(sum)": (30.0, 25.0, 35.0),
        f"region {HOSTILE}": (20.0, 12.0, 28.0),
        "b": (10.0, None, None),
    }
    assert bars_of(page, "reach") == {
        "reach": (100.0, 90.0, 110.0),
        "2+": (40.0, 30.0, 50.0),
        "3+": (12.0, 2.0, 22.0),
        "4+": (-1.0, -11.0, 9.0),
    }


def test_relative_errors_are_noise_over_released_size() -> None:
    page = measure_page(measure_record(), small_card())
    # A number with unknown noise, and one below 0, have no relative error.
    assert points_of(page, f"by {HOSTILE}: relative error") == {
        "conversions": [(30.0, 2.5 / 30), (20.0, 0.2)]
    }
    assert [x for x, _ in points_of(page, "reach: relative error")["reach"]] == [100.0]


def test_levels_of_a_tree_have_their_noise_and_their_totals() -> None:
    page = measure_page(measure_record(), small_card())
    noise = bars_of(page, "noise by level")
    assert [value for value, _, _ in noise.values()] == [2.5, 4.0]
    totals = {name: value for name, (value, _, _) in bars_of(page, "totals by level").items()}
    assert list(totals.values()) == pytest.approx([30.0, 30.5, 30.0, 30.5])


def test_each_table_has_its_own_price() -> None:
    split = bars_of(measure_page(measure_record(), small_card()), "Budget split")
    prices = {name: value for name, (value, _, _) in split.items()}
    assert prices["reach"] == pytest.approx(1.0, rel=1e-6)
    assert prices["none"] == 0


def test_a_channel_of_bits_is_that_of_the_record() -> None:
    chart = named(labels_page(labels_record(), small_card()), "Channel")
    assert isinstance(chart, MatrixChart)
    keep = math.exp(2) / (1 + math.exp(2))
    assert chart.values[0] == pytest.approx((keep, 1 - keep))
    assert chart.values[1] == pytest.approx((1 - keep, keep))


@pytest.mark.parametrize(
    ("mechanism", "labels"),
    [
        (ClassResponse(epsilon=2.0, num_classes=4).describe(), ("0", "1", "2", "3")),
        (
            {"mechanism": "rr-on-bins", "epsilon": 2.0, "bin_lows": [0.0, 220.0]}
            | {"realised_epsilon": 2.0},
            ("from 0", "from 220"),
        ),
        (
            {
                "mechanism": "unbiased",
                "epsilon": 2.0,
                "atoms": [0.0, 10.0],
                "outputs": [-5.0, 15.0],
                "channel": [[0.7, 0.3], [0.3, 0.7]],
            },
            ("0", "10"),
        ),
    ],
)
def test_every_row_of_a_channel_sums_to_one(
    mechanism: dict[str, Any], labels: tuple[str, ...]
) -> None:
    chart = named(labels_page(labels_record(**mechanism), small_card()), "Channel")
    assert isinstance(chart, MatrixChart)
    assert chart.row_labels == labels
    for row in chart.values:
        assert math.fsum(row) == pytest.approx(1.0)
    if "channel" not in mechanism:
        # Epsilon is 2, and the picture must show just that.
        assert chart.values[0][0] / chart.values[1][0] == pytest.approx(math.exp(2.0))


def test_many_outputs_are_summed_in_groups_and_lose_no_chance() -> None:
    outputs = [float(n) for n in range(200)]
    mechanism = {
        "mechanism": "unbiased",
        "epsilon": 2.0,
        "atoms": outputs,
        "outputs": outputs,
        "channel": [[1 / 200] * 200] * 200,
    }
    chart = named(labels_page(labels_record(**mechanism), small_card()), "Channel")
    assert isinstance(chart, MatrixChart)
    assert (len(chart.row_labels), len(chart.column_labels)) == (50, 50)
    assert chart.values[0] == pytest.approx((1 / 50,) * 50)


def test_noise_of_units_is_shown_by_their_rows() -> None:
    mechanism = {
        "mechanism": "joint-rr",
        "epsilon": 2.0,
        "max_conversions_per_unit": 1,
        "max_rows_per_unit": 4,
        "assumed_base_rate": 0.05,
    }
    page = labels_page(labels_record(**mechanism), small_card())
    points = points_of(page, "Channel of a row")
    for rows, chance in points["label 1"]:
        # One report among rows + 1 vectors: the right one with chance e^2 / (e^2 + rows).
        assert chance == pytest.approx(math.exp(2) / (math.exp(2) + rows))
    assert [rows for rows, _ in points["label 0"]] == [1, 2, 3, 4]
    (variances,) = points_of(page, "Variance of a target").values()
    values = [value for _, value in variances]
    assert values == sorted(values)


def test_rows_that_share_epsilon_get_less_of_it_each() -> None:
    mechanism = PerRowResponse(epsilon=2.0, max_rows_per_unit=5)
    page = labels_page(labels_record(**mechanism.describe()), small_card())
    points = points_of(page, "Channel of a row")["label 1"]
    assert [rows for rows, _ in points] == [1, 2, 3, 4, 5]
    for rows, chance in points:
        assert chance == pytest.approx(1 / (1 + math.exp(-2 / rows)))


def test_variance_of_bits_is_beside_that_of_laplace_noise() -> None:
    page = labels_page(labels_record(), small_card())
    values = [value for value, _, _ in bars_of(page, "Variance of a target").values()]
    assert values == [0.18, 0.5]
    curves = points_of(page, "Variance over epsilon")
    (own,) = curves["this release"]
    assert own == (2.0, pytest.approx(math.exp(2) / (math.exp(2) - 1) ** 2))
    assert own in [(x, pytest.approx(y)) for x, y in curves["randomized response"]]


@pytest.mark.parametrize(
    ("mechanism", "values"),
    [
        (
            {"mechanism": "laplace", "epsilon": 2.0, "noise_scale": 200.0, "clip": False}
            | {"grid": {"low": 0.0, "high": 400.0}},
            [80_000.0, 80_000.0],
        ),
        (
            {"mechanism": "unbiased", "epsilon": 2.0, "low": 0.0, "high": 400.0}
            | {"expected_variance": 31_000.0, "largest_bias": 1e-13},
            [31_000.0, 80_000.0],
        ),
    ],
)
def test_variance_of_numbers_is_that_of_the_record(
    mechanism: dict[str, Any], values: list[float]
) -> None:
    page = labels_page(labels_record(**mechanism), small_card())
    found = [value for value, _, _ in bars_of(page, "Variance of a target").values()]
    assert found == values
    assert "Largest bias" not in render_html(page)


def test_choices_are_counted_by_public_data_alone() -> None:
    found = bars_of(choices_page(selection_record(), small_card()), "Decisions")
    assert [value for value, _, _ in found.values()] == [80.0, 20.0, 5.0]


def test_a_plan_shows_the_captured_gain_over_epsilon_gamma_and_finalists() -> None:
    page = plan_page("plan", selection_plan())
    best = points_of(page, "Captured gain by epsilon")["best"]
    assert best == [(1.0, pytest.approx(0.6)), (3.0, pytest.approx(0.8))]
    by_gamma = points_of(page, "Captured gain by cutoff gamma")
    assert by_gamma["epsilon 1"] == [(0.0, 0.1), (0.5, 0.6)]
    assert [x for x, _ in points_of(page, "by finalists")["epsilon 3"]] == [1.0, 4.0]
    assert page.is_private is None
    from_devices = plan_page("plan", selection_plan(is_from_devices=True))
    assert from_devices.verdict == NOT_PRIVATE


def test_a_simulation_shows_one_curve_for_each_mechanism_and_leaves_out_the_ambiguous() -> None:
    data = simulation()
    data["epsilon_rows"] += [row | {"mechanism": CLIPPED} for row in data["epsilon_rows"][:2]]
    page = simulation_page(data)
    for name in ("Captured gain by epsilon", "Revenue, per click", "Surplus, second-price"):
        assert list(points_of(page, name)) == [f"response {HOSTILE}", "adaptive"]
    prices = bars_of(page, "Prices without private data")
    assert [value for value, _, _ in prices.values()] == [-0.2, 0.1]
    assert page.verdict == NOT_PRIVATE


def test_a_market_without_gain_has_a_page() -> None:
    data = simulation() | {"gamma_rows": [], "finalist_rows": []}
    data["epsilon_rows"] = [row | {"captured_share": None} for row in data["epsilon_rows"]]
    assert "nothing to gain" in render_html(simulation_page(data))


def test_pages_go_beside_what_they_are_about(tmp_path: Path) -> None:
    assert report_path(tmp_path) == tmp_path / "report.html"
    assert report_path(tmp_path / "a.b.parquet") == tmp_path / "a.b.report.html"
    assert report_path(tmp_path / "a.release.json") == tmp_path / "a.report.html"
    assert report_path(tmp_path / "simulation.json") == tmp_path / "report.html"
    page = plan_page("plan", selection_plan())
    assert [path.name for path in write_report(page, tmp_path / "new/x.html")] == ["x.html", "x.md"]
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        write_report(page, tmp_path / "x.pdf")
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunStateError, match=r"README\.md exists"):
        write_report(page, tmp_path / "README.html")
    assert (tmp_path / "README.md").read_text() == "mine"


def test_what_has_no_page_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a\n1\n")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "odd.json").write_text("{}")
    (tmp_path / "odd.release.json").write_text('{"format": "other"}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty").mkdir()
    for name, problem in {
        "missing": "does not exist; name a run folder",
        "empty": "holds nothing",
        "table.csv": "table.release.json is not beside",
        "list.json": "no JSON object",
        "odd.release.json": "no record of a release",
        "broken.json": "cannot be read",
    }.items():
        with pytest.raises(DataError, match=problem):
            page_of(tmp_path / name)
    (tmp_path / "odd.release.json").unlink()
    with pytest.raises(DataError, match="no entry 'num_auctions'"):
        page_of(tmp_path / "odd.json")
    with pytest.raises(ConfigError, match="--baseline are for a run"):
        page_of(tmp_path / "empty", baseline=tmp_path)
    changed = selection_plan() | {"options": [1, 2]}
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with pytest.raises(DataError, match="not as tulle writes it"):
        page_of(tmp_path / "changed.json")
    (tmp_path / "simulation.json").write_text(json.dumps({"market": "m"}))
    with pytest.raises(DataError, match=r"simulation\.json has no entry"):
        page_of(tmp_path)
