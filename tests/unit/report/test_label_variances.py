"""Mechanisms are compared by the exact variances of the planners, the released one among them."""

import math
from typing import Any

import numpy as np
import pytest

from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS, settings_of_word
from tulle.labels.mechanisms.stepped_noise import StaircaseLabels
from tulle.labels.mechanisms.unit_response import JointResponse
from tulle.labels.numeric_planner import plan_numeric
from tulle.report.html.charts import BarChart, CurveChart
from tulle.report.html.page import Figure, Section
from tulle.report.label_variances import variance_section
from tulle.report.labels_report import channel_facts
from unit.report.test_label_channels import EPSILON, GRID, described


def charts_of(section: Section) -> list[BarChart | CurveChart]:
    blocks = [block for block in section.blocks if isinstance(block, Figure)]
    charts = [block.chart for block in blocks]
    assert all(isinstance(chart, BarChart | CurveChart) for chart in charts)
    return [chart for chart in charts if isinstance(chart, BarChart | CurveChart)]


def bars_of(mechanism: dict[str, Any]) -> dict[str, float | None]:
    chart = charts_of(variance_section(mechanism))[0]
    assert isinstance(chart, BarChart)
    return {bar.label: bar.value for bar in chart.bars}


def curves_of(chart: BarChart | CurveChart) -> dict[str, list[tuple[float, float]]]:
    assert isinstance(chart, CurveChart)
    return {curve.label: list(zip(curve.xs, curve.ys, strict=True)) for curve in chart.curves}


@pytest.mark.parametrize("name", LABEL_MECHANISMS)
def test_every_mechanism_is_compared(name: str) -> None:
    assert charts_of(variance_section(described()[name]))


def test_numbers_are_compared_as_the_planner_does() -> None:
    plan = plan_numeric(GRID, epsilon=EPSILON)
    found = bars_of(described()["staircase"])
    numeric = [word for word in LABEL_MECHANISMS if "label_low" in settings_of_word(word)]
    assert len(found) == len(plan.options) == len(numeric)
    assert next(iter(found)) == "unbiased"
    for option in plan.options:
        (value,) = (v for label, v in found.items() if option.name in _words(label))
        assert value == pytest.approx(option.variance)
    assert "this release (staircase)" in found
    assert "laplace-clipped, biased" in found


def _words(label: str) -> list[str]:
    return label.removeprefix("this release (").replace(")", "").split(", ")


def test_a_release_for_a_prior_of_its_own_has_a_bar_of_its_own() -> None:
    stated = described()["unbiased"] | {"expected_variance": 123.0}
    assert bars_of(stated)["this release (unbiased), for its own prior"] == 123.0


def test_a_prior_that_was_learnt_weighs_the_labels() -> None:
    learnt = {"epsilon": 0.5, "num_values": 21, "noisy_counts": [90, 5, 5, 0, -2, 1]}
    plain = bars_of(described()["laplace-clipped"])
    weighed = bars_of(described()["laplace-clipped"] | {"prior_release": learnt})
    label = "this release (laplace-clipped), biased"
    assert plain[label] != pytest.approx(weighed[label])
    assert plain["laplace"] == pytest.approx(weighed["laplace"])


def test_a_fine_grid_is_compared_on_a_coarse_one_and_says_so() -> None:
    grid = LabelGrid(low=0.0, high=2000.0, step=1.0)
    section = variance_section(StaircaseLabels(epsilon=EPSILON, grid=grid).describe())
    figure = section.blocks[0]
    assert isinstance(figure, Figure)
    assert "on 401 of 2,001 values" in figure.caption


def test_bits_are_compared_with_noise_on_numbers_and_over_epsilon() -> None:
    found = bars_of(described()["rr"])
    best = math.exp(EPSILON) / math.expm1(EPSILON) ** 2
    assert found["this release (rr)"] == pytest.approx(best)
    assert found["laplace"] == pytest.approx(2 / EPSILON**2, rel=1e-4)
    assert min(v for v in found.values() if v is not None and v > 0.15) == pytest.approx(best)
    curves = curves_of(charts_of(variance_section(described()["rr"]))[1])
    (own,) = curves["this release"]
    assert own == (EPSILON, pytest.approx(best))
    assert own in [(x, pytest.approx(y)) for x, y in curves["randomized response"]]
    pairs = zip(curves["randomized response"], curves["staircase noise"], strict=True)
    assert all(response[1] < stairs[1] for response, stairs in pairs)


def test_classes_have_the_variance_of_a_mark_and_the_chance_of_the_truth() -> None:
    truths, variances = charts_of(variance_section(described()["class-rr"]))
    assert isinstance(truths, BarChart)
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + 5)
    assert truths.bars[0].value == pytest.approx(keep)
    lie = 1 / (math.exp(EPSILON) + 5)
    (own,) = curves_of(variances)["this release"]
    assert own == (EPSILON, pytest.approx(lie * (1 - lie) / (keep - lie) ** 2))


def test_reports_that_cannot_be_undone_have_no_variance() -> None:
    section = variance_section(described()["prior-rr"])
    truths, variances = charts_of(section)
    assert list(curves_of(variances)) == ["class-rr"]
    assert isinstance(truths, BarChart)
    plain, own, guess = (bar.value for bar in truths.bars)
    assert plain is not None
    assert own is not None
    assert guess == pytest.approx(1 / 6)
    assert own > plain


def test_units_are_compared_by_the_rows_they_have() -> None:
    mechanism = JointResponse(epsilon=EPSILON, max_rows_per_unit=6, subset=True)
    (chart,) = charts_of(variance_section(mechanism.describe()))
    curves = curves_of(chart)
    assert list(curves) == [
        "this release (joint-subset)",
        "unit-rr",
        "joint-rr",
        "unit-rr, equal shares",
    ]
    expected = [float(mechanism.row_channel(rows).mean_variance(0.05)) for rows in range(1, 7)]
    assert [y for _, y in curves["this release (joint-subset)"]] == pytest.approx(expected)
    shared = [y for _, y in curves["unit-rr"]]
    assert shared == sorted(shared)
    # At the cap, own shares are equal shares.
    assert curves["unit-rr, equal shares"][-1] == pytest.approx(curves["unit-rr"][-1])


def test_noise_that_was_cut_has_no_stated_variance() -> None:
    assert channel_facts(described()["staircase-clipped"]).variance is None
    assert channel_facts(described()["laplace"]).variance == pytest.approx(2 * (40 / EPSILON) ** 2)
    assert np.isfinite(channel_facts(described()["unbiased"]).variance or math.inf)
