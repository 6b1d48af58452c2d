import json
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
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.plan import Assumption, Bound, Status
from tulle.report.card import build_card
from tulle.report.card_markdown import escape, render_card

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
