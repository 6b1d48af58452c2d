"""Every Python block and every tulle command in README and docs runs as written.

A TOML block whose first line is a comment with a file name is there as that file.
"""

import pathlib
import re
import runpy
import shlex

import pytest

from tulle.cli.main import run_with

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w-]+\.toml)\n")


def commands_in(block: str) -> list[list[str]]:
    joined = block.replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in joined.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("tulle ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_works(
    page: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, block in FENCE.findall(page.read_text()):
        if language == "toml" and (name := FILE_NAME.match(block)):
            (tmp_path / name[1]).write_text(block)
        if language == "python":
            exec(compile(block, str(page), "exec"), names)  # noqa: S102
        for command in commands_in(block):
            assert run_with(command[1:]) == 0, (command, capsys.readouterr().err)


def test_the_noise_in_the_readme_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = [b for _, b in FENCE.findall((ROOT / "README.md").read_text()) if "dpsgd" in b]
    (command,) = commands_in(block)
    assert run_with(command[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line for line in block.splitlines() if not line.startswith("$")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_tables_of_the_docs_are_those_of_the_published_records() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "docs_tables.py"))
    for name in script["TABLES"]:
        page, expected = script["page_with_table"](name)
        assert page.read_text() == expected, f"run python benchmarks/docs_tables.py ({name})"
