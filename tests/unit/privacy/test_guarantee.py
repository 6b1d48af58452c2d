import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.accounting.accountant import privacy_curve
from tulle.errors import ConfigError
from tulle.privacy.events import EpsilonDelta, Gaussian
from tulle.privacy.guarantee import BINARY_NOISE, Guarantee, round_down, round_up
from tulle.privacy.units import Adjacency, Owner, Scope, Unit
from tulle.privacy.windows import TimeWindows

WINDOWS = st.sampled_from(["day", "7 days", "week", "month in Europe/Berlin"]).map(
    TimeWindows.parse
)
UNITS = st.builds(Unit, st.sampled_from(Owner), st.one_of(st.none(), WINDOWS))
EPSILONS = st.one_of(st.sampled_from([0.0, 1.0, math.inf]), st.floats(0.0, 20.0))
DELTAS = st.one_of(st.sampled_from([0.0, 1e-6, 1.0]), st.floats(0.0, 1.0))
GUARANTEES = st.builds(
    Guarantee,
    epsilon=EPSILONS,
    delta=DELTAS,
    unit=UNITS,
    adjacency=st.sampled_from(Adjacency),
    scope=st.sampled_from(Scope),
)


def claim(epsilon: float, delta: float = 0.0) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, unit=Unit.user(), adjacency=Adjacency.REPLACE)


@given(GUARANTEES)
def test_a_guarantee_implies_itself(g: Guarantee) -> None:
    assert g <= g
    assert g >= g
    assert not g < g
    assert not g > g


@given(GUARANTEES, GUARANTEES, GUARANTEES)
def test_implication_is_transitive(a: Guarantee, b: Guarantee, c: Guarantee) -> None:
    if a <= b and b <= c:
        # Chained roundings of delta may differ in the last digits.
        assert a <= dataclasses.replace(c, delta=min(1.0, c.delta * (1 + 1e-9) + 1e-15))


@given(EPSILONS, DELTAS, EPSILONS, DELTAS, EPSILONS, DELTAS)
def test_implication_is_transitive_for_one_unit(e1, d1, e2, d2, e3, d3) -> None:
    a, b, c = claim(e1, d1), claim(e2, d2), claim(e3, d3)
    if a <= b and b <= c:
        assert a <= claim(e3, min(1.0, d3 * (1 + 1e-9) + 1e-15))


@given(GUARANTEES, GUARANTEES)
def test_guarantees_that_imply_each_other_are_equally_strong(a: Guarantee, b: Guarantee) -> None:
    if a <= b and b <= a:
        assert a.is_private == b.is_private
        assert a.unit.covers(b.unit)
        assert b.unit.covers(a.unit)
        if a.is_private:
            assert a.delta == pytest.approx(b.delta, abs=1e-12)
            assert a.profile(0.0) == pytest.approx(b.profile(0.0), abs=1e-12)


@given(EPSILONS, DELTAS)
def test_everything_implies_no_privacy(epsilon: float, delta: float) -> None:
    assert claim(epsilon, delta) <= claim(math.inf)
    assert claim(epsilon, delta) <= claim(0.0, 1.0)


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        (claim(1.0), claim(2.0)),
        (claim(1.0), claim(1.0, 1e-6)),
        (claim(1.0, 1e-6), claim(1.0, 1e-5)),
        (claim(0.1), claim(0.0, 0.05)),
        (dataclasses.replace(claim(1.0), scope=Scope.WHOLE_ROWS), claim(1.0)),
        (claim(1.0), dataclasses.replace(claim(1.0), unit=Unit.example())),
    ],
)
def test_the_stronger_of_two_is_smaller(strong: Guarantee, weak: Guarantee) -> None:
    assert strong < weak
    assert weak > strong
    assert not weak <= strong


def test_other_adjacencies_do_not_compare() -> None:
    other = dataclasses.replace(claim(0.1), adjacency=Adjacency.ADD_OR_REMOVE)
    assert not other <= claim(9.0)
    assert not other >= claim(9.0)


@given(st.floats(0.0, 30.0), st.floats(0.0, 0.999), st.floats(0.0, 40.0))
def test_the_profile_is_that_of_the_leaky_response(epsilon: float, delta: float, at: float) -> None:
    truth = (1 - delta) / (1 + math.exp(-epsilon))
    lie = (1 - delta) / (1 + math.exp(epsilon))
    p, q = np.array([delta, 0.0, truth, lie]), np.array([0.0, delta, lie, truth])
    brute = float(np.maximum(0.0, p - math.exp(at) * q).sum())
    assert claim(epsilon, delta).profile(at) == pytest.approx(brute, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.0), (3.0, 1e-5)])
def test_the_profile_is_the_accountants(epsilon: float, delta: float) -> None:
    curve = privacy_curve(EpsilonDelta(epsilon=epsilon, delta=delta), Adjacency.REPLACE)
    for at in (0.0, 0.5, 1.0, 2.9, 10.0):
        assert claim(epsilon, delta).profile(at) == pytest.approx(curve.delta(at), rel=1e-12)


@given(st.floats(0.0, 20.0), st.floats(0.0, 0.9), st.floats(0.0, 1.0))
def test_the_trade_off_is_the_best_test_that_the_profile_allows(
    epsilon: float, delta: float, false_positives: float
) -> None:
    g = claim(epsilon, delta)
    found = g.trade_off(false_positives)
    points = [0.0, epsilon / 2, epsilon, epsilon + 1]
    by_power = [1 - math.exp(e) * false_positives - g.profile(e) for e in points]
    by_symmetry = [math.exp(-e) * (1 - g.profile(e) - false_positives) for e in points]
    assert found == pytest.approx(max(0.0, *by_power, *by_symmetry), abs=1e-9)


