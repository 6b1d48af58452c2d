"""Tests of the one codec for settings."""

import dataclasses
import enum
import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.privacy.codec import json_schema, plain_data, settings_from
from tulle.privacy.units import Unit


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Circle:
    """A round thing."""

    kind: ClassVar[str] = "circle"

    radius: float

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise ConfigError(f"radius={self.radius} must be > 0, e.g. 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A thing with corners."""

    kind: ClassVar[str] = "box"

    sides: tuple[float, float] = (1.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing:
    """All that a drawing needs."""

    kind: ClassVar[str] = "drawing"
    kind_key: ClassVar[str] = "method"

    shape: Circle | Box
    colour: Colour = Colour.RED
    layers: tuple[int, ...] = ()
    scale: float = 1.0
    size: int | Literal["large"] = 3
    is_filled: bool = False
    note: str | None = None
    unit: Unit = dataclasses.field(default_factory=Unit.user)
    file: Path | None = None
    weights: dict[str, float] = dataclasses.field(default_factory=dict)


_DRAWING = Drawing(
    shape=Box(sides=(2, 3)),
    colour=Colour.BLUE,
    layers=(3, 4),
    scale=2,
    size="large",
    is_filled=True,
    note="mine",
    unit=Unit.user(days=7),
    file=Path("a/b.csv"),
    weights={"one": 1, "two": 0.5},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """What a drawing hangs in."""

    colour: Colour | str = Colour.RED
    """Colour of the wood,
    in daylight."""
    weights: str | dict[str, float] | None = None
    """Weights of the parts, or the file that has them."""
    width: float | None = None


def test_settings_are_written_in_the_order_of_the_class() -> None:
    assert plain_data(_DRAWING) == {
        "method": "drawing",
        "shape": {"kind": "box", "sides": [2.0, 3.0]},
        "colour": "blue",
        "layers": [3, 4],
        "scale": 2.0,
        "size": "large",
        "is_filled": True,
        "note": "mine",
        "unit": "user per 7 days",
        "file": "a/b.csv",
        "weights": {"one": 1.0, "two": 0.5},
    }
    assert list(plain_data(_DRAWING))[:3] == ["method", "shape", "colour"]


def test_settings_come_back_equal_through_json() -> None:
    data = json.loads(json.dumps(plain_data(_DRAWING)))
    assert settings_from(Drawing, data, what="the drawing") == _DRAWING


@given(
    radius=st.floats(1e-300, 1e300),
    layers=st.lists(st.integers(-(2**60), 2**60), max_size=5),
    note=st.none() | st.text(min_size=1).filter(lambda text: text.isprintable()),
    filled=st.booleans(),
)
def test_any_settings_come_back_equal(
    radius: float, layers: list[int], note: str | None, filled: bool
) -> None:
    drawing = Drawing(
        shape=Circle(radius=radius), layers=tuple(layers), note=note, is_filled=filled
    )
    data = json.loads(json.dumps(plain_data(drawing)))
    assert settings_from(Drawing, data, what="the drawing") == drawing


def test_a_setting_that_is_none_is_left_out_and_one_left_out_has_its_default() -> None:
    assert "note" not in plain_data(Drawing(shape=Circle(radius=1.0)))
    data = {"method": "drawing", "shape": {"kind": "circle", "radius": 1}}
    assert settings_from(Drawing, data, what="x") == Drawing(shape=Circle(radius=1.0))


def test_a_member_of_an_enum_is_read_as_its_word_is() -> None:
    for colour in (Colour.BLUE, "blue"):
        assert settings_from(Drawing, _BASE | {"colour": colour}, what="x").colour is Colour.BLUE


def test_equal_settings_give_equal_data() -> None:
    one, other = Circle(radius=1), Circle(radius=1.0)
    assert json.dumps(plain_data(one)) == json.dumps(plain_data(other))


def test_a_union_is_told_apart_by_its_kind() -> None:
    assert settings_from(Circle | Box, {"kind": "box"}, what="shape") == Box()
    assert settings_from(Circle | Box, {"kind": "circle", "radius": 2}, what="shape") == Circle(
        radius=2.0
    )


_BASE: dict[str, Any] = {"method": "drawing", "shape": {"kind": "circle", "radius": 1.0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "green"}, "colour='green' is unknown; use one of 'red', 'blue'."),
        ({"color": "red"}, "has no setting 'color' (did you mean 'colour'?)"),
        ({"scale": "2"}, "scale='2' must be a number."),
        ({"scale": True}, "scale=True must be a number."),
        ({"scale": float("nan")}, "scale=nan must be a finite number."),
        ({"is_filled": 1}, "is_filled=1 must be true or false."),
        ({"size": 2.5}, "size=2.5 must be a whole number or 'large'."),
        ({"size": "big"}, "size='big' must be a whole number or 'large'."),
        ({"layers": 3}, "layers=3 must be a list."),
        ({"layers": "3"}, "layers='3' must be a list; write layers=['3']."),
        ({"layers": [3, "4"]}, "layers[1]='4' must be a whole number."),
        ({"shape": {"kind": "box", "sides": [1.0]}}, "sides must have 2 items, not 1."),
        ({"shape": {"kind": "bax"}}, "[shape] kind='bax' is unknown (did you mean 'box'?)"),
        ({"shape": {"radius": 1.0}}, "[shape] needs the setting 'kind': circle or box."),
        ({"shape": {"kind": "circle"}}, "[shape] of kind 'circle' needs the setting 'radius'"),
        ({"shape": {"kind": "circle", "radius": -1.0}}, "[shape]: radius=-1.0 must be > 0"),
        ({"shape": "circle"}, "shape='circle' must be a table of settings."),
        ({"unit": 3}, "unit=3 must be text."),
        ({"method": "painting"}, "the file method='painting' is unknown"),
        ({"note": 1}, "note=1 must be text."),
    ],
)
def test_what_is_wrong_is_refused_with_the_setting_and_the_way_out(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from(Drawing, _BASE | change, what="the file")
    assert message in str(caught.value)


@pytest.mark.parametrize("data", [None, [], "text", 3, {1: 2}])
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(ConfigError, match="the file must be a table of settings"):
        settings_from(Drawing, data, what="the file")


def test_the_schema_names_every_setting_with_its_type() -> None:
    schema = json_schema(Drawing, title="drawing")
    assert schema["title"] == "drawing"
    assert schema["required"] == ["method", "shape"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert set(properties) == {"method", *(field.name for field in dataclasses.fields(Drawing))}
    assert properties["method"] == {"const": "drawing"}
    assert properties["colour"] == {"enum": ["red", "blue"], "default": "red"}
    assert properties["scale"] == {"type": "number", "default": 1.0}
    assert [one["properties"]["kind"]["const"] for one in properties["shape"]["anyOf"]] == [
        "circle",
        "box",
    ]
    assert properties["layers"] == {"type": "array", "items": {"type": "integer"}, "default": []}


def test_a_mapping_in_a_union_is_written_and_read_by_its_own_values() -> None:
    frame = Frame(weights={"left": 1, "right": 2})
    assert plain_data(frame)["weights"] == {"left": 1.0, "right": 2.0}
    assert settings_from(Frame, plain_data(frame), what="x") == frame
    assert settings_from(Frame, {"weights": "file.csv"}, what="x").weights == "file.csv"
    with pytest.raises(ConfigError, match=r"weights\.left='a' must be a number"):
        settings_from(Frame, {"weights": {"left": "a"}}, what="x")


def test_an_enum_that_python_may_spell_is_that_enum_in_a_file() -> None:
    assert settings_from(Frame, {"colour": "blue"}, what="x").colour is Colour.BLUE
    with pytest.raises(ConfigError, match=r"colour='blu' is unknown .did you mean 'blue'"):
        settings_from(Frame, {"colour": "blu"}, what="x")
    assert json_schema(Frame, title="x")["properties"]["colour"]["enum"] == ["red", "blue"]


def test_records_have_every_field_in_their_files() -> None:
    data = plain_data(Frame(), every_field=True)
    assert data == {"colour": "red", "weights": None, "width": None}
    assert settings_from(Frame, data, what="x", every_field=True) == Frame()
    del data["width"]
    assert settings_from(Frame, data, what="x") == Frame()
    with pytest.raises(ConfigError, match="x needs the setting 'width'; add it"):
        settings_from(Frame, data, what="x", every_field=True)


def test_a_schema_allows_null_where_none_is_allowed() -> None:
    properties = json_schema(Frame, title="x")["properties"]
    assert properties["width"] == {"anyOf": [{"type": "number"}, {"type": "null"}]}
    assert {"type": "null"} in properties["weights"]["anyOf"]


def test_a_schema_says_what_each_setting_means() -> None:
    schema = json_schema(Frame, title="x")
    assert schema["description"] == "What a drawing hangs in."
    assert schema["properties"]["colour"]["description"] == "Colour of the wood,\nin daylight."
    assert "description" not in schema["properties"]["width"]
    made = dataclasses.make_dataclass("Made", [("size", int)])
    assert json_schema(made, title="x")["properties"]["size"] == {"type": "integer"}
