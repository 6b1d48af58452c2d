"""Places in a source file where a small change makes a mutant.

A place is known by what it says, not by where it stands: the qualified name of the function, the
text of the statement as Python writes it, and which operator of the statement it is. So it is found
again after files were moved, merged or formatted.
"""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_CALLS = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
    "any": "all",
    "all": "any",
    "log": "log1p",
    "expm1": "exp",
    "sqrt": "",
    "abs": "",
}
_SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE|CREATE|WHERE|IS NULL|CHECK)\b")
_SQL_SWAPS = {
    "<=": "<",
    ">=": ">",
    "<": "<=",
    ">": ">=",
    " = ": " != ",
    " AND ": " OR ",
    " OR ": " AND ",
    "IS NULL": "IS NOT NULL",
    "sum(": "max(",
}
_SQL_OPERATOR = re.compile("|".join(re.escape(word) for word in _SQL_SWAPS))
_BODIES = {"body", "orelse", "finalbody", "handlers", "cases", "decorator_list"}
# Text for people, and settings whose change no caller could see.
_SKIPPED_CALLS = {"TypeVar", "ParamSpec", "NewType", "cast", "field"}
_SKIPPED_KEYWORDS = {"strict", "stacklevel", "encoding", "err"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """One possible mutant of a file."""

    file: Path
    qualified_name: str
    """Function and class that hold the statement; empty at the top of a module."""
    statement: str
    """The statement as `ast.unparse` writes it, without the statements it holds."""
    kind: str
    index: int
    """Number of this change among those of its kind in its statement."""
    line: int
    start: int
    end: int
    """Bytes of the file that are replaced."""
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What is the same wherever the statement stands."""
        return (self.qualified_name, self.statement, self.kind, self.index, self.after)

    def mutate(self, source: bytes) -> bytes:
        """The file with this one change."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def is_python(self) -> bool:
        """Whether the changed file can be read at all."""
        try:
            compile(self.mutate(self.file.read_bytes()), str(self.file), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True


def find_sites(file: Path) -> list[Site]:
    """All places of a file, in their order."""
    found = _Finder(file, file.read_bytes()).sites
    return sorted(found, key=lambda site: (site.start, site.kind, site.after))


class _Finder:
    def __init__(self, file: Path, source: bytes) -> None:
        self.file, self.source = file, source
        self.sites: list[Site] = []
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._names: tuple[str, ...] = ()
        self._text = ""
        self._counts: dict[tuple[str, str], int] = {}
        for statement in ast.parse(source).body:
            self._visit(statement)

    def _visit(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_text(statement):
            return
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            return
        outer = self._names
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._names = (*outer, statement.name)
        self._text, self._counts = _header_text(statement), {}
        self._note_removal(statement)
        # What an error says is for people; whether it is raised is what counts.
        if not isinstance(statement, (ast.Raise, ast.ClassDef)):
            for expression in _header(statement):
                self._walk(expression)
        for inner in _inner(statement):
            self._visit(inner)
        self._names = outer

    def _walk(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr) or _is_skipped(node):
            self._note_sql(node)
            return
        if isinstance(node, ast.Constant):
            self._note_constant(node)
            return
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                self._note_between(left, operator, right, "comparison")
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                self._note_between(left, node.op, right, "boolean")
        elif isinstance(node, ast.BinOp) and not _joins_text(node):
            self._note_between(node.left, node.op, node.right, "arithmetic")
        elif isinstance(node, ast.UnaryOp):
            self._note_unary(node)
        elif isinstance(node, ast.Call):
            self._note_call(node)
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                self._note_shifted(bound, "slice")
        elif isinstance(node, ast.IfExp):
            self._note(self._start(node.test), self._end(node.test), "condition", "not ({})")
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.keyword) and child.arg in _SKIPPED_KEYWORDS):
                self._walk(child)

    def _note_removal(self, statement: ast.stmt) -> None:
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        is_change = isinstance(statement, ast.AugAssign) or (
            isinstance(statement, ast.Assign)
            and not any(isinstance(target, (ast.Name, ast.Tuple)) for target in statement.targets)
        )
        if isinstance(statement, (ast.Raise, ast.Continue, ast.Break)) or is_call or is_change:
            kind = "raise removed" if isinstance(statement, ast.Raise) else "statement removed"
            self._note(self._start(statement), self._end(statement), kind, "pass")
        if isinstance(statement, ast.AugAssign):
            self._note_between(statement.target, statement.op, statement.value, "arithmetic")

    def _note_between(self, left: ast.AST, operator: ast.AST, right: ast.AST, kind: str) -> None:
        is_type = not self._names and isinstance(operator, ast.BitOr)
        if type(operator) not in _SWAPS or is_type:
            return
        before, after = _SWAPS[type(operator)]
        start = self._end(left)
        between = self.source[start : self._start(right)].decode()
        place = re.search(re.escape(before).replace(r"\ ", r"\s+"), between)
        if place is not None:
            first = start + len(between[: place.start()].encode())
            self._note(first, first + len(place[0].encode()), kind, after)

    def _note_unary(self, node: ast.UnaryOp) -> None:
        start, end = self._start(node), self._start(node.operand)
        if isinstance(node.op, ast.Not):
            self._note(start, start + len("not"), "not removed", "")
        elif isinstance(node.op, ast.USub) and b"-" in self.source[start:end]:
            self._note(start, start + 1, "sign", "+")

    def _note_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            others = [repr(not value)]
        elif isinstance(value, int):
            others = [repr(value + 1), repr(value - 1)]
        elif isinstance(value, float) and value - value == 0:
            others = [repr(2 * value), repr(value / 2)] if value else ["1.0"]
        else:
            self._note_sql(node)
            return
        for other in others:
            self._note(self._start(node), self._end(node), "constant", other)

    def _note_call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name in _CALLS:
            start, end = self._start(node.func), self._end(node.func)
            other = _CALLS[name]
            self._note(start if not other else end - len(name), end, "function", other)
        if name in {"range", "arange"} and node.args and not node.keywords:
            self._note_shifted(node.args[min(1, len(node.args) - 1)], "range")

    def _note_shifted(self, node: ast.expr | None, kind: str) -> None:
        if node is not None and not isinstance(node, ast.Constant):
            for change in ("({}) + 1", "({}) - 1"):
                self._note(self._start(node), self._end(node), kind, change)

    def _note_sql(self, node: ast.AST) -> None:
        is_text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if not is_text:
            return
        start = self._start(node)
        text = self.source[start : self._end(node)].decode()
        if _SQL.search(text):
            for place in _SQL_OPERATOR.finditer(text):
                first = start + len(text[: place.start()].encode())
                self._note(first, first + len(place[0]), "SQL", _SQL_SWAPS[place[0]])

    def _note(self, start: int, end: int, kind: str, after: str) -> None:
        before = self.source[start:end].decode()
        after = after.format(before) if "{}" in after else after
        index = self._counts.get((kind, after), 0)
        self._counts[kind, after] = index + 1
        self.sites.append(
            Site(
                file=self.file,
                qualified_name=".".join(self._names),
                statement=self._text,
                kind=kind,
                index=index,
                line=self.source[:start].count(b"\n") + 1,
                start=start,
                end=end,
                before=before,
                after=after,
            )
        )

    def _start(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def _header(statement: ast.stmt) -> Iterator[ast.AST]:
    """What belongs to the statement itself, without annotations and decorators."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        defaults = [*statement.args.defaults, *statement.args.kw_defaults]
        yield from (default for default in defaults if default is not None)
        return
    for name, value in ast.iter_fields(statement):
        if name not in _BODIES and name not in {"annotation", "returns"}:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield part


def _inner(statement: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield from handler.body
    for case in getattr(statement, "cases", []):
        yield from case.body


def _header_text(statement: ast.stmt) -> str:
    """The text of a statement that holds others ends where they begin."""
    text = ast.unparse(statement)
    if not hasattr(statement, "body"):
        return text
    first = len(getattr(statement, "decorator_list", []))
    return text.splitlines()[first]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_skipped(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in _SKIPPED_CALLS or name.endswith(("Error", "Warning"))


def _joins_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)))
        for side in sides
    )
