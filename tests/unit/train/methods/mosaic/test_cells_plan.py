"""Plans of training on cells: what they claim, what they bind together, what they refuse."""

import dataclasses
import json
import math
import tomllib
from typing import Any

import pytest

from tulle.accounting.accountant import pld_epsilon, verify_plan
from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.privacy.events import Composed, Event, Gaussian, event_to_dict
from tulle.privacy.fields import toml_text
from tulle.privacy.plan import Status
from tulle.privacy.units import Adjacency, Scope
from tulle.train.methods.catalogue import method_data, method_from
from tulle.train.methods.mosaic.method import CellSettings, MosaicConfig, StageShares
from tulle.train.methods.private_steps import check_shareable, tower_method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.units import ExampleLevel, UserLevel
from unit.train.small_data import FEATURES, make_shape, planned

CONFIG = MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=3.0, delta=1e-6)
SHAPE = make_shape(400)
VOCABULARY = Gaussian(noise_multiplier=9.0)
OTHER_CELLS = CellSettings(stages=StageShares(public_values=0.4, public_pairs=0.0))


def of_role(role: str) -> tuple[object, ...]:
    return tuple(feature for feature in FEATURES if feature.role == role)


def plan() -> TrainPlan:
    return planned(CONFIG)


def event_of(noise_multiplier: float, replace_factor: float = 1.0) -> Event:
    return Gaussian(noise_multiplier=noise_multiplier, replace_factor=replace_factor)


FORGED: dict[str, dict[str, Any]] = {
    "less noise": {"noise_multiplier": 0.5},
    "no noise": {"noise_multiplier": None},
    "a smaller epsilon": {"epsilon": 1.0},
    "no epsilon": {"epsilon": None},
    "a further claim": {"variant_epsilons": [0.01]},
    "milestones": {"epsilon_milestones": [[1, 0.1]]},
    "randomized labels": {"label_epsilon": 1.0},
    "another method": {"method": {"method": "dp-sgd", "target": {"epsilon": 3.0, "delta": 1e-6}}},
    "a baseline": {"method": {"method": "nonprivate"}},
}


@pytest.mark.parametrize("change", FORGED)
def test_a_forged_plan_is_refused(change: str) -> None:
    data = json.loads(plan().to_json()) | FORGED[change]
    with pytest.raises(ConfigError):
        TrainPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("target", [None, {"epsilon": 1.0, "delta": 1e-6}])
def test_a_plan_with_another_target_than_its_noise_gives_is_refused(target: object) -> None:
    data = json.loads(plan().to_json())
    data["method"]["target"] = target
    with pytest.raises(ConfigError):
        TrainPlan.from_json(json.dumps(data))
    data["epsilon"] = 1.0
    with pytest.raises(ConfigError):
        TrainPlan.from_json(json.dumps(data))


def test_a_smaller_delta_and_vocabularies_need_more_noise() -> None:
    for part, change in (
        ("method", {"target": {"epsilon": 3.0, "delta": 1e-9}}),
        ("shape", {"vocabulary_event": event_to_dict(VOCABULARY)}),
    ):
        data = json.loads(plan().to_json())
        data[part] |= change
        with pytest.raises(ConfigError, match="gives only epsilon"):
            TrainPlan.from_json(json.dumps(data))


def test_a_plan_claims_its_target_for_one_gaussian() -> None:
    made = plan()
    guarantee = made.privacy.guarantee
    assert made.privacy.event == event_of(made.noise_multiplier)
    assert (guarantee.epsilon, guarantee.delta) == (3.0, 1e-6)
    assert guarantee.adjacency is Adjacency.REPLACE
    assert guarantee.scope is Scope.LABELS_AND_SENSITIVE_COLUMNS
    assert made.privacy.variants == ()
    assert made.sampler is None
    assert (made.num_private_steps, made.epsilon_milestones) == (0, ())
    assert made.epsilon_by(3) == 3.0
    assert 2.99 < verify_plan(made.privacy)[0] <= 3.0


def test_the_noise_is_the_least_for_the_target() -> None:
    """One Gaussian of sensitivity 1: its exact curve (Balle and Wang 2018, theorem 8)."""

    def delta_at(noise: float) -> float:
        def below(value: float) -> float:
            return 0.5 * math.erfc(-value / math.sqrt(2))

        mean = 1 / noise
        return below(mean / 2 - 3.0 / mean) - math.exp(3.0) * below(-mean / 2 - 3.0 / mean)

    noise = plan().noise_multiplier
    assert noise is not None
    assert delta_at(noise) <= 1e-6
    assert delta_at(0.995 * noise) > 1e-6


