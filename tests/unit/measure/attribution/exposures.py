"""Tables of channel sets with a conversion rate that is known."""

import itertools
from collections.abc import Callable, Mapping

import polars as pl

CHANNELS = ("news", "video", "radio")
BASELINE = 0.01
EFFECTS = {"news": 0.03, "video": 0.01, "radio": 0.0}
"""News brings three times the conversions of video, and radio none."""

RateOf = Callable[[tuple[str, ...]], float]


def additive_rate(channels: tuple[str, ...]) -> float:
    return BASELINE + sum(EFFECTS[channel] for channel in channels)


def table_of(counts: Mapping[tuple[tuple[str, ...], bool], int]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "channels": [list(channels) for channels, _ in counts],
            "converted": [converted for _, converted in counts],
            "num_units": list(counts.values()),
        },
        schema={"channels": pl.List(pl.String), "converted": pl.Boolean, "num_units": pl.Int64},
    )


def units_of(
    num_units_of_size: Mapping[int, int], rate_of: RateOf = additive_rate
) -> dict[tuple[tuple[str, ...], bool], int]:
    """Exactly as many conversions as the rate says, for every set of each size."""
    counts = {}
    for size, num_units in num_units_of_size.items():
        for channels in itertools.combinations(CHANNELS, size):
            num_converted = round(rate_of(channels) * num_units)
            counts[(channels, True)] = num_converted
            counts[(channels, False)] = num_units - num_converted
    return counts
