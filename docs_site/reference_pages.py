"""Pages of the reference, as Markdown: the names in `__all__` of tulle and of its public packages.

Whatever `__all__` does not list is private, and has no place here. A name that several packages
list is described once, on the page of the package that it lives in.
"""

import re
from collections.abc import Iterator

from public_names import Docstring, Module, Name, Section

INTRODUCTION = """# Reference

Everything public, from its docstring: `import tulle` gives all of it, such as `tulle.train.fit`.
A **Privacy** note says what one unit can change, what is charged, and what the guarantee relies on.

## Where to begin

"""

STARTS = {
    "describe the columns of a log": ("tulle.Schema", "tulle.Unit"),
    "train a private model": ("tulle.Classifier", "tulle.train.plan", "tulle.train.fit"),
    "load whatever was saved": ("tulle.load",),
    "release labels with noise": ("tulle.labels.plan", "tulle.labels.release"),
    "measure a campaign": (
        "tulle.measure.count",
        "tulle.measure.count_reach",
        "tulle.measure.plan",
        "tulle.measure.release",
    ),
    "select ads": ("tulle.select.plan", "tulle.select.decide", "tulle.select.bill"),
    "keep a ledger with a budget": ("tulle.Ledger", "tulle.Budget"),
    "ask for a guarantee, or for the noise that gives one": (
        "tulle.accounting.guarantee",
        "tulle.accounting.calibrate_noise",
    ),
    "add noise to counts and to real numbers": (
        "tulle.mechanisms.release_discrete_laplace",
        "tulle.mechanisms.release_gaussian",
    ),
    "audit": ("tulle.audit.audit_step", "tulle.audit.audit_training"),
}
"""What most programs call first, by job."""
_SPECIAL = re.compile(r"[*<|\[\]]|(?<!\w)_|_(?!\w)")

Page = dict[str, tuple[str, Name]]
"""Names of a public module: each with the module that defines it, and what is known of it."""


def reference_pages(library: dict[str, Module]) -> dict[str, str]:
    """Text of each page by its path below the docs.

    Args:
      library: All modules by dotted name, as `read_library` returns them.
    """
    pages = {name: _names(name, library) for name in public_modules(library)}
    places = _places(pages)
    texts = {"api/index.md": "\n".join(_index(library, pages, places))}
    for name, page in pages.items():
        texts[f"api/{name}.md"] = "\n".join(_page(library[name], page, places))
    return texts


def public_modules(library: dict[str, Module]) -> list[str]:
    """Packages with an `__all__`, and the modules that these list; tulle itself comes first."""
    found: list[str] = []
    waiting = ["tulle", *(name for name in library if re.fullmatch(r"tulle\.\w+", name))]
    waiting = [name for name in waiting if library[name].exports]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        listed = [f"{home}.{inner}" for inner, home in library[name].exports if home == name]
        waiting += sorted(module for module in listed if module in library)
    return found


def _names(name: str, library: dict[str, Module]) -> Page:
    module = library[name]
    if not module.exports:
        return {member.name: (name, member) for member in module.members}
    return {
        inner: (home, member)
        for inner, home in module.exports
        if home in library and (member := library[home].member(inner)) is not None
    }


def _places(pages: dict[str, Page]) -> dict[tuple[str, str], str]:
    """The page that describes a name, by module and name: the nearest to where it is defined."""
    places: dict[tuple[str, str], str] = {}
    # Longer names come last, so that a package wins over the whole of tulle.
    for page in sorted(pages, key=len):
        for name, (home, _) in pages[page].items():
            if (home, name) not in places or f"{home}.".startswith(f"{page}."):
                places[home, name] = page
    return places


def _index(
    library: dict[str, Module], pages: dict[str, Page], places: dict[tuple[str, str], str]
) -> Iterator[str]:
    yield INTRODUCTION.rstrip() + "\n"
    yield "| to | call |"
    yield "|---|---|"
    for job, paths in STARTS.items():
        yield f"| {job} | {', '.join(_start(path, pages, places) for path in paths)} |"
    yield "\n## All public modules\n"
    yield "| module | what it holds | names |"
    yield "|---|---|---|"
    for name, page in pages.items():
        about = _escaped(library[name].docstring.first_paragraph)
        yield f"| [{name}]({name}.md) | {about} | {len(page)} |"


def _start(path: str, pages: dict[str, Page], places: dict[tuple[str, str], str]) -> str:
    module, _, name = path.rpartition(".")
    place = places[pages[module][name][0], name]
    return f"[{path}]({place}.md#{place}.{name})"


def _page(module: Module, page: Page, places: dict[tuple[str, str], str]) -> Iterator[str]:
    yield f"# {module.name}\n"
    yield "Part of the [reference](index.md).\n"
    yield from _prose(module.docstring)
    inner = [name for name, home in module.exports if home == module.name]
    if inner:
        links = ", ".join(f"[{name}]({module.name}.{name}.md)" for name in inner)
        yield f"Public modules in it: {links}.\n"
    yield "| name | what it is |"
    yield "|---|---|"
    for name, (home, member) in sorted(page.items()):
        place = places[home, name]
        about = _escaped(member.docstring.first_paragraph)
        yield f"| [{name}]({place}.md#{place}.{name}) | {about} |"
    yield ""
    for name, (home, member) in sorted(page.items()):
        if places[home, name] == module.name:
            yield from _member(member, f"{module.name}.{name}", level=2)


def _member(member: Name, path: str, *, level: int) -> Iterator[str]:
    """What a name is, with its own members below it.

    Args:
      member: The name.
      path: Its dotted path, which links lead to.
      level: Level of its heading; 2 at the top of a page.
    """
    if member.kind == "value" and level > 2:
        said = " ".join(_escaped(member.docstring.prose).split())
        yield f"- `{member.signature}`" + (f": {said}" if said else "")
        yield ""
        return
    yield f'<a id="{path}"></a>\n'
    yield f"{'#' * level} {member.name}\n"
    yield f"```python\n{member.signature}\n```\n"
    yield from _prose(member.docstring)
    for section in member.docstring.sections:
        yield from _section(section)
    for kind in ("value", "property", "function", "class"):
        for inner in member.members:
            if inner.kind == kind:
                yield from _member(inner, f"{path}.{inner.name}", level=level + 1)


def _prose(docstring: Docstring) -> Iterator[str]:
    if docstring.prose:
        yield _escaped(docstring.prose) + "\n"


def _section(section: Section) -> Iterator[str]:
    if section.items:
        yield f"**{section.title}**\n"
        for name, text in section.items:
            yield f"- `{name}`: {_escaped(text)}" if name else f"- {_escaped(text)}"
        yield ""
        return
    text = _escaped(" ".join(section.text.split()))
    is_note = section.title == "Privacy"
    yield f"> **{section.title}.** {text}\n" if is_note else f"**{section.title}**: {text}\n"


def _escaped(text: str) -> str:
    """Markdown that shows the text as written; code keeps its backticks or its indentation."""
    lines = []
    for line in text.split("\n"):
        if line.startswith("    "):
            lines.append(line)
            continue
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [_SPECIAL.sub(_entity, piece) for piece in pieces[::2]]
        lines.append("".join(pieces))
    return "\n".join(lines)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"
