import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.errors import ConfigError
from tulle.privacy.events import Gaussian, Grouped, Repeated
from tulle.privacy.units import Adjacency
from tulle.train.methods.method import Accounting
from tulle.train.methods.private_training import step_settings
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.models import MLP
from tulle.train.settings.phases import PublicTower, RatioSplit
from tulle.train.settings.step_noise import BandedNoise, LatticeNoise, SelectedRows
from tulle.train.settings.units import UserAccounting, UserLevel
from unit.train.small_data import (
    dp_sgd,
    make_shape,
    nonprivate,
    private_phase,
    randomized_labels,
    two_phase,
)

SHAPE = make_shape(400, num_users=200)
CALIBRATED = two_phase(private_phase=private_phase())


@pytest.fixture(scope="module")
def plan() -> TrainPlan:
    """With noise that was searched for."""
    return CALIBRATED.make(SHAPE)


BANDED = BandedNoise(num_bands=4)
BANDED_PHASE = private_phase(batch_size=50, noise=BANDED)


@pytest.fixture(scope="module")
def banded_plan() -> TrainPlan:
    """With noise that was searched for."""
    return two_phase(private_phase=BANDED_PHASE).make(SHAPE)


def test_only_what_cannot_be_derived_is_stored() -> None:
    """A sampler, an event or a sentence of its own would be something to forge."""
    assert [field.name for field in dataclasses.fields(TrainPlan)] == [
        *("method", "shape", "noise_multiplier"),
        *("epsilon", "variant_epsilons", "epsilon_milestones"),
    ]


def change_method(data: dict[str, Any], **changes: object) -> None:
    data["method"] |= changes


def change_phase(data: dict[str, Any], **changes: object) -> None:
    data["method"]["private_phase"] |= changes


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "less noise": lambda data: data.update(noise_multiplier=0.3),
    "a little less noise": lambda data: data.update(
        noise_multiplier=0.99 * data["noise_multiplier"]
    ),
    "no noise": lambda data: data.update(noise_multiplier=None),
    "a smaller epsilon": lambda data: data.update(epsilon=1.0),
    "a smaller epsilon and target": lambda data: (
        data.update(epsilon=1.0, epsilon_milestones=[]),
        change_method(data, target={"epsilon": 1.0, "delta": 1e-5}),
    ),
    "a smaller delta": lambda data: change_method(data, target={"epsilon": 5.0, "delta": 1e-9}),
    "a smaller further claim": lambda data: data.update(variant_epsilons=[0.01]),
    "no further claim": lambda data: data.update(variant_epsilons=[]),
    "another further claim": lambda data: data.update(variant_epsilons=[3.0, 3.0]),
    "no target": lambda data: data["method"].pop("target"),
    "another given noise": lambda data: change_phase(data, noise_multiplier=7.0),
    "more steps": lambda data: change_phase(data, epochs=400.0),
    "more steps without marks": lambda data: (
        change_phase(data, epochs=400.0),
        data.update(epsilon_milestones=[]),
    ),
    "weaker labels": lambda data: (
        change_method(data, split={"kind": "ratio", "label_share": 0.9}),
    ),
    "fewer rows": lambda data: data["shape"].update(num_private_rows=150),
    "fewer rows without marks": lambda data: (
        data["shape"].update(num_private_rows=110),
        data.update(epsilon_milestones=[]),
    ),
    "users": lambda data: change_method(
        data, unit={"kind": "user", "max_rows_per_user": 5, "accounting": "group privacy"}
    ),
    "vocabularies": lambda data: data["shape"].update(
        vocabulary_event={"kind": "Gaussian", "noise_multiplier": 0.5}
    ),
    "a baseline": lambda data: data.update(method={"method": "nonprivate"}),
    "labels alone": lambda data: data["method"].update(split={"kind": "ratio", "label_share": 1}),
    "steps alone": lambda data: data["method"].update(split={"kind": "ratio", "label_share": 0}),
}


@pytest.mark.parametrize("change", FORGED)
def test_a_forged_plan_is_refused(plan: TrainPlan, change: str) -> None:
    data = json.loads(plan.to_json())
    FORGED[change](data)
    with pytest.raises(ConfigError):
        TrainPlan.from_json(json.dumps(data))


def test_a_forged_plan_with_more_bands_is_refused(banded_plan: TrainPlan) -> None:
    data = json.loads(banded_plan.to_json())
    data["method"]["private_phase"]["noise"]["num_bands"] = 8
    # More bands make groups of rows smaller, and a batch of one group then costs more.
    with pytest.raises(ConfigError):
        TrainPlan.from_json(json.dumps(data))


