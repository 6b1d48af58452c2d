"""What the library offers, read from its source: nothing is imported, so torch is not needed."""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from docstring_sections import Docstring, parse_docstring

PACKAGES = (
    "privacy",
    "mechanisms",
    "accounting",
    "data",
    "quality",
    "runs",
    "train",
    "labels",
    "measure",
    "select",
    "audit",
    "report",
    "studio",
)
ALONE = ("errors",)
_WIDTH = 88

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True, kw_only=True)
class Name:
    """One public class, function, method, field or constant."""

    name: str
    kind: str
    signature: str
    docstring: Docstring
    parameters: tuple[str, ...] = ()
    members: tuple["Name", ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module:
    """One module, or the `__init__` of a package."""

    name: str
    docstring: Docstring
    members: tuple[Name, ...]
    exports: tuple[tuple[str, str], ...]
    """Names in `__all__`, each with the module that defines it."""
    is_package: bool


def read_library(source: Path) -> dict[str, list[Module]]:
    """Modules by the package that holds them, both by dotted name.

    Args:
      source: Folder of the library, the one named tulle.
    """
    found: dict[str, list[Module]] = {}
    for path in _files(source):
        folder = ".".join(path.relative_to(source.parent).parent.parts)
        found.setdefault(folder, []).append(_module(path, source))
    return found


def _files(source: Path) -> Iterator[Path]:
    yield from (source / f"{name}.py" for name in ALONE)
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            if path.name == "__init__.py" or not path.name.startswith("_"):
                yield path


def _module(path: Path, source: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = path.relative_to(source.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(
        name=".".join(parts[:-1] if is_package else parts),
        docstring=parse_docstring(ast.get_docstring(tree)),
        members=() if is_package else tuple(_members(tree.body)),
        exports=tuple(_exports(tree)),
        is_package=is_package,
    )


def _members(body: list[ast.stmt], *, is_class: bool = False) -> Iterator[Name]:
    for place, node in enumerate(body):
        if isinstance(node, ast.ClassDef) and _is_public(node.name):
            yield _class(node)
        elif isinstance(node, Function) and _is_public(node.name):
            yield _function(node)
        elif (name := _assigned(node)) and (is_class or name.isupper()):
            yield _value(name, node, _text_after(body, place))


def _class(node: ast.ClassDef) -> Name:
    bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
    return Name(
        name=node.name,
        kind="class",
        signature=f"{_dataclass_mark(node)}class {node.name}" + (f"({bases})" if bases else ""),
        docstring=parse_docstring(ast.get_docstring(node)),
        members=tuple(_members(node.body, is_class=True)),
    )


def _dataclass_mark(node: ast.ClassDef) -> str:
    marks = (ast.unparse(mark) for mark in node.decorator_list)
    return "".join(f"@{mark}\n" for mark in marks if "dataclass" in mark)


def _function(node: Function) -> Name:
    marks = {ast.unparse(mark) for mark in node.decorator_list}
    is_property = bool(marks & {"property", "functools.cached_property", "cached_property"})
    return Name(
        name=node.name,
        kind="property" if is_property else "function",
        signature=_property_signature(node) if is_property else _signature(node, marks),
        docstring=parse_docstring(ast.get_docstring(node)),
        parameters=tuple(
            argument.arg
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        ),
    )


def _value(name: str, node: ast.stmt, text: str | None) -> Name:
    written = ast.unparse(node)
    if len(written) > _WIDTH or "\n" in written:
        kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
        written = f"{name}{kind} = …"
    return Name(name=name, kind="value", signature=written, docstring=parse_docstring(text))


def _assigned(node: ast.stmt) -> str | None:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if len(targets) == 1 and isinstance(targets[0], ast.Name) and _is_public(targets[0].id):
        return targets[0].id if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return None


def _text_after(body: list[ast.stmt], place: int) -> str | None:
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
    homes = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and _assigned_all(node):
            yield from ((name, homes.get(name, "")) for name in ast.literal_eval(node.value))


def _assigned_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _is_public(name: str) -> bool:
    return not name.startswith("_")
