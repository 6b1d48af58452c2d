"""The gates of the tests: what `make check` chooses, and why a test is left to `make test-all`."""

import ast
from pathlib import Path

from changed import chosen_tests

TESTS = Path(__file__).parent


def long_marks(text: str) -> list[str | None]:
    """The reason of each mark that leaves a test to `make test-all`; None where there is none."""
    if "mark.long" not in text:
        return []
    nodes = list(ast.walk(ast.parse(text)))
    marks = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr == "long"
        and ast.unparse(node) == "pytest.mark.long"
    ]
    reasons = {
        id(call.func): call.args[0].value
        for call in nodes
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
    }
    return [reasons.get(id(mark)) for mark in marks]


def test_every_long_test_says_why() -> None:
    found = {path.name: long_marks(path.read_text()) for path in TESTS.rglob("*.py")}
    reasons = [reason for marks in found.values() for reason in marks]
    assert len(reasons) > 10
    for name, marks in found.items():
        assert all(isinstance(reason, str) and len(reason) > 20 for reason in marks), name


def test_a_mark_without_a_reason_is_noticed() -> None:
    assert long_marks("@pytest.mark.long\ndef test(): ...") == [None]
    assert long_marks("@pytest.mark.long('so long')\ndef test(): ...") == ["so long"]


def test_tests_that_import_a_changed_module_are_chosen(tmp_path: Path) -> None:
    unit = tmp_path / "tests" / "unit"
    unit.mkdir(parents=True)
    (unit / "test_ledger.py").write_text("from tulle.accounting.ledger import Ledger\n")
    (unit / "test_ledger_file.py").write_text("from tulle.accounting.ledger_file import open_it\n")
    (unit / "test_door.py").write_text("from tulle.train import (\n    fit,\n)\n")
    ledger = chosen_tests(["src/tulle/accounting/ledger.py", "README.md"], tmp_path)
    assert ledger == ["tests/unit/test_ledger.py"]
    door = chosen_tests(["src/tulle/train/__init__.py", "tests/golden/test_x.py"], tmp_path)
    assert door == ["tests/golden/test_x.py", "tests/unit/test_door.py"]
    assert chosen_tests(["docs/index.md"], tmp_path) == []
