"""Each audited engine plans two steps, and what is seen of it has independent noise."""

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from tulle.audit.steps.engines import ENGINES, NUM_STEPS, AuditedEngine, find_engine, turns_of
from tulle.audit.steps.neighbours import Background, NeighbourRows
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.units import Adjacency
from tulle.train.banded.band_matrix import BandMatrix
from tulle.train.fitting import make_plan
from tulle.train.step_noise import STEP_NOISES
from tulle.train.train_plan import TrainPlan

ROWS = NeighbourRows(num_runs=1000, background=Background.APART)
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


def plan_of(engine: AuditedEngine) -> TrainPlan:
    config = engine.config(ROWS.num_rows).calibrate(epsilon=4.0, delta=1e-5)
    return make_plan(ROWS.examples(0), config)


@each_engine
def test_the_plan_is_one_of_training_with_two_steps(engine: AuditedEngine) -> None:
    plan = plan_of(engine)
    assert plan.num_private_steps == NUM_STEPS
    assert plan.privacy.guarantee.adjacency is Adjacency.REPLACE
    assert plan.privacy.guarantee.epsilon == 4.0
    is_banded = engine.name == "banded"
    assert isinstance(plan.sampler, CyclicPoisson if is_banded else TruncatedPoisson)


def test_every_noise_of_training_is_audited_and_both_placements_of_the_plain_one() -> None:
    assert {type(engine.noise) for engine in ENGINES} == set(STEP_NOISES)
    assert {"dense", "lazy"} <= {engine.name for engine in ENGINES}


@each_engine
def test_whitened_noise_of_each_look_has_the_scale_of_the_plan(engine: AuditedEngine) -> None:
    covariance = np.eye(NUM_STEPS)
    if engine.name == "banded":
        first, later = BandMatrix(num_bands=2, num_steps=NUM_STEPS).coefficients
        inverse = solve_triangular([[first, 0], [later, first]], np.eye(2), lower=True)
        covariance = inverse @ inverse.T
    whitening = engine.whitening()
    assert whitening @ covariance @ whitening.T == pytest.approx(np.eye(len(whitening)))


def test_turns_of_correlated_noise_are_those_of_the_first_group() -> None:
    plan = plan_of(find_engine("banded"))
    turns = turns_of(plan, ROWS.canaries)
    assert isinstance(plan.sampler, CyclicPoisson)
    assert turns.steps == (0,)
    assert turns.prob == pytest.approx(0.5)
    assert turns.is_audited is not None
    first_group = ROWS.canaries[turns.is_audited]
    assert set(plan.sampler.groups.groups_of(first_group)) == {0}
    assert 400 < len(first_group) < 600


def test_turns_of_sampled_rows_are_all_steps() -> None:
    turns = turns_of(plan_of(find_engine("dense")), ROWS.canaries)
    assert turns.steps == (0, 1)
    assert turns.is_audited is None


def test_an_unknown_engine_is_told_what_it_may_have_been() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'banded'\?.*use one of dense"):
        find_engine("bandde")
