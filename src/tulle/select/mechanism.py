"""What every rule for choosing an ad on a device can do.

The guarantee is local: whatever the private data of one device are replaced by, the chance of
no choice changes by more than a factor e^epsilon. Candidates, bids and server scores are public.
"""

from typing import Protocol

from tulle.mechanisms.entropy import NoiseSource
from tulle.privacy.events import Event
from tulle.select.auctions import Auctions, FloatArray, IntArray


class SelectionMechanism(Protocol):
    """A rule for choosing one ad. Its settings are public."""

    @property
    def epsilon(self) -> float:
        """Largest log-likelihood ratio of a choice; infinite without privacy, 0 without
        personalisation."""

    @property
    def name(self) -> str:
        """In a few words with its settings, for tables and cards."""

    def event(self, num_finalists: int) -> Event:
        """What one decision costs that has at least so many ads to choose from."""

    def selection_probs(self, auctions: Auctions, raw_scores: FloatArray) -> FloatArray:
        """[candidates], the exact chance of each. As sensitive as the scores.

        Privacy:
          Releases nothing: the chances are as sensitive as the scores.
        """

    def choose(self, auctions: Auctions, raw_scores: FloatArray, *, rng: NoiseSource) -> IntArray:
        """[auctions], the place of the chosen candidate in the arrays of all candidates.

        Privacy:
          Unit: the private data of one device in one decision, replace. Local: each choice is
          drawn on its own. Event: that of `event`. Relies on: the choice is all that leaves, and
          is drawn once.
        """
