"""Every Python block and every tulle command in README and docs runs as written.

A TOML block whose first line is a comment with a file name is there as that file. Lines below a
command are what it prints, with `…` for whatever differs from run to run or is left out; lines that
begin with `error:` say that the command is refused.
"""

import dataclasses
import pathlib
import re
import runpy
import shlex

import pytest

from tulle.cli.main import run_with

ROOT = pathlib.Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
_ATTACKS = pytest.mark.long(
    "trains the models that are attacked; unit tests of the lab attack them"
)
RUNNING_PAGES = [
    pytest.param(
        page, marks=_ATTACKS if page.stem == "attacks" else (), id=str(page.relative_to(ROOT))
    )
    for page in PAGES
]
TUTORIALS = [page for page in DOCS if page.parent.name == "tutorials"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w-]+\.toml)\n")
STEPS_OF_A_TUTORIAL = ("plan", "budget create", "budget show", "report")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shown:
    """A command of a page, and what the page says it prints."""

    arguments: list[str]
    output: str

    @property
    def is_refused(self) -> bool:
        return self.output.startswith("error:")

    def prints(self, printed: str) -> bool:
        parts = [re.escape(" ".join(part.split())) for part in self.output.split("…")]
        return re.fullmatch(r"\s?.*?\s?".join(parts), " ".join(printed.split())) is not None


def shown_in(block: str) -> list[Shown]:
    joined = block.replace("\\\n", " ")
    found = re.split(r"^(?:\$ )?(?=tulle )", joined, flags=re.MULTILINE)[1:]
    split = [text.partition("\n") for text in found]
    return [Shown(arguments=shlex.split(line)[1:], output=rest.strip()) for line, _, rest in split]


def blocks_of(page: pathlib.Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", RUNNING_PAGES)
def test_what_a_page_shows_works(
    page: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, block in blocks_of(page):
        if language == "toml" and (name := FILE_NAME.match(block)):
            (tmp_path / name[1]).write_text(block)
        if language == "python":
            exec(compile(block, str(page), "exec"), names)  # noqa: S102
        for shown in shown_in(block):
            capsys.readouterr()
            is_done = run_with(shown.arguments) == 0
            printed = capsys.readouterr()
            assert is_done != shown.is_refused, (shown, printed.err)
            if shown.output:
                _, error, reason = printed.err.partition("error:")
                text = error + reason if shown.is_refused else printed.out
                assert shown.prints(text), (shown, text)


def test_shown_output_is_held_against_what_is_printed() -> None:
    block = "$ tulle a \\\n  --b 1\nrows 5\nloss …\nepsilon 3\n$ tulle b\ntulle c\nerror: no\n"
    first, second, third = shown_in(block)
    assert first.arguments == ["a", "--b", "1"]
    assert first.prints("rows  5\nloss 0.1\nepsilon 3\n")
    assert not first.prints("rows  5\nloss 0.1\nepsilon 4\n")
    assert not first.prints("rows  5\nloss 0.1\nepsilon 3\nmore\n")
    assert second.output == ""
    assert third.is_refused
    assert not first.is_refused


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_a_tutorial_goes_from_made_up_data_to_a_report(page: pathlib.Path) -> None:
    shown = [shown for _, block in blocks_of(page) for shown in shown_in(block)]
    commands = [" ".join(each.arguments) for each in shown]
    assert commands[0].startswith("data synth ")
    for step in STEPS_OF_A_TUTORIAL:
        assert any(step in command for command in commands), step
    assert any("--ledger" in command for command in commands)
    assert any(each.is_refused for each in shown)


def test_there_is_a_tutorial_for_each_job() -> None:
    assert [page.stem for page in TUTORIALS] == ["labels", "measure", "select", "train"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_every_page_is_in_the_navigation(page: pathlib.Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert f" {page.relative_to(ROOT / 'docs')}\n" in navigation


def test_tables_of_the_docs_are_those_of_the_published_records() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "docs_tables.py"))
    for name in script["TABLES"]:
        page, expected = script["page_with_table"](name)
        assert page.read_text() == expected, f"run python benchmarks/docs_tables.py ({name})"