def test_a_plan_says_how_far_one_row_goes_and_what_enforces_it() -> None:
    made = plan().privacy
    limits = [bound.limit for bound in made.bounds]
    assert limits == [1, 1, math.sqrt(2)]
    assert all("all tables of a" in bound.what for bound in made.bounds[1:])
    assert {a.status for a in made.assumptions} == {Status.ENFORCED}
    assert "cells" in made.mechanism
    assert made.settings["method"] == "mosaic"
    assert made.settings["noise_multiplier"] == plan().noise_multiplier
    assert "whole numbers" in str(made.settings["noise_arithmetic"])
    assert "steps" not in made.settings


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-10])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3, 8, 20])
def test_the_noise_is_above_the_least_by_a_small_margin(epsilon: float, delta: float) -> None:
    made = planned(MosaicConfig(unit=ExampleLevel()).calibrate(epsilon=epsilon, delta=delta))
    assert made.noise_multiplier is not None
    margin = made.noise_multiplier / calibrate_gaussian(epsilon, delta) - 1
    assert 2e-6 < margin < 1e-4


def test_vocabularies_of_sensitive_columns_are_part_of_the_event_and_not_paid_again() -> None:
    made = CONFIG.make(dataclasses.replace(SHAPE, vocabulary_event=VOCABULARY))
    assert made.privacy.event == Composed((VOCABULARY, event_of(made.noise_multiplier)))
    assert pld_epsilon(made.privacy.event, 1e-6, Adjacency.REPLACE) <= 3.0
    assert made.noise_multiplier > plan().noise_multiplier
    assert made.charged_event == event_of(made.noise_multiplier)


def test_vocabularies_that_use_up_the_target_are_refused() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=Gaussian(noise_multiplier=0.5))
    with pytest.raises(ConfigError, match="nothing for sums of cells"):
        CONFIG.make(shape)


def test_public_columns_alone_protect_labels_and_need_no_vocabulary() -> None:
    shape = dataclasses.replace(SHAPE, features=of_role("public"), vocabulary_event=VOCABULARY)
    made = CONFIG.make(shape)
    assert made.privacy.event == event_of(made.noise_multiplier)
    assert made.privacy.guarantee.scope is Scope.LABELS
    assert not made.reads_sensitive
    assert set(made.privacy.columns.ignored) == {"age", "visits"}


def test_sensitive_columns_alone_are_enough() -> None:
    made = CONFIG.make(dataclasses.replace(SHAPE, features=of_role("sensitive")))
    assert made.reads_sensitive
    assert made.noise_multiplier == plan().noise_multiplier


def test_a_plan_survives_json() -> None:
    made = plan()
    assert TrainPlan.from_json(made.to_json()) == made


@pytest.mark.parametrize("config", [MosaicConfig(), CONFIG, MosaicConfig(cells=OTHER_CELLS)])
def test_settings_survive_plain_data_and_toml(config: MosaicConfig) -> None:
    data = method_data(config)
    assert data["method"] == config.kind == "mosaic"
    assert method_from(data) == config
    assert method_from(tomllib.loads(toml_text(data))) == config


def test_limits_on_the_rows_of_a_user_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="full_rows_per_unit"):
        MosaicConfig(unit=UserLevel(max_rows_per_user=3))
    assert MosaicConfig(unit=UserLevel(window_seconds=86_400)).unit is not None


def test_a_delta_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"delta=0\.0"):
        MosaicConfig().calibrate(epsilon=3.0, delta=0.0)


def test_a_config_without_a_target_makes_no_plan() -> None:
    with pytest.raises(ConfigError, match="MosaicConfig has no target"):
        MosaicConfig(unit=ExampleLevel()).make(SHAPE)


@pytest.mark.parametrize("changes", [{"cells": None}, {"unit": "example"}, {"target": 3.0}])
def test_settings_of_another_kind_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        MosaicConfig(**changes)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match="one process"):
        check_shareable(plan())


def test_there_are_no_towers_to_build() -> None:
    with pytest.raises(ConfigError, match="no model of towers"):
        tower_method(plan())
