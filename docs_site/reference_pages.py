"""Pages of the reference: one for each package, as Markdown, and one that lists them."""

import re
from collections.abc import Iterator

from docstring_sections import Docstring, Section
from public_names import Module, Name

INTRODUCTION = """# Reference

Every public class and function, from its docstring. Modules are imported by their full name,
e.g. `from tulle.accounting.ledger import Ledger`; `tulle.train` and `tulle.quality` also give
their names directly. A **Privacy** note says what one unit can change, what is paid, and what
the guarantee relies on.

## Where to begin

"""

STARTS = {
    "a guarantee for events, or noise for a guarantee": (
        "tulle.accounting.accountant.guarantee",
        "tulle.accounting.calibration.calibrate_noise",
    ),
    "a ledger with a budget": (
        "tulle.accounting.ledger.Ledger",
        "tulle.accounting.budget.Budget",
    ),
    "noise on counts and on real numbers": (
        "tulle.mechanisms.discrete_laplace.release_discrete_laplace",
        "tulle.mechanisms.gaussian.release_gaussian",
        "tulle.mechanisms.entropy.release_rng",
    ),
    "data for training": (
        "tulle.data.schema.Schema",
        "tulle.data.prepare.prepare",
        "tulle.data.prepared.dataset.PreparedDataset",
    ),
    "a private model": (
        "tulle.train.classifier.TableClassifier",
        "tulle.train.methods.mosaic.method.MosaicConfig",
        "tulle.train.fitting.fit",
    ),
    "labels with noise": ("tulle.labels.release.releasing.release_labels",),
    "a measured campaign": (
        "tulle.measure.config.config_file.read_config",
        "tulle.measure.queries.planning.plan_queries",
        "tulle.measure.queries.releasing.measure",
    ),
    "private selection": (
        "tulle.select.serving.Devices",
        "tulle.select.selection_config.SelectionConfig",
        "tulle.select.planner.plan_selection.plan_selection",
    ),
    "an audit": (
        "tulle.audit.steps.step_audit.audit_step",
        "tulle.audit.canary_training.audit_training",
        "tulle.audit.mechanism_audit.audit_randomizer",
    ),
    "a card": ("tulle.report.card.build_card", "tulle.report.card_file.write_card"),
}
"""What most programs call first, by job."""
_SPECIAL = re.compile(r"[*<|\[\]]|(?<!\w)_|_(?!\w)")


def reference_pages(library: dict[str, list[Module]]) -> dict[str, str]:
    """Text of each page by its path below the docs.

    Args:
      library: Modules by package, as `read_library` returns them.
    """
    pages = {"api/index.md": "\n".join(_index(library))}
    for package, modules in library.items():
        pages[f"api/{package}.md"] = "\n".join(_page(package, modules))
    return pages


def _index(library: dict[str, list[Module]]) -> Iterator[str]:
    yield INTRODUCTION.rstrip() + "\n"
    yield "| for | call |"
    yield "|---|---|"
    for job, paths in STARTS.items():
        yield f"| {job} | {', '.join(_link(path) for path in paths)} |"
    yield "\n## All packages\n"
    yield "| package | what it holds | modules |"
    yield "|---|---|---|"
    for package, modules in library.items():
        listed = [module for module in modules if not module.is_package]
        yield f"| [{package}]({package}.md) | {_about(modules)} | {len(listed)} |"


def _about(modules: list[Module]) -> str:
    (said,) = [module.docstring.prose for module in modules if module.is_package] or [""]
    first = said or modules[-1].docstring.prose
    return _escaped(first.split("\n\n")[0].replace("\n", " "))


def _page(package: str, modules: list[Module]) -> Iterator[str]:
    yield f"# {package}\n"
    yield "Part of the [reference](index.md).\n"
    for module in modules:
        if module.is_package:
            yield from _prose(module.docstring)
            yield from _exports(module)
    yield from _contents(modules)
    for module in modules:
        if not module.is_package:
            yield from _module(module)


def _exports(module: Module) -> Iterator[str]:
    own = {member.name for member in module.members}
    named = [(name, home) for name, home in module.exports if name not in own]
    if named:
        links = ", ".join(_link(f"{home}.{name}") if home else f"`{name}`" for name, home in named)
        yield f"`from {module.name} import` also gives: {links}.\n"


def _link(path: str) -> str:
    home, _, name = path.rpartition(".")
    return f"[{name}]({home.rpartition('.')[0]}.md#{path})"


def _contents(modules: list[Module]) -> Iterator[str]:
    yield "| module | what it holds |"
    yield "|---|---|"
    for module in modules:
        if not module.is_package:
            about = _escaped(module.docstring.prose.split("\n\n")[0].replace("\n", " "))
            yield f"| [{module.name.rpartition('.')[2]}](#{module.name}) | {about} |"
    yield ""


def _module(module: Module) -> Iterator[str]:
    yield f'<a id="{module.name}"></a>\n'
    yield f"## {module.name}\n"
    yield from _prose(module.docstring)
    yield from _exports(module)
    for member in module.members:
        yield from _member(member, f"{module.name}.{member.name}", level=3)


def _member(member: Name, path: str, *, level: int) -> Iterator[str]:
    if member.kind == "value":
        yield from _value(member)
        return
    yield f'<a id="{path}"></a>\n'
    yield f"{'#' * level} {member.name}\n"
    yield f"```python\n{member.signature}\n```\n"
    yield from _docstring(member.docstring)
    for kind in ("value", "property", "function", "class"):
        for inner in member.members:
            if inner.kind == kind:
                yield from _member(inner, f"{path}.{inner.name}", level=level + 1)


def _value(member: Name) -> Iterator[str]:
    said = " ".join(_escaped(member.docstring.prose).split())
    yield f"- `{member.signature}`" + (f": {said}" if said else "")
    yield ""


def _docstring(docstring: Docstring) -> Iterator[str]:
    yield from _prose(docstring)
    for section in docstring.sections:
        yield from _section(section)


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
    yield (
        f"> **{section.title}.** {text}\n"
        if section.title == "Privacy"
        else (f"**{section.title}**: {text}\n")
    )


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
