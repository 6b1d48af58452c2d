"""Each audited engine plans two steps, and what is seen of it has independent noise."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_triangular

from tulle.audit.audited_steps import (
    AUDITED_STEPS,
    NUM_STEPS,
    ROWS_PER_RUN,
    AuditedSteps,
    Background,
    NeighbourRows,
    along_canaries,
    find_steps,
    turns_of,
)
from tulle.data.samplers.cyclic_poisson import CyclicPoisson
from tulle.data.samplers.truncated_poisson import TruncatedPoisson
from tulle.errors import ConfigError
from tulle.privacy.units import Adjacency
from tulle.train.fitting import make_plan
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.settings.step_noise import StepNoise

ROWS = NeighbourRows(num_runs=1000, background=Background.APART)
each_engine = pytest.mark.parametrize("engine", AUDITED_STEPS, ids=lambda engine: engine.name)


def plan_of(engine: AuditedSteps) -> TrainPlan:
    config = engine.config(ROWS.num_rows).calibrate(epsilon=4.0, delta=1e-5)
    return make_plan(ROWS.examples(0), config)


@each_engine
def test_the_plan_is_one_of_training_with_two_steps(engine: AuditedSteps) -> None:
    plan = plan_of(engine)
    assert plan.num_private_steps == NUM_STEPS
    assert plan.privacy.guarantee.adjacency is Adjacency.REPLACE
    assert plan.privacy.guarantee.epsilon == 4.0
    is_banded = engine.name == "banded"
    assert isinstance(plan.sampler, CyclicPoisson if is_banded else TruncatedPoisson)


def test_every_noise_of_training_is_audited_and_both_placements_of_the_plain_one() -> None:
    assert {type(engine.noise) for engine in AUDITED_STEPS} == set(StepNoise.__args__)
    assert {"dense", "lazy"} <= {engine.name for engine in AUDITED_STEPS}


@each_engine
def test_whitened_noise_of_each_look_has_the_scale_of_the_plan(engine: AuditedSteps) -> None:
    covariance = np.eye(NUM_STEPS)
    if engine.name == "banded":
        first, later = BandMatrix(num_bands=2, num_steps=NUM_STEPS).coefficients
        inverse = solve_triangular([[first, 0], [later, first]], np.eye(2), lower=True)
        covariance = inverse @ inverse.T
    whitening = engine.whitening()
    assert whitening @ covariance @ whitening.T == pytest.approx(np.eye(len(whitening)))


def test_turns_of_correlated_noise_are_those_of_the_first_group() -> None:
    plan = plan_of(find_steps("banded"))
    turns = turns_of(plan, ROWS.canaries)
    assert isinstance(plan.sampler, CyclicPoisson)
    assert turns.steps == (0,)
    assert turns.prob == pytest.approx(0.5)
    assert turns.is_audited is not None
    first_group = ROWS.canaries[turns.is_audited]
    assert set(plan.sampler.groups.groups_of(first_group)) == {0}
    assert 400 < len(first_group) < 600


def test_turns_of_sampled_rows_are_all_steps() -> None:
    turns = turns_of(plan_of(find_steps("dense")), ROWS.canaries)
    assert turns.steps == (0, 1)
    assert turns.is_audited is None


def test_an_unknown_engine_is_told_what_it_may_have_been() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'banded'\?.*use one of dense"):
        find_steps("bandde")


@pytest.mark.parametrize("background", Background)
def test_two_data_sets_differ_in_the_labels_of_canaries_alone(background: Background) -> None:
    rows = NeighbourRows(num_runs=5, background=background)
    one, other = rows.examples(0), rows.examples(1)
    assert one.labels is not None
    assert other.labels is not None
    assert np.flatnonzero(one.labels != other.labels).tolist() == rows.canaries.tolist()
    assert np.array_equal(one.public_features, other.public_features)
    assert np.array_equal(one.sensitive_features, other.sensitive_features)
    assert one.num_rows == rows.num_rows == 5 * ROWS_PER_RUN


@pytest.mark.parametrize("background", Background)
def test_no_two_runs_share_an_id(background: Background) -> None:
    rows = NeighbourRows(num_runs=7, background=background)
    ids = rows.examples(0).public_features[:, 0].reshape(7, ROWS_PER_RUN)
    for run, own in enumerate(ids):
        others = np.delete(ids, run, axis=0)
        assert not set(own) & set(others.ravel())


def test_other_rows_read_the_canarys_weights_only_if_they_are_aligned() -> None:
    for background, is_shared in ((Background.APART, False), (Background.ALIGNED, True)):
        ids = NeighbourRows(num_runs=3, background=background).examples(0).public_features[:, 0]
        by_run = ids.reshape(3, ROWS_PER_RUN)
        assert np.all((by_run[:, 1:] == by_run[:, :1]) == is_shared)


def test_weights_along_a_canary_are_those_of_its_ids_in_the_direction_of_its_gradient() -> None:
    weights = {name: torch.zeros(4, 1) for name in ("public.table.0", "sensitive.table.0")}
    # A gradient of norm 1: the sensitive row is read eight times where the public one is once.
    weights["public.table.0"][2] = 1 / 65**0.5
    weights["sensitive.table.0"][2] = 8 / 65**0.5
    weights["public.table.0"][3] = 100.0
    assert along_canaries(weights) == pytest.approx([0.0, 1.0], abs=1e-6)
