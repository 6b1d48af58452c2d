"""What every randomizer of `tulle.mechanisms` must be, and the files that a new one touches."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tulle
from tulle.accounting.accountant import privacy_curve
from tulle.audit.verbs import RANDOMIZERS
from tulle.privacy.events import Event, event_from_json, event_to_json
from tulle.privacy.units import Adjacency

FILES = """To add a randomizer:
1. src/tulle/mechanisms/NAME.py: a frozen config with `event()`, and `release_NAME(raw, config, *,
   rng=None)` with a Privacy section.
2. src/tulle/mechanisms/__init__.py: both among the public names (tests/golden/public_names.txt).
3. src/tulle/privacy/events.py and src/tulle/accounting/mechanism_rules.py: its event and the rules
   of it, where no event says what it costs (tests/contract/test_accountant_handlers.py).
4. src/tulle/audit/added_noise.py or responses.py: how it is attacked.
5. docs/mechanisms.md, and a page below docs/theory (tests/test_theory_pages.py).
6. tests/contract/test_mechanisms.py: an example here; tests/statistical: its law, and a planted
   fault that must be caught."""

PUBLIC = tulle.mechanisms.__all__
DOCS = Path(__file__).parents[2] / "docs" / "mechanisms.md"
COUNTS = np.array([3, 0, 12])

EXAMPLES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "LaplaceConfig": ({"noise_multiplier": 1.0}, "release_laplace", COUNTS / 2),
    "GaussianConfig": ({"noise_multiplier": 1.0}, "release_gaussian", COUNTS / 2),
    "DiscreteLaplaceConfig": ({"scale": 2.0}, "release_discrete_laplace", COUNTS),
    "DiscreteGaussianConfig": ({"scale": 2.0}, "release_discrete_gaussian", COUNTS),
    "StaircaseConfig": ({"epsilon": 1.0, "sensitivity": 2}, "release_staircase", COUNTS),
    "RandomizedResponseConfig": (
        {"epsilon": 1.0, "num_values": 3},
        "release_randomized_response",
        [0, 1, 2],
    ),
    "RapporConfig": ({"epsilon": 1.0, "num_values": 3}, "release_rappor", [0, 1, 2]),
    "SubsetSelectionConfig": (
        {"epsilon": 1.0, "num_values": 4},
        "release_subset_selection",
        [0, 1, 2],
    ),
    "JointResponseConfig": (
        {"epsilon": 1.0, "num_rows": 3},
        "release_joint_response",
        [[0, 1, 0]],
    ),
    "JointSubsetConfig": ({"epsilon": 1.0, "num_rows": 3}, "release_joint_response", [[0, 1, 0]]),
    "KeySelectionConfig": ({"epsilon": 1.0, "delta": 0.01}, "select_keys", COUNTS),
    "LaplaceKeyThresholdConfig": ({"epsilon": 1.0, "delta": 0.01}, "release_key_counts", COUNTS),
    "GaussianKeyThresholdConfig": (
        {"noise_multiplier": 1.0, "delta": 0.01},
        "release_key_counts",
        COUNTS,
    ),
}
"""Settings, the function that draws, and raw values for it."""
PARTS = {"NoiseShareConfig", "SplitAndMixConfig"}
"""Configs of protocols between several parties, in which no single call is a release."""

each_config = pytest.mark.parametrize("name", EXAMPLES)


def test_every_public_config_is_listed_here() -> None:
    configs = {name for name in PUBLIC if name.endswith("Config")}
    assert configs == EXAMPLES.keys() | PARTS, FILES


def test_every_function_that_draws_is_public() -> None:
    draws = {name for name in PUBLIC if name.startswith(("release_", "select_"))}
    listed = {draw for _, draw, _ in EXAMPLES.values()}
    others = {name for name in draws if name.startswith("release_one_")}
    assert draws - others == listed | {"release_rng", "release_randomized_bits"}, FILES


@each_config
def test_a_config_and_its_release_are_one_import_away(name: str) -> None:
    settings, draw, raw = EXAMPLES[name]
    config = getattr(tulle.mechanisms, name)(**settings)
    release = getattr(tulle.mechanisms, draw)
    assert release(raw, config) is not None, FILES
    rng = inspect.signature(release).parameters["rng"]
    assert rng.kind is inspect.Parameter.KEYWORD_ONLY, FILES
    assert rng.default is None, FILES
    assert "Privacy:" in (release.__doc__ or ""), FILES


@each_config
def test_draws_without_a_source_are_fresh(name: str) -> None:
    settings, draw, raw = EXAMPLES[name]
    config = getattr(tulle.mechanisms, name)(**settings)
    release = getattr(tulle.mechanisms, draw)
    many = np.tile(np.asarray(raw), (200, 1) if np.ndim(raw) > 1 else 200)
    one, two = (repr(release(many, config)) + str(_numbers(release(many, config))) for _ in "ab")
    assert one != two, FILES


@each_config
def test_its_event_is_one_that_the_accountant_knows(name: str) -> None:
    event = getattr(tulle.mechanisms, name)(**EXAMPLES[name][0]).event()
    assert isinstance(event, Event), FILES
    assert event_from_json(event_to_json(event)) == event, FILES
    assert privacy_curve(event, Adjacency.REPLACE).epsilon(1e-3) > 0, FILES


@each_config
def test_its_module_is_audited(name: str) -> None:
    module = getattr(tulle.mechanisms, name).__module__.removeprefix("tulle.")
    assert module in {each for randomizer in RANDOMIZERS for each in randomizer.modules}, FILES


@each_config
def test_the_page_of_mechanisms_names_it(name: str) -> None:
    assert name in DOCS.read_text(encoding="utf-8"), FILES


def test_the_package_loads_nothing_but_what_is_asked_for() -> None:
    package = importlib.import_module("tulle.mechanisms")
    assert sorted(PUBLIC) == [name for name in dir(package) if not name.startswith("_")]


def _numbers(drawn: Any) -> Any:
    return getattr(drawn, "noisy_counts", drawn)
