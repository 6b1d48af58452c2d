"""Several releases on one page are as private as the least private of them."""

from pathlib import Path

import pytest

from tulle.errors import ConfigError
from tulle.report.html.page import joined_page
from tulle.report.html.page_text import render_html
from tulle.runs.card_text import NOT_PRIVATE
from unit.report.html.html_checks import faults_of
from unit.report.html.sample_releases import pages


def test_all_verdicts_and_all_figures_are_there(tmp_path: Path) -> None:
    made = pages(tmp_path)
    private = [made[kind] for kind in ("run", "measurement", "labels", "choices")]
    page = joined_page("All", private)
    assert page.charts == tuple(chart for one in private for chart in one.charts)
    html = render_html(page)
    assert faults_of(html) == []
    assert html.count("Private release: epsilon=2") == 4
    assert "spends the sum" in html
    assert page.verdict != NOT_PRIVATE


def test_one_page_that_is_not_private_is_enough(tmp_path: Path) -> None:
    made = pages(tmp_path)
    page = joined_page("All", [made["labels"], made["simulation"]])
    assert page.verdict == NOT_PRIVATE
    assert page.reasons == tuple(
        f"{made['simulation'].title}: {reason}" for reason in made["simulation"].reasons
    )
    with pytest.raises(ConfigError, match="at least one"):
        joined_page("All", [])
