"""Every theory page has its parts, what it names exists, and every sharp edge has a way out."""

import ast
import functools
import pathlib
import re

import pytest
import typer

from end_to_end.help_examples import leaf_commands
from tulle.audit.audited_steps import AUDITED_STEPS
from tulle.audit.verbs import RANDOMIZERS
from tulle.lab.audited_randomizers import LAB_RANDOMIZERS

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tulle"
INDEX = ROOT / "docs" / "theory" / "index.md"
PAGES = [page for page in sorted(INDEX.parent.glob("*.md")) if page != INDEX]
EVERY = (*RANDOMIZERS, *LAB_RANDOMIZERS)
NAMES = {randomizer.name for randomizer in EVERY}
STEPS = {engine.name for engine in AUDITED_STEPS}

SECTIONS = [
    "Claim",
    "Proof",
    "Floating point and sampling",
    "Where it is in the code",
    "Tests that check it",
    "Limits",
]
SEVERITIES = ["Severe", "Serious", "Mild"]
LAST_LINE = re.compile(
    r"Audited as: (?:nothing of its own|private step `(?P<step>[a-z]+)`"
    r"|(?P<randomizers>`[a-z-]+`(?:, `[a-z-]+`)*))\."
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def sections_of(text: str) -> dict[str, str]:
    """What stands below each heading, in the order of the page."""
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {heading: body.strip() for heading, _, body in (part.partition("\n") for part in parts)}


def modules_of(text: str) -> set[str]:
    code = sections_of(text).get("Where it is in the code", "")
    return set(re.findall(r"`tulle\.([\w.]+)`", code))


def named_tests(text: str) -> list[tuple[str, str]]:
    listed = sections_of(text).get("Tests that check it", "")
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", listed)


def audited_as(text: str, kind: str) -> set[str]:
    last_line = LAST_LINE.fullmatch(text.rstrip().rpartition("\n")[2])
    return set(re.findall(r"[a-z-]+", last_line[kind] or "")) if last_line else set()


def randomizers_of(text: str) -> set[str]:
    return audited_as(text, "randomizers")


@functools.cache
def functions_in(path: str) -> frozenset[str]:
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return frozenset(name for name in functions if name.startswith("test_"))


def faults_of(text: str) -> list[str]:
    """What is wrong with a page; nothing if it can be signed."""
    sections = sections_of(text)
    faults = [] if re.match(r"# \S.*\n", text) else ["no title in the first line"]
    if list(sections) != SECTIONS:
        faults.append(f"sections are {list(sections)}")
    faults += [f"nothing below {heading}" for heading, body in sections.items() if not body]
    if LAST_LINE.fullmatch(text.rstrip().rpartition("\n")[2]) is None:
        faults.append("the last line does not say what it is audited as")
    faults += [f"no randomizer {name}" for name in sorted(randomizers_of(text) - NAMES)]
    faults += [f"no step {name}" for name in sorted(audited_as(text, "step") - STEPS)]
    faults += [
        f"no module {module}"
        for module in sorted(modules_of(text))
        if not (SOURCE / module.replace(".", "/")).with_suffix(".py").is_file()
    ]
    faults += [
        f"no test {path}::{name}"
        for path, name in named_tests(text)
        if name not in functions_in(path)
    ]
    if not modules_of(text):
        faults.append("no module is named")
    if not named_tests(text):
        faults.append("no test is named")
    return faults


@each_page
def test_a_page_has_all_its_parts_and_what_it_names_exists(page: pathlib.Path) -> None:
    assert faults_of(page.read_text()) == []


RIGHT_PAGE = """# A name

## Claim

What is private.

## Proof

Why.

## Floating point and sampling

What is exact.

## Where it is in the code

- `tulle.mechanisms.laplace`

## Tests that check it

- `tests/test_theory_pages.py::test_faults_of_a_page_are_seen`

## Limits

What is not covered.

Audited as: `laplace`.
"""


def test_a_right_page_has_no_faults() -> None:
    assert faults_of(RIGHT_PAGE) == []


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("test_faults_of_a_page_are_seen", "test_that_nobody_wrote", "no test"),
        ("tests/test_theory_pages.py", "tests/test_nothing.py", "no test"),
        ("mechanisms.laplace", "mechanisms.la_place", "no module"),
        ("Audited as: `laplace`", "Audited as: `la-place`", "no randomizer"),
        ("Audited as: `laplace`", "Audited as: private step `laplace`", "no step"),
        ("Audited as: `laplace`.\n", "", "last line"),
        ("## Proof\n\nWhy.\n\n", "", "sections"),
        ("## Limits", "## Proof", "sections"),
        ("Why.\n", "", "nothing below Proof"),
        ("# A name", "A name", "no title"),
        ("- `tulle.mechanisms.laplace`", "Somewhere.", "no module is named"),
        ("- `tests/test_theory_pages.py::test_faults_of_a_page_are_seen`", "All.", "no test is"),
    ],
)
def test_faults_of_a_page_are_seen(right: str, wrong: str, fault: str) -> None:
    assert right in RIGHT_PAGE
    assert any(fault in found for found in faults_of(RIGHT_PAGE.replace(right, wrong)))


