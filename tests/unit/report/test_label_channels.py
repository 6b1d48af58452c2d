"""Every mechanism for labels has a picture, and the picture shows its epsilon."""

import functools
import math
from typing import Any

import numpy as np
import pytest

from tulle.labels.label_grid import LabelGrid
from tulle.labels.mechanisms.added_noise import LaplaceLabels
from tulle.labels.mechanisms.bin_response import BinResponse
from tulle.labels.mechanisms.catalogue import LABEL_MECHANISMS
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
from tulle.labels.mechanisms.prior_response import PriorResponse
from tulle.labels.mechanisms.stepped_noise import DiscreteLaplaceLabels, StaircaseLabels
from tulle.labels.mechanisms.unbiased_response import UnbiasedResponse
from tulle.labels.mechanisms.unit_response import JointResponse, PerRowResponse
from tulle.report.html.charts import CurveChart, MatrixChart
from tulle.report.html.page import Figure
from tulle.report.labels_report import channel_facts, channel_figures

EPSILON = 2.0
GRID = LabelGrid(low=0.0, high=40.0, step=2.0)
EVEN = np.full(GRID.num_values, 1 / GRID.num_values)
SURE = np.array([0.6, 0.25, 0.1, 0.04, 0.005, 0.005])


@functools.cache
def described() -> dict[str, dict[str, Any]]:
    """What each mechanism of the catalogue says of itself."""
    additive = [
        make(epsilon=EPSILON, grid=GRID, clip=clip)
        for make in (LaplaceLabels, DiscreteLaplaceLabels, StaircaseLabels)
        for clip in (False, True)
    ]
    made = [
        BinaryResponse(epsilon=EPSILON),
        ClassResponse(epsilon=EPSILON, num_classes=6),
        PriorResponse(epsilon=EPSILON, prior=SURE),
        BinResponse(epsilon=EPSILON, grid=GRID, prior=EVEN),
        UnbiasedResponse(epsilon=EPSILON, grid=GRID, prior=EVEN, atoms=11),
        *additive,
        PerRowResponse(epsilon=EPSILON, max_rows_per_unit=5),
        JointResponse(epsilon=EPSILON, max_rows_per_unit=4),
        JointResponse(epsilon=EPSILON, max_rows_per_unit=20, subset=True),
    ]
    return {mechanism.name: mechanism.describe() for mechanism in made}


def test_the_catalogue_is_whole() -> None:
    assert set(described()) == set(LABEL_MECHANISMS)


@pytest.mark.parametrize("name", LABEL_MECHANISMS)
def test_every_mechanism_has_a_picture(name: str) -> None:
    assert figures_of(described()[name])


def figures_of(mechanism: dict[str, Any]) -> list[Figure]:
    return channel_figures(channel_facts(mechanism))


def matrices_of(mechanism: dict[str, Any]) -> list[MatrixChart]:
    charts = [figure.chart for figure in figures_of(mechanism)]
    return [chart for chart in charts if isinstance(chart, MatrixChart)]


@pytest.mark.parametrize("name", LABEL_MECHANISMS)
def test_chances_of_a_row_add_up_and_tell_no_more_than_epsilon(name: str) -> None:
    for chart in matrices_of(described()[name]):
        for row in chart.values:
            assert math.fsum(row) == pytest.approx(1.0)
        for column in zip(*chart.values, strict=True):
            assert max(column) <= min(column) * math.exp(EPSILON) * (1 + 1e-6)


@pytest.mark.parametrize("name", ["rr", "class-rr", "rr-on-bins"])
def test_chances_of_randomized_response_use_all_of_epsilon(name: str) -> None:
    (chart,) = matrices_of(described()[name])
    first, second = chart.values[0][0], chart.values[1][0]
    assert first / second == pytest.approx(math.exp(EPSILON))


def test_a_prior_leaves_some_classes_without_a_report() -> None:
    (chart,) = matrices_of(described()["prior-rr"])
    expected = PriorResponse(epsilon=EPSILON, prior=SURE).channel_matrix()
    assert np.allclose(chart.values, expected)
    assert 0.0 in chart.values[0]


