import pytest

from tulle.errors import ConfigError
from tulle.studio.answering import PANELS
from tulle.studio.panel import (
    ChoiceField,
    FieldError,
    NumberField,
    Panel,
    defaults,
    named_field,
    read_fields,
)

EPSILON = NumberField(name="epsilon", label="epsilon", default=1.0, least=0.1, most=10.0)
ROWS = NumberField(name="rows", label="rows", default=5, least=1, most=9, is_whole=True)
METHOD = ChoiceField(name="method", label="method", choices=("one", "other"))
FIELDS = (METHOD, EPSILON, ROWS)


def test_settings_are_read_each_by_its_field() -> None:
    given = read_fields(FIELDS, [("rows", "7"), ("epsilon", "2.5"), ("method", "other")])
    assert given == {"method": "other", "epsilon": 2.5, "rows": 7}
    assert isinstance(given["rows"], int)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "0", "10.5", "two", "1e999"])
def test_a_number_out_of_its_limits_is_refused_by_name(text: str) -> None:
    with pytest.raises(FieldError, match=r"epsilon=.* must be a number from 0.1 to 10") as refused:
        EPSILON.parse(text)
    assert refused.value.field_name == "epsilon"


@pytest.mark.parametrize("text", ["2.5", "1e1", "0", "10"])
def test_a_whole_number_must_be_one(text: str) -> None:
    with pytest.raises(FieldError, match="must be a whole number from 1 to 9"):
        ROWS.parse(text)


def test_an_unknown_choice_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FieldError, match="use one or other"):
        METHOD.parse("third")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("method", "one"), ("epsilon", "1")], "needs the key 'rows'"),
        ([("method", "one"), ("epsilon", "1"), ("rows", "1"), ("row", "1")], "no key 'row'"),
        ([("method", "one"), ("epsilon", "1"), ("epsilon", "2"), ("rows", "1")], "given twice"),
    ],
)
def test_every_setting_is_given_once(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_fields(FIELDS, pairs)


def test_an_error_of_the_library_is_shown_beside_the_field_it_names_first() -> None:
    assert named_field(ConfigError("rows=7 must be below epsilon=2"), FIELDS) == "rows"
    assert named_field(ConfigError("label_epsilon=7 is too much"), FIELDS) is None
    assert named_field(FieldError("method", "epsilon=2"), FIELDS) == "method"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_defaults_of_a_panel_are_within_its_limits(panel: Panel) -> None:
    texts = [(name, str(value)) for name, value in defaults(panel.fields).items()]
    assert read_fields(panel.fields, texts) == defaults(panel.fields)
