"""No outcome of a test depends on how busy the machine is."""

import ast
import pathlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

FILES = sorted(pathlib.Path(__file__).parent.rglob("*.py"))
PATIENT_CHECKS = ("too_slow", "list(HealthCheck)")


def impatient_calls(text: str) -> list[str]:
    """Calls in a test file that end by the clock on a busy machine."""
    return [ast.unparse(call) for call in calls_of(text) if _is_impatient(call)]


def calls_of(text: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield node


def _is_impatient(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if name == "settings":
        shown = ast.unparse(given.get("suppress_health_check", ast.Constant("too_slow")))
        return "deadline" in given or not any(word in shown for word in PATIENT_CHECKS)
    limits = [given.get("timeout")]
    if name in {"wait", "join", "acquire"} and isinstance(call.func, ast.Attribute):
        limits += call.args
    return any(isinstance(limit, ast.Constant) and _is_number(limit.value) for limit in limits)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_property_tests_have_no_deadline() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    assert settings(max_examples=3).deadline is None


def test_every_wait_is_for_a_condition_or_a_hang() -> None:
    found = {path.name: impatient_calls(path.read_text()) for path in FILES}
    assert {name: calls for name, calls in found.items() if calls} == {}, (
        "write timeout=HANG_S, wait_until(...), or leave the settings to the profile"
    )


@pytest.mark.parametrize(
    "text",
    [
        "@settings(deadline=500)\ndef test(): pass",
        "@hypothesis.settings(deadline=None)\ndef test(): pass",
        "settings(suppress_health_check=[HealthCheck.function_scoped_fixture])",
        "subprocess.run(command, timeout=60)",
        "process.communicate(timeout=60.0)",
        "thread.join(30)",
        "event.wait(1)",
    ],
)
def test_a_short_limit_is_caught(text: str) -> None:
    assert impatient_calls(text)


@pytest.mark.parametrize(
    "text",
    [
        "settings(max_examples=9)",
        "settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])",
        "process.communicate(timeout=HANG_S)",
        "', '.join(names)",
        "event.wait()",
    ],
)
def test_a_patient_call_is_not(text: str) -> None:
    assert impatient_calls(text) == []
