import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy.fields import read_toml, toml_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    TEXTS
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
TABLES = st.recursive(
    st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=3), max_size=3),
    lambda tables: st.dictionaries(
        TEXTS, SCALARS | tables | st.lists(tables, min_size=1, max_size=2), max_size=4
    ),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """Values with their types, since 1 == 1.0 == True."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value), value


@given(TABLES)
def test_what_is_written_is_read_back_the_same(table: dict[str, Any]) -> None:
    assert shape(tomllib.loads(toml_text(table))) == shape(table)


def test_it_reads_well() -> None:
    table = {
        "method": "hybrid",
        "model": {"layers": (64, 32), "public": {"dim": 8}},
        "delta": 1e-7,
        "phase": [{"steps": 10, "optimizer": {"rate": 0.5}}, {}],
        "resume": False,
        "two words": [],
    }
    assert toml_text(table) == (
        'method = "hybrid"\n'
        "delta = 1e-07\n"
        "resume = false\n"
        '"two words" = []\n'
        "\n[model]\nlayers = [64, 32]\n"
        "\n[model.public]\ndim = 8\n"
        "\n[[phase]]\nsteps = 10\n"
        "\n[phase.optimizer]\nrate = 0.5\n"
        "\n[[phase]]\n"
    )
    assert toml_text({}) == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"model\.clip=None .*leave the setting out"),
        (math.nan, r"model\.clip=nan must be a finite number"),
        (math.inf, r"model\.clip=inf must be a finite number"),
        (2**63, r"model\.clip is a whole number of more than 64 bits"),
        (b"x", r"model\.clip is a bytes"),
        ([1, None], r"model\.clip=None"),
        ([[1]], r"model\.clip is a list"),
        ([{}, 1], r"model\.clip is a dict"),
        ("\ud800", "unpaired surrogate"),
        ({1: 2}, r"key 1 in \[model\.clip\] must be text"),
        ({"\ud800": 2}, "unpaired surrogate"),
    ],
)
def test_what_toml_cannot_say_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        toml_text({"model": {"clip": value}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "s.toml is not TOML"),
        (f"a = {'9' * 5000}", "s.toml is not TOML"),
        (f"a = {'[' * 100_000}", "nested too deeply"),
    ],
    ids=["broken", "long number", "deep"],
)
def test_what_is_not_toml_is_refused_by_its_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_toml(tmp_path / "s.toml")


def test_a_mark_of_the_byte_order_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("a = 1", encoding="utf-8-sig")
    assert read_toml(tmp_path / "s.toml") == {"a": 1}
