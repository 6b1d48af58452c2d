"""Verdicts: swapped numbers turn them, errors and missing figures leave them open."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction.judging import (
    Findings,
    OwnFigure,
    clear_least,
    figure_text,
    judge,
    tied_text,
)
from tulle.lab.reproduction.published import Operand, PublishedClaim, Relation

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.DOES_NOT_HOLD, Verdict.NOT_COMPARABLE
NUMBERS = st.floats(-1e6, 1e6)


def claim(
    relation: Relation, left: tuple[Operand, ...], right: tuple[Operand, ...], tolerance: float = 0
) -> PublishedClaim:
    return PublishedClaim(
        text="t", source="s", relation=relation, left=left, right=right, tolerance=tolerance
    )


def findings(error: float | None = None, **values: float) -> Findings:
    return Findings(
        figures={name: OwnFigure(value=value, error=error) for name, value in values.items()},
        missing={"gone": "the data have none"},
    )


BELOW = claim(Relation.BELOW, ("a",), ("b",))


@given(NUMBERS, NUMBERS)
def test_swapped_numbers_turn_the_verdict(one: float, other: float) -> None:
    found = judge(BELOW, findings(a=one, b=other)).verdict
    swapped = judge(BELOW, findings(a=other, b=one)).verdict
    assert found is (HOLDS if one < other else FAILS)
    assert swapped is (HOLDS if other < one else FAILS)


@given(NUMBERS, NUMBERS, st.floats(1e-3, 1e3))
def test_a_difference_within_two_errors_decides_nothing(
    one: float, other: float, error: float
) -> None:
    verdict = judge(BELOW, findings(error, a=one, b=other)).verdict
    is_open = abs(one - other) <= 2 * math.sqrt(2) * error
    # Numbers at the border may be rounded to either side.
    if not math.isclose(abs(one - other), 2 * math.sqrt(2) * error, rel_tol=1e-9):
        assert (verdict is OPEN) == is_open


def test_errors_of_the_right_size_matter() -> None:
    assert judge(BELOW, findings(0.1, a=1.0, b=1.29)).verdict is HOLDS
    assert judge(BELOW, findings(0.1, a=1.0, b=1.27)).verdict is OPEN
    assert "too close" in judge(BELOW, findings(0.1, a=1.0, b=1.27)).reason


def test_one_pair_that_fails_makes_the_claim_fail() -> None:
    both = claim(Relation.BELOW, ("a", "b"), ("b", "c"))
    assert judge(both, findings(a=1, b=2, c=3)).verdict is HOLDS
    failed = judge(both, findings(a=1, b=4, c=3))
    assert failed.verdict is FAILS
    assert failed.reason == "b 4 against c 3."
    # A pair that is open does not hide one that fails, and does not let others count as all.
    assert judge(both, findings(0.1, a=1, b=9, c=3)).verdict is FAILS
    assert judge(both, findings(0.1, a=1, b=3, c=3.1)).verdict is OPEN


def test_a_long_reason_is_cut_short() -> None:
    many = claim(Relation.BELOW, ("a",) * 2 + (0.0, -1.0, -2.0), ("b", 5.0, "a", "a", "a"))
    reason = judge(many, findings(a=1, b=2)).reason
    assert reason.count(" against ") == 3
    assert reason.endswith("; and 2 more.")


def test_a_missing_figure_is_not_comparable_and_says_why() -> None:
    found = judge(claim(Relation.BELOW, ("a",), ("gone",)), findings(a=1))
    assert found.verdict is OPEN
    assert found.reason == "the data have none."
    # A figure that must not be compared is as good as missing.
    assert judge(claim(Relation.BELOW, ("a",), ("gone",)), findings(a=1, gone=2)).verdict is OPEN
    unknown = judge(claim(Relation.BELOW, ("a",), ("other",)), findings(a=1))
    assert unknown.reason == "this run has no figure for other."


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [(2.0, 2.0, HOLDS), (1.0, 2.0, HOLDS), (2.1, 2.0, FAILS), (math.inf, math.inf, HOLDS),
     (math.inf, 2.0, FAILS), (2.0, math.inf, HOLDS)],
)  # fmt: skip
def test_never_is_the_latest_epsilon_of_all(left: float, right: float, verdict: Verdict) -> None:
    at_most = claim(Relation.AT_MOST, ("a",), ("b",))
    assert judge(at_most, findings(a=left, b=right)).verdict is verdict


def test_near_is_within_the_tolerance_up_to_rounding() -> None:
    near = claim(Relation.NEAR, ("a",), (0.8,), 0.1)
    # 0.1 + 0.8 is not 0.9 in binary.
    for value, verdict in ((0.9, HOLDS), (0.7, HOLDS), (0.95, FAILS), (0.65, FAILS)):
        assert judge(near, findings(a=value)).verdict is verdict


def test_numbers_may_stand_on_either_side() -> None:
    assert judge(claim(Relation.BELOW, (0.0,), ("a",)), findings(a=0.1)).verdict is HOLDS
    assert judge(claim(Relation.BELOW, ("a",), (0.0,)), findings(a=0.1)).verdict is FAILS


def test_the_least_is_clear_only_beyond_the_errors() -> None:
    figures = {1.0: OwnFigure(value=5.0, error=1.0), 2.0: OwnFigure(value=9.0, error=1.0)}
    assert clear_least(figures) == 1.0
    assert clear_least({**figures, 3.0: OwnFigure(value=6.0, error=1.0)}) is None
    assert clear_least({1.0: OwnFigure(value=2.0), 2.0: OwnFigure(value=1.9)}) == 2.0


def test_a_figure_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="not a number"):
        OwnFigure(value=math.nan)


def test_figures_are_shown_with_their_errors() -> None:
    assert figure_text(12.3456, 0.789) == "12.35 ± 0.79"
    assert figure_text(0.5) == "0.5"
    assert figure_text(math.inf) == "never"


def test_a_tie_names_the_settings_that_share_the_least_figure_and_no_other() -> None:
    figures = {
        0.0: OwnFigure(value=9.0, error=0.1),
        0.25: OwnFigure(value=1.1, error=0.1),
        0.5: OwnFigure(value=1.0, error=0.1),
    }
    assert clear_least(figures) is None
    assert tied_text("best share", figures) == (
        "best share: too close for a run of this size are 0.25 (1.1 ± 0.1) and 0.5 (1 ± 0.1)"
    )
