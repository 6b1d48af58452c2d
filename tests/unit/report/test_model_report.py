"""The pages of a model show its tables, and say so when they show a row."""

import json
from pathlib import Path

import pytest

from tulle.errors import ConfigError
from tulle.report.html.charts import BarChart, HeatChart, StepChart, WaterfallChart
from tulle.report.html.page import Figure
from tulle.report.html.page_text import render_html
from tulle.report.model_report import contributions_chart, model_page, write_explanation
from tulle.report.verbs import page_of
from tulle.runs.card_text import NOT_PRIVATE
from tulle.train import verbs
from tulle.train.explanation import Explanation
from unit.report.html.html_checks import faults_of, text_of
from unit.train.explained_clicks import SCHEMA, clicks, trained_on_clicks

ROW = clicks().row(0, named=True)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return trained_on_clicks().explain(values=clicks().select("site", "device"))


def test_a_page_has_a_picture_of_each_kind(explanation: Explanation) -> None:
    page = model_page(explanation)
    charts = {chart.name: chart for chart in page.charts}
    importance = charts["What the model looks at"]
    assert isinstance(importance, BarChart)
    assert [bar.value for bar in importance.bars] == [t.importance for t in explanation.tables]
    assert "% of the budget" in importance.bars[0].label
    assert isinstance(charts["Effect of price"], StepChart)
    assert isinstance(charts["Effect of site"], BarChart)
    assert isinstance(charts["Effect of site × device"], HeatChart)
    assert faults_of(render_html(page)) == []


def test_bars_are_the_most_frequent_values_by_their_effect(explanation: Explanation) -> None:
    charts = {chart.name: chart for chart in model_page(explanation).charts}
    chart, effects = charts["Effect of interest"], list(explanation.effects("interest"))
    assert isinstance(chart, BarChart)
    assert {bar.label for bar in chart.bars} == {row["interest"] for row in effects[:12]}
    values = [bar.value or 0.0 for bar in chart.bars]
    assert values == sorted(values, reverse=True)
    # Bins that no row is in have no bar.
    sites = charts["Effect of site"]
    assert isinstance(sites, BarChart)
    assert "other values" not in [bar.label for bar in sites.bars]
    captions = {
        block.chart.name: block.caption
        for section in model_page(explanation).sections
        for block in section.blocks
        if isinstance(block, Figure)
    }
    assert captions["Effect of device"].startswith("Sorted by effect.")
    assert captions["Effect of interest"].startswith("The 12 most frequent of")


def test_cells_of_a_heat_map_are_those_of_its_effects(explanation: Explanation) -> None:
    charts = {chart.name: chart for chart in model_page(explanation).charts}
    chart = charts["Effect of site × device"]
    assert isinstance(chart, HeatChart)
    known = {
        (row["site"], row["device"]): (row["effect"], (row["low"], row["high"]))
        for row in explanation.effects("site", "device")
    }
    assert chart.row_name == "site"
    for label, values, ranges in zip(chart.row_labels, chart.values, chart.ranges, strict=True):
        for other, value, ends in zip(chart.column_labels, values, ranges, strict=True):
            assert known[label, other] == (value, ends)


def test_a_page_with_a_row_is_for_whoever_may_see_it(explanation: Explanation) -> None:
    without, page = model_page(explanation), model_page(explanation, row=ROW, columns=["site"])
    assert page.is_private is False
    assert page.verdict == NOT_PRIVATE
    assert page.reasons == (
        "The page shows one row: it is for those who may see that row",
        *without.reasons,
    )
    assert [section.title for section in page.sections][:2] == [
        *("One prediction", "Effects of site")
    ]
    assert isinstance(page.charts[0], WaterfallChart)
    shown = text_of(render_html(page))
    assert ROW["site"] in shown
    assert faults_of(render_html(page)) == []


def test_a_waterfall_ends_at_the_prediction(explanation: Explanation) -> None:
    found = explanation.contributions(ROW)
    chart = contributions_chart(found)
    assert chart.sums[-1] == pytest.approx(found.log_odds)
    assert f"{found.probability:.4f}" in chart.end_label
    labels = [bar.label for bar in chart.parts]
    assert len(set(labels)) == len(labels)
    assert f"site = {ROW['site']}" in labels


def test_files_hold_what_was_asked_for(explanation: Explanation, tmp_path: Path) -> None:
    page = write_explanation(explanation, tmp_path / "page.html", row=ROW)
    assert page.read_text() == render_html(model_page(explanation, row=ROW))
    data = write_explanation(explanation, tmp_path / "data.json", columns=["site"], row=ROW)
    wanted = explanation.to_dict(columns=["site"], row=ROW)
    assert json.loads(data.read_text()) == json.loads(json.dumps(wanted))
    with pytest.raises(ConfigError, match=r"must end in \.html or \.json"):
        write_explanation(explanation, tmp_path / "page.txt")


def test_notebooks_show_pictures(explanation: Explanation) -> None:
    shown = (
        explanation,
        explanation.effects("price"),
        explanation.effects("site", "device"),
        explanation.contributions(ROW),
    )
    for found in shown:
        assert found._repr_html_().startswith("<iframe sandbox srcdoc=")


def test_the_page_of_a_run_has_a_section_of_its_model(tmp_path: Path) -> None:
    verbs.fit(clicks(), SCHEMA, epsilon=8, seed=1, test=0, output=tmp_path / "run")
    page = page_of(tmp_path / "run")
    (section,) = (section for section in page.sections if section.title == "The model")
    assert len(section.blocks) > 5
    # Nobody gave names for this page, so that it has none.
    assert "site 1" not in text_of(render_html(page))
    assert "interest 1" not in text_of(render_html(page))
