import dataclasses
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from golden.card.fixed_card import COLUMNS, make_card, make_plan
from tulle.errors import DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.privacy.guarantee import Guarantee, round_up
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit
from tulle.runs.card import build_card
from tulle.runs.card_text import (
    claim_sentence,
    escape,
    print_up,
    render_card,
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
        (Unit.parse("user per week"), "one user within one week"),
        (
            Unit.parse("user per month in Europe/Berlin"),
            "one user within one month in Europe/Berlin",
        ),
        (
            Unit.parse("user per 30 days from 2026-01-01"),
            "one user within one window of 30 days from 2026-01-01",
        ),
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
            "The fact that a unit is in the data, how many rows it has.",
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


CARD = make_card()
READER = MarkdownIt("commonmark").enable("table").enable("strikethrough")
NASTY = "a|b\n# c\r\n<script>`x`</script> **d** [e](f) \\| \u2028 & _g_ \u202e"


def paths(data: object, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Where the single values are."""
    if isinstance(data, (dict, list)):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from paths(data[key], *path, key)
    else:
        yield path


def changed(value: object) -> object:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else f"{value}, changed"


def cells(row: str) -> list[str]:
    return re.split(r"(?<!\\)(?:\\\\)*\|", row)


def test_every_value_of_a_card_shows_on_the_page() -> None:
    page = render_card(CARD.to_dict())
    for path in paths(CARD.to_dict()):
        data: Any = CARD.to_dict()
        place = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = changed(place[path[-1]])
        assert render_card(data) != page, path


def test_the_first_line_is_the_verdict() -> None:
    assert render_card(CARD.to_dict()).splitlines()[0] == f"# {CARD.verdict}"


def test_every_reason_is_on_the_page() -> None:
    card = build_card(make_plan(), randomness=SeededNoise(3), provenance=CARD.provenance)
    lines = render_card(card.to_dict()).splitlines()
    assert lines[:3] == ["# NOT A PRIVATE RELEASE", "", "- The noise can be repeated: fixed seed 3"]


def test_what_is_missing_is_said() -> None:
    card = build_card(
        make_plan(settings={}, bounds=(), assumptions=()),
        randomness=SeededNoise(3),
        provenance=CARD.provenance,
    )
    page = render_card(card.to_dict())
    assert "## Audit\n\nNot audited." in page
    assert "## Utility\n\nNot measured." in page
    assert "## Contribution bounds\n\nNone." in page


def test_a_page_is_made_from_json_alone() -> None:
    data = CARD.to_dict()
    assert render_card(json.loads(json.dumps(data))) == render_card(data)


@pytest.mark.parametrize("key", ["verdict", "claim", "audit"])
def test_a_missing_entry_is_named(key: str) -> None:
    data = CARD.to_dict()
    del data[key]
    with pytest.raises(DataError, match=f"'{key}'"):
        render_card(data)


def test_text_of_users_keeps_the_shape_of_the_page() -> None:
    plan = make_plan(
        name=NASTY,
        mechanism=NASTY,
        settings={NASTY: NASTY},
        columns=ColumnRoles(
            label=NASTY, public=("p|q",), sensitive=COLUMNS.sensitive, unit="u", time="t"
        ),
        bounds=(Bound(what=NASTY, limit=1, where=NASTY),),
        assumptions=(Assumption(statement=NASTY, status=Status.CHECKED, evidence=NASTY),),
    )
    card = build_card(plan, randomness=SeededNoise(1), provenance=CARD.provenance)
    page = render_card(card.to_dict())
    plain = build_card(make_plan(), randomness=SeededNoise(1), provenance=CARD.provenance)
    expected = render_card(plain.to_dict())
    assert page.count("\n## ") == expected.count("\n## ")
    assert page.count("\n```") == expected.count("\n```")
    assert "<script>" not in page
    tables = re.findall(r"(?:^\|.*\n?)+", page, flags=re.MULTILINE)
    for table in tables:
        assert len({len(cells(row)) for row in table.splitlines()}) == 1


@given(st.text())
@example(NASTY)
@example("1. x")
@example("# x")
@example("\\|")
def test_escaped_text_is_one_line_and_can_be_undone(text: str) -> None:
    escaped = escape(text)
    assert len(escaped.splitlines()) <= 1
    assert len(cells(f"| {escaped} |")) == 3
    visible = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    assert re.sub(r"\\([^\w\s])", r"\1", escaped.replace("\\_", "_")) == visible


@pytest.mark.parametrize("before", ["", "- ", "# ", "## name: ", "| a | b |\n|---|---|\n| "])
@given(text=st.text(alphabet="`*[]()<>|~&$\\_ #-+=1.)ab!:/lt;", max_size=16))
def test_a_markdown_reader_shows_the_text_as_it_was_written(before: str, text: str) -> None:
    after = " | z |" if before.startswith("|") else ""
    tokens = READER.parse(f"{before}{escape(text)}{after}")
    lines = [token for token in tokens if token.type == "inline"]
    shown = "".join(part.content for part in (lines[2 if after else 0].children if lines else []))
    assert shown.removeprefix("name:").strip() == " ".join(text.split())


@given(st.text(alphabet="`*[]<>|~&$\\_ #-+=1.)ab", max_size=12))
def test_no_mark_of_markdown_survives(text: str) -> None:
    escaped = escape(text)
    bare = re.sub(r"\\.", "", escaped)
    assert not set("`*[]<>|~&$") & set(bare)
    assert not re.match(r"[#+=-]|\d+[.)](\s|$)", escaped)


@pytest.mark.parametrize("text", ["user_id", "0.1.0", "2026-01-14", "epsilon=0.8 (replace)"])
def test_ordinary_text_stays_readable(text: str) -> None:
    assert escape(text) == text