def test_a_forged_plan_is_refused_before_a_run_costs_anything(plan: TrainPlan) -> None:
    """Also if it never was JSON: nothing is trained on a claim that nobody computed."""
    forged = dataclasses.replace(plan, noise_multiplier=0.3)
    with pytest.raises(ConfigError, match="gives only epsilon"):
        forged.verify()


def test_a_plan_can_be_put_together_from_its_own_parts(plan: TrainPlan) -> None:
    assert dataclasses.replace(plan, shape=make_shape(400, num_users=200)) == plan


CONFIGS = {
    "two-phase": CALIBRATED,
    "frozen": two_phase(private_phase=private_phase(public_tower=PublicTower.FREEZE)),
    "labels alone": two_phase(split=RatioSplit(label_share=1.0)),
    "rr": randomized_labels(),
    "dp-sgd": dp_sgd(),
    "nonprivate": nonprivate(),
    "banded": two_phase(private_phase=BANDED_PHASE),
    "lattice": dp_sgd(private_phase=private_phase(noise_multiplier=1.0, noise=LatticeNoise())),
    "selected rows": dp_sgd(private_phase=private_phase(noise_multiplier=1, noise=SelectedRows())),
    "mlp": dp_sgd(model=MLP(embedding_dim="fourth root")),
    "papers": dp_sgd(accounting=Accounting.PAPER_RDP),
    "users": two_phase(
        unit=UserLevel(max_rows_per_user=2, accounting=UserAccounting.CLIPPED_USERS)
    ),
    "groups": dp_sgd(
        unit=UserLevel(max_rows_per_user=2, accounting=UserAccounting.GROUP_PRIVACY),
        private_phase=private_phase(noise_multiplier=4.0),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_finished_plan_survives_json(name: str) -> None:
    plan = CONFIGS[name].make(SHAPE)
    text = plan.to_json()
    again = TrainPlan.from_json(text)
    assert again == plan
    assert again.to_json() == text
    assert again.privacy.fingerprint() == plan.privacy.fingerprint()


def test_a_finished_plan_keeps_its_vocabularies() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=Gaussian(noise_multiplier=9.0))
    plan = dp_sgd().make(shape)
    assert TrainPlan.from_json(plan.to_json()).shape.vocabulary_event is not None
    assert TrainPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"format": "tulle train plan 2"}',
        '{"format": "tulle train plan 1"}',
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        TrainPlan.from_json(text)


def test_a_plan_of_another_format_is_refused() -> None:
    text = randomized_labels().make(SHAPE).to_json()
    with pytest.raises(ConfigError, match="tulle that wrote it"):
        TrainPlan.from_json(text.replace("tulle train plan 2", "tulle train plan 9"))


def test_correlated_noise_is_accounted_as_turns_of_groups(banded_plan: TrainPlan) -> None:
    sampler = banded_plan.sampler
    assert isinstance(sampler, CyclicPoisson)
    assert (sampler.num_groups, sampler.steps, sampler.expected_size) == (4, 16, 50)
    event = banded_plan.method.noisy_event(sampler, 2.0)
    assert event == sampler.event(Gaussian(noise_multiplier=2.0), num_bands=4)
    assert isinstance(event, Repeated)
    assert event.count == 4
    assert banded_plan.privacy.guarantee.adjacency is Adjacency.REPLACE


def test_group_privacy_is_part_of_the_event() -> None:
    event = CONFIGS["groups"].make(SHAPE).event
    assert isinstance(event, Grouped)
    assert event.group_size == 2
    assert isinstance(event.event, Repeated)


def test_a_frozen_public_tower_is_not_trained_privately_but_only_if_it_is_warm() -> None:
    frozen = private_phase(noise_multiplier=1.0, public_tower=PublicTower.FREEZE)
    assert step_settings(two_phase(private_phase=frozen).make(SHAPE)).towers == {
        "sensitive",
        "common",
    }
    assert "public" in step_settings(dp_sgd(private_phase=frozen).make(SHAPE)).towers
    cold = two_phase(private_phase=frozen, split=RatioSplit(label_share=0.0))
    assert "public" in step_settings(cold.make(SHAPE)).towers


@pytest.mark.parametrize(
    "marks", ["[[1000000000,0.000001]]", "[[0,0.1],{last}]", "[{last},{last}]", "[[1,99.0],{last}]"]
)
def test_a_finished_plan_that_would_show_another_epsilon_is_refused(marks: str) -> None:
    plan = dp_sgd().make(SHAPE)
    data = json.loads(plan.to_json())
    last = json.dumps(data["epsilon_milestones"][-1])
    data["epsilon_milestones"] = json.loads(marks.replace("{last}", last))
    with pytest.raises(ConfigError, match="do not ascend"):
        TrainPlan.from_json(json.dumps(data))
