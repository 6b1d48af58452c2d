"""The page of a run shows what was recorded, and says when it shows more than was released."""

import dataclasses
import json
from pathlib import Path

import pytest

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.report.html.charts import BarChart, Chart, CurveChart
from tulle.report.html.page import Page
from tulle.report.html.page_text import render_html
from tulle.report.verbs import page_of
from tulle.runs.card import read_card
from tulle.runs.card_text import NOT_PRIVATE
from unit.report.html.sample_releases import metrics, small_card, write_run


def chart_of(page: Page, name: str) -> Chart:
    return next(chart for chart in page.charts if chart.name == name)


def curve_of(page: Page, name: str, label: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    chart = chart_of(page, name)
    assert isinstance(chart, CurveChart)
    curve = next(curve for curve in chart.curves if curve.label == label)
    return curve.xs, curve.ys


def test_curves_are_those_of_the_records(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    page = page_of(tmp_path / "run")
    steps = (1.0, 2.0, 3.0, 4.0, 5.0)
    assert curve_of(page, "Loss by step", "labels") == (steps, (1, 1 / 2, 1 / 3, 1 / 4, 1 / 5))
    assert curve_of(page, "Loss by step", "private") == (steps, (2, 1, 2 / 3, 1 / 2, 2 / 5))
    assert curve_of(page, "Epsilon spent by step", "private")[1] == tuple(x / 3 for x in steps)
    clipped = chart_of(page, "Share of clipped rows by step")
    assert isinstance(clipped, CurveChart)
    assert [curve.label for curve in clipped.curves] == ["private"]


def test_deciles_and_the_interval_of_the_loss_are_those_of_the_result(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    page = page_of(tmp_path / "run")
    predictions, labels = curve_of(page, "Calibration by decile", "deciles of the test rows")
    assert predictions == pytest.approx([0.05 * n for n in range(1, 11)])
    assert labels == pytest.approx([0.05 * n + 0.01 for n in range(1, 11)])
    deciles = chart_of(page, "Calibration by decile")
    assert isinstance(deciles, CurveChart)
    low, high = deciles.curves[0].ranges[0]
    # 0.06 of ten rows: the normal law would go below 0.
    assert low == 0
    assert high == pytest.approx(0.06 + 1.96 * (0.06 * 0.94 / 9) ** 0.5, abs=1e-4)
    chart = chart_of(page, "AUC loss with 95% intervals")
    assert isinstance(chart, BarChart)
    bar = chart.bars[0]
    assert (bar.value, bar.low, bar.high) == (0.25, pytest.approx(0.23), pytest.approx(0.27))
    assert "not protected" in render_html(page)


def test_long_runs_are_thinned_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for step in range(6, 1000):
        folder.records.append({"kind": "step", "phase": "labels", "step": step, "loss": 0.1})
    page = page_of(tmp_path / "run")
    xs, _ = curve_of(page, "Loss by step", "labels, every 4 steps")
    assert len(xs) == 250


def test_a_comparison_with_raw_rows_is_not_a_private_release(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics(0.2))
    alone = page_of(tmp_path / "run")
    compared = page_of(tmp_path / "run", baseline=tmp_path / "raw")
    assert alone.is_private
    assert compared.verdict == NOT_PRIVATE
    assert not compared.is_private
    assert "a model of the raw rows" in compared.reasons[0]
    assert ("AUC loss against no privacy", "+25.0%") in compared.facts
    assert ("AUC, with 95% interval", "0.750 (low 0.730, high 0.770)") in alone.facts
    assert "no privacy" not in render_html(alone)
    # The card stays that of the run.
    assert read_card(tmp_path / "run/card.json").verdict == alone.verdict


def test_several_private_runs_make_a_curve_over_epsilon(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", epsilon=0.5, metrics=metrics(0.4))
    write_run(tmp_path / "c", epsilon=1.0, metrics=metrics(0.3))
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics(0.2))
    others = [tmp_path / "b", tmp_path / "c"]
    page = page_of(tmp_path / "a", compared=others)
    assert curve_of(page, "Privacy and utility", "hybrid") == ((0.5, 1.0, 2.0), (0.4, 0.3, 0.25))
    curve = chart_of(page, "Privacy and utility").curves[0]
    assert curve.ranges[0] == (pytest.approx(0.38), pytest.approx(0.42))
    assert page.is_private
    assert "spends the sum" in render_html(page)
    chart = chart_of(page, "AUC loss with 95% intervals")
    assert isinstance(chart, BarChart)
    assert [bar.value for bar in chart.bars] == [0.25, 0.4, 0.3]
    compared = page_of(tmp_path / "a", compared=others, baseline=tmp_path / "raw")
    assert curve_of(compared, "Privacy and utility", "no privacy")[1] == (0.2, 0.2)
    assert compared.verdict == NOT_PRIVATE


def test_a_seeded_run_beside_it_makes_a_page_not_private(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "seeded", epsilon=0.5, seed=7)
    page = page_of(tmp_path / "a", compared=[tmp_path / "seeded"])
    assert page.verdict == NOT_PRIVATE
    assert "The page shows seeded" in page.reasons[0]
    assert "can be repeated" in page.reasons[0]


def test_a_raw_run_cannot_pass_as_a_private_one(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "raw", method="nonprivate")
    with pytest.raises(ConfigError, match="--baseline, not --compare"):
        page_of(tmp_path / "a", compared=[tmp_path / "raw"])
    write_run(tmp_path / "other", metrics=metrics() | {"num_positives": 21})
    write_run(tmp_path / "untested", metrics=None)
    for name in ("other", "untested"):
        with pytest.raises(DataError, match="other rows, or on none"):
            page_of(tmp_path / "a", compared=[tmp_path / name])
    with pytest.raises(DataError, match="tested on no rows"):
        page_of(tmp_path / "untested", compared=[tmp_path / "a"])


def test_a_raw_run_says_so_and_shows_no_budget(tmp_path: Path) -> None:
    write_run(tmp_path / "raw", method="nonprivate")
    page = page_of(tmp_path / "raw")
    assert page.verdict == NOT_PRIVATE
    assert "Budget" not in [section.title for section in page.sections]


def test_a_run_without_test_rows_or_deciles_has_a_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run", metrics=None)
    page = page_of(tmp_path / "run")
    assert "Not measured" in render_html(page)
    assert "Calibration" not in [section.title for section in page.sections]


def test_a_run_that_is_not_finished_has_no_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    folder.path_of("result.json").unlink()
    with pytest.raises(RunStateError, match="--resume"):
        page_of(tmp_path / "run")


def test_a_baseline_must_be_a_raw_run_of_the_same_rows(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    write_run(tmp_path / "other")
    write_run(tmp_path / "raw", method="nonprivate", metrics=metrics() | {"num_rows": 99})
    with pytest.raises(ConfigError, match="nonprivate"):
        page_of(tmp_path / "run", baseline=tmp_path / "other")
    with pytest.raises(DataError, match="other rows"):
        page_of(tmp_path / "run", baseline=tmp_path / "raw")


def test_a_card_stays_and_a_missing_one_is_written(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    path = tmp_path / "run/card.json"
    before = path.read_bytes()
    page_of(tmp_path / "run")
    assert path.read_bytes() == before
    path.unlink()
    first = page_of(tmp_path / "run")
    assert read_card(path).verdict == first.verdict
    assert render_html(page_of(tmp_path / "run")) == render_html(first)


def test_the_card_of_another_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    other = dataclasses.replace(small_card(1.0))
    (tmp_path / "run/card.json").write_text(json.dumps(other.to_dict()))
    with pytest.raises(DataError, match="card of another release"):
        page_of(tmp_path / "run")
