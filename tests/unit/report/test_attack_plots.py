"""Plots of attacks are valid SVG that shows names, numbers and bounds, the same every time."""

import dataclasses
import functools
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tulle.audit.attacks.differencing import DifferencingConfig, attack_by_differencing
from tulle.audit.attacks.linkage import LinkageConfig, LinkageResult, attack_by_linkage
from tulle.audit.attacks.membership import MembershipConfig, attack_by_membership
from tulle.audit.attacks.reconstruction import ReconstructionConfig, attack_by_reconstruction
from tulle.report.attack_plots import (
    BOUND,
    CHANCE,
    plot_differencing,
    plot_linkage,
    plot_membership,
    plot_reconstruction,
)

SVG = "{http://www.w3.org/2000/svg}"


@functools.cache
def linkage() -> LinkageResult:
    return attack_by_linkage(LinkageConfig(num_users=500))


@functools.cache
def reconstruction_plot() -> str:
    config = ReconstructionConfig(num_users=10, query_counts=(20, 40), num_trials=2)
    return plot_reconstruction(attack_by_reconstruction(config), title="Bits & $1")


@functools.cache
def differencing_plot() -> str:
    config = DifferencingConfig(num_users=2000, thresholds=(5, 50))
    return plot_differencing(attack_by_differencing(config))


@functools.cache
def membership_plot() -> str:
    config = MembershipConfig(num_models=2, num_candidates=20, num_features=10)
    return plot_membership(attack_by_membership(config), title="Who was there")


PLOTS: dict[str, Callable[[], str]] = {
    "reconstruction": reconstruction_plot,
    "differencing": differencing_plot,
    "linkage": lambda: plot_linkage(linkage()),
    "membership": membership_plot,
}
SHOWN = {
    "reconstruction": [
        *("Bits & $1", "bits guessed right", "noise scale of each of 400 answers", "answers"),
        *("attack, epsilon 1 for each answer", "attack, epsilon 1 for all answers", "20", "0.3"),
        f"{BOUND}, epsilon 1 for all",
    ],
    "differencing": ["exact counts", "attack on noisy counts", "epsilon of both counts", "50"],
    "linkage": ["right name", "wrong name", "area", "+ device", "attack, epsilon 1", "60%"],
    "membership": [
        *("Who was there", "attack, no noise", "attack, epsilon 1", f"{BOUND}, epsilon 4"),
        *("1%", "10%", "100%"),
    ],
}
each_plot = pytest.mark.parametrize("name", PLOTS)


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314  (it is our own)
    assert root.tag == f"{SVG}svg"
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@each_plot
def test_a_plot_shows_its_names_numbers_and_bound(name: str) -> None:
    found = texts(PLOTS[name]())
    assert [text for text in SHOWN[name] if text not in found] == []
    assert any(text.startswith(BOUND) for text in found)
    assert CHANCE in found


@each_plot
def test_no_tick_is_written_in_a_language_of_formulas(name: str) -> None:
    assert [text for text in texts(PLOTS[name]()) if "mathdefault" in text] == []


def test_the_same_numbers_give_the_same_bytes_and_others_do_not() -> None:
    assert plot_linkage(linkage()) == plot_linkage(linkage())
    other = dataclasses.replace(linkage(), ceiling=0.9)
    assert plot_linkage(linkage()) != plot_linkage(other)