@given(st.floats(0.0, 900.0), st.floats(0.0, 1.0))
def test_the_trade_off_falls_and_never_beats_guessing(epsilon: float, delta: float) -> None:
    g = claim(epsilon, delta)
    rates = np.linspace(0.0, 1.0, 33)
    missed = np.array([g.trade_off(float(r)) for r in rates])
    assert np.all(np.diff(missed) <= 1e-15)
    assert np.all(missed <= 1 - rates + 1e-15)
    assert np.all(missed >= 0)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_rates_are_checked(rate: float) -> None:
    with pytest.raises(ConfigError, match="false_positive_rate"):
        claim(1.0).trade_off(rate)


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"),
    [
        (-0.1, 0.0, "epsilon"),
        (math.nan, 0.0, "epsilon"),
        ("1", 0.0, "epsilon"),
        (None, 0.0, "epsilon"),
        (1.0, -1e-9, "delta"),
        (1.0, 1.1, "delta"),
        (1.0, math.nan, "delta"),
        (1.0, "0", "delta"),
    ],
)
def test_numbers_are_checked(epsilon: object, delta: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        claim(epsilon, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"unit": "user"}, {"adjacency": "replace"}, {"scope": "labels"}, {"unit": None}]
)
def test_words_are_checked(changes: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        dataclasses.replace(claim(1.0), **changes)


def test_a_group_of_two_costs_at_least_the_gaussian_moved_twice() -> None:
    one, two = (privacy_curve(Gaussian(noise_multiplier=s), Adjacency.REPLACE) for s in (8.0, 4.0))
    grouped = claim(one.epsilon(1e-6), 1e-6).for_group(2)
    assert two.delta(grouped.epsilon) <= grouped.delta


def test_a_group_of_one_is_the_same_and_of_none_is_refused() -> None:
    alone = claim(1.0, 1e-6).for_group(1)
    assert (alone.epsilon, alone.delta) == pytest.approx((1.0, 1e-6), rel=1e-12)
    for num_units in (0, -1):
        with pytest.raises(ConfigError, match="num_units"):
            claim(1.0).for_group(num_units)


@given(st.floats(0.0, 800.0), st.floats(0.0, 1.0), st.integers(2, 50))
def test_a_group_is_never_better_protected(epsilon: float, delta: float, num_units: int) -> None:
    one, group = claim(epsilon, delta), claim(epsilon, delta).for_group(num_units)
    assert one <= group
    assert 0 <= group.delta <= 1


def test_replacing_is_removing_and_adding() -> None:
    removed = dataclasses.replace(claim(1.0, 1e-6), adjacency=Adjacency.ADD_OR_REMOVE)
    replaced = removed.as_replace()
    assert replaced.adjacency is Adjacency.REPLACE
    assert replaced.epsilon == 2.0
    assert replaced.delta == pytest.approx(1e-6 * (1 + math.e))
    assert replaced.as_replace() is replaced


def test_a_guarantee_prints_all_its_words() -> None:
    text = str(claim(1.23456, 1e-7))
    expected = "epsilon=1.235, delta=1e-07 (user, replace, labels and sensitive columns)"
    assert text == expected
    assert "delta" not in str(claim(1.0))
    assert str(claim(math.inf)).startswith("no privacy")
    assert str(claim(1.0, 1.0)).startswith("no privacy")


def test_text_never_promises_more_than_the_numbers() -> None:
    assert "epsilon=1.001, delta=1.01e-07 " in str(claim(1.00004, 1.0004e-7))
    assert "epsilon=0.3 " in str(claim(0.1 + 0.2))
    assert "epsilon=0 " in str(claim(0.0))


def test_a_part_of_a_unit_is_protected_at_twice_the_cost_where_rows_come_and_go() -> None:
    user = Guarantee(epsilon=1.0, delta=0.0, unit=Unit.user(), adjacency=Adjacency.ADD_OR_REMOVE)
    impression = dataclasses.replace(user, unit=Unit.impression())
    assert not user.implies(impression)
    assert user.implies(dataclasses.replace(impression, epsilon=2.0))
    replaced = dataclasses.replace(user, adjacency=Adjacency.REPLACE)
    assert replaced.implies(dataclasses.replace(replaced, unit=Unit.impression()))


VALUES = st.floats(min_value=1e-200, max_value=1e200)


@given(value=VALUES, num_digits=st.integers(1, 9))
def test_each_side_stays_on_its_side_and_close(value: float, num_digits: int) -> None:
    low, high = round_down(value, num_digits), round_up(value, num_digits)
    assert low <= value <= high
    assert high - low <= 1.0001 * 10.0 ** (1 - num_digits) * value
    assert float(f"{high:.{num_digits}g}") == high


@pytest.mark.parametrize(
    ("value", "up", "down"), [(1.00004, 1.001, 1.0), (0.1 + 0.2, 0.3, 0.3), (0.0, 0.0, 0.0)]
)
def test_four_digits_without_binary_noise(value: float, up: float, down: float) -> None:
    assert round_up(value, 4, slack=BINARY_NOISE) == up
    assert round_down(value, 4, slack=BINARY_NOISE) == down


def test_what_has_no_limit_stays_so() -> None:
    assert round_up(math.inf, 4) == math.inf


def test_slack_forgives_a_little() -> None:
    assert round_up(0.60000001, 4) == 0.6001
    assert round_up(0.60000001, 4, slack=1e-7) == 0.6
