"""The Markdown of a page says the same and cannot be broken out of."""

import pytest

from tulle.report.html.page import Code, Page, Section
from tulle.report.html.page_markdown import render_markdown
from unit.report.html.sample_releases import KINDS, pages


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    return pages(tmp_path_factory.mktemp("releases"))


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
