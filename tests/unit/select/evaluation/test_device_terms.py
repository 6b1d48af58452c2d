"""Terms have the right mean over every choice and click, exactly."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tulle.errors import ConfigError, DataError
from tulle.select.auctions import Auctions, FloatArray
from tulle.select.evaluation.device_terms import (
    NUM_STEPS,
    DecisionLog,
    Estimator,
    TermRange,
    check_support,
    device_terms,
    square_step,
    squares_on_grid,
    term_range,
    term_step,
    terms_on_grid,
    weight_limits,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised, SelectionMechanism
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind
from tulle.select.mechanisms.shortlists import TopCandidates
from unit.select.evaluation.logged_decisions import ShowRank, logged, same_auctions

LOGGING = FloorMechanism(epsilon=1.5, shortlist=TopCandidates(num_finalists=4))
TARGETS: list[SelectionMechanism] = [
    LOGGING,
    FloorMechanism(epsilon=3.0, shortlist=TopCandidates(num_finalists=3)),
    FloorMechanism(epsilon=0.5, shortlist=TopCandidates(num_finalists=4), num_boosted=2),
    NonPersonalised(),
    ShowRank(rank=2),
]

chances = st.lists(st.floats(0.01, 0.99), min_size=5, max_size=5).map(np.array)


def outcomes(
    auction: Auctions, raw_scores: FloatArray, model: FloatArray
) -> tuple[Auctions, DecisionLog]:
    """One auction once for every choice of a finalist, without and with a click."""
    size = auction.num_candidates
    num = 2 * size
    repeated = Auctions(
        offsets=size * np.arange(num + 1),
        ads=np.tile(auction.ads, num),
        bids=np.tile(auction.bids, num),
        server_click_probs=np.tile(auction.server_click_probs, num),
    )
    return repeated, DecisionLog(
        users=np.arange(num),
        choices=size * np.arange(num) + np.tile(np.arange(size), 2),
        raw_clicks=np.repeat([False, True], size),
        raw_scores=np.tile(raw_scores, num),
        raw_target_scores=np.tile(raw_scores[::-1], num),
        raw_model_clicks=np.tile(model, num),
    )


def exact_mean(terms: FloatArray, logging_probs: FloatArray, click_probs: FloatArray) -> float:
    missed, clicked = terms.reshape(2, -1)
    return float(logging_probs @ (missed * (1 - click_probs) + clicked * click_probs))


def auction_of(server: FloatArray) -> Auctions:
    return Auctions(
        offsets=np.array([0, 5]),
        ads=np.arange(5),
        bids=np.array([1.0, 2.0, 0.5, 1.5, 3.0]),
        server_click_probs=server,
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("estimator", Estimator)
@given(server=chances, device=chances, model=chances, values=chances)
def test_the_mean_term_is_the_value_of_the_target(
    target: SelectionMechanism,
    estimator: Estimator,
    server: FloatArray,
    device: FloatArray,
    model: FloatArray,
    values: FloatArray,
) -> None:
    """For any model, any scores, and clicks whose true probability nobody knows."""
    auction, scores = auction_of(server), device
    repeated, log = outcomes(auction, scores, model)
    terms = device_terms(
        repeated,
        log,
        (LOGGING, target),
        estimator=estimator,
        values=np.tile(values, 10),
        max_weight=1e9,
    )
    true_clicks = device[[2, 0, 1, 4, 3]]
    truth = float(target.selection_probs(auction, scores[::-1]) @ (values * true_clicks))
    logging_probs = LOGGING.selection_probs(auction, scores)
    usable = np.where(np.tile(logging_probs, 2) > 0, terms, 0.0)
    assert exact_mean(usable, logging_probs, true_clicks) == pytest.approx(truth, rel=1e-9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChanceOfTheNextCandidate(FloorMechanism):
    """A fault: the propensity is that of another candidate than the chosen one."""

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        probs = super().selection_probs(auctions, raw_scores).reshape(len(auctions), -1)
        return np.roll(probs, 1, axis=1).ravel()


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize(
    ("logging", "is_right"),
    [(FloorMechanism(epsilon=1.5), True), (ChanceOfTheNextCandidate(epsilon=1.5), False)],
)
def test_the_propensity_of_another_candidate_is_caught(
    logging: FloorMechanism, estimator: Estimator, is_right: bool
) -> None:
    auction, device = auction_of(np.full(5, 0.5)), np.array([0.1, 0.6, 0.3, 0.2, 0.4])
    repeated, log = outcomes(auction, device, np.full(5, 0.3))
    target, ones = ShowRank(rank=None), np.ones(repeated.num_candidates)
    terms = device_terms(
        repeated, log, (logging, target), estimator=estimator, values=ones, max_weight=1e9
    )
    mean = exact_mean(terms, FloorMechanism(epsilon=1.5).selection_probs(auction, device), device)
    assert (abs(mean / device.mean() - 1) < 1e-9) == is_right
    assert (abs(mean / device.mean() - 1) < 0.05) == is_right


@pytest.mark.parametrize("target", [*TARGETS, Greedy()])
@pytest.mark.parametrize("estimator", Estimator)
@given(server=chances, device=chances, model=chances)
def test_no_term_leaves_its_range(
    target: SelectionMechanism,
    estimator: Estimator,
    server: FloatArray,
    device: FloatArray,
    model: FloatArray,
) -> None:
    logging = FloorMechanism(epsilon=1.5)
    repeated, log = outcomes(auction_of(server), device, model)
    limits = weight_limits(logging, target, repeated)
    assert limits is not None
    terms = device_terms(
        repeated,
        log,
        (logging, target),
        estimator=estimator,
        values=np.ones(repeated.num_candidates),
        max_weight=1e9,
    )
    bounds = term_range(estimator, float(limits.max()), 1.0)
    assert bounds.low * (1 + 1e-12) <= terms.min() <= terms.max() <= bounds.high * (1 + 1e-12)


def test_the_limit_of_weights_is_reached() -> None:
    logging, target = FloorMechanism(epsilon=1.5), FloorMechanism(epsilon=3.0)
    total, target_total = np.exp(1.5) + 4, np.exp(3.0) + 4
    repeated, log = outcomes(auction_of(np.full(5, 0.5)), np.arange(5.0), np.full(5, 0.5))
    limits = weight_limits(logging, target, repeated)
    assert limits is not None
    assert limits == pytest.approx(np.exp(3.0) / target_total * total, rel=1e-12)
    terms = device_terms(
        repeated,
        log,
        (logging, target),
        estimator=Estimator.INVERSE_PROPENSITY,
        values=np.ones(repeated.num_candidates),
        max_weight=1e9,
    )
    assert terms.max() == pytest.approx(limits[0], rel=1e-12)


def test_a_single_finalist_has_weight_one() -> None:
    rule = FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=1))
    limits = weight_limits(rule, rule, auction_of(np.full(5, 0.5)))
    assert limits is not None
    assert limits.tolist() == [1.0]


def test_weights_are_cut_where_they_are_asked_to_be() -> None:
    repeated, log = outcomes(auction_of(np.full(5, 0.5)), np.arange(5.0), np.full(5, 0.5))
    terms = device_terms(
        repeated,
        log,
        (FloorMechanism(epsilon=3.0), ShowRank(rank=None)),
        estimator=Estimator.INVERSE_PROPENSITY,
        values=np.ones(repeated.num_candidates),
        max_weight=2.0,
    )
    assert terms.max() == 2.0


def test_a_choice_that_cannot_have_been_drawn_gets_the_largest_weight() -> None:
    repeated, log = outcomes(auction_of(np.linspace(0.9, 0.1, 5)), np.ones(5), np.full(5, 0.5))
    top = FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=1))
    terms = device_terms(
        repeated,
        log,
        (top, ShowRank(rank=None)),
        estimator=Estimator.INVERSE_PROPENSITY,
        values=np.ones(repeated.num_candidates),
        max_weight=7.0,
    )
    assert np.isfinite(terms).all()
    assert terms.max() == 7.0


def test_ranges_are_those_of_the_terms() -> None:
    assert term_range(Estimator.INVERSE_PROPENSITY, 6.0, 2.0) == TermRange(low=0.0, high=6.0)
    assert term_range(Estimator.DOUBLY_ROBUST, 6.0, 2.0) == TermRange(low=-6.0, high=8.0)
    with pytest.raises(ConfigError, match="nothing to estimate"):
        term_range(Estimator.INVERSE_PROPENSITY, 0.0, 0.0)


AUCTIONS = same_auctions(4, np.array([0.2, 0.5, 0.4]))
LOG = logged(AUCTIONS, AUCTIONS.server_click_probs, FloorMechanism(epsilon=1.0), seed=1)


def test_the_chance_of_a_choice_tells_the_favourite() -> None:
    """Why no propensity is written beside a choice: one look at both undoes randomized response."""
    mechanism = FloorMechanism(epsilon=1.0)
    chances = mechanism.selection_probs(AUCTIONS, LOG.raw_scores)[LOG.choices]
    best = LOG.raw_scores.reshape(4, 3).argmax(axis=1)
    assert ((chances > 1 / 3) == (AUCTIONS.ads[LOG.choices] == best)).all()


def test_sensitive_columns_are_not_printed() -> None:
    for field in dataclasses.fields(DecisionLog):
        assert field.repr == (not field.name.startswith("raw_")), field.name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"choices": LOG.choices[::-1]}, "a candidate of its own auction"),
        ({"raw_scores": LOG.raw_scores[1:]}, "raw_scores must have one entry"),
        ({"raw_model_clicks": np.ones(2)}, "raw_model_clicks must have one entry"),
    ],
)
def test_a_log_of_other_auctions_is_refused(wrong: dict[str, Any], message: str) -> None:
    log = dataclasses.replace(LOG, **wrong)
    with pytest.raises(DataError, match=message):
        log.check(AUCTIONS)
    with pytest.raises(DataError, match="one decision for each auction"):
        LOG.check(same_auctions(5, np.array([0.2, 0.5])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"raw_clicks": LOG.raw_clicks[1:]}, "raw_clicks must have one entry for each decision"),
        ({"raw_clicks": np.ones(4)}, "raw_clicks must be True or False, not float64"),
        ({"is_personalised": np.ones(4)}, "is_personalised must be True or False"),
        ({"raw_model_clicks": np.full(12, 1.5)}, "raw_model_clicks must be probabilities"),
    ],
)
def test_a_malformed_log_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataclasses.replace(LOG, **wrong)


LIMITS = TermRange(low=-3.0, high=5.0)


@given(hnp.arrays(np.float64, 6, elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_every_term_is_bounded_even_where_a_computation_went_wrong(terms: FloatArray) -> None:
    with np.errstate(over="ignore"):
        steps = terms_on_grid(terms, LIMITS)
    assert steps.dtype == np.int64
    assert steps.min() >= 0
    assert steps.max() <= NUM_STEPS


@given(hnp.arrays(np.float64, 6, elements=st.floats(-3.0, 5.0)))
def test_terms_are_kept_up_to_half_a_step(terms: FloatArray) -> None:
    back = LIMITS.low + term_step(LIMITS) * terms_on_grid(terms, LIMITS)
    assert np.abs(back - terms).max() <= term_step(LIMITS) * 0.5000001


def test_squares_are_those_of_users_rounded_up() -> None:
    steps = terms_on_grid(np.array([5.0, -3.0, 5.0, 1.0]), LIMITS)
    squares = squares_on_grid(steps, np.array([0, 1, 0, 2]), LIMITS, 2)
    unit = square_step(LIMITS, 2)
    assert squares * unit == pytest.approx([100.0, 9.0, 1.0], abs=unit)
    assert squares[0] == NUM_STEPS
    assert np.all(squares * unit >= np.array([100.0, 9.0, 1.0]) * (1 - 1e-12))


def test_a_square_is_bounded_for_a_user_with_too_many_terms() -> None:
    steps = np.full(9, NUM_STEPS)
    assert squares_on_grid(steps, np.zeros(9, np.int64), LIMITS, 2).tolist() == [NUM_STEPS]


LOGGED_AUCTIONS = same_auctions(3, np.array([0.2, 0.5, 0.4, 0.1]))
ALL = np.ones(3, np.bool_)


def top(num_finalists: int) -> FloorMechanism:
    return FloorMechanism(epsilon=1.0, shortlist=TopCandidates(num_finalists=num_finalists))


@pytest.mark.parametrize("target", [top(4), Greedy(), ShowRank(rank=0), FloorMechanism(epsilon=2)])
def test_ads_that_were_never_shown_tell_nothing(target: SelectionMechanism) -> None:
    with pytest.raises(ConfigError, match=r"may show ads that .* never shows, in 3 auctions"):
        check_support(top(3), target, LOGGED_AUCTIONS, ALL)
    check_support(top(4), target, LOGGED_AUCTIONS, ALL)


@pytest.mark.parametrize("target", [top(3), top(1), NonPersonalised()])
def test_a_shorter_shortlist_is_supported(target: SelectionMechanism) -> None:
    check_support(top(3), target, LOGGED_AUCTIONS, ALL)


def test_only_decisions_that_count_need_support() -> None:
    with pytest.raises(ConfigError, match="in 1 auctions"):
        check_support(top(3), top(4), LOGGED_AUCTIONS, np.array([False, True, False]))
    check_support(top(3), top(4), LOGGED_AUCTIONS, ~ALL)


@pytest.mark.parametrize("logging", [Greedy(), NonPersonalised(), ShowRank(rank=None)])
def test_a_log_without_public_finalists_is_refused(logging: SelectionMechanism) -> None:
    with pytest.raises(ConfigError, match="gives no public probability to every finalist"):
        check_support(logging, top(1), LOGGED_AUCTIONS, ALL)


def test_weights_of_a_noisy_maximum_have_no_known_limit() -> None:
    noisy_max = NoisyMax(epsilon=1.0, noise=NoiseKind.EXPONENTIAL, score_bound=ScaledScores())
    check_support(noisy_max, top(2), LOGGED_AUCTIONS, ALL)
    assert weight_limits(noisy_max, top(2), LOGGED_AUCTIONS) is None


def test_the_limit_of_any_target_is_one_over_the_floor() -> None:
    limits = weight_limits(top(3), NonPersonalised(), LOGGED_AUCTIONS)
    assert limits is not None
    assert limits == pytest.approx(np.full(3, np.e + 2), rel=1e-12)
