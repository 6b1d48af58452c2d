"""The noise of an estimate covers everything that one user can change, and wrong ones are caught.

What is summed is read where the noise is added, so the whole way from scores to sums is covered.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tulle.accounting.accountant import guarantee
from tulle.accounting.event_rules import pure_epsilon
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.events import Composed
from tulle.privacy.units import Adjacency, Unit
from tulle.select.auctions import FloatArray, IntArray
from tulle.select.decision_accounting import DecisionAccounting, Shuffle, UserReports
from tulle.select.evaluation import estimate
from tulle.select.evaluation.device_terms import (
    NUM_STEPS,
    DecisionLog,
    Estimator,
    TermRange,
    device_terms,
    term_step,
)
from tulle.select.evaluation.estimate import (
    OnDeviceEvaluation,
    release_estimate,
    user_event,
)
from tulle.select.mechanisms.floors import FloorMechanism
from unit.select.evaluation.logged_decisions import ShowRank, same_auctions

AUCTIONS = same_auctions(7, np.array([0.3, 0.4, 0.5, 0.2]))
USERS = np.array([1, 2, 1, 1, 3, 2, 1])
"""User 1 has 4 decisions, of which 3 count."""
PERSONALISED = np.array([True, True, True, True, True, False, True])

Sums = list[tuple[int, DiscreteLaplaceConfig]]


def evaluation(estimator: Estimator, max_weight: float | None = None) -> OnDeviceEvaluation:
    return OnDeviceEvaluation(
        logging=FloorMechanism(epsilon=2.0),
        target=ShowRank(rank=2),
        estimator=estimator,
        epsilon=0.7,
        max_decisions_per_user=3,
        max_weight=max_weight,
    )


def neighbours(rng: np.random.Generator) -> Iterator[DecisionLog]:
    """Logs that differ in all that user 1's devices hold: scores, models, choices, clicks."""
    is_theirs = USERS == 1
    candidates = np.repeat(is_theirs, 4)
    shared = _random_state(rng)
    extremes = [_extreme_state(click=click) for click in (False, True)]
    for state in [*extremes, *(_random_state(rng) for _ in range(6))]:
        yield DecisionLog(
            users=USERS,
            choices=np.where(is_theirs, state.choices, shared.choices),
            raw_clicks=np.where(is_theirs, state.raw_clicks, shared.raw_clicks),
            raw_scores=np.where(candidates, state.raw_scores, shared.raw_scores),
            raw_model_clicks=np.where(candidates, model_of(state), model_of(shared)),
            is_personalised=PERSONALISED,
        )


def model_of(state: DecisionLog) -> FloatArray:
    return np.zeros(28) if state.raw_model_clicks is None else state.raw_model_clicks


def _random_state(rng: np.random.Generator) -> DecisionLog:
    return DecisionLog(
        users=USERS,
        choices=AUCTIONS.offsets[:-1] + rng.integers(0, 4, 7),
        raw_clicks=rng.random(7) < 0.5,
        raw_scores=rng.random(28),
        raw_model_clicks=rng.random(28),
    )


def _extreme_state(*, click: bool) -> DecisionLog:
    """The ad that the device likes least, with a click nobody expected, or without one."""
    return DecisionLog(
        users=USERS,
        choices=AUCTIONS.offsets[:-1].copy(),  # of server rank 2
        raw_clicks=np.full(7, click),
        raw_scores=np.tile([0.0, 1.0, 2.0, 3.0], 7),
        raw_model_clicks=np.tile([0.0, 1.0, 1.0, 1.0] if click else [1.0, 0.0, 0.0, 0.0], 7),
    )


