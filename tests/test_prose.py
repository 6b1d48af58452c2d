"""How the code explains itself: docstrings have their heads, and parameters are explained."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "tulle"
FILES = sorted(SOURCE.rglob("*.py"))
FRAGMENT = re.compile("(Of|In|On|By|For|With|At|As|From|To|So|Without|Under|Per|Over|Among|Up)\\b")
FEW_PARAMETERS = 2


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


def test_no_docstring_begins_with_a_preposition() -> None:
    found = {str(path.relative_to(SOURCE)): fragments(path.read_text()) for path in FILES}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_functions_of_several_parameters_explain_them() -> None:
    # The docstring of a command is its help, which lists the options by itself.
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] != "cli"]
    found = {str(path.relative_to(SOURCE)): unexplained(path.read_text()) for path in files}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_the_checks_can_fail() -> None:
    assert fragments('X = 1\n"""Of the budget."""') == ["2: Of the budget."]
    assert fragments('X = 1\n"""Share of the budget."""') == []
    three = "def f(a, b, c):\n    '''Adds.'''"
    assert unexplained(three) == ["f"]
    assert unexplained(three.replace("Adds.", "Adds.\\n\\nArgs:\\n  a: One.")) == []
    assert unexplained("def f(a, b): ...") == []
