"""What the library offers, read from its source: nothing is imported, so torch is not needed."""

import ast
import dataclasses
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_WIDTH = 88
"""Longest signature on one line; a longer one has a line for each argument."""
_LISTED = ("Args", "Raises")
_TITLE = re.compile(r"^(Args|Raises|Returns|Yields|Privacy):$")
_ITEM = re.compile(r"^([*\w.]+(?:, [*\w.]+)*): ?(.*)$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One titled part of a docstring."""

    title: str
    text: str
    items: tuple[tuple[str, str], ...] = ()
    """Names and what is said about them, where the section is a list."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Docstring:
    """What a docstring says: prose first, then sections such as Args and Privacy."""

    prose: str
    sections: tuple[Section, ...] = ()

    @property
    def first_paragraph(self) -> str:
        """The first paragraph of the prose, on one line."""
        return self.prose.split("\n\n")[0].replace("\n", " ")

    def section(self, title: str) -> Section | None:
        """The section of this title, if there is one."""
        return next((section for section in self.sections if section.title == title), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Name:
    """One public class, function, method, field or constant."""

    name: str
    kind: str
    """One of class, function, property and value."""
    signature: str
    docstring: Docstring
    parameters: tuple[str, ...] = ()
    members: tuple["Name", ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """One module, or the `__init__` of a package."""

    name: str
    docstring: Docstring
    members: tuple[Name, ...] = ()
    exports: tuple[tuple[str, str], ...] = ()
    """Names in `__all__`, each with the module that it is imported from."""

    def member(self, name: str) -> Name | None:
        """The public name that the module defines, if it does."""
        return next((member for member in self.members if member.name == name), None)


def read_library(source: Path) -> dict[str, Module]:
    """All modules of the library by dotted name; those with an underscore are left out.

    Args:
      source: Folder of the library, the one named tulle.
    """
    modules = {}
    for path in sorted(source.rglob("*.py")):
        if path.name == "__init__.py" or not path.name.startswith("_"):
            parts = path.relative_to(source.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            modules[name] = read_module(name, path.read_text(encoding="utf-8"))
    return modules


def read_module(name: str, source: str) -> Module:
    """One module from its source.

    Args:
      name: Dotted name of the module.
      source: Text of its file.
    """
    tree = ast.parse(source)
    return Module(
        name=name,
        docstring=parse_docstring(ast.get_docstring(tree)),
        members=tuple(_members(tree.body)),
        exports=tuple(_exports(tree)),
    )


def parse_docstring(text: str | None) -> Docstring:
    """Prose and sections of a docstring whose indentation was removed."""
    parts: list[list[str]] = [[]]
    for line in (text or "").strip().splitlines():
        if _TITLE.match(line):
            parts.append([])
        parts[-1].append(line)
    prose, *titled = parts
    return Docstring(
        prose="\n".join(prose).strip(),
        sections=tuple(_section(title.removesuffix(":"), lines) for title, *lines in titled),
    )


def _section(title: str, lines: list[str]) -> Section:
    text = textwrap.dedent("\n".join(lines)).strip()
    items = tuple(_items(text)) if title in _LISTED else ()
    return Section(title=title, text=text, items=items)


def _items(text: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"\n(?=\S)", text):
        first, _, rest = block.partition("\n")
        found = _ITEM.match(first)
        if found is None:
            yield "", " ".join(block.split())
        else:
            yield found[1], " ".join(f"{found[2]} {rest}".split())


def _members(body: list[ast.stmt]) -> Iterator[Name]:
    for place, node in enumerate(body):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield _class(node)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield _function(node)
        elif name := _assigned(node):
            yield _value(name, node, _text_after(body, place))


def _class(node: ast.ClassDef) -> Name:
    bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
    marks = (ast.unparse(mark) for mark in node.decorator_list)
    start = "".join(f"@{mark}\n" for mark in marks if "dataclass" in mark)
    return Name(
        name=node.name,
        kind="class",
        signature=f"{start}class {node.name}" + (f"({bases})" if bases else ""),
        docstring=parse_docstring(ast.get_docstring(node)),
        members=tuple(_members(node.body)),
    )


def _function(node: Function) -> Name:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    is_property = bool(marks & {"property", "functools.cached_property", "cached_property"})
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return Name(
        name=node.name,
        kind="property" if is_property else "function",
        signature=_property_signature(node) if is_property else _signature(node, marks),
        docstring=parse_docstring(ast.get_docstring(node)),
        parameters=tuple(argument.arg for argument in arguments),
    )


def _value(name: str, node: ast.stmt, text: str | None) -> Name:
    written = ast.unparse(node)
    if len(written) > _WIDTH or "\n" in written:
        kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
        written = f"{name}{kind} = …"
    return Name(name=name, kind="value", signature=written, docstring=parse_docstring(text))


def _assigned(node: ast.stmt) -> str | None:
    """The one public name that a statement gives a value or a type."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target = targets[0] if len(targets) == 1 else None
    is_public = isinstance(target, ast.Name) and not target.id.startswith("_")
    return target.id if is_public else None


def _text_after(body: list[ast.stmt], place: int) -> str | None:
    """The string below a statement, which documents it."""
    following = body[place + 1] if place + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return following.value.value if isinstance(following.value.value, str) else None
    return None


def _signature(node: Function, marks: set[str]) -> str:
    start = "".join(f"@{mark}\n" for mark in sorted(marks & {"classmethod", "staticmethod"}))
    start += f"def {node.name}("
    end = ")" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
    arguments = _arguments(node.args)
    if len(start) + len(", ".join(arguments)) + len(end) <= _WIDTH:
        return start + ", ".join(arguments) + end
    return start + "".join(f"\n    {argument}," for argument in arguments) + "\n" + end


def _property_signature(node: Function) -> str:
    return node.name + (f": {ast.unparse(node.returns)}" if node.returns else "")


def _arguments(args: ast.arguments) -> list[str]:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    found = [_argument(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        found.insert(len(args.posonlyargs), "/")
    if args.vararg:
        found.append(f"*{ast.unparse(args.vararg)}")
    elif args.kwonlyargs:
        found.append("*")
    found += map(_argument, args.kwonlyargs, args.kw_defaults)
    if args.kwarg:
        found.append(f"**{ast.unparse(args.kwarg)}")
    return [argument for argument in found if argument not in ("self", "cls")]


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if arg.annotation else "="
    return ast.unparse(arg) + ("" if default is None else f"{equals}{ast.unparse(default)}")


def _exports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            homes = {
                alias.asname or alias.name: imported.module or ""
                for imported in ast.walk(tree)
                if isinstance(imported, ast.ImportFrom)
                for alias in imported.names
            }
            yield from ((name, homes.get(name, "")) for name in ast.literal_eval(node.value))
