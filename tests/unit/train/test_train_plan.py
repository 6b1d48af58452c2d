import dataclasses
import json
from collections.abc import Callable

import pytest

from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.poisson import Poisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.events import Gaussian, Grouped, NonPrivate, Repeated
from tulle.privacy.units import Adjacency, TrustModel
from tulle.train.budget_split import RatioSplit
from tulle.train.configs import Accounting, Target
from tulle.train.models.mlp import MLP
from tulle.train.phases import LabelCorrection, PublicTower
from tulle.train.plan_data import train_plan_from_json, train_plan_to_json
from tulle.train.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.train_plan import TrainPlan, steps_event
from tulle.train.unit_level import UserAccounting, UserLevel
from unit.train.small_data import (
    dp_sgd,
    label_phase,
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


@pytest.fixture(scope="module")
def paper_plan() -> TrainPlan:
    return two_phase(accounting=Accounting.PAPER_RDP).make(SHAPE)


BANDED = BandedNoise(num_bands=4)
BANDED_PHASE = private_phase(batch_size=50, noise=BANDED)


@pytest.fixture(scope="module")
def banded_plan() -> TrainPlan:
    """With noise that was searched for."""
    return two_phase(private_phase=BANDED_PHASE).make(SHAPE)


def other_guarantee(plan: TrainPlan, **changes: object) -> TrainPlan:
    guarantee = dataclasses.replace(plan.plan.guarantee, **changes)
    changed = dataclasses.replace(plan.plan, guarantee=guarantee, variants=())
    return dataclasses.replace(plan, plan=changed)


def other_claims(plan: TrainPlan, **changes: object) -> TrainPlan:
    return dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, **changes))


def other_config(plan: TrainPlan, **changes: object) -> TrainPlan:
    return dataclasses.replace(plan, config=dataclasses.replace(plan.config, **changes))


def other_sampler(plan: TrainPlan, **changes: object) -> TrainPlan:
    assert plan.sampler is not None
    return dataclasses.replace(plan, sampler=dataclasses.replace(plan.sampler, **changes))


