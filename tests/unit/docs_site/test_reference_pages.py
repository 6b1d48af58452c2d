"""The reference has every public name once, and the site gets it with the published records."""

import importlib
import re

import pytest
from public_names import read_module
from reference_pages import public_modules, reference_pages

import tulle
from unit.docs_site.read_source import LIBRARY, ROOT

pytest.importorskip("mkdocs")

from mkdocs.config import load_config
from mkdocs.structure.files import File, Files, InclusionLevel

PAGES = reference_pages(LIBRARY)
MODULES = public_modules(LIBRARY)
ANCHORS = [
    f"{path.removeprefix('api/')}#{anchor}"
    for path, text in PAGES.items()
    for anchor in re.findall(r'<a id="([^"]+)">', text)
]
HOOK = ROOT / "docs_site" / "mkdocs_hook.py"


def links_of(path: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", PAGES[path])


def page_of(docstring: str) -> str:
    """The page of one more package, with one function."""
    quoted = f'"""{docstring}"""'
    function = "def f():\n" + "\n".join(f"    {line}" for line in quoted.split("\n"))
    library = LIBRARY | {
        "tulle.a": read_module("tulle.a", "from tulle.a.b import f\n__all__ = ['f']"),
        "tulle.a.b": read_module("tulle.a.b", function),
    }
    return reference_pages(library)["api/tulle.a.md"]


def test_every_public_name_is_listed_and_described_once() -> None:
    assert {f"tulle.{name}" for name in tulle.__all__ if name.islower() and name != "load"} <= set(
        MODULES
    )
    for name in MODULES:
        listed = getattr(importlib.import_module(name), "__all__", ())
        for public in listed:
            assert f"[{public}](" in PAGES[f"api/{name}.md"], f"{name} exports {public}"
    assert len(set(ANCHORS)) == len(ANCHORS)
    for place in ("tulle.train.md#tulle.train.Classifier", "tulle.runs.md#tulle.runs.Card"):
        assert place in ANCHORS
    homes = [anchor.partition("#")[2] for anchor in ANCHORS]
    assert [home for home in homes if home.endswith(".Ledger")] == ["tulle.accounting.Ledger"]


def test_what_no_package_exports_has_no_place() -> None:
    assert "tulle.accounting.ledger" not in "".join(PAGES.values())
    assert not any(anchor.startswith("tulle.cli") for anchor in ANCHORS)


def test_links_lead_to_pages_and_places_that_exist() -> None:
    for path in PAGES:
        for target in links_of(path):
            is_place = "#" in target
            assert target in ANCHORS if is_place else f"api/{target}" in PAGES, (path, target)


def test_every_public_class_and_function_of_the_library_says_what_it_is() -> None:
    silent = [
        f"{module.name}.{member.name}"
        for module in LIBRARY.values()
        for member in module.members
        if member.kind != "value" and not member.docstring.prose
    ]
    assert silent == []
    assert [name for name in MODULES if not LIBRARY[name].docstring.prose] == []


def test_sections_are_shown() -> None:
    text = page_of(
        "Does it.\n\nArgs:\n  size: How many.\n\nPrivacy:\n  Unit: user.\n  Event: one.\n\n"
        "Raises:\n  ConfigError: Too many.\n"
    )
    assert "## f\n" in text
    assert "**Args**\n\n- `size`: How many." in text
    assert "> **Privacy.** Unit: user. Event: one." in text
    assert "**Raises**\n\n- `ConfigError`: Too many." in text


def test_what_markdown_would_take_for_its_own_is_shown_as_written() -> None:
    text = page_of("Is a * b, <c>, [d] and `e * f`.")
    assert "Is a &#42; b, &#60;c>, &#91;d&#93; and `e * f`." in text


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("site")
    (folder / "docs").mkdir()
    (folder / "mkdocs.yml").write_text(f"site_name: a\nhooks: [{HOOK}]\n")
    return load_config(str(folder / "mkdocs.yml"))


def test_the_site_gets_the_reference_and_the_published_records(config: object) -> None:
    files = config.plugins.run_event("files", Files([]), config=config)
    site: dict[str, File] = {file.src_uri: file for file in files}
    assert site["api/tulle.train.md"].content_string.startswith("# tulle.train\n")
    assert '"rows"' in site["benchmarks/published/dpsgd.json"].content_string
    # Only the list of modules is looked for in the navigation.
    assert site["api/index.md"].inclusion is InclusionLevel.UNDEFINED
    assert site["api/tulle.train.md"].inclusion is InclusionLevel.NOT_IN_NAV


def test_links_to_records_lead_to_where_the_site_has_them(config: object) -> None:
    text = "see [a.json](../benchmarks/published/a.json)"
    changed = config.plugins.run_event("page_markdown", text, page=None, config=config, files=None)
    assert changed == "see [a.json](benchmarks/published/a.json)"
