"""The exact law of a choice among ads, for many devices at once."""

import itertools
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

import numpy as np

from statistical.randomizer_checks import WORD_VALUES, ScriptedNoise
from tulle.select.auctions import Auctions

Choose = Callable[..., np.ndarray]
Law = dict[Hashable, Fraction]

_NUM_CELLS = 64


def same_auctions(server_scores: Sequence[float], num_auctions: int) -> Auctions:
    """One auction many times, with bids of 1."""
    size = len(server_scores)
    return Auctions(
        offsets=np.arange(num_auctions + 1) * size,
        ads=np.tile(np.arange(size), num_auctions),
        bids=np.ones(num_auctions * size),
        server_click_probs=np.tile(np.asarray(server_scores, float), num_auctions),
    )


def all_scores(num_levels: int, size: int) -> list[tuple[float, ...]]:
    """Every vector of private scores with so many levels, ties included."""
    return list(itertools.product(map(float, range(num_levels)), repeat=size))


def exact_laws(
    choose: Choose, server_scores: Sequence[float], devices: Sequence[Sequence[float]]
) -> list[Law]:
    """The exact probability of each choice for each device, of a sampler that looks at one word.

    The sampler is a black box. Ends of the intervals of words that lead to one choice are
    found by bisection, in 64 cells of words: an interval that starts and ends within a cell,
    with the same choice on both sides of it there, would be missed.

    Args:
      choose: Takes auctions, private scores and a noise source, one word an auction.
      server_scores: Of the one auction that every device has.
      devices: Private scores, one list a device.

    Returns:
      For each device the probability of each place, or tuple of places, within the auction.
    """
    scores = np.asarray(devices, float)

    def outcomes(rows: list[int], words: list[int]) -> list[Hashable]:
        auctions = same_auctions(server_scores, len(rows))
        chosen = choose(auctions, scores[rows].ravel(), rng=ScriptedNoise(list(words)))
        starts = auctions.offsets[:-1].reshape(-1, *[1] * (chosen.ndim - 1))
        places = (chosen - starts).tolist()
        return [tuple(place) if isinstance(place, list) else place for place in places]

    counts: list[dict[Hashable, int]] = [{} for _ in devices]
    width = WORD_VALUES // _NUM_CELLS
    spans = [
        (row, first, first + width - 1)
        for row in range(len(devices))
        for first in range(0, WORD_VALUES, width)
    ]
    while spans:
        rows = [row for row, _, _ in spans]
        lefts = outcomes(rows, [first for _, first, _ in spans])
        rights = outcomes(rows, [last for _, _, last in spans])
        halves = []
        for (row, first, last), left, right in zip(spans, lefts, rights, strict=True):
            if left == right:
                counts[row][left] = counts[row].get(left, 0) + last - first + 1
            else:
                middle = (first + last) // 2
                halves += [(row, first, middle), (row, middle + 1, last)]
        spans = halves
    return [{key: Fraction(n, WORD_VALUES) for key, n in count.items()} for count in counts]


def as_channel(laws: Sequence[Law]) -> list[list[Fraction]]:
    """One row a device, one column a choice that any device can make."""
    choices = sorted(set().union(*laws), key=str)
    return [[law.get(choice, Fraction(0)) for choice in choices] for law in laws]
