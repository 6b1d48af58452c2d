"""Credit is whole, adds up, and is unbiased: by listing every way that draws can go."""

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tulle.measure.w3c.attribution_state import FixedDraws, RandomDraws, fairly_allocate_credit
from tulle.mechanisms.entropy import SeededNoise


class ScriptedDraws:
    """Follows a list of decisions and remembers how likely they were."""

    def __init__(self, decisions: tuple[bool, ...]) -> None:
        self.decisions = decisions
        self.num_draws = 0
        self.chance = Fraction(1)

    def is_below(self, numerator: int, denominator: int) -> bool:
        decision = self.num_draws < len(self.decisions) and self.decisions[self.num_draws]
        prob = Fraction(numerator, denominator)
        assert 0 <= prob <= 1
        self.chance *= prob if decision else 1 - prob
        self.num_draws += 1
        return decision

    def epoch_start(self) -> float:
        return 0.0


def law_of(credit: list[float], value: int) -> Iterator[tuple[Fraction, list[int]]]:
    """Every outcome that can happen, with its chance."""
    open_scripts: list[tuple[bool, ...]] = [()]
    while open_scripts:
        decisions = open_scripts.pop()
        draws = ScriptedDraws(decisions)
        parts = fairly_allocate_credit(credit, value, draws)
        if draws.num_draws > len(decisions):
            open_scripts += [(*decisions, True), (*decisions, False)]
        elif draws.chance:
            yield draws.chance, parts


def means_of(law: list[tuple[Fraction, list[int]]]) -> list[Fraction]:
    size = len(law[0][1])
    return [sum((chance * parts[i] for chance, parts in law), Fraction(0)) for i in range(size)]


weights = st.one_of(
    st.integers(1, 9).map(float), st.floats(1e-3, 1e3, allow_nan=False, allow_infinity=False)
)


@given(st.lists(weights, min_size=1, max_size=5), st.integers(1, 40))
def test_parts_add_up_have_the_right_mean_and_are_off_by_less_than_one(
    credit: list[float], value: int
) -> None:
    law = list(law_of(credit, value))
    total = sum(map(Fraction, credit))
    shares = [value * Fraction(weight) / total for weight in credit]
    assert sum(chance for chance, _ in law) == 1
    assert means_of(law) == shares
    for _, parts in law:
        assert sum(parts) == value
        assert all(abs(part - share) < 1 for part, share in zip(parts, shares, strict=True))


def test_the_mean_tells_a_wrong_chance() -> None:
    always_first = fairly_allocate_credit([2.0, 1.0], 1, FixedDraws(credit_fraction=0.0))
    assert means_of(list(law_of([2.0, 1.0], 1))) != [Fraction(part) for part in always_first]


@pytest.mark.parametrize(
    ("credit", "value", "parts"),
    [([1], 7, [7]), ([3, 1], 8, [6, 2]), ([2, 1, 1], 8, [4, 2, 2]), ([0.5, 0.5], 2, [1, 1])],
)
def test_shares_that_are_whole_are_not_changed(
    credit: list[float], value: int, parts: list[int]
) -> None:
    for draws in (FixedDraws(credit_fraction=0.0), FixedDraws(credit_fraction=0.999)):
        assert fairly_allocate_credit(credit, value, draws) == parts


def test_random_draws_give_each_outcome_its_chance() -> None:
    # 2.5, 1.25 and 1.25 of 5.
    law: dict[tuple[int, ...], float] = {}
    for chance, parts in law_of([2.0, 1.0, 1.0], 5):
        law[tuple(parts)] = law.get(tuple(parts), 0.0) + float(chance)
    draws = RandomDraws(SeededNoise(3))
    num_draws = 20_000
    seen = dict.fromkeys(law, 0)
    for _ in range(num_draws):
        seen[tuple(fairly_allocate_credit([2.0, 1.0, 1.0], 5, draws))] += 1

    def p_value(chances: list[float]) -> float:
        expected = [num_draws * chance for chance in chances]
        return float(stats.chisquare(list(seen.values()), expected).pvalue)

    right = list(law.values())
    wrong = [right[0] - 0.05, right[1] + 0.05, *right[2:]]
    assert p_value(right) > 1e-9
    assert p_value(wrong) < 1e-9
