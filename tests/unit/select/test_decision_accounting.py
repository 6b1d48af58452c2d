"""What decisions cost: against tables, against brute force, and with wrong rules caught."""

import collections
import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tulle.accounting.accountant import privacy_curve
from tulle.accounting.shuffling import profile_delta, response_blanket
from tulle.errors import ConfigError
from tulle.privacy import events
from tulle.privacy.units import Adjacency, Scope, Unit
from tulle.select.auctions import Auctions
from tulle.select.decision_accounting import (
    DecisionAccounting,
    Shuffle,
    UserReports,
    enough_finalists,
    finalist_cells,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import Greedy, NonPersonalised
from tulle.select.mechanisms.noisy_max import NoisyMax, ScaledScores
from tulle.select.mechanisms.noisy_max_probs import NoiseKind

FloatArray = NDArray[np.float64]

DELTA = 1e-6
FRACTIONS = np.array([0.0, 0.1, 0.3, 0.5, 0.8])


def accounting(
    epsilon: float = 1.0,
    *,
    least_finalists: int = 15,
    count: int = 1,
    cell: int | None = None,
    user_reports: UserReports = UserReports.ONE_PER_CELL,
) -> DecisionAccounting:
    shuffle = None if cell is None else Shuffle(min_cell_size=cell, user_reports=user_reports)
    return DecisionAccounting(
        mechanism=FloorMechanism(epsilon=epsilon),
        least_finalists=least_finalists,
        max_decisions_per_user=count,
        shuffle=shuffle,
    )


@pytest.mark.parametrize(
    ("cell", "epsilon", "printed"),
    [
        (10**4, 1.0, 0.0192),
        (10**4, 3.0, 0.174),
        (10**4, 5.0, 0.702),
        (10**6, 1.0, 0.00152),
        (10**6, 3.0, 0.0146),
        (10**6, 5.0, 0.0572),
    ],
)
def test_a_shuffled_decision_costs_what_the_table_says(
    cell: int, epsilon: float, printed: float
) -> None:
    """15 finalists; computed with separate code and printed to three digits."""
    promise = accounting(epsilon, cell=cell).decision_guarantee(DELTA)
    assert float(f"{promise.epsilon:.3g}") == printed
    assert (promise.unit, promise.adjacency) == (Unit.impression(), Adjacency.REPLACE)


@pytest.mark.parametrize(("epsilon", "printed"), [(0.5, 7.9), (1.0, 20.77), (3.0, 132.0)])
def test_fifty_local_decisions_compose_exactly(epsilon: float, printed: float) -> None:
    promise = accounting(epsilon, count=50).user_guarantee(DELTA)
    assert promise.epsilon == pytest.approx(printed, rel=5e-3)
    assert promise.unit == Unit.user()
    assert promise.scope is Scope.SENSITIVE_COLUMNS


def test_a_local_composition_equals_the_sum_over_all_losses() -> None:
    """Multinomial sum over (truth, other's truth, third) against the accountant."""
    total = math.exp(1.0) + 14
    chances = [math.exp(1.0) / total, 1 / total, 13 / total]
    epsilon = accounting(1.0, count=50).user_guarantee(DELTA).epsilon
    delta = 0.0
    for first in range(51):
        for second in range(51 - first):
            loss = first - second
            if loss > epsilon:
                law = stats.multinomial(50, chances)
                delta -= law.pmf([first, second, 50 - first - second]) * math.expm1(epsilon - loss)
    assert delta == pytest.approx(DELTA, rel=1e-3)


# Computed with separate code that freezes the blanket's size, which is pessimistic by up to 13%.
@pytest.mark.parametrize(
    ("cell", "epsilon", "count", "frozen"),
    [
        (10**6, 3.0, 10, 0.0513),
        (10**6, 3.0, 50, 0.123),
        (10**6, 1.0, 10, 0.0055),
        (10**4, 3.0, 10, 0.621),
        (10**4, 5.0, 10, 2.66),
    ],
)
def test_shuffled_decisions_of_a_user_compose(
    cell: int, epsilon: float, count: int, frozen: float
) -> None:
    slack = 0.13 if cell == 10**4 else 0.03
    apart = accounting(epsilon, count=count, cell=cell).user_guarantee(DELTA).epsilon
    assert frozen * (1 - slack) <= apart <= frozen
    # As many reports of each user in one cell: group privacy says the same within a percent.
    together = accounting(
        epsilon, count=count, cell=cell * count, user_reports=UserReports.SEVERAL_PER_CELL
    )
    assert together.user_guarantee(DELTA).epsilon == pytest.approx(apart, rel=0.01)


def test_ten_shuffled_decisions_cost_the_accepted_value() -> None:
    promise = accounting(3.0, count=10, cell=10**6).user_guarantee(DELTA)
    assert promise.epsilon == pytest.approx(0.0513, rel=0.02)


def test_a_cell_of_one_is_not_amplified() -> None:
    assert accounting(3.0, cell=1).decision_guarantee(0.0).epsilon == pytest.approx(3.0)
    alone = accounting(3.0).decision_guarantee(DELTA).epsilon
    assert accounting(3.0, cell=1).decision_guarantee(DELTA).epsilon == pytest.approx(alone)


def test_decisions_without_personalisation_cost_nothing_and_greedy_ones_everything() -> None:
    for mechanism, epsilon in ((NonPersonalised(), 0.0), (Greedy(), math.inf)):
        costs = DecisionAccounting(mechanism=mechanism, least_finalists=2, max_decisions_per_user=3)
        assert costs.user_guarantee(DELTA).epsilon == epsilon


def response(num_values: int, epsilon: float) -> FloatArray:
    odds = np.exp(epsilon * np.eye(num_values))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def counted(channel: FloatArray, held: tuple[int, ...]) -> FloatArray:
    """The law of shuffled counts of what units report that hold these values."""
    law = np.zeros((len(held) + 1,) * channel.shape[1])
    law.flat[0] = 1.0
    for value in held:
        law = sum(
            (chance * np.roll(law, 1, axis=output) for output, chance in enumerate(channel[value])),
            start=np.zeros_like(law),
        )
    return law.ravel()


def stick(one: FloatArray, other: FloatArray, epsilons: FloatArray) -> FloatArray:
    return np.array([np.maximum(one - math.exp(e) * other, 0).sum() for e in epsilons])


def delta_of_separate_shuffles(
    num_values: int, num_reports: int, epsilon: float, epsilons: FloatArray
) -> FloatArray:
    """Exact, for two reports of a user, each among `num_reports` in its own shuffle."""
    channel = response(num_values, epsilon)
    pairs = [
        (counted(channel, (0, *others)), counted(channel, (1, *others)))
        for others in itertools.product(range(num_values), repeat=num_reports - 1)
    ]
    worst = np.zeros(len(epsilons))
    for first, second in itertools.combinations_with_replacement(pairs, 2):
        products = [np.outer(first[side], second[side]) for side in (0, 1)]
        worst = np.maximum(worst, stick(products[0], products[1], epsilons))
    return worst


def delta_of_one_shuffle(
    num_values: int, num_reports: int, epsilon: float, epsilons: FloatArray
) -> FloatArray:
    """Exact, for two reports of a user that are both among `num_reports`."""
    channel, worst = response(num_values, epsilon), np.zeros(len(epsilons))
    values = range(num_values)
    for others in itertools.product(values, repeat=num_reports - 2):
        laws = [counted(channel, (*own, *others)) for own in itertools.product(values, repeat=2)]
        for one, other in itertools.permutations(laws, 2):
            worst = np.maximum(worst, stick(one, other, epsilons))
    return worst


def proved(event: events.Event, epsilons: FloatArray) -> FloatArray:
    return privacy_curve(event, Adjacency.REPLACE).deltas(epsilons)


SMALL = [(2, 2, 1.0), (2, 4, 0.5), (3, 3, 1.0), (3, 2, 2.0), (2, 5, 2.0)]


@pytest.mark.parametrize(("num_values", "num_reports", "epsilon"), SMALL)
def test_no_data_set_loses_more_than_the_composed_shuffles(
    num_values: int, num_reports: int, epsilon: float
) -> None:
    epsilons = 2 * epsilon * FRACTIONS
    event = accounting(epsilon, least_finalists=num_values, count=2, cell=num_reports).user_event()
    truth = delta_of_separate_shuffles(num_values, num_reports, epsilon, epsilons)
    assert np.all(truth <= proved(event, epsilons) + 1e-12)
    # A cell that is one report smaller than stated is caught.
    smaller = delta_of_separate_shuffles(num_values, num_reports - 1, epsilon, epsilons)
    assert np.any(smaller > 1.02 * proved(event, epsilons))


@pytest.mark.parametrize(("num_values", "num_reports", "epsilon"), SMALL)
def test_two_reports_of_a_user_in_one_cell_are_covered_by_group_privacy_alone(
    num_values: int, num_reports: int, epsilon: float
) -> None:
    epsilons = 2 * epsilon * FRACTIONS
    costs = accounting(epsilon, least_finalists=num_values, count=2, cell=num_reports)
    several = Shuffle(min_cell_size=num_reports, user_reports=UserReports.SEVERAL_PER_CELL)
    grouped = dataclasses.replace(costs, shuffle=several).user_event()
    truth = delta_of_one_shuffle(num_values, num_reports, epsilon, epsilons)
    assert np.all(truth <= proved(grouped, epsilons) + 1e-12)
    # Taking them for two shuffles is too little: a user's own report hides nothing.
    assert np.any(truth > 1.02 * proved(costs.user_event(), epsilons))


@given(
    st.floats(0.05, 8.0),
    st.integers(2, 60),
    st.integers(1, 40),
    st.integers(1, 10**5),
    st.floats(0.0, 0.999),
)
@settings(max_examples=80)
def test_more_finalists_never_cost_more(
    epsilon: float, num_values: int, more: int, num_reports: int, fraction: float
) -> None:
    few, many = (
        profile_delta(response_blanket(epsilon, k, num_reports), fraction * epsilon)
        for k in (num_values, num_values + more)
    )
    # The sum along a line may over-report by a thousandth, the exact sum counts a tail of 1e-30.
    assert many <= few * (1 + 1e-3) + 1e-30


@pytest.mark.parametrize("cell", [None, 4])
def test_fewer_finalists_than_stated_are_not_covered(cell: int | None) -> None:
    """Why auctions below least_finalists are not personalised."""
    epsilons = FRACTIONS
    event = accounting(1.0, least_finalists=4, cell=cell).decision_event()
    channel = response(2, 1.0)
    others = () if cell is None else (0,) * (cell - 1)
    truth = stick(counted(channel, (0, *others)), counted(channel, (1, *others)), epsilons)
    assert np.any(truth > 1.02 * proved(event, epsilons))


@pytest.mark.parametrize(
    "mechanism",
    [
        FloorMechanism(epsilon=1.0, num_boosted=2),
        NoisyMax(epsilon=1.0, noise=NoiseKind.GUMBEL, score_bound=ScaledScores()),
        Greedy(),
    ],
)
def test_only_randomized_response_may_be_shuffled(
    mechanism: FloorMechanism | NoisyMax | Greedy,
) -> None:
    with pytest.raises(ConfigError, match="the blanket bound is proven for randomized response"):
        DecisionAccounting(
            mechanism=mechanism,
            least_finalists=2,
            max_decisions_per_user=1,
            shuffle=Shuffle(min_cell_size=1000),
        )


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"min_cell_size=None must be given.*same finalists"):
        Shuffle(min_cell_size=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="min_cell_size=0"):
        Shuffle(min_cell_size=0)
    with pytest.raises(ConfigError, match="user_reports='one per cell'"):
        Shuffle(min_cell_size=9, user_reports="one per cell")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="shuffle=1000 must be a Shuffle with a cell size"):
        dataclasses.replace(accounting(), shuffle=1000)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="least_finalists=1"):
        accounting(least_finalists=1)
    with pytest.raises(ConfigError, match="max_decisions_per_user=0"):
        accounting(count=0)


