"""Charts of attacks show names, numbers and bounds, the same every time."""

import dataclasses
import functools
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tulle.lab.attacks.differencing import DifferencingConfig, attack_by_differencing
from tulle.lab.attacks.linkage import LinkageConfig, LinkageResult, attack_by_linkage
from tulle.lab.attacks.membership import MembershipConfig, attack_by_membership
from tulle.lab.attacks.reconstruction import ReconstructionConfig, attack_by_reconstruction
from tulle.lab.attacks.verbs import (
    BOUND,
    CHANCE,
    differencing_charts,
    linkage_charts,
    membership_charts,
    reconstruction_charts,
)
from tulle.report.html.chart_svg import charts_svg
from tulle.report.html.charts import Chart, CurveChart

SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def linkage() -> LinkageResult:
    return attack_by_linkage(LinkageConfig(num_users=500))


@functools.cache
def reconstruction() -> list[Chart]:
    config = ReconstructionConfig(num_users=10, query_counts=(20, 40), num_trials=2)
    return reconstruction_charts(attack_by_reconstruction(config))


@functools.cache
def differencing() -> list[Chart]:
    config = DifferencingConfig(num_users=2000, thresholds=(5, 50))
    return differencing_charts(attack_by_differencing(config))


@functools.cache
def membership() -> list[Chart]:
    config = MembershipConfig(num_models=2, num_candidates=20, num_features=10)
    return membership_charts(attack_by_membership(config))


CHARTS: dict[str, Callable[[], list[Chart]]] = {
    "reconstruction": reconstruction,
    "differencing": differencing,
    "linkage": lambda: linkage_charts(linkage()),
    "membership": membership,
}
SHOWN = {
    "reconstruction": ["bits guessed right", "noise scale of each of 400 answers", "answers"],
    "differencing": ["exact counts", "attack on noisy counts", "epsilon of both counts"],
    "linkage": ["area: right name", "+ device: wrong name", "attack, epsilon 1"],
    "membership": ["attack, no noise", "attack, epsilon 1", "true positives: members found"],
}
CURVES = {
    "reconstruction": ["attack, epsilon 1 for each answer", f"{BOUND}, epsilon 1 for all"],
    "differencing": ["attack on noisy counts", BOUND],
    "linkage": ["attack, epsilon 1", BOUND],
    "membership": ["attack, no noise", f"{BOUND}, epsilon 4"],
}
each_attack = pytest.mark.parametrize("name", CHARTS)


@each_attack
def test_a_chart_has_the_attack_its_bound_and_chance(name: str) -> None:
    last = CHARTS[name]()[-1]
    assert isinstance(last, CurveChart)
    labels = [curve.label for curve in last.curves]
    assert [label for label in CURVES[name] if label not in labels] == []
    assert labels[-1] == CHANCE


@each_attack
def test_an_svg_file_shows_names_and_numbers(name: str) -> None:
    root = ET.fromstring(charts_svg(CHARTS[name]()))  # noqa: S314  (it is our own)
    assert root.tag == f"{SVG}svg"
    shown = "".join(element.text or "" for element in root.iter(f"{SVG}text"))
    assert [text for text in SHOWN[name] if text not in shown] == []


def test_bounds_are_those_of_the_result() -> None:
    _, guesses = linkage_charts(linkage())
    assert isinstance(guesses, CurveChart)
    (bound,) = (curve for curve in guesses.curves if curve.label == BOUND)
    assert set(bound.ys) == {linkage().ceiling}
    other = dataclasses.replace(linkage(), ceiling=0.9)
    assert charts_svg(linkage_charts(other)) != charts_svg(linkage_charts(linkage()))
