"""Plans of training on cells: what they claim, what they bind together, what they refuse."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable

import pytest

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.plan_check import verify_plan
from tulle.data.samplers.poisson import Poisson
from tulle.errors import ConfigError
from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.privacy.claim import Claim
from tulle.privacy.conditions import Status
from tulle.privacy.events import Composed, Event, Gaussian, NonPrivate, RandomizedResponse
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.toml_text import toml_text
from tulle.train.cells.cell_settings import CellSettings, StageShares
from tulle.train.cells.cell_words import cells_bounds_of_one_table
from tulle.train.config_data import config_from_dict, config_to_dict
from tulle.train.configs import HybridConfig, Target, method_name
from tulle.train.distributed.shareable import check_shareable
from tulle.train.plan_data import train_plan_from_json, train_plan_to_json
from tulle.train.run_charge import charged_event
from tulle.train.train_plan import TrainPlan
from tulle.train.unit_level import ExampleLevel, UserLevel
from unit.train.small_data import FEATURES, dp_sgd, make_shape, planned

CONFIG = HybridConfig(unit=ExampleLevel()).calibrate(epsilon=3.0, delta=1e-6)
SHAPE = make_shape(400)
VOCABULARY = Gaussian(noise_multiplier=9.0)
OTHER_CELLS = CellSettings(stages=StageShares(public_values=0.4, public_pairs=0.0))


def of_role(role: str) -> tuple[object, ...]:
    return tuple(feature for feature in FEATURES if feature.role == role)


def plan() -> TrainPlan:
    return planned(CONFIG)


def event_of(noise_multiplier: float, replace_factor: float = 1.0) -> Event:
    return Gaussian(noise_multiplier=noise_multiplier, replace_factor=replace_factor)


def other_claims(made: TrainPlan, **changes: object) -> TrainPlan:
    return dataclasses.replace(made, plan=dataclasses.replace(made.plan, **changes))


def other_guarantee(made: TrainPlan, **changes: object) -> TrainPlan:
    return other_claims(made, guarantee=dataclasses.replace(made.plan.guarantee, **changes))


def other_config(made: TrainPlan, **changes: object) -> TrainPlan:
    return dataclasses.replace(made, config=dataclasses.replace(made.config, **changes))


def less_noise_everywhere_but_in_settings(made: TrainPlan) -> TrainPlan:
    changed = dataclasses.replace(made.plan, event=event_of(0.5))
    return dataclasses.replace(made, plan=changed, noise_multiplier=0.5)


def with_labels(made: TrainPlan) -> TrainPlan:
    event = Composed((RandomizedResponse(epsilon=1.0), made.plan.event))
    changed = dataclasses.replace(made.plan, event=event)
    return dataclasses.replace(made, plan=changed, label_epsilon=1.0)


def with_a_claim_for_columns(made: TrainPlan) -> TrainPlan:
    guarantee = dataclasses.replace(
        made.plan.guarantee, scope=Scope.SENSITIVE_COLUMNS, epsilon=0.01
    )
    return other_claims(made, variants=(Claim(guarantee=guarantee, event=event_of(99.0)),))


CHANGES: dict[str, Callable[[TrainPlan], TrainPlan]] = {
    "less noise": lambda made: dataclasses.replace(made, noise_multiplier=0.5),
    "more noise": lambda made: dataclasses.replace(made, noise_multiplier=50.0),
    "no noise": lambda made: dataclasses.replace(made, noise_multiplier=None),
    "less noise in the event too": less_noise_everywhere_but_in_settings,
    "another event": lambda made: other_claims(made, event=NonPrivate()),
    "the event of more noise": lambda made: other_claims(made, event=event_of(50.0)),
    "a factor of 2": lambda made: other_claims(made, event=event_of(made.noise_multiplier, 2.0)),
    "a factor of the root of 2": lambda made: other_claims(
        made, event=event_of(made.noise_multiplier, math.sqrt(2))
    ),
    "a sampler": lambda made: dataclasses.replace(
        made, sampler=Poisson(num_rows=400, sampling_prob=0.1, steps=9)
    ),
    "randomized labels": with_labels,
    "milestones": lambda made: dataclasses.replace(made, epsilon_milestones=((1, 0.1),)),
    "other shares": lambda made: other_config(made, cells=OTHER_CELLS),
    "a stronger target": lambda made: other_config(made, target=Target(epsilon=1.0, delta=1e-6)),
    "a smaller delta": lambda made: other_config(made, target=Target(epsilon=3.0, delta=1e-9)),
    "no target": lambda made: other_config(made, target=None),
    "another method": lambda made: dataclasses.replace(made, config=dp_sgd()),
    "vocabularies": lambda made: dataclasses.replace(
        made, shape=dataclasses.replace(made.shape, vocabulary_event=VOCABULARY)
    ),
    "public columns alone": lambda made: dataclasses.replace(
        made, shape=dataclasses.replace(made.shape, features=of_role("public"))
    ),
    "a stronger claim": lambda made: other_guarantee(made, epsilon=1.0),
    "a smaller claimed delta": lambda made: other_guarantee(made, delta=1e-12),
    "other neighbours": lambda made: other_guarantee(made, adjacency=Adjacency.ADD_OR_REMOVE),
    "another unit": lambda made: other_guarantee(made, unit=Unit.user()),
    "a further claim": with_a_claim_for_columns,
    "noise on devices": lambda made: other_claims(made, trust=TrustModel.LOCAL),
    "no assumptions": lambda made: other_claims(made, assumptions=()),
    "no bounds": lambda made: other_claims(made, bounds=()),
    "another sentence": lambda made: other_claims(made, mechanism="Nothing is read."),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_part_of_a_plan_can_be_changed_alone(change: str) -> None:
    made = plan()
    with pytest.raises(ConfigError):
        CHANGES[change](made)


def test_a_plan_claims_its_target_for_one_gaussian() -> None:
    made = plan()
    guarantee = made.plan.guarantee
    assert made.plan.event == event_of(made.noise_multiplier)
    assert (guarantee.epsilon, guarantee.delta) == (3.0, 1e-6)
    assert guarantee.adjacency is Adjacency.REPLACE
    assert guarantee.scope is Scope.LABELS_AND_SENSITIVE_COLUMNS
    assert made.plan.variants == ()
    assert made.sampler is None
    assert (made.num_private_steps, made.epsilon_milestones) == (0, ())
    assert made.epsilon_by(3) == 3.0
    assert 2.99 < verify_plan(made.plan)[0] <= 3.0


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
    made = plan().plan
    limits = [bound.limit for bound in made.bounds]
    assert limits == [1, 1, math.sqrt(2)]
    assert all("all tables of a" in bound.what for bound in made.bounds[1:])
    assert {a.status for a in made.assumptions} == {Status.ENFORCED}
    assert "cells" in made.mechanism
    assert made.settings["method"] == "hybrid"
    assert made.settings["noise_multiplier"] == plan().noise_multiplier
    assert "floating point" in str(made.settings["noise_arithmetic"])
    assert "steps" not in made.settings


def test_a_plan_that_states_its_bounds_of_one_table_can_still_be_run() -> None:
    older = other_claims(plan(), bounds=cells_bounds_of_one_table())
    assert train_plan_from_json(train_plan_to_json(older)) == older
    with pytest.raises(ConfigError, match="description"):
        other_claims(planned(dp_sgd()), bounds=cells_bounds_of_one_table())


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-10])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3, 8, 20])
def test_the_noise_is_above_the_least_by_a_margin_for_rounding(
    epsilon: float, delta: float
) -> None:
    made = planned(HybridConfig(unit=ExampleLevel()).calibrate(epsilon=epsilon, delta=delta))
    assert made.noise_multiplier is not None
    margin = made.noise_multiplier / calibrate_gaussian(epsilon, delta) - 1
    assert 2e-6 < margin < 1e-4


def test_vocabularies_of_sensitive_columns_are_part_of_the_event_and_not_paid_again() -> None:
    made = CONFIG.make(dataclasses.replace(SHAPE, vocabulary_event=VOCABULARY))
    assert made.plan.event == Composed((VOCABULARY, event_of(made.noise_multiplier)))
    assert pld_epsilon(made.plan.event, 1e-6, Adjacency.REPLACE) <= 3.0
    assert made.noise_multiplier > plan().noise_multiplier
    assert charged_event(made) == event_of(made.noise_multiplier)


def test_vocabularies_that_use_up_the_target_are_refused() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=Gaussian(noise_multiplier=0.5))
    with pytest.raises(ConfigError, match="nothing for sums of cells"):
        CONFIG.make(shape)


def test_public_columns_alone_protect_labels_and_need_no_vocabulary() -> None:
    shape = dataclasses.replace(SHAPE, features=of_role("public"), vocabulary_event=VOCABULARY)
    made = CONFIG.make(shape)
    assert made.plan.event == event_of(made.noise_multiplier)
    assert made.plan.guarantee.scope is Scope.LABELS
    assert not made.reads_sensitive
    assert set(made.plan.columns.ignored) == {"age", "visits"}


def test_sensitive_columns_alone_are_enough() -> None:
    made = CONFIG.make(dataclasses.replace(SHAPE, features=of_role("sensitive")))
    assert made.reads_sensitive
    assert made.noise_multiplier == plan().noise_multiplier


def test_a_plan_survives_json() -> None:
    made = plan()
    assert train_plan_from_json(train_plan_to_json(made)) == made


@pytest.mark.parametrize(
    ("key", "value"),
    [("noise_multiplier", 0.5), ("label_epsilon", 1.0), ("noise_multiplier", None)],
)
def test_json_with_another_noise_is_refused(key: str, value: float | None) -> None:
    data = json.loads(train_plan_to_json(plan()))
    with pytest.raises(ConfigError):
        train_plan_from_json(json.dumps(data | {key: value}))


def test_json_that_claims_too_little_epsilon_for_its_noise_is_refused() -> None:
    noise = 0.5
    data = json.loads(train_plan_to_json(plan()))
    data["noise_multiplier"] = noise
    data["plan"]["settings"]["noise_multiplier"] = noise
    data["plan"]["event"]["noise_multiplier"] = noise
    with pytest.raises(ConfigError, match="epsilon"):
        train_plan_from_json(json.dumps(data))


@pytest.mark.parametrize(
    "config", [HybridConfig(unit=ExampleLevel()), CONFIG, HybridConfig(cells=OTHER_CELLS)]
)
def test_settings_survive_plain_data_and_toml(config: HybridConfig) -> None:
    data = config_to_dict(config)
    assert data["method"] == method_name(config) == "hybrid"
    assert config_from_dict(data) == config
    assert config_from_dict(tomllib.loads(toml_text(data))) == config


def test_users_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="two-phase or dp-sgd"):
        HybridConfig(unit=UserLevel())


def test_a_delta_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"delta=0\.0"):
        HybridConfig(unit=ExampleLevel()).calibrate(epsilon=3.0, delta=0.0)


def test_a_config_without_a_target_makes_no_plan() -> None:
    with pytest.raises(ConfigError, match="HybridConfig has no target"):
        HybridConfig(unit=ExampleLevel()).make(SHAPE)


@pytest.mark.parametrize("changes", [{"cells": None}, {"unit": "example"}, {"target": 3.0}])
def test_settings_of_another_kind_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        HybridConfig(**changes)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match="one process"):
        check_shareable(plan())


def test_there_are_no_towers_to_build() -> None:
    with pytest.raises(ConfigError, match="no model of towers"):
        _ = plan().tower_config
