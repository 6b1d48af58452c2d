"""The real private step keeps its whole privacy curve, and no planted fault does.

Sampler, clipping, noise and optimizer are those of training; neighbours differ in one
label. What a fault leaks shows best with a background that suits it.
"""

import functools
import inspect
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from statistical import faulty_training_steps as faulty
from statistical.training_runs import (
    NOISE_MULTIPLIER,
    ROWS_PER_RUN,
    SINGLE_RUN_NOISE,
    Background,
    Scores,
    Trial,
    one_by_one_sampler,
    runs_one_by_one,
    runs_side_by_side,
    sampler_of,
)
from tulle.accounting.accountant import privacy_curve
from tulle.accounting.curve import PrivacyCurve
from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency

NUM_RUNS = 50_000
NUM_SINGLE_RUNS = 4000
CONFIG = ProfileAuditConfig(false_alarm_prob=1e-9)
GAUSSIAN = Gaussian(noise_multiplier=NOISE_MULTIPLIER)

Runs = Callable[[Trial, int, int, int], Scores]


def audit(
    runs: Runs, trial: Trial, num_runs: int, claim: PrivacyCurve, seed: int = 1
) -> ProfileAuditResult:
    scores = [runs(trial, num_runs, label, seed + 1000 * label) for label in (0, 1)]
    return audit_profile(scores[0], scores[1], claim, CONFIG)


@functools.cache
def claim_side_by_side(steps: int, adjacency: Adjacency = Adjacency.REPLACE) -> PrivacyCurve:
    return privacy_curve(sampler_of(NUM_RUNS, steps).event(GAUSSIAN), adjacency)


def audit_side_by_side(trial: Trial, seed: int = 1) -> ProfileAuditResult:
    return audit(runs_side_by_side, trial, NUM_RUNS, claim_side_by_side(trial.steps), seed)


def audit_one_by_one(trial: Trial) -> ProfileAuditResult:
    event = one_by_one_sampler(1).event(Gaussian(noise_multiplier=SINGLE_RUN_NOISE))
    claim = privacy_curve(event, Adjacency.REPLACE)
    return audit(runs_one_by_one, trial, NUM_SINGLE_RUNS, claim)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("background", Background)
def test_the_step_keeps_its_claim(background: Background, steps: int, seed: int) -> None:
    result = audit_side_by_side(Trial(background=background, steps=steps), seed)
    assert not result.is_violated
    assert result.epsilon_lower_bound < result.claimed_epsilon


@pytest.mark.parametrize("steps", [1, 2])
def test_the_audit_comes_near_the_claim(steps: int) -> None:
    trial = Trial(background=Background.APART, steps=steps)
    assert audit_side_by_side(trial).worst_excess > -0.03


@pytest.mark.parametrize("steps", [1, 2])
def test_a_flipped_label_breaks_a_claim_for_added_or_removed_rows(steps: int) -> None:
    claim = claim_side_by_side(steps, Adjacency.ADD_OR_REMOVE)
    trial = Trial(background=Background.APART, steps=steps)
    assert audit(runs_side_by_side, trial, NUM_RUNS, claim).worst_excess > 0.1


SIDE_BY_SIDE_FAULTS = [
    faulty.HalfNoise,
    faulty.NoiseOverRootTwo,
    faulty.ClipsAfterSumming,
    faulty.ClipsEachParameter,
    faulty.IgnoresRepeatedIds,
    faulty.ForgetsTheSensitiveTower,
]
ONE_BY_ONE_FAULTS = [faulty.DividesByTheDrawnSize, faulty.DividesSumAndNoiseByTheDrawnSize]


@pytest.mark.parametrize("fault", SIDE_BY_SIDE_FAULTS)
def test_a_faulty_step_is_caught(fault: type) -> None:
    assert audit_side_by_side(Trial(background=Background.APART, make_step=fault)).is_violated


def fixed_size(seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return faulty.fixed_size_batches(NUM_RUNS, ROWS_PER_RUN, ROWS_PER_RUN // 2, rng)


def test_batches_of_a_fixed_size_are_caught_with_an_aligned_background() -> None:
    aligned = Trial(background=Background.ALIGNED, draw=fixed_size)
    assert audit_side_by_side(aligned).is_violated
    # Why the background matters: without it nothing is to be seen.
    assert not audit_side_by_side(Trial(background=Background.APART, draw=fixed_size)).is_violated


@pytest.mark.long("trains a perceptron for every guess; smaller models are audited in make test")
def test_single_runs_of_a_perceptron_keep_their_claim() -> None:
    for background in Background:
        result = audit_one_by_one(Trial(background=background))
        assert not result.is_violated


@pytest.mark.long("trains hundreds of models; the step itself is audited in make test")
@pytest.mark.parametrize("fault", ONE_BY_ONE_FAULTS)
def test_a_divisor_that_was_drawn_is_caught(fault: type) -> None:
    assert audit_one_by_one(Trial(background=Background.ALIGNED, make_step=fault)).is_violated


def test_every_faulty_step_in_the_file_is_listed() -> None:
    planted = {
        member
        for _, member in inspect.getmembers(faulty, inspect.isclass)
        if member.__module__ == faulty.__name__ and not member.__name__.startswith("_")
    }
    assert planted == {*SIDE_BY_SIDE_FAULTS, *ONE_BY_ONE_FAULTS}