def test_every_audited_randomizer_is_on_a_page() -> None:
    on_pages = set().union(*(randomizers_of(page.read_text()) for page in PAGES))
    assert NAMES - on_pages == set()


def test_every_audited_step_is_on_a_page() -> None:
    assert set().union(*(audited_as(page.read_text(), "step") for page in PAGES)) == STEPS


def test_every_page_of_a_randomizer_names_its_modules() -> None:
    for randomizer in EVERY:
        pages = [
            text for page in PAGES if randomizer.name in randomizers_of(text := page.read_text())
        ]
        named = set().union(*(modules_of(text) for text in pages))
        assert set(randomizer.modules) <= named, randomizer.name


def test_every_module_of_mechanisms_is_on_a_page() -> None:
    on_pages = set().union(*(modules_of(page.read_text()) for page in PAGES))
    modules = {f"mechanisms.{path.stem}" for path in (SOURCE / "mechanisms").glob("[!_]*.py")}
    assert modules - on_pages == set()


def test_the_index_lists_every_page_once_with_its_title() -> None:
    listed = re.findall(r"\[([^\]]+)\]\(([\w-]+\.md)\)", INDEX.read_text())
    titles = [(page.read_text().partition("\n")[0][2:], page.name) for page in PAGES]
    assert sorted(listed) == sorted(titles)


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@each_page
def test_a_page_has_no_block_that_looks_as_if_it_were_run(page: pathlib.Path) -> None:
    assert "```" not in page.read_text()


def edge_faults_of(text: str) -> list[str]:
    """What is wrong with the entries of the page of sharp edges."""
    sections = sections_of(text)
    faults = [] if len(sections) == len(SEVERITIES) else [f"sections are {list(sections)}"]
    for (heading, body), severity in zip(sections.items(), SEVERITIES, strict=False):
        if not heading.startswith(severity):
            faults.append(f"{heading} is not {severity}")
        for entry in re.split(r"^- ", body, flags=re.MULTILINE)[1:]:
            if not entry.startswith("**") or "*Way out:*" not in entry:
                faults.append(f"no name or no way out: {entry[:40]}")
    return faults


def test_every_sharp_edge_has_a_severity_a_name_and_a_way_out() -> None:
    page = (ROOT / "docs" / "sharp-edges.md").read_text()
    assert edge_faults_of(page) == []
    assert edge_faults_of(page.replace("*Way out:*", "Well,", 1)) != []
    assert edge_faults_of(page.replace("## Serious", "## Strange")) != []


def unknown_names_of(text: str) -> list[str]:
    """Commands and options that a page names in `code` and the command line does not have."""
    commands = dict(leaf_commands())
    groups = {name[: space.start()] for name in commands for space in re.finditer(" ", name)}
    options = {
        option
        for command in commands.values()
        for each in command.get_params(typer.Context(command))  # settings of a method among them
        for option in each.opts
    }
    unknown = []
    for code in re.findall(r"`([^`]+)`", text):
        words = code.split()
        unknown += [word for word in words if word.startswith("--") and word not in options]
        if words[0] == "tulle" and len(words) > 1:
            named = " ".join(word for word in words[1:3] if not word.startswith("--"))
            if named not in {*commands, *groups}:
                unknown.append(code)
    return unknown


def test_every_command_and_option_of_sharp_edges_exists() -> None:
    page = (ROOT / "docs" / "sharp-edges.md").read_text()
    assert unknown_names_of(page) == []
    assert unknown_names_of(
        "`--noise-of-steps 2`, `tulle measure ran`, `tulle train --epsilon`"
    ) == [
        "--noise-of-steps",
        "tulle measure ran",
    ]


def test_headings_that_a_page_links_to_exist() -> None:
    """Links between pages with a `#` lead to a heading of the other page."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            linked = (page.parent / target) if target else page
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), flags=re.MULTILINE)
            anchors = [
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            ]
            assert anchor in anchors, (page.name, target, anchor)
