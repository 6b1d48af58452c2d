import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "docs_benchmarks.py"))
LISTED = {
    name: benchmark for group in SCRIPT["GROUPS"].values() for name, benchmark in group.items()
}
RECORDS = sorted(path.stem for path in (ROOT / "benchmarks" / "published").glob("*.json"))
SCRIPTS = [
    path for part in ("speed", "quality") for path in (ROOT / "benchmarks" / part).glob("*.py")
]


def writes_a_record(script: Path) -> bool:
    return "write_record(" in script.read_text()


def test_the_page_is_what_the_records_say() -> None:
    expected = SCRIPT["benchmarks_page"]()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page == expected, "run python benchmarks/docs_benchmarks.py"


def test_every_published_record_is_on_the_page() -> None:
    assert sorted(LISTED) == RECORDS


def test_every_script_that_writes_a_record_is_on_the_page() -> None:
    writers = {f"{path.parent.name}/{path.name}" for path in SCRIPTS if writes_a_record(path)}
    assert writers == {benchmark.script for benchmark in LISTED.values()}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_writes_a_record_or_serves_one_that_does(script: Path) -> None:
    others = [path.read_text() for path in SCRIPTS if path != script]
    assert writes_a_record(script) or any(re.search(rf"\b{script.stem}\b", text) for text in others)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_command_writes_the_record_it_is_listed_for(name: str) -> None:
    benchmark = LISTED[name]
    script = (ROOT / "benchmarks" / benchmark.script).read_text()
    by_default = f'PUBLISHED / "{name}.json"' in script and "--output" not in benchmark.options
    assert by_default or benchmark.options.endswith(f"--output benchmarks/published/{name}.json")


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_command_has_the_options_that_are_shown(name: str) -> None:
    benchmark = LISTED[name]
    script = (ROOT / "benchmarks" / benchmark.script).read_text()
    for option in re.findall(r"--[a-z-]+", benchmark.options):
        assert f'"{option}"' in script, option


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_section_names_machine_versions_seeds_and_record(name: str) -> None:
    page = SCRIPT["benchmarks_page"]()
    (section,) = [
        text for text in re.split(r"^### ", page, flags=re.MULTILINE) if f"[{name}.json]" in text
    ]
    for word in ("- Again: `python benchmarks/", "- Machine: ", "- Versions: python ", "- Seeds: "):
        assert word in section
    assert f"(../benchmarks/published/{name}.json)" in section
    assert "- Seeds: None" not in section
    assert "- Seeds: ." not in section
