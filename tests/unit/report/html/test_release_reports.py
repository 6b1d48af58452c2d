"""Pages of measurements, labels and selection show what was released, to the digit."""

import json
import math
from pathlib import Path

import pytest

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.lab.markets.sweeps import CLIPPED
from tulle.report.html.charts import BarChart, Chart, CurveChart, MatrixChart
from tulle.report.html.page import Page
from tulle.report.html.page_text import render_html
from tulle.report.labels_report import labels_page
from tulle.report.measure_report import measure_page
from tulle.report.select_report import choices_page, plan_page, simulation_page
from tulle.report.verbs import page_of, report_path, write_report
from tulle.runs.card_text import NOT_PRIVATE
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
    assert bars_of(page, "conversions, with intervals") == {
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
    levels, reach = (chart for chart in page.charts if chart.name == "Relative error by size")
    assert isinstance(levels, CurveChart)
    assert isinstance(reach, CurveChart)
    (curve,) = levels.curves
    assert (curve.xs, curve.ys) == ((30.0, 20.0), (2.5 / 30, 0.2))
    assert [curve.xs for curve in reach.curves] == [(100.0,), (40.0,), (12.0,)]


def test_the_first_facts_are_how_much_and_how_sure() -> None:
    page = measure_page(measure_record(), small_card())
    facts = dict(page.facts)
    assert (facts["numbers"], facts["tables"]) == ("7", "3")
    # 2.5 / 30, 4 / 20, 5 / 100, 5 / 40 and 5 / 12.
    assert facts["noise in numbers above 0, median"] == "12% of the number"


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


def test_labels_begin_with_how_often_a_report_is_true() -> None:
    page = labels_page(labels_record(), small_card())
    facts = dict(page.facts)
    assert facts["rows"] == "5,000"
    assert facts["reports that are the truth"] == f"{math.exp(2) / (1 + math.exp(2)):.1%}"
    assert facts["noise in a target, standard deviation"] == "0.42426"


def test_a_mechanism_without_a_picture_says_so() -> None:
    page = labels_page(labels_record(mechanism="other", epsilon=1.0), small_card())
    assert "There is no picture" in render_html(page)
    assert "states no variance" in render_html(page)


def test_choices_are_counted_by_public_data_alone() -> None:
    found = bars_of(choices_page(selection_record(), small_card()), "Decisions")
    assert [value for value, _, _ in found.values()] == [80.0, 20.0, 5.0]


def test_a_plan_shows_the_captured_gain_over_epsilon_gamma_and_finalists() -> None:
    page = plan_page("plan", selection_plan())
    best = points_of(page, "Captured gain by epsilon")[""]
    assert best == [(1.0, pytest.approx(0.6)), (3.0, pytest.approx(0.8))]
    by_gamma = points_of(page, "Captured gain by cutoff gamma")
    assert by_gamma["epsilon 1"] == [(0.0, 0.1), (0.5, 0.6)]
    assert [x for x, _ in points_of(page, "by finalists")["epsilon 3"]] == [1.0, 4.0]
    for metric, scale in (("Revenue", 1), ("Surplus", 2)):
        money = bars_of(page, f"{metric} of an auction")
        assert money["not personalised"][0] == pytest.approx(0.09 * scale)
        assert money["best at epsilon 3"][0] == pytest.approx(0.1 * scale)
    assert dict(page.facts)["captured at epsilon 3"] == "80.0% of the gain"
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


def test_a_simulation_has_intervals_where_it_states_errors() -> None:
    data = simulation()
    data["epsilon_rows"] = [row | {"captured_share_error": 0.1} for row in data["epsilon_rows"]]
    chart = named(simulation_page(data), "Captured gain by epsilon")
    assert isinstance(chart, CurveChart)
    for low, high in chart.curves[0].ranges:
        assert (low, high) == (pytest.approx(0.5 - 0.196, abs=1e-4), pytest.approx(0.696, abs=1e-4))
    assert not named(simulation_page(simulation()), "Captured gain by epsilon").curves[0].ranges


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
    with pytest.raises(ConfigError, match="baseline are for a run"):
        page_of(tmp_path / "empty", baseline=tmp_path)
    changed = selection_plan() | {"options": [1, 2]}
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    with pytest.raises(DataError, match="not as tulle writes it"):
        page_of(tmp_path / "changed.json")
    (tmp_path / "simulation.json").write_text(json.dumps({"market": "m"}))
    with pytest.raises(DataError, match=r"simulation\.json has no entry"):
        page_of(tmp_path)
