"""The algorithm end to end: who sees what, exact counts and bills, prices without private data."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tulle
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise
from tulle.select.auctions import Auctions, DeviceClicks, above_reserve
from tulle.select.billing.bill import Choices, bill_counts, bill_impressions
from tulle.select.billing.prices import (
    AdPrices,
    PricingRule,
    post_prices,
    price_candidates,
    to_micros,
)
from tulle.select.mechanisms.floors import FloorMechanism
from tulle.select.mechanisms.mechanism import favourites
from tulle.select.mechanisms.shortlists import Cutoff, TopCandidates
from tulle.select.serving import Devices, Offer, OpenRequests, Server
from unit.select.billing.small_auctions import (
    auctions_of,
    counts_of,
    random_auctions,
    random_clicks,
    rows_of,
)

SECOND, PER_CLICK = PricingRule.SECOND_PRICE, PricingRule.SECOND_PRICE_PER_CLICK
RESPONSE = FloorMechanism(epsilon=2.0)


@dataclasses.dataclass
class LookUp:
    """Private predictions by request and ad; remembers which requests were asked for."""

    auctions: Auctions
    device: DeviceClicks
    asked: list[int] = dataclasses.field(default_factory=list)

    def click_probs(self, offer: Offer) -> DeviceClicks:
        self.asked += offer.requests.tolist()
        numbers = np.repeat(offer.requests, offer.finalists.sizes)
        places = [
            next(p for p in rows_of(self.auctions)[number] if self.auctions.ads[p] == ad)
            for number, ad in zip(numbers, offer.finalists.ads, strict=True)
        ]
        return DeviceClicks(click_probs=self.device.click_probs[places])


def serve(
    server: Server, auctions: Auctions, device: DeviceClicks, *, seed: int
) -> tuple[OpenRequests, Choices]:
    opened = server.open_requests(auctions)
    devices = Devices(mechanism=RESPONSE, click_model=LookUp(auctions, device))
    consents = np.ones(len(opened.offer.requests), np.bool_)
    choices = devices.choose(opened.offer, has_consent=consents, rng=SeededNoise(seed))
    return opened, choices


def test_counts_and_amounts_are_exactly_those_of_the_choices() -> None:
    auctions = random_auctions(300, seed=1)
    server = Server(rule=SECOND, reserve=0.1, shortlist=Cutoff(gamma=0.7))
    opened, choices = serve(server, auctions, random_clicks(auctions, seed=2), seed=3)
    bill = server.bill(opened, choices)

    assert {line.ad: line.impressions for line in bill.lines} == Counter(choices.ads.tolist())
    amounts: Counter[int] = Counter()
    for number, ad in zip(choices.auctions.tolist(), choices.ads.tolist(), strict=True):
        places = rows_of(auctions)[number]
        scores = sorted((float(auctions.server_scores[p]), -int(p)) for p in places)
        own = next(
            (float(auctions.server_scores[p]), -int(p)) for p in places if auctions.ads[p] == ad
        )
        below = [score for score in scores if score < own and score[0] >= 0.1]
        price = below[-1][0] if below else 0.1
        amounts[ad] += int(to_micros(np.array([price]))[0])
    assert {line.ad: line.amount_micros for line in bill.lines} == amounts
    # Not all the server's winners, or this would test nothing.
    winners = [
        max(rows_of(auctions)[n], key=lambda p: auctions.server_scores[p]) for n in range(300)
    ]
    assert np.mean(auctions.ads[winners][choices.auctions] != choices.ads) > 0.1


def test_a_request_without_an_eligible_ad_gets_no_offer() -> None:
    auctions = auctions_of([(1, 1.0, 0.1)], [(1, 1.0, 0.9)], [(2, 1.0, 0.1)])
    server = Server(rule=SECOND, reserve=0.5)
    opened, choices = serve(server, auctions, random_clicks(auctions, seed=1), seed=1)
    assert opened.offer.requests.tolist() == choices.auctions.tolist() == [1]
    assert server.bill(opened, choices).total == "0.500000"
    nothing, no_choices = serve(
        Server(rule=SECOND, reserve=5.0, shortlist=Cutoff(gamma=0.5)),
        auctions,
        random_clicks(auctions, seed=1),
        seed=1,
    )
    assert len(no_choices) == 0
    assert server.bill(nothing, no_choices).lines == ()


def test_an_offer_has_finalists_and_public_data_alone() -> None:
    assert {field.name for field in dataclasses.fields(Offer)} == {"requests", "finalists"}
    assert {field.name for field in dataclasses.fields(Auctions)} == {
        "offsets",
        "ads",
        "bids",
        "server_click_probs",
    }
    assert {field.name for field in dataclasses.fields(Choices)} == {"auctions", "ads"}


def test_the_finalists_are_those_of_the_shortlist() -> None:
    auctions = random_auctions(100, seed=4)
    opened = Server(
        rule=SECOND, reserve=0.1, shortlist=TopCandidates(num_finalists=2)
    ).open_requests(auctions)
    for row, number in zip(rows_of(opened.offer.finalists), opened.offer.requests, strict=True):
        eligible = [p for p in rows_of(auctions)[number] if auctions.server_scores[p] >= 0.1]
        best = sorted(eligible, key=lambda p: -auctions.server_scores[p])[:2]
        assert opened.offer.finalists.ads[row].tolist() == auctions.ads[sorted(best)].tolist()


@pytest.mark.parametrize("shortlist", [Cutoff(gamma=0.4), TopCandidates(num_finalists=3)])
def test_a_short_offer_has_the_law_of_a_mechanism_with_that_shortlist(
    shortlist: Cutoff | TopCandidates,
) -> None:
    auctions = random_auctions(100, seed=4)
    device = random_clicks(auctions, seed=5)
    offer = Server(rule=SECOND, reserve=0.0, shortlist=shortlist).open_requests(auctions).offer
    short = LookUp(auctions, device).click_probs(offer).scores(offer.finalists)
    offered = RESPONSE.selection_probs(offer.finalists, short)
    whole = dataclasses.replace(RESPONSE, shortlist=shortlist).selection_probs(
        auctions, device.scores(auctions)
    )
    # Finalists keep the order of the candidates, and only they can be chosen.
    assert np.array_equal(whole[whole > 0], offered)


def test_without_consent_the_servers_winner_is_shown_and_nothing_private_is_read() -> None:
    auctions = random_auctions(60, seed=5, sizes=(2, 6))
    opened = Server(rule=SECOND, reserve=0.0).open_requests(auctions)
    model = LookUp(auctions, random_clicks(auctions, seed=6))
    consents = np.arange(60) % 3 == 0
    choices = Devices(mechanism=RESPONSE, click_model=model).choose(
        opened.offer, has_consent=consents, rng=SeededNoise(1)
    )
    assert model.asked == np.flatnonzero(consents).tolist()
    winners = np.array(
        [max(row, key=lambda p: auctions.server_scores[p]) for row in rows_of(auctions)]
    )
    is_winner = choices.ads == auctions.ads[winners]
    assert np.all(is_winner[~consents])
    assert not np.all(is_winner[consents])
    nobody = LookUp(auctions, random_clicks(auctions, seed=6))
    Devices(mechanism=RESPONSE, click_model=nobody).choose(
        opened.offer, has_consent=np.zeros(60, np.bool_), rng=SeededNoise(1)
    )
    assert nobody.asked == []


def test_a_device_chooses_by_its_mechanism_on_its_own_scores() -> None:
    auctions = random_auctions(200, seed=7, sizes=(2, 6))
    device = random_clicks(auctions, seed=8)
    _, choices = serve(Server(rule=SECOND, reserve=0.0), auctions, device, seed=9)
    places = RESPONSE.choose(auctions, device.scores(auctions), rng=SeededNoise(9))
    assert np.array_equal(choices.ads, auctions.ads[places])


Pricing = Callable[[Server, Auctions, DeviceClicks], AdPrices]


def prices_served(server: Server, auctions: Auctions, device: DeviceClicks) -> AdPrices:
    opened, _ = serve(server, auctions, device, seed=1)
    return opened.prices


def prices_with_private_scores(
    server: Server, auctions: Auctions, device: DeviceClicks
) -> AdPrices:
    """A planted fault: the click price is made from the device's prediction."""
    eligible = above_reserve(auctions, server.reserve)
    priced = dataclasses.replace(
        eligible.auctions, server_click_probs=device.click_probs[eligible.kept_candidates]
    )
    return price_candidates(priced, server.rule, reserve=0.0)


