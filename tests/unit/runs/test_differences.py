from typing import Any

import pytest

from tulle.runs.differences import first_difference

THEN: dict[str, Any] = {"epsilon": 3, "model": {"layers": [64, 32], "bias": True}, "phases": [{}]}


def test_equal_settings_do_not_differ() -> None:
    same = {"epsilon": 3.0, "phases": [{}], "model": {"layers": [64, 32], "bias": True}}
    assert first_difference(THEN, same) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epsilon": 1}, "epsilon=3, not 1"),
        ({"model": {"layers": [64, 16], "bias": True}}, "model.layers[1]=32, not 16"),
        ({"model": {"layers": [64], "bias": True}}, "model.layers=[64, 32], not [64]"),
        ({"model": {"layers": [64, 32], "bias": 1}}, "model.bias=True, not 1"),
        ({"model": {"layers": [64, 32]}}, "model.bias=True, not (not set)"),
        ({"seed": 1}, "seed=(not set), not 1"),
        ({"phases": [{"steps": 1}]}, "phases[0].steps=(not set), not 1"),
        ({"epsilon": "x" * 99}, f"epsilon=3, not '{'x' * 59}..."),
    ],
)
def test_the_first_difference_is_told_with_both_values(change: dict[str, Any], told: str) -> None:
    assert str(first_difference(THEN, THEN | change)) == told
