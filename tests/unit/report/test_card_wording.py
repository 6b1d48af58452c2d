import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.card.fixed_card import make_plan
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.rounding import round_up
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.report.wording import (
    claim_sentence,
    print_up,
    trust_meaning,
    unit_phrase,
    unprotected_facts,
    verdict_line,
)

WHOLE = Guarantee(
    epsilon=0.8,
    delta=1e-7,
    unit=Unit.user(),
    adjacency=Adjacency.ADD_OR_REMOVE,
    scope=Scope.WHOLE_ROWS,
)


@given(st.floats(1e-300, 1e300), st.integers(1, 12))
def test_rounding_never_goes_down_and_adds_less_than_one_last_digit(
    value: float, digits: int
) -> None:
    rounded = round_up(value, digits)
    assert value <= rounded <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.8, "0.8"), (1e-7, "1e-07"), (0.80001, "0.8001"), (0.8 + 1e-9, "0.8"), (0.0, "0")],
)
def test_print_rounds_up_beyond_the_tolerance_of_a_claim(value: float, text: str) -> None:
    assert print_up(value) == text


def test_whole_rows_of_a_user_are_one_user() -> None:
    assert verdict_line(WHOLE, ()) == (
        "Private release: epsilon=0.8, delta=1e-07 for one user (add-remove)"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "If all rows of one user were added to the data or removed from it, "),
        ({"adjacency": Adjacency.REPLACE}, "while the number of rows stayed the same, "),
        (
            {"adjacency": Adjacency.REPLACE, "scope": Scope.LABELS},
            "If the labels of one user were replaced by any others while all other columns",
        ),
        ({"adjacency": Adjacency.ZERO_OUT}, "counted for nothing while the rows kept their place"),
        ({}, "a factor of 2.226 (e to the power epsilon=0.8) plus 1e-07 (delta)."),
        ({"delta": 0.0}, "(e to the power epsilon=0.8)."),
        ({"epsilon": 1000.0}, "a factor of e to the power epsilon=1000 plus"),
        ({"epsilon": math.inf}, "There is no guarantee"),
    ],
)
def test_the_sentence_says_what_is_promised(change: dict[str, object], text: str) -> None:
    guarantee = dataclasses.replace(WHOLE, **change)  # type: ignore[arg-type]
    assert text in claim_sentence(guarantee, ())


def test_with_reasons_the_promise_is_only_conditional() -> None:
    sentence = claim_sentence(WHOLE, ("fixed seed",))
    assert sentence.startswith("There is no guarantee, for the reasons given first.")


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (Unit.user(), "one user"),
        (Unit.user(days=1), "one user within one window of 1 day"),
        (
            Unit.user_advertiser(days=7),
            "one pair of user and advertiser within one window of 7 days",
        ),
        (Unit.user_publisher(), "one pair of user and publisher"),
        (Unit.example(), "one example"),
    ],
)
def test_a_unit_is_named_in_words(unit: Unit, text: str) -> None:
    assert unit_phrase(unit) == text


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (dataclasses.replace(WHOLE, unit=Unit.example()), "All rows of one person together"),
        (dataclasses.replace(WHOLE, unit=Unit.user(days=7)), "Several time windows together"),
        (
            dataclasses.replace(WHOLE, adjacency=Adjacency.ZERO_OUT),
            "That a unit is in the data, how many rows it has.",
        ),
        (dataclasses.replace(WHOLE, scope=Scope.SENSITIVE_COLUMNS), "The label: y."),
        (WHOLE, "One person behind several ids: each id is protected on its own."),
        (
            dataclasses.replace(WHOLE, unit=Unit.user_advertiser()),
            "One user with several advertisers together: each pair is protected on its own.",
        ),
        (
            dataclasses.replace(WHOLE, unit=Unit.user_publisher()),
            "One user with several publishers together",
        ),
        (
            dataclasses.replace(WHOLE, unit=Unit.impression()),
            "Conversions: they are not protected at all.",
        ),
        (
            dataclasses.replace(WHOLE, unit=Unit.conversion()),
            "Impressions: they are not protected at all.",
        ),
    ],
)
def test_every_gap_of_a_guarantee_is_named(guarantee: Guarantee, text: str) -> None:
    columns = ColumnRoles(label="y", sensitive=("s",), unit="u")
    plan = make_plan(columns=columns, guarantee=guarantee, variants=())
    assert text in " ".join(unprotected_facts(plan))


def test_a_unit_of_all_rows_leaves_no_rows_out() -> None:
    columns = ColumnRoles(label="y", sensitive=("s",), unit="u")
    plan = make_plan(columns=columns, guarantee=WHOLE, variants=())
    facts = " ".join(unprotected_facts(plan))
    for said in ("at all", "each pair", "All rows of one person"):
        assert said not in facts


@pytest.mark.parametrize("trust", TrustModel)
def test_every_trust_model_has_a_meaning(trust: TrustModel) -> None:
    assert trust_meaning(trust).endswith(".")