def test_many_classes_are_shown_in_short() -> None:
    (plain,) = matrices_of(ClassResponse(epsilon=EPSILON, num_classes=500).describe())
    truth, each, others = plain.values[0]
    assert truth / each == pytest.approx(math.exp(EPSILON))
    assert truth + others == pytest.approx(1.0)
    sure = np.full(500, 0.1 / 497)
    sure[:3] = 0.3
    (chart,) = matrices_of(PriorResponse(epsilon=EPSILON, prior=sure).describe())
    likely, unlikely = chart.values
    assert likely[0] + likely[2] == pytest.approx(1.0)
    assert unlikely == (0.0, pytest.approx(1 / 3), 1.0)


def test_many_outputs_are_summed_in_groups_and_lose_no_chance() -> None:
    outputs = [float(n) for n in range(200)]
    (chart,) = matrices_of(
        {
            "mechanism": "unbiased",
            "epsilon": EPSILON,
            "atoms": outputs,
            "outputs": outputs,
            "channel": [[1 / 200] * 200] * 200,
            "expected_variance": 1.0,
        }
    )
    assert (len(chart.row_labels), len(chart.column_labels)) == (50, 50)
    assert chart.values[0] == pytest.approx((1 / 50,) * 50)


@pytest.mark.parametrize("name", ["laplace", "discrete-laplace", "staircase"])
def test_the_law_of_added_noise_is_a_law(name: str) -> None:
    chart = figures_of(described()[name])[0].chart
    assert isinstance(chart, CurveChart)
    curve = chart.curves[0]
    width = curve.xs[1] - curve.xs[0]
    # Drawn as far as twice the range, where some chance is left at epsilon 2.
    assert 0.9 < math.fsum(curve.ys) * width <= 1.01
    assert curve.ys == pytest.approx(curve.ys[::-1])
    # A label moves by 40 at most: chances that far apart differ by e^2 at most.
    places = round(40 / width)
    ratios = [near / far for near, far in zip(curve.ys, curve.ys[places:], strict=False)]
    assert max(ratios) <= math.exp(EPSILON) * 1.01


@pytest.mark.parametrize("name", ["laplace", "discrete-laplace", "staircase"])
def test_cut_labels_pile_up_at_the_ends_as_drawn(name: str) -> None:
    from tulle.mechanisms.entropy import SeededNoise

    (chart,) = matrices_of(described()[f"{name}-clipped"])
    make = {
        "laplace": LaplaceLabels,
        "discrete-laplace": DiscreteLaplaceLabels,
        "staircase": StaircaseLabels,
    }[name]
    mechanism = make(epsilon=EPSILON, grid=GRID, clip=True)
    drawn = mechanism.release(np.full(200_000, 10.0), rng=SeededNoise(3)).labels
    shown = dict(zip(chart.row_labels, chart.values, strict=True))["10"]
    # Six standard errors of 200,000 draws.
    assert float(np.mean(drawn == 0.0)) == pytest.approx(shown[0], abs=0.007)
    assert float(np.mean(drawn == 40.0)) == pytest.approx(shown[2], abs=0.007)


def test_noise_of_units_is_shown_by_their_rows() -> None:
    chart = figures_of(described()["joint-rr"])[0].chart
    assert isinstance(chart, CurveChart)
    ones, zeros = chart.curves
    for rows, chance in zip(ones.xs, ones.ys, strict=True):
        # One report among rows + 1 vectors: the right one with chance e^2 / (e^2 + rows).
        assert chance == pytest.approx(math.exp(EPSILON) / (math.exp(EPSILON) + rows))
    assert zeros.xs == (1.0, 2.0, 3.0, 4.0)


def test_subsets_are_another_channel_than_joint_response() -> None:
    joint = JointResponse(epsilon=EPSILON, max_rows_per_unit=20)
    plain = figures_of(joint.describe())[0].chart
    subset = figures_of(described()["joint-subset"])[0].chart
    assert isinstance(plain, CurveChart)
    assert isinstance(subset, CurveChart)
    assert plain.curves[0].ys[-1] != pytest.approx(subset.curves[0].ys[-1])


def test_rows_that_share_epsilon_get_less_of_it_each() -> None:
    chart = figures_of(described()["unit-rr"])[0].chart
    assert isinstance(chart, CurveChart)
    ones = chart.curves[0]
    assert ones.xs == (1.0, 2.0, 3.0, 4.0, 5.0)
    for rows, chance in zip(ones.xs, ones.ys, strict=True):
        assert chance == pytest.approx(1 / (1 + math.exp(-EPSILON / rows)))
