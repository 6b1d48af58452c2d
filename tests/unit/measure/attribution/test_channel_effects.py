"""Effects of channels against a loop over people who would have seen one channel less."""

import numpy as np
import pytest

from tulle.measure.attribution.channel_cells import ChannelCells, raw_cell_counts
from tulle.measure.attribution.channel_effects import RateFit, channel_effects
from tulle.measure.attribution.coalition_values import CoalitionValue
from unit.measure.attribution.exposures import (
    BASELINE,
    CHANNELS,
    EFFECTS,
    additive_rate,
    table_of,
    units_of,
)

CELLS = ChannelCells(channels=CHANNELS)
EXACT = RateFit(noise_stddev=0.0, baseline_rate=None)
SIZES = {1: 4000, 2: 2000, 3: 1000}
BOTH = list(CoalitionValue)


def synergy_rate(channels: tuple[str, ...]) -> float:
    """News and video together do more than each alone."""
    return additive_rate(channels) + 0.02 * ({"news", "video"} <= set(channels))


@pytest.mark.parametrize("value", BOTH)
def test_effects_that_add_up_are_found_as_they_are(value: CoalitionValue) -> None:
    counts = raw_cell_counts(table_of(units_of(SIZES)), CELLS)
    effects = channel_effects(counts, CELLS, EXACT, value)
    assert effects == pytest.approx(list(EFFECTS.values()), abs=1e-9)


def test_the_removal_effect_is_what_a_population_without_the_channel_loses() -> None:
    units = units_of(SIZES, synergy_rate)
    fit = RateFit(noise_stddev=0.0, baseline_rate=BASELINE)
    effects = channel_effects(
        raw_cell_counts(table_of(units), CELLS), CELLS, fit, CoalitionValue.REMOVAL
    )
    for channel, effect in zip(CHANNELS, effects, strict=True):
        lost, num_seen = 0.0, 0
        for (channels, _), num_units in units.items():
            if channel in channels:
                left = tuple(other for other in channels if other != channel)
                lost += num_units * (synergy_rate(channels) - synergy_rate(left))
                num_seen += num_units
        assert effect == pytest.approx(lost / num_seen, abs=1e-9)


def test_shapley_values_halve_what_two_channels_do_together() -> None:
    # Only news and video, always together: the synergy is shared, removal counts it twice.
    units = {
        key: num
        for key, num in units_of(SIZES, synergy_rate).items()
        if key[0] == ("news", "video") or len(key[0]) == 1
    }
    counts = raw_cell_counts(table_of(units), CELLS)
    fit = RateFit(noise_stddev=0.0, baseline_rate=BASELINE)
    shares = {
        value: channel_effects(counts, CELLS, fit, value)[0] - EFFECTS["news"] for value in BOTH
    }
    # 2,000 of the 6,000 who saw news saw video as well.
    assert shares[CoalitionValue.SHAPLEY] == pytest.approx(0.01 / 3)
    assert shares[CoalitionValue.REMOVAL] == pytest.approx(0.02 / 3)


def test_without_overlap_the_baseline_is_part_of_every_effect() -> None:
    counts = raw_cell_counts(table_of(units_of({1: 4000})), CELLS)
    effects = channel_effects(counts, CELLS, EXACT, CoalitionValue.SHAPLEY)
    assert effects == pytest.approx([BASELINE + effect for effect in EFFECTS.values()])


@pytest.mark.parametrize("value", BOTH)
def test_cells_of_few_units_are_not_used(value: CoalitionValue) -> None:
    units = units_of(SIZES)
    fit = RateFit(noise_stddev=10.0, baseline_rate=None)
    assert 141 < fit.least_units < 142
    # A pair of 100 people who all converted would raise its channels above all others.
    units[(("video", "radio"), True)], units[(("video", "radio"), False)] = 100, 0
    effects = channel_effects(raw_cell_counts(table_of(units), CELLS), CELLS, fit, value)
    assert effects == pytest.approx(list(EFFECTS.values()), abs=1e-9)


def test_nothing_follows_from_empty_cells() -> None:
    counts = np.zeros((len(CELLS.masks) + 1, 2), dtype=np.int64)
    assert not channel_effects(counts, CELLS, EXACT, CoalitionValue.SHAPLEY).any()
