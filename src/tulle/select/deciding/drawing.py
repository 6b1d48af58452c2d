"""One draw for each auction of a block."""

import numpy as np

from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.select.auctions import BoolArray, IntArray
from tulle.select.billing.reserve import Eligible, keep_candidates
from tulle.select.deciding.auction_blocks import AuctionBlock
from tulle.select.deciding.requests import shortlist_sizes
from tulle.select.mechanism_table import DecidingMechanism
from tulle.select.server_ranks import server_ranks
from tulle.select.slots import SlotMechanism


def draw_places(
    block: AuctionBlock,
    mechanism: DecidingMechanism,
    is_personalised: BoolArray,
    *,
    rng: NoiseSource,
) -> IntArray:
    """[auctions, slots], the place of each chosen candidate; -1 where a slot stays empty.

    Args:
      block: Auctions with predictions of devices.
      mechanism: How ads are drawn.
      is_personalised: [auctions]; the others show what the server ranks first.
      rng: Source of the draws. Sensitive: never log or save its state.

    Privacy:
      Unit: one decision, replace. Event: that of the mechanism for each personalised decision.
      Relies on: `is_personalised` follows from public data; one draw a decision.
    """
    num_slots = mechanism.num_slots if isinstance(mechanism, SlotMechanism) else 1
    chosen = _server_winners(block, mechanism, num_slots)
    if not is_personalised.any():
        return chosen
    asked = _asked(block, is_personalised)
    raw_scores = block.raw_scores()[asked.kept_candidates]
    places = mechanism.choose(asked.auctions, raw_scores, rng=rng).reshape(-1, num_slots)
    is_shown = places >= 0
    drawn = np.where(is_shown, asked.kept_candidates[np.where(is_shown, places, 0)], -1)
    chosen[asked.kept_auctions] = drawn
    return chosen


def rehearse(block: AuctionBlock, mechanism: DecidingMechanism, is_personalised: BoolArray) -> None:
    """Draws by server scores, and forgets it: what a mechanism refuses shows before it is paid.

    Raises:
      ConfigError: The mechanism can not draw in auctions of this kind.
    """
    if is_personalised.any():
        asked = _asked(block, is_personalised).auctions
        mechanism.choose(asked, asked.server_scores, rng=SeededNoise(0))


def _asked(block: AuctionBlock, is_personalised: BoolArray) -> Eligible:
    return keep_candidates(block.auctions, np.repeat(is_personalised, block.auctions.sizes))


def _server_winners(block: AuctionBlock, mechanism: DecidingMechanism, num_slots: int) -> IntArray:
    """The best finalists by server score: nobody else has a place, nor a posted price."""
    auctions = block.auctions
    chosen = np.full((len(auctions), num_slots), -1, np.int64)
    ranks = server_ranks(auctions)
    num_shown = np.minimum(shortlist_sizes(mechanism, auctions), num_slots)
    places = np.flatnonzero(ranks < np.repeat(num_shown, auctions.sizes))
    owners = np.searchsorted(auctions.offsets, places, side="right") - 1
    chosen[owners, ranks[places]] = places
    return chosen