CHANGES: dict[str, Callable[[TrainPlan], TrainPlan]] = {
    "more steps": lambda plan: other_sampler(plan, steps=plan.num_private_steps + 1),
    "other chance": lambda plan: other_sampler(plan, sampling_prob=0.05),
    "smaller batch": lambda plan: other_sampler(
        plan, max_batch_size=99, accept_costly_truncation=True
    ),
    "less noise": lambda plan: dataclasses.replace(plan, noise_multiplier=0.5),
    "no noise": lambda plan: dataclasses.replace(plan, noise_multiplier=None),
    "no steps": lambda plan: dataclasses.replace(plan, noise_multiplier=None, sampler=None),
    "weaker labels": lambda plan: dataclasses.replace(plan, label_epsilon=4.0),
    "true labels": lambda plan: dataclasses.replace(plan, label_epsilon=None),
    "other clip": lambda plan: other_config(plan, private_phase=private_phase(clip_norm=9.0)),
    "other given noise": lambda plan: other_config(
        plan, private_phase=private_phase(noise_multiplier=7.0)
    ),
    "frozen tower": lambda plan: other_config(
        plan, private_phase=private_phase(public_tower=PublicTower.FREEZE)
    ),
    "other batches": lambda plan: other_config(plan, private_phase=private_phase(batch_size=120)),
    "other label loss": lambda plan: other_config(
        plan, label_phase=label_phase(correction=LabelCorrection.DEBIASED)
    ),
    "other model": lambda plan: other_config(plan, model=MLP()),
    "stronger target": lambda plan: other_config(plan, target=Target(epsilon=1.0, delta=1e-5)),
    "smaller delta": lambda plan: other_config(plan, target=Target(epsilon=5.0, delta=1e-9)),
    "no target": lambda plan: other_config(plan, target=None),
    "users": lambda plan: other_config(plan, unit=UserLevel()),
    "the papers' account": lambda plan: other_config(plan, accounting=Accounting.PAPER_RDP),
    "another method": lambda plan: dataclasses.replace(plan, config=dp_sgd()),
    "a baseline": lambda plan: dataclasses.replace(plan, config=nonprivate()),
    "labels alone": lambda plan: dataclasses.replace(plan, config=randomized_labels()),
    "more rows": lambda plan: dataclasses.replace(plan, shape=make_shape(500, num_users=200)),
    "vocabularies": lambda plan: dataclasses.replace(
        plan,
        shape=dataclasses.replace(plan.shape, vocabulary_event=Gaussian(noise_multiplier=9.0)),
    ),
    "another event": lambda plan: dataclasses.replace(
        plan, plan=dataclasses.replace(plan.plan, event=NonPrivate())
    ),
    "a stronger claim": lambda plan: other_guarantee(plan, epsilon=1.0),
    "a smaller claimed delta": lambda plan: other_guarantee(plan, delta=1e-12),
    "other neighbours": lambda plan: other_guarantee(plan, adjacency=Adjacency.ADD_OR_REMOVE),
    "noise on devices": lambda plan: other_claims(plan, trust=TrustModel.LOCAL),
    "no assumptions": lambda plan: other_claims(plan, assumptions=()),
    "no bounds": lambda plan: other_claims(plan, bounds=()),
    "another sentence": lambda plan: other_claims(plan, mechanism="Nothing is read."),
    "a further claim for another event": lambda plan: other_claims(
        plan,
        variants=(
            dataclasses.replace(plan.plan.variants[0], event=Gaussian(noise_multiplier=99.0)),
        ),
    ),
    "a further claim for other columns": lambda plan: other_claims(
        plan,
        variants=(
            dataclasses.replace(
                plan.plan.variants[0],
                guarantee=dataclasses.replace(
                    plan.plan.variants[0].guarantee, scope=plan.plan.guarantee.scope
                ),
            ),
        ),
    ),
    "another plan": lambda plan: dataclasses.replace(
        plan, plan=randomized_labels().make(SHAPE).plan
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_part_of_a_plan_can_be_changed_alone(plan: TrainPlan, change: str) -> None:
    with pytest.raises(ConfigError):
        CHANGES[change](plan)


def other_noise(plan: TrainPlan, noise: StepNoise) -> TrainPlan:
    return other_config(plan, private_phase=dataclasses.replace(BANDED_PHASE, noise=noise))


def truncated(plan: TrainPlan) -> TrainPlan:
    sampler = TruncatedPoisson.with_headroom(
        num_rows=400, max_batch_size=50, steps=plan.num_private_steps
    )
    return dataclasses.replace(plan, sampler=sampler)


def independent_event(plan: TrainPlan) -> TrainPlan:
    sampler = Poisson(num_rows=400, sampling_prob=0.125, steps=plan.num_private_steps)
    event = sampler.event(Gaussian(noise_multiplier=plan.noise_multiplier))
    return other_claims(plan, event=event, variants=())


BANDED_CHANGES: dict[str, Callable[[TrainPlan], TrainPlan]] = {
    "more bands": lambda plan: other_noise(plan, BandedNoise(num_bands=5)),
    "fewer bands": lambda plan: other_noise(plan, BandedNoise(num_bands=2)),
    "independent noise": lambda plan: other_noise(plan, IndependentNoise()),
    "lattice": lambda plan: other_noise(plan, LatticeNoise()),
    "selected rows": lambda plan: other_noise(plan, SelectedRows()),
    "fewer groups": lambda plan: other_sampler(plan, num_groups=3),
    "more groups": lambda plan: other_sampler(plan, num_groups=8),
    "another seed of the groups": lambda plan: other_sampler(plan, group_seed=1),
    "more steps": lambda plan: other_sampler(plan, steps=plan.num_private_steps + 1),
    "another sampler": truncated,
    "less noise": lambda plan: dataclasses.replace(plan, noise_multiplier=0.5),
    "the event of independent noise": independent_event,
    "no assumptions": lambda plan: other_claims(plan, assumptions=()),
    "no bounds": lambda plan: other_claims(plan, bounds=()),
    "the sentence of independent noise": lambda plan: other_claims(
        plan, mechanism=CALIBRATED.make(SHAPE).plan.mechanism
    ),
    "another exponent": lambda plan: other_claims(
        plan, settings={**plan.plan.settings, "band_exponent": 0.5}
    ),
}


@pytest.mark.parametrize("change", BANDED_CHANGES)
def test_no_part_of_a_plan_with_correlated_noise_can_be_changed_alone(
    banded_plan: TrainPlan, change: str
) -> None:
    with pytest.raises(ConfigError):
        BANDED_CHANGES[change](banded_plan)


@pytest.mark.parametrize(
    "changed", [LatticeNoise(), SelectedRows(), BANDED], ids=["lattice", "selected", "banded"]
)
def test_independent_noise_cannot_be_changed_alone(plan: TrainPlan, changed: StepNoise) -> None:
    with pytest.raises(ConfigError):
        other_config(plan, private_phase=private_phase(noise=changed))


@pytest.mark.parametrize(
    ("noise", "other"),
    [
        (LatticeNoise(bits=24), LatticeNoise(bits=25)),
        (SelectedRows(threshold=3.0), SelectedRows(threshold=2.0)),
        (SelectedRows(selection_share=0.1), SelectedRows(selection_share=0.2)),
    ],
    ids=["bits", "threshold", "share"],
)
def test_settings_of_noise_cannot_be_changed_alone(noise: StepNoise, other: StepNoise) -> None:
    plan = dp_sgd(private_phase=private_phase(noise_multiplier=1.0, noise=noise)).make(SHAPE)
    with pytest.raises(ConfigError, match="another config"):
        other_config(plan, private_phase=private_phase(noise_multiplier=1.0, noise=other))


def test_a_plan_can_be_put_together_from_its_own_parts(plan: TrainPlan) -> None:
    assert dataclasses.replace(plan, shape=make_shape(400, num_users=200)) == plan


def test_poisson_batches_of_other_rows_are_refused_though_they_cost_the_same(
    paper_plan: TrainPlan,
) -> None:
    assert isinstance(paper_plan.sampler, Poisson)
    noise = Gaussian(noise_multiplier=1.0)
    other = dataclasses.replace(paper_plan.sampler, num_rows=100)
    assert other.event(noise) == paper_plan.sampler.event(noise)
    with pytest.raises(ConfigError, match="made with another config"):
        dataclasses.replace(paper_plan, sampler=other)


def test_given_noise_and_the_noise_that_runs_are_the_same() -> None:
    plan = dp_sgd().make(SHAPE)
    with pytest.raises(ConfigError, match="noise_multiplier"):
        other_config(plan, private_phase=private_phase(noise_multiplier=2.0))


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
    text = train_plan_to_json(plan)
    again = train_plan_from_json(text)
    assert again == plan
    assert train_plan_to_json(again) == text
    assert again.plan.fingerprint() == plan.plan.fingerprint()


def test_a_finished_plan_keeps_its_vocabularies() -> None:
    shape = dataclasses.replace(SHAPE, vocabulary_event=Gaussian(noise_multiplier=9.0))
    plan = dp_sgd().make(shape)
    assert train_plan_from_json(train_plan_to_json(plan)).shape.vocabulary_event is not None
    assert train_plan_from_json(train_plan_to_json(plan)) == plan


def test_a_finished_plan_with_other_noise_is_refused() -> None:
    text = train_plan_to_json(dp_sgd().make(SHAPE))
    assert text.count('"noise_multiplier":1.0') > 1
    with pytest.raises(ConfigError):
        train_plan_from_json(text.replace('"noise_multiplier":1.0', '"noise_multiplier":0.1', 1))


def test_a_finished_plan_with_other_noise_in_all_its_places_is_refused() -> None:
    text = train_plan_to_json(dp_sgd().make(SHAPE))
    with pytest.raises(ConfigError, match="gives only epsilon"):
        train_plan_from_json(text.replace('"noise_multiplier":1.0', '"noise_multiplier":0.1'))


def test_a_finished_plan_with_a_smaller_epsilon_is_refused() -> None:
    plan = dp_sgd().make(SHAPE)
    epsilon = f'"epsilon":{plan.plan.guarantee.epsilon!r}'
    text = train_plan_to_json(plan)
    assert epsilon in text
    with pytest.raises(ConfigError, match="gives only epsilon"):
        train_plan_from_json(text.replace(epsilon, '"epsilon":0.5'))


def test_a_finished_plan_with_more_rows_is_refused() -> None:
    text = train_plan_to_json(dp_sgd().make(SHAPE))
    assert text.count('"num_private_rows":400') == 1
    with pytest.raises(ConfigError):
        train_plan_from_json(text.replace('"num_private_rows":400', '"num_private_rows":4000'))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": "tulle train plan 1"}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        train_plan_from_json(text)


def test_a_plan_of_another_format_is_refused() -> None:
    text = train_plan_to_json(randomized_labels().make(SHAPE))
    with pytest.raises(ConfigError, match="tulle that wrote it"):
        train_plan_from_json(text.replace("tulle train plan 1", "tulle train plan 9"))


def test_a_finished_plan_with_other_bands_is_refused(banded_plan: TrainPlan) -> None:
    text = train_plan_to_json(banded_plan)
    assert text.count('"num_bands":4') > 1
    for changed in (
        text.replace('"num_bands":4', '"num_bands":2'),
        text.replace('"num_bands":4', '"num_bands":2', 1),
    ):
        with pytest.raises(ConfigError):
            train_plan_from_json(changed)


def test_correlated_noise_is_accounted_as_turns_of_groups(banded_plan: TrainPlan) -> None:
    sampler = banded_plan.sampler
    assert isinstance(sampler, CyclicPoisson)
    assert (sampler.num_groups, sampler.steps, sampler.expected_size) == (4, 16, 50)
    event = steps_event(banded_plan.config, sampler, 2.0)
    assert event == sampler.event(Gaussian(noise_multiplier=2.0), num_bands=4)
    assert isinstance(event, Repeated)
    assert event.count == 4
    assert banded_plan.plan.guarantee.adjacency is Adjacency.REPLACE


def test_group_privacy_is_part_of_the_event() -> None:
    event = steps_event(CONFIGS["groups"], CONFIGS["groups"].make(SHAPE).sampler, 4.0)
    assert isinstance(event, Grouped)
    assert event.group_size == 2
    assert isinstance(event.event, Repeated)


def test_a_frozen_public_tower_is_not_trained_privately_but_only_if_it_is_warm() -> None:
    frozen = private_phase(noise_multiplier=1.0, public_tower=PublicTower.FREEZE)
    assert two_phase(private_phase=frozen).make(SHAPE).private_towers == {"sensitive", "common"}
    assert "public" in dp_sgd(private_phase=frozen).make(SHAPE).private_towers
    cold = two_phase(private_phase=frozen, split=RatioSplit(label_share=0.0))
    assert "public" in cold.make(SHAPE).private_towers


@pytest.mark.parametrize(
    "marks", ["[[1000000000,0.000001]]", "[[0,0.1],{last}]", "[{last},{last}]", "[[1,99.0],{last}]"]
)
def test_a_finished_plan_that_would_show_another_epsilon_is_refused(marks: str) -> None:
    plan = dp_sgd().make(SHAPE)
    data = json.loads(train_plan_to_json(plan))
    last = json.dumps(data["epsilon_milestones"][-1])
    data["epsilon_milestones"] = json.loads(marks.replace("{last}", last))
    with pytest.raises(ConfigError, match="do not ascend"):
        train_plan_from_json(json.dumps(data))
