"""Pages are whole, quiet and self-contained, whatever names the release has."""

import re
from pathlib import Path

import pytest

from tulle.report.html import page_text, svg_marks
from tulle.report.html.charts import Bar, BarChart, Table
from tulle.report.html.page import Bullets, Code, Figure, Page, Paragraph, Section
from tulle.report.html.page_text import render_html, render_markdown
from tulle.report.html.svg_marks import escape_html
from unit.report.html.html_checks import faults_of, text_of
from unit.report.html.sample_releases import HOSTILE, KINDS, RUN_FACT, pages


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    return pages(tmp_path_factory.mktemp("releases"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed_and_asks_for_nothing(made: dict[str, Page], kind: str) -> None:
    assert faults_of(render_html(made[kind])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_shown_as_text(made: dict[str, Page], kind: str) -> None:
    html = render_html(made[kind])
    assert "<script" not in html
    assert HOSTILE in text_of(html)


@pytest.mark.parametrize("module", [page_text, svg_marks])
def test_a_page_without_escaping_is_caught(
    made: dict[str, Page], monkeypatch: pytest.MonkeyPatch, module: object
) -> None:
    monkeypatch.setattr(module, "escape_html", lambda words: words)
    assert faults_of(render_html(made["measurement"]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_drawn_and_named(made: dict[str, Page], kind: str) -> None:
    page = made[kind]
    html = render_html(page)
    assert (
        len(page.charts)
        == {
            "run": 6,
            "measurement": 8,
            "labels": 3,
            "choices": 1,
            "plan": 5,
            "simulation": 8,
        }[kind]
    )
    assert html.count("<svg ") == html.count("</svg>") == len(page.charts)
    shown = text_of(html)
    for chart in page.charts:
        assert " ".join(chart.name.split()) in shown
    assert not re.search(r'="[^"]*\b(nan|inf)\b', html)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_release_gives_the_same_bytes(
    made: dict[str, Page], tmp_path: Path, kind: str
) -> None:
    again = pages(tmp_path)[kind]
    strip = r"\d{4}-\d\d-\d\dT[\d:+]+"  # The card of a run says when it was made.
    assert re.sub(strip, "", render_html(again)) == re.sub(strip, "", render_html(made[kind]))
    assert render_html(again) == render_html(again)


@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_comes_first(made: dict[str, Page], kind: str) -> None:
    page = made[kind]
    html = render_html(page)
    body = html[html.index("<body>") :]
    assert body.index("<strong>") < body.index("<section>")
    private = kind in ("run", "measurement", "labels", "choices")
    assert page.verdict.startswith("Private release: epsilon=2") == private
    assert ('class="verdict private"' in body) == private
    assert ('class="verdict open"' in body) == (kind == "simulation")


@pytest.mark.parametrize("kind", KINDS)
def test_facts_that_tie_a_run_to_its_data_are_on_no_page(made: dict[str, Page], kind: str) -> None:
    assert RUN_FACT not in render_html(made[kind])


def test_a_page_forbids_scripts_and_requests_itself(made: dict[str, Page]) -> None:
    head = render_html(made["run"]).split("<body>")[0]
    assert "default-src 'none'" in head
    assert "script-src" not in head
    assert "prefers-color-scheme: dark" in head
    assert "width=device-width" in head


def test_every_kind_of_block_is_shown() -> None:
    chart = BarChart(name="a chart", value_name="euros", bars=(Bar(label="x", value=2.0),))
    blocks = (
        Paragraph("a paragraph"),
        Bullets(("one", "two")),
        Code("some code", "line 1\nline 2"),
        Figure(chart, "a caption"),
        Table(head=("name", "size"), rows=(("a", 1234), ("b", None)), num_left_out=7),
        Table(head=("empty",), rows=()),
    )
    page = Page(title="t", verdict="v", is_private=None, sections=(Section("a section", blocks),))
    html = render_html(page)
    assert faults_of(html) == []
    for words in ("a paragraph", "one", "some code", "a caption", "1,234", "7 more rows", "None."):
        assert words in text_of(html)
    assert "line 1\nline 2" in html


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_begins_with_what_the_release_is_worth(made: dict[str, Page], kind: str) -> None:
    html = render_html(made[kind])
    assert made[kind].facts
    for name, words in made[kind].facts:
        assert f"<dt>{name}</dt><dd>{escape_html(words)}</dd>" in html
    assert html.index("<dl>") < html.index("<section>")


def test_a_tall_chart_is_packed_with_its_neighbours() -> None:
    def section_with(num_bars: int) -> str:
        bars = tuple(Bar(label=f"b{n}", value=1.0) for n in range(num_bars))
        chart = BarChart(name="n", value_name="v", bars=bars)
        section = Section("s", (Figure(chart),))
        return render_html(Page(title="t", verdict="v", is_private=None, sections=(section,)))

    assert 'class="figures packed"' in section_with(20)
    assert 'class="figures"' in section_with(5)


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    table = Table(head=("name", "size"), rows=(("a", 1.5), ("b", 10.25), ("c", None)))
    page = Page(title="t", verdict="v", is_private=None, sections=(Section("s", (table,)),))
    html = render_html(page)
    for words in ("1.50", "10.25", "–"):
        assert f'<td class="number">{words}</td>' in html


def test_marks_without_a_shape_cannot_turn_text_around() -> None:
    page = Page(title="safe\u202eevil", verdict="v", is_private=None)
    assert "\u202e" not in render_html(page)


@pytest.mark.parametrize("kind", KINDS)
def test_its_first_line_is_the_verdict_and_its_sections_are_those_of_the_page(
    made: dict[str, Page], kind: str
) -> None:
    lines = render_markdown(made[kind]).splitlines()
    assert lines[0].startswith(f"# {made[kind].verdict[:20]}")
    assert sum(line.startswith("## ") for line in lines) == len(made[kind].sections)


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_text(made: dict[str, Page], kind: str) -> None:
    for line in render_markdown(made[kind]).splitlines():
        # Four spaces make code, where a tag is text.
        if not line.startswith("    "):
            assert "<script" not in line.replace("\\<", "")


def test_code_cannot_end_its_own_block() -> None:
    code = Code("settings", "a\n```\n# NOT A HEADING\n")
    text = render_markdown(
        Page(title="t", verdict="v", is_private=None, sections=(Section("s", (code,)),))
    )
    assert "\n    # NOT A HEADING" in text
    assert "\n# NOT A HEADING" not in text


def test_released_values_are_in_its_tables(made: dict[str, Page]) -> None:
    text = render_markdown(made["measurement"])
    assert "| reach | 100 | 90 | 110 |" in text
