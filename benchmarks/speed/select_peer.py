"""Choices by OpenDP or diffprivlib, one auction at a time.

Run by select_speed.py, each in its own environment. Takes the name of the library, a NumPy archive
of auctions, epsilon and a number of turns. Prints seconds of every turn and how often the favourite
was chosen, as JSON. Favourites and scaled scores are computed before the clock starts, and what can
serve many auctions is made once.
"""

import importlib.metadata
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np

Choice = Callable[[list[float], int], int]
"""The candidate chosen by scores in [0, 1] and the number of the best of them."""


def main() -> None:
    library, path, epsilon, num_turns = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:5])
    with np.load(path) as file:
        rows = [scores.tolist() for scores in np.split(file["scores"], file["offsets"][1:-1])]
    favourites = [scores.index(max(scores)) for scores in rows]
    choices = {"opendp": opendp_choices, "diffprivlib": diffprivlib_choices}[library](epsilon)
    facts = {
        "version": importlib.metadata.version(library),
        "rows": {
            name: timed(choose, rows, favourites, int(num_turns))
            for name, choose in choices.items()
        },
    }
    print(json.dumps(facts))


def timed(
    choose: Choice, rows: list[list[float]], favourites: list[int], num_turns: int
) -> dict[str, object]:
    for scores, favourite in zip(rows[:100], favourites, strict=False):
        choose(scores, favourite)
    seconds, num_favourites = [], 0
    for _ in range(num_turns):
        start = time.perf_counter()
        chosen = [choose(*row) for row in zip(rows, favourites, strict=True)]
        seconds.append(time.perf_counter() - start)
        num_favourites += sum(a == b for a, b in zip(chosen, favourites, strict=True))
    return {"seconds": seconds, "num_favourites": num_favourites}


def opendp_choices(epsilon: float) -> dict[str, Choice]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    flip = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / epsilon)
    gumbel = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=2 / epsilon)
    odds = math.exp(epsilon)
    responses: dict[int, Callable[[int], int]] = {}

    def respond(scores: list[float], favourite: int) -> int:
        size = len(scores)
        if size not in responses:
            top_prob = odds / (size - 1 + odds)
            responses[size] = dp.m.make_randomized_response(list(range(size)), top_prob)
        return responses[size](favourite)

    return {
        "randomized response": respond,
        "permute-and-flip": lambda scores, _: flip(scores),
        "exponential mechanism": lambda scores, _: gumbel(scores),
    }


def diffprivlib_choices(epsilon: float) -> dict[str, Choice]:
    from diffprivlib.mechanisms import Exponential, PermuteAndFlip

    def flip(scores: list[float], _: int) -> int:
        return int(PermuteAndFlip(epsilon=epsilon, sensitivity=1, utility=scores).randomise())

    def exponential(scores: list[float], _: int) -> int:
        return int(Exponential(epsilon=epsilon, sensitivity=1, utility=scores).randomise())

    return {"permute-and-flip": flip, "exponential mechanism": exponential}


if __name__ == "__main__":
    main()
