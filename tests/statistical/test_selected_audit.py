"""The real step on selected rows keeps its privacy curve, and faulty ones break it.

An attacker sees all that a step gives away: which rows were selected, and their noisy
gradients. Its score is the likelihood ratio of that, with and without the canary.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from statistical import faulty_selected_rows as faulty
from statistical.selected_runs import (
    PLAIN,
    MakeStep,
    Values,
    batch_of,
    released_rows,
    table_model,
)
from tulle.accounting.accountant import privacy_curve
from tulle.audit.profile import ProfileAuditConfig, ProfileAuditResult, audit_profile
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Gaussian
from tulle.privacy.units import Adjacency
from tulle.train.settings.step_noise import SelectedRows
from tulle.train.steps.selected import SelectedStep
from tulle.train.steps.step_settings import StepSettings
from tulle.train.steps.training_noise import TrainingNoise

NUM_RUNS = 50_000
NOISE_MULTIPLIER = 1.0
CLIP_NORM = 0.25
SHARE = 0.5
# So low that the gradient of the canary's row is seen most of the time.
THRESHOLD = 0.05
COUNT_STDDEV = NOISE_MULTIPLIER / math.sqrt(SHARE)
GRADIENT_MULTIPLIER = NOISE_MULTIPLIER / math.sqrt(1 - SHARE)
SETTINGS = StepSettings(
    clip_norm=CLIP_NORM,
    noise_multiplier=NOISE_MULTIPLIER,
    expected_size=1.0,
    monitor_share=0.0,
    towers=frozenset({"public"}),
    mechanism=SelectedRows(selection_share=SHARE, threshold=THRESHOLD),
)


def canaries_seen(make_step: MakeStep, is_there: bool, seed: int) -> Values:
    """[runs]: the noisy gradient of each canary's row, in clip norms; nan if not selected."""
    rows = torch.arange(NUM_RUNS if is_there else 0)
    rng = SeededNoise(seed)
    step = make_step(table_model(NUM_RUNS), SETTINGS, PLAIN, TrainingNoise(rng), rng)
    batch = batch_of(rows, torch.zeros(len(rows)))
    gradient = released_rows(step, batch, torch.ones(len(rows)))
    seen = np.full(NUM_RUNS, np.nan)
    seen[gradient.rows.numpy()] = gradient.values[:, 0].double().numpy() / CLIP_NORM
    return seen


def log_likelihood_ratio(seen: Values) -> Values:
    """Of a canary that adds 1 to count and gradient, against none."""
    with_canary, without = (stats.norm(loc=one) for one in (1 / COUNT_STDDEV, 0.0))
    is_not = with_canary.logcdf(THRESHOLD) - without.logcdf(THRESHOLD)
    is_selected = with_canary.logsf(THRESHOLD) - without.logsf(THRESHOLD)
    return np.where(np.isnan(seen), is_not, is_selected + (seen - 0.5) / GRADIENT_MULTIPLIER**2)


def selected_or_not(seen: Values) -> Values:
    return (~np.isnan(seen)).astype(np.float64)


def gradient_if_selected(seen: Values) -> Values:
    return np.where(np.isnan(seen), -np.inf, seen)


SCORES = (log_likelihood_ratio, selected_or_not, gradient_if_selected)
CONFIG = ProfileAuditConfig(false_alarm_prob=1e-9 / len(SCORES))


def audit(make_step: MakeStep, seed: int = 1) -> ProfileAuditResult:
    """The worst over all scores."""
    claim = privacy_curve(Gaussian(noise_multiplier=NOISE_MULTIPLIER), Adjacency.ADD_OR_REMOVE)
    without, with_canary = (
        canaries_seen(make_step, is_there, seed + is_there) for is_there in (False, True)
    )
    results = [audit_profile(score(without), score(with_canary), claim, CONFIG) for score in SCORES]
    return max(results, key=lambda result: result.worst_excess)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_the_step_keeps_its_claim(seed: int) -> None:
    result = audit(SelectedStep, seed)
    assert not result.is_violated
    assert result.epsilon_lower_bound < result.claimed_epsilon


def test_the_audit_comes_near_the_claim() -> None:
    # Of the count an attacker sees one bit only.
    assert audit(SelectedStep).worst_excess > -0.12


@pytest.mark.parametrize(
    "fault",
    [
        faulty.ThresholdOnRawCounts,
        faulty.UnreadRowsAreNeverSelected,
        faulty.UnreadRowsAreSelectedTooRarely,
        faulty.ReadRowsGetASecondChance,
        faulty.RowsOutsideTheSelectionAreKept,
        faulty.SelectedRowsHaveNoNoise,
        faulty.OnlyReadRowsHaveNoise,
        faulty.NoiseOfTheCountsIsUsedAgain,
    ],
)
def test_a_faulty_step_breaks_the_claim(fault: type[SelectedStep]) -> None:
    # A wrong split of the noise shows in the law alone: of each count one bit is seen here.
    assert audit(fault).is_violated
