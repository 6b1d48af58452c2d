import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "docs_site"))

from docstring_sections import parse_docstring
from public_names import Module, Name, read_library
from reference_pages import reference_pages

LIBRARY = read_library(Path(__file__).parents[3] / "src" / "tulle")
PAGES = reference_pages(LIBRARY)
ANCHORS = {
    f"{path.removeprefix('api/')}#{anchor}"
    for path, text in PAGES.items()
    for anchor in re.findall(r'<a id="([^"]+)">', text)
}


def links_of(path: str) -> list[str]:
    own = path.removeprefix("api/")
    found = re.findall(r"\]\(([^)]+)\)", PAGES[path])
    return [own + target if target.startswith("#") else target for target in found]


def page_of(docstring: str, signature: str = "def f()") -> str:
    member = Name(
        name="f", kind="function", signature=signature, docstring=parse_docstring(docstring)
    )
    module = Module(
        name="tulle.a.b",
        docstring=parse_docstring("B."),
        members=(member,),
        exports=(),
        is_package=False,
    )
    return reference_pages({"tulle.a": [module]})["api/tulle.a.md"]


def test_every_public_class_and_function_has_a_place() -> None:
    for package, modules in LIBRARY.items():
        for module in modules:
            for member in module.members:
                if member.kind != "value":
                    assert f"{package}.md#{module.name}.{member.name}" in ANCHORS


def test_every_exported_name_leads_to_its_place() -> None:
    exports = [
        (package, name)
        for package, modules in LIBRARY.items()
        for module in modules
        for name, _ in module.exports
    ]
    assert ("tulle.train", "HybridConfig") in exports
    assert ("tulle.train", "MosaicConfig") in exports
    assert ("tulle.train", "TableClassifier") in exports
    for package, name in exports:
        page = PAGES[f"api/{package}.md"]
        assert f"[{name}](" in page or f"### {name}\n" in page, f"{package} exports {name}"


def test_links_lead_to_pages_and_places_that_exist() -> None:
    for path in PAGES:
        for target in links_of(path):
            is_place = "#" in target
            assert target in ANCHORS if is_place else f"api/{target}" in PAGES, (path, target)


def test_every_public_name_says_what_it_is() -> None:
    silent = [
        f"{module.name}.{member.name}"
        for modules in LIBRARY.values()
        for module in modules
        for member in module.members
        if member.kind != "value" and not member.docstring.prose
    ]
    assert silent == []


def test_every_package_says_what_it_holds() -> None:
    told = {
        package
        for package, modules in LIBRARY.items()
        for module in modules
        if module.is_package and module.docstring.prose
    }
    assert set(LIBRARY) - told == {"tulle"}


def test_sections_are_shown() -> None:
    text = page_of(
        "Does it.\n\nArgs:\n  size: How many.\n\nPrivacy:\n  Unit: user.\n  Event: one.\n\n"
        "Raises:\n  ConfigError: Too many.\n"
    )
    assert "**Args**\n\n- `size`: How many." in text
    assert "> **Privacy.** Unit: user. Event: one." in text
    assert "**Raises**\n\n- `ConfigError`: Too many." in text


def test_what_markdown_would_take_for_its_own_is_shown_as_written() -> None:
    text = page_of("Is a * b, <c>, [d] and `e * f`.")
    assert "Is a &#42; b, &#60;c>, &#91;d&#93; and `e * f`." in text
