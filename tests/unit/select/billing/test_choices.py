"""A choice is one candidate of one auction, or it is refused."""

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.select.billing.choices import Choices
from unit.select.billing.small_auctions import auctions_of, random_auctions, rows_of

TWO = auctions_of([(1, 2.0, 0.5), (2, 3.0, 0.5)], [(2, 1.0, 0.5), (987654, 1.0, 0.5)])


def choices_of(*pairs: tuple[int, int]) -> Choices:
    return Choices(
        auctions=np.array([auction for auction, _ in pairs], np.int64),
        ads=np.array([ad for _, ad in pairs], np.int64),
    )


def test_every_choice_is_found_in_its_own_auction() -> None:
    auctions = random_auctions(200, seed=3)
    rng = np.random.default_rng(4)
    places = np.array([rng.choice(row) for row in rows_of(auctions)])
    numbers = rng.permutation(200)[:150]
    choices = Choices(auctions=numbers, ads=auctions.ads[places[numbers]])
    assert np.array_equal(choices.places(auctions), places[numbers])


def test_no_choices_have_no_places() -> None:
    assert choices_of().places(TWO).shape == (0,)


def test_an_auction_is_not_billed_twice() -> None:
    with pytest.raises(DataError, match="twice"):
        choices_of((0, 1), (0, 2))


def test_an_ad_of_another_auction_is_refused_without_naming_it() -> None:
    with pytest.raises(DataError, match="no candidate of its auction") as refusal:
        choices_of((0, 987654)).places(TWO)
    assert "987654" not in str(refusal.value)


@pytest.mark.parametrize("auction", [-1, 2, 10**9])
def test_an_unknown_auction_is_refused(auction: int) -> None:
    with pytest.raises(DataError, match="not there"):
        choices_of((auction, 2)).places(TWO)


def test_an_ad_that_is_twice_in_its_auction_is_refused() -> None:
    with pytest.raises(DataError, match="or one twice"):
        choices_of((0, 1)).places(auctions_of([(1, 2.0, 0.5), (1, 3.0, 0.5)]))


def test_choices_of_unequal_length_are_refused() -> None:
    with pytest.raises(DataError, match="one auction and one ad"):
        Choices(auctions=np.array([0, 1]), ads=np.array([1]))