def largest_loss(settings: OnDeviceEvaluation, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """Exact privacy loss of both sums together, largest over random and extreme neighbours."""
    recorded: list[Sums] = []

    def record(raw_count: int, config: DiscreteLaplaceConfig, *, rng: object) -> int:
        del rng
        recorded[-1].append((int(raw_count), config))
        return int(raw_count)

    monkeypatch.setattr(estimate, "release_discrete_laplace", record)
    worst = Fraction(0)
    for seed in range(5):
        recorded.clear()
        for log in neighbours(np.random.default_rng(seed)):
            recorded.append([])
            release_estimate(AUCTIONS, log, settings, rng=SeededNoise(1))
        for one in recorded:
            for other in recorded:
                # Discrete Laplace noise: a sum that moves by m costs m / scale at most.
                losses = [
                    Fraction(abs(first - second)) / Fraction(config.scale)
                    for (first, config), (second, _) in zip(one, other, strict=True)
                ]
                worst = max(worst, sum(losses, start=Fraction(0)))
    return worst


@pytest.mark.parametrize("max_weight", [None, 2.0])
@pytest.mark.parametrize("estimator", Estimator)
def test_no_change_of_a_user_costs_more_than_epsilon(
    estimator: Estimator, max_weight: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = evaluation(estimator, max_weight)
    assert largest_loss(settings, monkeypatch) <= Fraction(settings.epsilon)


def test_the_noise_is_not_larger_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inverse propensity reaches its whole range, so the bound is attained."""
    settings = evaluation(Estimator.INVERSE_PROPENSITY)
    assert float(largest_loss(settings, monkeypatch)) == pytest.approx(0.7, rel=1e-6)


def fault_half_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluation(Estimator.INVERSE_PROPENSITY).sum_noise
    halved = dataclasses.replace(right, scale=right.scale / 2)
    monkeypatch.setattr(OnDeviceEvaluation, "sum_noise", halved)


def fault_one_decision_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one(self: OnDeviceEvaluation) -> DiscreteLaplaceConfig:
        return DiscreteLaplaceConfig.for_epsilon(
            (1 - self.variance_share) * self.epsilon,
            adjacency=Adjacency.REPLACE,
            max_contribution=NUM_STEPS,
            replace_factor=1.0,
        )

    monkeypatch.setattr(OnDeviceEvaluation, "sum_noise", property(of_one))


def fault_every_decision_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of(log: DecisionLog, most: int) -> "np.typing.NDArray[np.bool_]":
        del most
        return np.ones(len(log.users), np.bool_)

    monkeypatch.setattr(estimate, "_counted", all_of)


def fault_terms_are_not_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And neither are weights: the range is believed, not enforced."""

    def unbounded(terms: FloatArray, limits: TermRange) -> IntArray:
        return np.rint((terms - limits.low) / term_step(limits)).astype(np.int64)

    def uncut(*args: Any, **settings: Any) -> FloatArray:
        return device_terms(*args, **settings | {"max_weight": 1e9})

    monkeypatch.setattr(estimate, "terms_on_grid", unbounded)
    monkeypatch.setattr(estimate, "device_terms", uncut)


def fault_squares_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of epsilon for the sum, and the squares on top."""

    def whole(self: OnDeviceEvaluation) -> DiscreteLaplaceConfig:
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            max_contribution=self.max_decisions_per_user * NUM_STEPS,
            replace_factor=1.0,
        )

    monkeypatch.setattr(OnDeviceEvaluation, "sum_noise", property(whole))


@pytest.mark.parametrize(
    ("fault", "max_weight"),
    [
        (fault_half_the_sensitivity, None),
        (fault_one_decision_a_user, None),
        (fault_every_decision_counts, None),
        (fault_terms_are_not_bounded, 2.0),
        (fault_squares_are_free, None),
    ],
)
def test_a_wrong_evaluation_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None],
    max_weight: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    settings = evaluation(Estimator.INVERSE_PROPENSITY, max_weight)
    assert float(largest_loss(settings, monkeypatch)) > 1.05 * settings.epsilon


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.9])
def test_the_event_costs_the_epsilon_that_was_asked_for(epsilon: float, share: float) -> None:
    settings = dataclasses.replace(
        evaluation(Estimator.DOUBLY_ROBUST), epsilon=epsilon, variance_share=share
    )
    cost = pure_epsilon(settings.event(), Adjacency.REPLACE)
    assert cost is not None
    assert cost <= Fraction(epsilon)
    assert float(cost) == pytest.approx(epsilon, rel=1e-12)


def test_what_is_released_states_its_whole_cost() -> None:
    log = next(neighbours(np.random.default_rng(1)))
    settings = evaluation(Estimator.INVERSE_PROPENSITY)
    result = release_estimate(AUCTIONS, log, settings, rng=SeededNoise(1))
    assert result.estimate.event == settings.event()


def test_nothing_but_sums_leaves() -> None:
    """No array, and nothing that has one entry for each decision, user or candidate."""
    log = next(neighbours(np.random.default_rng(1)))
    settings = evaluation(Estimator.INVERSE_PROPENSITY)
    result = release_estimate(AUCTIONS, log, settings, rng=SeededNoise(1))
    for value in dataclasses.asdict(result).values():
        assert not isinstance(value, (np.ndarray, list, tuple))


def decisions(shuffle: Shuffle | None = None) -> DecisionAccounting:
    return DecisionAccounting(
        mechanism=FloorMechanism(epsilon=1.0),
        least_finalists=4,
        max_decisions_per_user=3,
        shuffle=shuffle,
    )


def test_a_user_pays_for_decisions_and_estimates() -> None:
    one, two = (evaluation(estimator) for estimator in Estimator)
    event = user_event(decisions(), one, two)
    assert event == Composed((decisions().user_event(), one.event(), two.event()))
    cost = guarantee(event, delta=0.0, unit=Unit.user(), adjacency=Adjacency.REPLACE).epsilon
    assert cost == pytest.approx(3 * 1.0 + 2 * 0.7, rel=1e-6)


@pytest.mark.parametrize("user_reports", UserReports)
def test_estimates_add_to_shuffled_decisions(user_reports: UserReports) -> None:
    shuffled = decisions(Shuffle(min_cell_size=10**5, user_reports=user_reports))
    event = user_event(shuffled, evaluation(Estimator.INVERSE_PROPENSITY))
    cost = guarantee(event, delta=1e-6, unit=Unit.user(), adjacency=Adjacency.REPLACE).epsilon
    alone = shuffled.user_guarantee(1e-6).epsilon
    assert 0.7 < cost <= 0.7 + alone + 1e-6
    assert alone < 0.1 < math.e
