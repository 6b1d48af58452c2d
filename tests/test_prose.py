"""How the code explains itself.

Docstrings have their heads, parameters are explained, and numeric constants say why.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "tulle"
FILES = sorted(SOURCE.rglob("*.py"))
FRAGMENT = re.compile("(Of|In|On|By|For|With|At|As|From|To|So|Without|Under|Per|Over|Among|Up)\\b")
FEW_PARAMETERS = 2
FEW_NUMBERS = 6
CONVERSIONS = {60, 3600, 86_400}


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes and functions, and texts under fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for item in body if isinstance(body, list) else ():
            said = item.value if isinstance(item, ast.Expr) else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                yield item.lineno, said.value


def fragments(text: str) -> list[str]:
    """Texts that begin with a preposition: what they speak of is left for the reader to guess."""
    return [
        f"{line}: {said[:60]}" for line, said in texts_of(ast.parse(text)) if FRAGMENT.match(said)
    ]


def unexplained(text: str) -> list[str]:
    """Public functions and methods of several parameters without a list of what they mean."""
    found = []
    for node in ast.parse(text).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in inner:
            if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
                continue
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            named = [part for part in given if part.arg not in {"self", "cls"}]
            if len(named) > FEW_PARAMETERS and "Args:" not in (ast.get_docstring(function) or ""):
                found.append(function.name)
    return found


def unreasoned(text: str) -> list[str]:
    """Numeric constants of modules and classes without a word on why they have their value.

    A text below, or a comment beside or above, is such a word. A comment above heads all lines
    that follow it without a gap. Tables of many numbers, settings objects and seconds of a minute,
    an hour or a day explain themselves.
    """
    lines, tree, found = text.split("\n"), ast.parse(text), []
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for body in bodies:
        headed_line = -1  # the line after a statement that a comment heads
        for item, following in zip(body, [*body[1:], None], strict=True):
            is_headed = lines[item.lineno - 2].strip().startswith("#") and item.lineno > 1
            is_headed = is_headed or item.lineno == headed_line
            if is_headed:
                headed_line = (item.end_lineno or item.lineno) + 1
            is_told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            is_beside = "#" in lines[(item.end_lineno or item.lineno) - 1]
            if not (is_headed or is_told or is_beside):
                found += _numeric_names(item)
    return found


def _numeric_names(item: ast.stmt) -> list[str]:
    """Names in capitals that a statement gives to a few numbers."""
    if not isinstance(item, ast.Assign | ast.AnnAssign) or item.value is None:
        return []
    targets = item.targets if isinstance(item, ast.Assign) else [item.target]
    names = [node.id for part in targets for node in ast.walk(part) if isinstance(node, ast.Name)]
    inside = list(ast.walk(item.value))
    constants = [node.value for node in inside if isinstance(node, ast.Constant)]
    numbers = [value for value in constants if type(value) in {int, float}]
    called = [node.func for node in inside if isinstance(node, ast.Call)]
    makes_settings = any(isinstance(f, ast.Name) and f.id[0].isupper() for f in called)
    is_conversion = isinstance(item.value, ast.Constant) and set(numbers) <= CONVERSIONS
    is_plain = makes_settings or is_conversion or not 0 < len(numbers) <= FEW_NUMBERS
    return [] if is_plain else [name for name in names if name.isupper()]


def test_no_docstring_begins_with_a_preposition() -> None:
    found = {str(path.relative_to(SOURCE)): fragments(path.read_text()) for path in FILES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_functions_of_several_parameters_explain_them() -> None:
    # The docstring of a command is its help, which lists the options by itself.
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] != "cli"]
    found = {str(path.relative_to(SOURCE)): unexplained(path.read_text()) for path in files}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_numeric_constants_say_why() -> None:
    found = {str(path.relative_to(SOURCE)): unreasoned(path.read_text()) for path in FILES}
    assert {name: constants for name, constants in found.items() if constants} == {}


def test_the_checks_can_fail() -> None:
    assert fragments('X = 1\n"""Of the budget."""') == ["2: Of the budget."]
    assert fragments('X = 1\n"""Share of the budget."""') == []
    three = "def f(a, b, c):\n    '''Adds.'''"
    assert unexplained(three) == ["f"]
    assert unexplained(three.replace("Adds.", "Adds.\\n\\nArgs:\\n  a: One.")) == []
    assert unexplained("def f(a, b): ...") == []
    assert unreasoned("_MOST_ROWS = 1 << 20\nclass A:\n    LEAST = 0.5") == ["_MOST_ROWS", "LEAST"]
    assert unreasoned("# Rows held.\nMOST = 9\nLEAST = 1\n\nOTHER = 2") == ["OTHER"]
    assert unreasoned('MOST = 9\n"""Rows held."""\nDAY = 86_400\nUSED = Size(rows=3)') == []
