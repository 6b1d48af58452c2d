"""Published figures: each has a source, and the published numbers bear out the claims."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.lab.markets.claims import Verdict
from tulle.lab.reproduction.experiments import EXPERIMENTS
from tulle.lab.reproduction.published import (
    Findings,
    Operand,
    OwnFigure,
    PublishedClaim,
    PublishedTarget,
    Relation,
    clear_least,
    figure_text,
    judge,
    published_target,
    published_targets,
    targets_from_toml,
    tied_text,
)

TARGETS = published_targets()
SMALL = """
[documents]
paper = "A paper"
[[targets]]
name = "table"
title = "A table"
document = "paper"
[[targets.tables]]
source = "Table 7"
unit = "%"
row_name = "epsilon"
columns = ["one", "other"]
error = 0.5
[targets.tables.rows]
"1" = [3, 4]
"2" = [1, 2]
[targets.tables.errors]
"2" = [0.1, 0.2]
[[targets.claims]]
text = "one is less"
source = "Section 3"
relation = "below"
left = ["one, epsilon 1"]
right = [4.5]
"""


def findings_of(target: PublishedTarget) -> Findings:
    figures = {name: OwnFigure(value=value) for name, value in target.values().items()}
    return Findings(figures=figures)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_figure_and_claim_says_where_it_is_from(target: PublishedTarget) -> None:
    assert target.claims
    assert len(target.document) > 20
    for figure in target.figures:
        assert len(figure.source) > 4, figure.name
        assert figure.unit
        assert figure.error is None or figure.error >= 0
    for claim in target.claims:
        assert len(claim.source) > 4, claim.text
    names = [figure.name for figure in target.figures]
    assert len(names) == len(set(names))
    assert len({claim.text for claim in target.claims}) == len(target.claims)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_published_numbers_never_contradict_the_claims(target: PublishedTarget) -> None:
    for claim in target.claims:
        verdict = judge(claim, findings_of(target)).verdict
        assert verdict is not Verdict.DOES_NOT_HOLD, claim.text


def test_tables_of_the_papers_bear_out_their_claims_and_swapped_ones_do_not() -> None:
    for name in ("ppai24-table1", "ppai24-table2", "ppai24-table3", "ppai24-table5"):
        target = published_target(name)
        for claim in target.claims:
            assert judge(claim, findings_of(target)).verdict is Verdict.HOLDS, claim.text
            swapped = dataclasses.replace(claim, left=claim.right, right=claim.left)
            assert judge(swapped, findings_of(target)).verdict is Verdict.DOES_NOT_HOLD


def test_figures_are_those_of_the_documents() -> None:
    # Read in the documents once more, apart from how the file was made.
    for name, figure, value, error in (
        ("ppai24-table1", "hybrid, epsilon 1", 15.396, 0.007),
        ("ppai24-table1", "AUC loss without privacy", 0.19422, None),
        ("ppai24-table2", "dp-sgd, epsilon 50", 5.965, 0.434),
        ("ppai24-table2", "AUC loss without privacy", 0.15879, None),
        ("ppai24-table3", "rr, cap 10, epsilon 1", 82.281, 3.847),
        ("ppai24-table3", "hybrid, cap 2, epsilon 30", 2.776, 0.402),
        ("ppai24-table5", "hybrid, epsilon 5", 4.968, 0.0),
        ("adkdd24-fig1", "FM, hybrid, epsilon 12", 1.2, None),
        ("adkdd24-fig2", "AUC loss without privacy, FM", 0.2154, None),
        ("adkdd24-fig4", "increase of the AUC loss, a fiftieth", 0.078, None),
        ("labeldp-units", "units, user and publisher, epsilon 3", 2.67, None),
        ("labeldp-units", "user, best cap, epsilon 4", 8.51, None),
        ("apple-fig4", "best gamma, click rate", 0.8, None),
    ):
        figures = {found.name: found for found in published_target(name).figures}
        assert figures[figure].value == value
        assert figures[figure].error == error


def test_every_target_can_be_run_and_every_experiment_is_published() -> None:
    assert set(EXPERIMENTS) == {target.name for target in TARGETS}


def test_a_table_gives_one_figure_a_cell_with_its_own_error_or_the_tables() -> None:
    (target,) = targets_from_toml(SMALL)
    found = {figure.name: (figure.value, figure.error) for figure in target.figures}
    assert found == {
        "one, epsilon 1": (3.0, 0.5),
        "other, epsilon 1": (4.0, 0.5),
        "one, epsilon 2": (1.0, 0.1),
        "other, epsilon 2": (2.0, 0.2),
    }
    assert {figure.source for figure in target.figures} == {"Table 7"}
    assert target.claims[0].names == {"one, epsilon 1"}
    # A figure without a source cannot be read at all.
    with pytest.raises(KeyError, match="source"):
        targets_from_toml(SMALL.replace('source = "Table 7"\n', ""))


def test_an_unknown_target_is_told_what_it_may_have_been() -> None:
    with pytest.raises(ConfigError, match="ppai24-table1"):
        published_target("ppai24-tabel1")


def test_a_claim_needs_as_many_figures_on_both_sides() -> None:
    with pytest.raises(ConfigError, match="2 figures with 1"):
        PublishedClaim(text="t", source="s", relation=Relation.BELOW, left=("a", "b"), right=("c",))


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
