"""A mechanism from any public floors, by greedy fill.

For example the least chances of a noisy-max rule with clipped scores: the fill at these floors
has the same epsilon and a larger expected score for every device.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.mechanisms.thresholds import WORD_VALUES
from tulle.privacy.events import Composed, EpsilonDelta, Event
from tulle.privacy.fields import check_count
from tulle.select.auctions import Auctions, FloatArray, IntArray, SizeGroup
from tulle.select.floors.filled_rows import fill_rows
from tulle.select.floors.finalists import finalist_groups
from tulle.select.floors.greedy_fill import check_epsilon, floor_words
from tulle.select.raw_scores import check_raw_scores
from tulle.select.word_draw import draw_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class FloorVectorMechanism:
    """Settings of a choice above given floors. Every field is public information."""

    epsilon: float
    """Largest log-likelihood ratio of a choice between any two states of a device."""
    floor_probs: Callable[[Auctions], FloatArray]
    """[candidates], the least chance of each, from public data alone; in each auction they add up
    to at most 1 and at least e^-epsilon. A floor of 0 means never chosen."""
    floors_name: str
    """Where the floors come from, in a few words."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def name(self) -> str:
        """In a few words with its settings."""
        return f"greedy fill, {self.floors_name}, epsilon {self.epsilon:g}"

    def event(self, num_finalists: int) -> Event:
        """What one decision costs: exactly one finalist nothing, at least so many from 2 on."""
        check_count("num_finalists", num_finalists)
        return Composed() if num_finalists == 1 else EpsilonDelta(epsilon=self.epsilon)

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the chance of each in the sampler.

        Privacy:
          Not noised: as sensitive as the scores. Never release it, nor one entry of it.
        """
        probs = np.empty(auctions.num_candidates)
        for group, words in self._filled(auctions, raw_scores):
            probs[group.places] = words / WORD_VALUES
        return probs

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate. One word decides each auction.

        Args:
          auctions: The public side.
          raw_scores: [candidates], what each is worth by private data.
          rng: Source of the words. Sensitive: never log or save its state.

        Privacy:
          Unit: one decision of one device, replace. Local: each auction is drawn on its own.
          Event: EpsilonDelta(epsilon). Relies on: candidates and floors that follow from public
          data; every candidate scored; one draw a decision.
        """
        chosen = np.empty(len(auctions), np.int64)
        drawn = rng.words(len(auctions))
        for group, words in self._filled(auctions, raw_scores):
            columns = draw_rows(words, drawn[group.auctions])
            chosen[group.auctions] = group.places[np.arange(len(columns)), columns]
        return chosen

    def _filled(
        self, auctions: Auctions, raw_scores: FloatArray
    ) -> Iterator[tuple[SizeGroup, Words]]:
        """Auctions of one size, candidates in server order, with their words."""
        scores = check_raw_scores(auctions, raw_scores)
        floors = np.asarray(self.floor_probs(auctions), np.float64)
        if floors.shape != scores.shape:
            raise ConfigError(
                f"floor_probs has shape {floors.shape}, the auctions have "
                f"{auctions.num_candidates} candidates; give one floor for each."
            )
        for group in finalist_groups(auctions, auctions.sizes):
            words = floor_words(floors[group.places], self.epsilon)
            yield group, fill_rows(words, scores[group.places], epsilon=self.epsilon)
