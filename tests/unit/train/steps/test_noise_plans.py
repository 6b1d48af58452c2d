"""Plans with each noise: what they find, what they say, and what they refuse."""

import dataclasses
import json

import pytest

from tulle.accounting.accountant import pld_epsilon, verify_plan
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.errors import ConfigError, UnsupportedEventError
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.methods.dp_sgd import DpSgdConfig
from tulle.train.methods.hybrid import HybridConfig
from tulle.train.methods.method import Accounting
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.phases import PrivatePhase
from tulle.train.settings.step_noise import (
    BandedNoise,
    IndependentNoise,
    LatticeNoise,
    SelectedRows,
    StepNoise,
)
from tulle.train.settings.units import UserAccounting, UserLevel
from unit.train.small_data import dp_sgd, make_shape, private_phase, two_phase

SHAPE = make_shape(4000)


def plan_with(noise: StepNoise, noise_multiplier: float | None = 1.0) -> TrainPlan:
    phase = private_phase(noise=noise, noise_multiplier=noise_multiplier)
    return dp_sgd(private_phase=phase).make(SHAPE)


def test_noise_is_found_for_the_turns_of_groups() -> None:
    plan = plan_with(BandedNoise(num_bands=8), noise_multiplier=None)
    independent = plan_with(IndependentNoise(), noise_multiplier=None)
    assert plan.noise_multiplier is not None
    assert independent.noise_multiplier is not None
    assert plan.privacy.guarantee == independent.privacy.guarantee
    assert plan.noise_multiplier > independent.noise_multiplier
    sampler = plan.sampler
    assert isinstance(sampler, CyclicPoisson)
    event = sampler.event(Gaussian(noise_multiplier=plan.noise_multiplier), num_bands=8)
    epsilon = pld_epsilon(event, plan.privacy.guarantee.delta, Adjacency.REPLACE)
    assert 0.98 * plan.privacy.guarantee.epsilon < epsilon <= plan.privacy.guarantee.epsilon
    verify_plan(plan.privacy)


def test_milestones_rise_to_the_headline() -> None:
    plan = plan_with(BandedNoise(num_bands=8))
    steps, epsilons = zip(*plan.epsilon_milestones, strict=True)
    assert steps[-1] == plan.num_private_steps
    assert list(epsilons) == sorted(epsilons)
    assert 0 < epsilons[0] < epsilons[-1] == plan.privacy.guarantee.epsilon


def test_two_phases_speak_of_sensitive_columns_too() -> None:
    phase = private_phase(noise=BandedNoise(num_bands=4), noise_multiplier=1.0)
    plan = two_phase(private_phase=phase).make(SHAPE)
    (variant,) = plan.privacy.variants
    assert variant.guarantee.epsilon < plan.privacy.guarantee.epsilon
    verify_plan(plan.privacy)


SAID: dict[type[StepNoise], dict[str, object]] = {
    IndependentNoise: {
        "noise": "independent",
        "noise_arithmetic": "floating point, not on a lattice",
    },
    LatticeNoise: {
        "noise": "lattice",
        "noise_arithmetic": "whole multiples of a grid",
        "lattice_bits": 24,
        "lattice_grid": 2.0**-24,
    },
    BandedNoise: {
        "noise": "banded",
        "num_bands": 16,
        "num_groups": 16,
        "sampler": "CyclicPoisson",
        "band_exponent": BandMatrix(num_bands=16, num_steps=80).exponent,
    },
    SelectedRows: {"noise": "selected rows", "selection_share": 0.1, "selection_threshold": 3.0},
}


@pytest.mark.parametrize("kind", StepNoise.__args__)
def test_a_plan_says_which_noise_it_has(kind: type[StepNoise]) -> None:
    settings = dict(plan_with(kind()).privacy.settings)
    for name, value in SAID[kind].items():
        assert settings[name] == value
    json.dumps(settings)


@pytest.mark.parametrize("kind", [LatticeNoise, BandedNoise, SelectedRows])
def test_words_of_other_noise_differ_from_those_of_independent_noise(
    kind: type[StepNoise],
) -> None:
    usual, other = plan_with(IndependentNoise()).privacy, plan_with(kind()).privacy
    assert other.mechanism.startswith(usual.mechanism)
    assert other.mechanism != usual.mechanism
    assert len(other.assumptions) > len(usual.assumptions)


def test_bounds_tell_of_turns_and_counts() -> None:
    turns = plan_with(BandedNoise(num_bands=8)).privacy.bounds[-1]
    assert (turns.what, turns.limit) == ("steps that one row can take part in", 10)
    counts = plan_with(SelectedRows()).privacy.bounds[-1]
    assert "counts of table rows" in counts.what
    assert counts.limit == 1


@pytest.mark.parametrize("kind", [LatticeNoise, SelectedRows])
def test_lattice_and_selection_cost_what_independent_noise_costs(kind: type[StepNoise]) -> None:
    usual, other = plan_with(IndependentNoise()), plan_with(kind())
    assert other.privacy.event == usual.privacy.event
    assert other.privacy.guarantee == usual.privacy.guarantee


@pytest.mark.parametrize("config", [DpSgdConfig, HybridConfig])
@pytest.mark.parametrize("accounting", UserAccounting)
def test_correlated_noise_for_users_cannot_be_built(
    config: type[DpSgdConfig | HybridConfig], accounting: UserAccounting
) -> None:
    phase = PrivatePhase(noise=BandedNoise())
    with pytest.raises(ConfigError, match="single examples"):
        config(private_phase=phase, unit=UserLevel(accounting=accounting))


def test_correlated_noise_with_the_papers_account_cannot_be_built() -> None:
    phase = PrivatePhase(noise=BandedNoise())
    with pytest.raises(ConfigError, match="REPLACE_PLD"):
        DpSgdConfig(private_phase=phase, accounting=Accounting.PAPER_RDP)
    config = DpSgdConfig(private_phase=phase)
    with pytest.raises(ConfigError, match="REPLACE_PLD"):
        dataclasses.replace(config, accounting=Accounting.PAPER_RDP)


def test_correlated_noise_is_never_accounted_for_added_rows() -> None:
    plan = plan_with(BandedNoise(num_bands=4))
    with pytest.raises(UnsupportedEventError, match="FixedSizeSampled"):
        pld_epsilon(plan.privacy.event, 1e-5, Adjacency.ADD_OR_REMOVE)