def assert_prices_ignore_devices(pricing: Pricing, rule: PricingRule, seed: int) -> None:
    auctions = random_auctions(15, seed=seed)
    server = Server(rule=rule, reserve=0.2, shortlist=Cutoff(gamma=0.8))
    one, other = (
        pricing(server, auctions, random_clicks(auctions, seed=s)) for s in (seed, seed + 1)
    )
    assert np.array_equal(one.amounts, other.amounts)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rule=st.sampled_from(PricingRule))
def test_prices_are_the_same_whatever_devices_hold(seed: int, rule: PricingRule) -> None:
    assert_prices_ignore_devices(prices_served, rule, seed)


def test_a_private_score_in_a_price_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_prices_ignore_devices(prices_with_private_scores, SECOND, 3)


def prices_after_the_cutoff(server: Server, auctions: Auctions, _: DeviceClicks) -> AdPrices:
    """A planted fault: candidates are cut before they are priced."""
    opened = server.open_requests(auctions)
    return price_candidates(opened.offer.finalists, server.rule, reserve=server.reserve)


def assert_the_last_finalist_pays_the_first_excluded_score(pricing: Pricing) -> None:
    auctions = auctions_of([(1, 2.0, 0.5), (2, 1.6, 0.5), (3, 0.8, 0.5), (4, 0.6, 0.5)])
    server = Server(rule=SECOND, reserve=0.1, shortlist=Cutoff(gamma=0.3))
    prices = pricing(server, auctions, random_clicks(auctions, seed=1))
    assert prices.amounts.tolist() == [0.8, 0.4]


