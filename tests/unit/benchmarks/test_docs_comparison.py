import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "docs_comparison.py"))
PAGE = (ROOT / "docs" / "comparison.md").read_text()
CLAIMS, SOURCES = PAGE.split("## Sources")
LETTERS = "OJFDPAEMRB"
SOURCE = rf"\b[{LETTERS}]\d+\b"
CITED = re.compile(rf"\([^)]*\b[{LETTERS}]\d*\b[^)]*\)")


def test_the_ratios_are_those_of_the_published_records() -> None:
    assert SCRIPT["comparison_page"]() == PAGE, "run python benchmarks/docs_comparison.py"


def test_a_peer_that_is_faster_is_said_to_be() -> None:
    assert "times as slow" in SCRIPT["_line"]("work", "peer", 0.5, "a")
    assert "| 2 times as slow |" in SCRIPT["_line"]("work", "peer", 0.5, "a")
    assert "| 2 times as fast |" in SCRIPT["_line"]("work", "peer", 2.0, "a")


def test_every_source_that_is_named_is_listed_and_the_other_way_round() -> None:
    assert set(re.findall(SOURCE, CLAIMS)) == set(re.findall(SOURCE, SOURCES))


def test_every_row_of_the_comparison_has_sources_for_every_peer() -> None:
    tables = CLAIMS.split("## Training")[1].split("## Near one part")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ")]
    headings = [line for line in rows if line.startswith("| |")]
    assert len(headings) == 2
    for line in rows:
        if line not in headings:
            *peers, _ = line.strip("| ").split(" | ")[1:]
            for cell in peers:
                assert CITED.search(cell), (line, cell)


def test_libraries_near_one_part_have_sources_for_all_but_our_own_judgement() -> None:
    table = CLAIMS.split("## Near one part")[1].split("## Maturity")[0]
    heading, _, *rows = [line for line in table.splitlines() if line.startswith("|")]
    for name in ("DP-EBM", "dpmm", "ml-dprecs", "pdslib"):
        assert name in heading
    for line in rows:
        what, *cells = line.strip("| ").split(" | ")
        assert len(cells) == 4
        for cell in cells if what not in ("nearest here", "better than tulle") else []:
            assert CITED.search(cell), (line, cell)


def test_every_letter_leads_to_a_repository() -> None:
    listed = re.findall(
        r"^- \*\*(\w)\*\* \[([\w-]+/[\w-]+)\]\((https://[^)]+)\)", SOURCES, re.MULTILINE
    )
    assert "".join(letter for letter, _, _ in listed) == LETTERS
    for _, name, address in listed:
        assert address == f"https://github.com/{name}"


@pytest.mark.parametrize(
    ("record", "package", "name"),
    [("dpsgd", "opacus", "Opacus"), ("select_speed", "opendp", "OpenDP")],
)
def test_the_versions_read_are_those_measured(record: str, package: str, name: str) -> None:
    published = json.loads((ROOT / "benchmarks" / "published" / f"{record}.json").read_text())
    assert f"| {name} | {published['peer_versions'][package]} |" in PAGE
