import itertools

import pytest

from tulle.errors import ConfigError
from tulle.measure.reports.aggregation_keys import (
    Contribution,
    KeyLayout,
    TriggerPiece,
    contributions_of,
    read_piece,
)


def test_the_published_example_gives_its_keys_and_values() -> None:
    # The worked example of the API's explainer of aggregate reports.
    source = {"campaignCounts": read_piece("0x159"), "geoValue": read_piece("0x5")}
    trigger = [
        TriggerPiece(piece=read_piece("0x400"), source_keys=("campaignCounts",)),
        TriggerPiece(piece=read_piece("0xA80"), source_keys=("geoValue", "someOtherName")),
    ]
    values = {"campaignCounts": 32768, "geoValue": 1664}
    assert contributions_of(source, trigger, values) == (
        Contribution(key=0x559, value=32768),
        Contribution(key=0xA85, value=1664),
    )


def test_names_without_a_value_and_values_without_a_name_contribute_nothing() -> None:
    assert contributions_of({"a": 1, "b": 2}, [], {"b": 7, "c": 9}) == (
        Contribution(key=2, value=7),
    )


def test_all_pieces_of_a_name_are_united() -> None:
    pieces = [TriggerPiece(piece=bit, source_keys=("a",)) for bit in (0b0110, 0b1100)]
    (made,) = contributions_of({"a": 0b0001}, pieces, {"a": 1})
    assert made.key == 0b1111


@pytest.mark.parametrize("text", ["159", "0x", "0x" + "f" * 33, "0xg", "0x-1", "0x_1", "0x 1"])
def test_a_piece_that_is_not_hexadecimal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="32 hexadecimal digits"):
        read_piece(text)


def test_a_piece_of_all_bits_is_read() -> None:
    assert read_piece("0x" + "f" * 32) == 2**128 - 1
    with pytest.raises(ConfigError, match="128 bits"):
        TriggerPiece(piece=2**128, source_keys=())


@pytest.mark.parametrize("value", [0, 65537, -1])
def test_a_value_outside_the_budget_is_refused(value: int) -> None:
    with pytest.raises(ConfigError, match="value of 'a'"):
        contributions_of({"a": 1}, [], {"a": value})


def test_the_twenty_first_contribution_is_refused() -> None:
    names = [f"k{place}" for place in range(21)]
    values = dict.fromkeys(names, 1)
    assert len(contributions_of(dict.fromkeys(names[:20], 1), [], values)) == 20
    with pytest.raises(ConfigError, match="21 contributions"):
        contributions_of(dict.fromkeys(names, 1), [], values)


def test_every_combination_of_fields_has_its_own_key_whichever_side_sets_it() -> None:
    sizes = {"goal": 3, "campaign": 5, "geo": 1, "type": 4}
    layout = KeyLayout(field_sizes=sizes)
    keys = set()
    for goal, campaign, kind in itertools.product(range(3), range(5), range(4)):
        source = layout.piece({"campaign": campaign, "geo": 0})
        trigger = layout.piece({"goal": goal, "type": kind})
        assert source & trigger == 0
        keys.add(source | trigger)
    assert len(keys) == 3 * 5 * 4
    assert max(keys) < 2**layout.num_bits


def test_fields_beyond_128_bits_are_refused() -> None:
    assert KeyLayout(field_sizes={"a": 2**100, "b": 2**28}).num_bits == 128
    with pytest.raises(ConfigError, match="129 bits"):
        KeyLayout(field_sizes={"a": 2**100, "b": 2**28 + 1})


def test_a_code_that_its_field_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 3 values"):
        KeyLayout(field_sizes={"a": 3}).piece({"a": 3})