def test_the_last_finalist_pays_the_first_excluded_score_and_not_the_reserve() -> None:
    assert_the_last_finalist_pays_the_first_excluded_score(prices_served)


def test_a_cutoff_before_pricing_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_the_last_finalist_pays_the_first_excluded_score(prices_after_the_cutoff)


def test_clicks_are_billed_where_clicks_are_paid() -> None:
    auctions = random_auctions(100, seed=10)
    server = Server(rule=PER_CLICK, reserve=0.1)
    opened, choices = serve(server, auctions, random_clicks(auctions, seed=11), seed=12)
    is_clicked = np.random.default_rng(1).random(len(choices)) < 0.4
    bill = server.bill(opened, choices, raw_is_clicked=is_clicked)
    assert sum(line.clicks or 0 for line in bill.lines) == is_clicked.sum()
    with pytest.raises(ConfigError, match="charges for clicks"):
        server.bill(opened, choices)
    shown = Server(rule=SECOND, reserve=0.1)
    with pytest.raises(ConfigError, match="not needed"):
        shown.bill(shown.open_requests(auctions), choices, raw_is_clicked=is_clicked)


def test_counts_of_cells_at_posted_prices_need_no_single_choice() -> None:
    rows = [[(ad, 1 + 0.1 * ((ad * number) % 7), 0.5) for ad in range(4)] for number in range(80)]
    rows[5] = [(0, 0.1, 0.1)]
    auctions = auctions_of(*rows)
    server = Server(rule=SECOND, reserve=0.3)
    opened, choices = serve(server, auctions, random_clicks(auctions, seed=1), seed=2)
    cells = np.zeros(79, np.int64)
    posted = post_prices(opened.offer.finalists, opened.prices, cells)
    answers = opened.offer.answers(choices)
    by_choice = bill_impressions(
        opened.offer.finalists, posted.prices(opened.offer.finalists, cells), answers
    )
    assert bill_counts(posted, **counts_of(answers, cells)) == by_choice


def test_answers_to_no_offer_are_refused() -> None:
    auctions = auctions_of([(1, 1.0, 0.1)], [(1, 1.0, 0.9), (2, 1.0, 0.6), (3, 1.0, 0.2)])
    server = Server(rule=SECOND, reserve=0.15, shortlist=TopCandidates(num_finalists=2))
    opened = server.open_requests(auctions)
    for request in (0, 2, -1):
        with pytest.raises(DataError, match="got no offer"):
            server.bill(opened, Choices(auctions=np.array([request]), ads=np.array([1])))
    # Eligible, but no finalist.
    with pytest.raises(DataError, match="no candidate"):
        server.bill(opened, Choices(auctions=np.array([1]), ads=np.array([3])))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="reserve="):
        Server(rule=SECOND, reserve=-1.0)
    auctions = random_auctions(5, seed=1)
    devices = Devices(
        mechanism=RESPONSE, click_model=LookUp(auctions, random_clicks(auctions, seed=1))
    )
    offer = Server(rule=SECOND, reserve=0.0).open_requests(auctions).offer
    with pytest.raises(ConfigError, match="has_consent"):
        devices.choose(offer, has_consent=np.ones(4, np.bool_), rng=SeededNoise(1))


def test_a_served_selection_has_the_law_of_its_mechanism() -> None:
    auctions = random_auctions(40, seed=1)
    device = random_clicks(auctions, seed=2)
    selection = tulle.select.selection(epsilon=2.0, gamma=0.6, least_finalists=3)
    opened = Server.of(selection).open_requests(auctions)
    devices = Devices.of(selection, LookUp(auctions, device))
    whole = FloorMechanism(epsilon=2.0, shortlist=Cutoff(gamma=0.6))
    offered = opened.offer.finalists
    places = [
        next(p for p in rows_of(auctions)[number] if auctions.ads[p] == ad)
        for number, ad in zip(
            np.repeat(opened.offer.requests, offered.sizes), offered.ads, strict=True
        )
    ]
    raw = device.scores(auctions)
    expected = whole.selection_probs(auctions, raw)[places]
    assert devices.mechanism.selection_probs(offered, raw[places]) == pytest.approx(expected)
    # With fewer finalists than stated a choice would cost more, so the server's winner is shown.
    consents = np.ones(len(opened.offer.requests), np.bool_)
    choices = devices.choose(opened.offer, has_consent=consents)
    few = offered.sizes < 3
    assert 0 < few.sum() < len(few)
    assert (choices.ads[few] == offered.ads[favourites(offered, offered.server_scores)][few]).all()
    assert sorted(devices.click_model.asked) == np.flatnonzero(~few).tolist()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings_of_selection", "problem"),
    [
        ({"unit": "user", "max_decisions_per_user": 3}, "each device must count"),
        ({"pricing": "posted"}, "means over a batch"),
        ({"num_slots": 2}, "serve one slot"),
    ],
)
def test_what_single_devices_cannot_carry_out_is_not_served(
    settings_of_selection: dict[str, Any], problem: str
) -> None:
    selection = tulle.select.selection(epsilon=2.0, **settings_of_selection)
    with pytest.raises(ConfigError, match=problem):
        Server.of(selection)
