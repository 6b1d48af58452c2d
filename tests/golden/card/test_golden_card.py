"""The golden card is rebuilt from fixed inputs, letter by letter.

To renew it after an intended change: write_card(tests/golden/card, make_card()).
"""

import pathlib

import pytest

from golden.card.fixed_card import make_card
from tulle.runs.card import read_card, write_card

GOLDEN = pathlib.Path(__file__).parent


@pytest.mark.parametrize("name", ["card.json", "card.md"])
def test_the_card_is_rebuilt_letter_by_letter(name: str, tmp_path: pathlib.Path) -> None:
    write_card(tmp_path, make_card())
    assert (tmp_path / name).read_text() == (GOLDEN / name).read_text()


def test_the_golden_card_can_be_read() -> None:
    assert read_card(GOLDEN / "card.json") == make_card()
