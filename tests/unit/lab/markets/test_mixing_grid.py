"""Randomized response overtakes clipping later with more candidates and with less to know."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tulle.errors import ConfigError
from tulle.lab.markets.claims import Verdict, grid_claims
from tulle.lab.markets.market_sample import MarketSample, mix_device_clicks
from tulle.lab.markets.mixing_grid import (
    GridRow,
    GridSettings,
    groups_by_size,
    mixing_grid,
    overtaking_epsilon,
)
from tulle.lab.markets.synthetic_market import DISPLAY
from tulle.select.mechanisms.floors import FloorMechanism

SampleOf = Callable[..., MarketSample]
SETTINGS = GridSettings(
    alphas=(1.0, 0.25), epsilons=(1.0, 2.0, 3.0, 4.0, 6.0, 8.0), relative_widths=(0.02, 0.1, 0.35)
)


def display(num_candidates: int, sample_of: SampleOf, num_auctions: int = 1500) -> MarketSample:
    market = dataclasses.replace(
        DISPLAY, num_candidates=num_candidates, num_eligible=num_candidates
    )
    return sample_of(market, num_auctions)


@pytest.fixture
def rows(sample_of: SampleOf) -> tuple[GridRow, ...]:
    return mixing_grid({"3": display(3, sample_of), "15": display(15, sample_of)}, SETTINGS)


def test_overtaking_moves_as_the_paper_says(rows: tuple[GridRow, ...]) -> None:
    found = {(row.group, row.alpha): row.overtaking_epsilon for row in rows}
    assert found["3", 1.0] <= found["15", 1.0] <= 3.0
    assert found["3", 0.25] <= found["15", 0.25]
    assert found["3", 1.0] < found["3", 0.25]
    assert found["15", 1.0] < found["15", 0.25]
    assert [claim.verdict for claim in grid_claims(rows)] == [Verdict.HOLDS, Verdict.HOLDS]


def test_the_claims_fail_if_the_groups_or_alphas_trade_places(rows: tuple[GridRow, ...]) -> None:
    more, less = grid_claims(rows[::-1])
    assert (more.verdict, less.verdict) == (Verdict.DOES_NOT_HOLD, Verdict.HOLDS)
    swapped = [dataclasses.replace(row, alpha=1.25 - row.alpha) for row in rows]
    assert grid_claims(swapped)[1].verdict is Verdict.DOES_NOT_HOLD


def test_a_row_is_about_the_mixed_devices(sample_of: SampleOf, rows: tuple[GridRow, ...]) -> None:
    sample = display(3, sample_of)
    (row,) = [row for row in rows if (row.group, row.alpha) == ("3", 0.25)]
    device = mix_device_clicks(sample.auctions, sample.device, alpha=0.25)
    mixed = dataclasses.replace(sample, device=device)
    expected = [mixed.metrics(FloorMechanism(epsilon=e)).click_rate for e in SETTINGS.epsilons]
    assert list(row.response_values) == expected
    assert row.baseline == mixed.baseline.click_rate
    assert max(row.response_values) < row.ideal
    assert row.to_dict()["overtaking_epsilon"] == row.overtaking_epsilon


def test_auctions_are_grouped_by_their_candidates(sample_of: SampleOf) -> None:
    small = display(4, sample_of, 20)
    offsets = np.array([0, 2, 5, 9, 12, 24, 80])
    ragged = dataclasses.replace(
        small, auctions=dataclasses.replace(small.auctions, offsets=offsets)
    )
    groups = groups_by_size(ragged)
    assert {name: group.auctions.sizes.tolist() for name, group in groups.items()} == {
        "up to 3 candidates": [2, 3, 3],
        "4 to 9 candidates": [4],
        "10 candidates or more": [12, 56],
    }
    assert list(groups_by_size(small)) == ["4 to 9 candidates"]
    with pytest.raises(ConfigError, match="few=5"):
        groups_by_size(small, few=5, many=5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 5, 6], 3.0),
        # Ahead once, then behind: not yet overtaken.
        ([4, 2, 5, 6], 3.0),
        ([3, 3, 3, 4], 4.0),
        ([3, 3, 3, 3], None),
        ([9, 9, 9, 9], 1.0),
        # Equal is overtaken.
        ([3, 4, 4, 4], 2.0),
    ],
)
def test_the_last_lead_counts(values: list[float], expected: float | None) -> None:
    assert overtaking_epsilon([1.0, 2.0, 3.0, 4.0], values, [4, 4, 4, 4]) == expected
