"""Uniform floors keep every ratio below e^epsilon, and are the least that do."""

from fractions import Fraction

import pytest

from statistical.randomizer_checks import exceeds_exp
from tulle.errors import ConfigError
from tulle.mechanisms.thresholds import WORD_VALUES, loser_mass
from tulle.select.mechanisms.floors import BoostedMasses, boosted_masses

CASES = [
    (epsilon, size, num_boosted)
    for epsilon in (1e-4, 0.1, 1.0, 3.0, 9.7, 30.0, 44.3, 50.0, 90.0, 20_000.0)
    for size in (2, 3, 7, 100, 10_000)
    for num_boosted in (1, 2, 3, 50, 5_000, 9_999)
    if num_boosted < size
]


@pytest.mark.parametrize(("epsilon", "size", "num_boosted"), CASES)
def test_no_ratio_exceeds_e_to_the_epsilon(epsilon: float, size: int, num_boosted: int) -> None:
    masses = boosted_masses(epsilon, size, num_boosted)
    boosted = masses.boosted_words
    assert len(boosted) == num_boosted
    assert sum(boosted) + (size - num_boosted) * masses.floor_words == WORD_VALUES
    assert masses.floor_words < min(boosted)
    assert masses.realised_ratio == Fraction(max(boosted), masses.floor_words)
    assert not exceeds_exp(masses.realised_ratio, epsilon)
    # They are as good as equal, and lie behind the floors of all.
    assert max(boosted) - min(boosted) < num_boosted
    assert masses.first_boost == size * masses.floor_words < WORD_VALUES


@pytest.mark.parametrize(("epsilon", "size", "num_boosted"), CASES)
def test_a_floor_of_fewer_words_would_break_epsilon(
    epsilon: float, size: int, num_boosted: int
) -> None:
    floor = boosted_masses(epsilon, size, num_boosted).floor_words
    # The search may end a word or two above the least, where whole words do not divide evenly.
    lower = floor - (1 if num_boosted == 1 else 3)
    if lower >= 1:
        boosted = Fraction(WORD_VALUES - (size - num_boosted) * lower, num_boosted)
        assert exceeds_exp(boosted / lower, epsilon)


@pytest.mark.parametrize("size", [2, 5, 10_000])
def test_one_boosted_is_randomized_response(size: int) -> None:
    assert boosted_masses(1.3, size, 1).floor_words == loser_mass(1.3, size)


def test_boosting_all_boosts_all_but_one() -> None:
    assert boosted_masses(1.0, 4, 9) == boosted_masses(1.0, 4, 3)


def test_one_finalist_has_all_words() -> None:
    only = boosted_masses(1.0, 1, 3)
    assert only.boosted_words == (WORD_VALUES,)
    assert only.realised_ratio == 1


@pytest.mark.parametrize(("size", "num_boosted"), [(2, 1), (100, 1), (100, 50)])
def test_an_epsilon_that_words_cannot_express_is_refused(size: int, num_boosted: int) -> None:
    with pytest.raises(ConfigError, match="too small"):
        boosted_masses(1e-19, size, num_boosted)


@pytest.mark.parametrize(("size", "num_boosted"), [(3, 2), (5, 3), (5, 4)])
def test_a_boost_that_does_not_reach_all_boosted_is_refused(size: int, num_boosted: int) -> None:
    # The boost of the others would leave the last one no more words than its floor, or fewer.
    with pytest.raises(ConfigError, match="too small"):
        boosted_masses(3e-19, size, num_boosted)


def test_the_ratio_of_masses_rounded_the_wrong_way_is_seen() -> None:
    right = boosted_masses(1.0, 5, 1)
    wrong = BoostedMasses(
        num_finalists=5,
        num_boosted=1,
        floor_words=right.floor_words - 1,
        boost_words=right.boost_words + 5,
    )
    assert exceeds_exp(wrong.realised_ratio, 1.0)