def test_auctions_with_too_few_finalists_are_left_to_the_server() -> None:
    assert enough_finalists(np.array([1, 2, 3, 9]), 3).tolist() == [False, False, True, True]


def random_requests(seed: int) -> tuple[Auctions, NDArray[np.int64]]:
    """60 auctions of 1 to 4 out of 5 ads, and their users."""
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(5)[: rng.integers(1, 5)] for _ in range(60)]
    ads = np.concatenate(lists)
    auctions = Auctions(
        offsets=np.concatenate(([0], np.cumsum([len(ads) for ads in lists]))),
        ads=ads,
        bids=rng.random(len(ads)),
        server_click_probs=rng.random(len(ads)),
    )
    return auctions, rng.integers(0, 8, 60)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("user_reports", UserReports)
def test_the_personalised_decisions_keep_every_promise_of_the_event(
    seed: int, user_reports: UserReports
) -> None:
    auctions, users = random_requests(seed)
    costs = accounting(least_finalists=3, count=4, cell=2, user_reports=user_reports)
    cells = finalist_cells(auctions, auctions.sizes)
    chosen = costs.personalised(auctions.sizes, users=users, cells=cells)
    sets = [
        frozenset(auctions.ads[start:end].tolist())
        for start, end in itertools.pairwise(auctions.offsets)
    ]
    kept = [(users[i], sets[i]) for i in np.flatnonzero(chosen)]
    assert all(len(ads) >= 3 for _, ads in kept)
    assert max(collections.Counter(user for user, _ in kept).values(), default=0) <= 4
    assert all(size >= 2 for size in collections.Counter(ads for _, ads in kept).values())
    if user_reports is UserReports.ONE_PER_CELL:
        assert len(set(kept)) == len(kept)


def test_the_rules_leave_something_to_personalise() -> None:
    totals = [0, 0, 0]
    for seed in range(20):
        auctions, users = random_requests(seed)
        for place, costs in enumerate(
            (
                accounting(least_finalists=3, count=4),
                accounting(
                    least_finalists=3,
                    count=4,
                    cell=2,
                    user_reports=UserReports.SEVERAL_PER_CELL,
                ),
                accounting(least_finalists=3, count=4, cell=2),
            )
        ):
            cells = finalist_cells(auctions, auctions.sizes)
            chosen = costs.personalised(auctions.sizes, users=users, cells=cells)
            totals[place] += int(chosen.sum())
    assert totals[0] > totals[1] > totals[2] > 100


def test_without_a_shuffle_a_users_first_decisions_are_personalised() -> None:
    auctions, users = random_requests(1)
    users[:] = 5
    chosen = accounting(least_finalists=2, count=3).personalised(auctions.sizes, users=users)
    assert np.flatnonzero(chosen).tolist() == np.flatnonzero(auctions.sizes >= 2)[:3].tolist()
