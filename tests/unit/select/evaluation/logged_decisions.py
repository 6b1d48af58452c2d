"""A small market, decisions logged in it, and a rule that always shows one server rank."""

import dataclasses

import numpy as np

from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.privacy.events import Composed, Event
from tulle.select.auctions import Auctions, FloatArray, IntArray, server_ranks
from tulle.select.evaluation.device_terms import DecisionLog
from tulle.select.mechanisms.mechanism import SelectionMechanism


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowRank:
    """Always the ad of one server rank, or any ad alike."""

    rank: int | None
    epsilon: float = 0.5
    name: str = "one rank"

    num_slots = 1
    shortlist = None

    def event(self, num_finalists: int) -> Event:
        del num_finalists
        return Composed()

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        del raw_scores
        if self.rank is None:
            return np.repeat(1 / auctions.sizes, auctions.sizes)
        return np.asarray(server_ranks(auctions) == self.rank, np.float64)

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        raise NotImplementedError


def same_auctions(num_auctions: int, server_click_probs: FloatArray) -> Auctions:
    """Auctions of the same ads with bids of 1."""
    size = len(server_click_probs)
    return Auctions(
        offsets=size * np.arange(num_auctions + 1),
        ads=np.tile(np.arange(size), num_auctions),
        bids=np.ones(size * num_auctions),
        server_click_probs=np.tile(server_click_probs, num_auctions),
    )


def private_clicks(
    auctions: Auctions, private_stddev: float, rng: np.random.Generator
) -> FloatArray:
    """True probabilities of a click: the server's logit and a private normal number."""
    public = np.log(auctions.server_click_probs / (1 - auctions.server_click_probs))
    logits = public + private_stddev * rng.standard_normal(auctions.num_candidates)
    return np.asarray(1 / (1 + np.exp(-logits)))


def logged(
    auctions: Auctions,
    click_probs: FloatArray,
    logging: SelectionMechanism,
    *,
    seed: int,
    users: IntArray | None = None,
) -> DecisionLog:
    """What devices remember that decide by true probabilities; a user for each auction if not
    said."""
    raw_scores = auctions.bids * click_probs
    choices = logging.choose(auctions, raw_scores, rng=SeededNoise(seed))
    # Another stream than that of the choices.
    draws = np.random.default_rng([seed, 1]).random(len(auctions))
    return DecisionLog(
        users=np.arange(len(auctions)) if users is None else users,
        choices=choices,
        raw_clicks=draws < click_probs[choices],
        raw_scores=raw_scores,
    )
