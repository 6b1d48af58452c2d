"""Removing one unit moves what noise is added to by no more than the noise is made for."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tulle.measure.queries import measuring, slice_queries
from tulle.measure.queries.query_noise import StepNoise
from unit.measure.queries.small_measurements import (
    CAMPAIGNS,
    PRIVATE_QUERIES,
    QUERIES,
    config_of,
    run_measure,
    settings,
    small_log,
    write_log,
)


class Spy:
    """Everything raw that noise is added to, and the most that one unit may move it by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.totals: list[tuple[int, Any]] = []
        self.histograms: list[Any] = []
        self.unit_counts: list[tuple[int, pl.DataFrame]] = []
        release, frequencies = StepNoise.release, slice_queries.release_frequencies
        chosen = slice_queries.chosen_slices

        def seen_release(noise: StepNoise, raw_steps: Any, *, rng: Any) -> Any:
            self.totals.append((noise.config.max_contribution, raw_steps.copy()))
            return release(noise, raw_steps, rng=rng)

        def seen_frequencies(found: Any, config: Any, **arguments: Any) -> Any:
            self.histograms.append((config.max_slices_per_unit, found.raw_counts.copy()))
            return frequencies(found, config, **arguments)

        def seen_choice(slices: Any, counts: Any, selection: Any, *, rng: Any) -> Any:
            if selection is not None:
                frame = slices.with_columns(num_units=pl.Series(counts))
                self.unit_counts.append((selection.max_keys_per_unit, frame))
            return chosen(slices, counts, selection, rng=rng)

        monkeypatch.setattr(StepNoise, "release", seen_release)
        monkeypatch.setattr(slice_queries, "release_frequencies", seen_frequencies)
        monkeypatch.setattr(slice_queries, "chosen_slices", seen_choice)
        # The same random choices for both neighbours: privacy holds for each key on its own.
        monkeypatch.setattr(measuring.secrets, "token_bytes", lambda size: b"k" * size)

    def take(self) -> tuple[list[Any], list[Any], list[Any]]:
        found = (self.totals, self.histograms, self.unit_counts)
        self.totals, self.histograms, self.unit_counts = [], [], []
        return found


def measured(folder: Path, text: str, log: Any, spy: Spy) -> tuple[list[Any], list[Any], list[Any]]:
    folder.mkdir()
    write_log(folder, log)
    run_measure(config_of(folder, text), folder / "out")
    return spy.take()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", ["last-touch", "linear"])
def test_totals_of_every_query_and_level_stay_within_their_l1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, rule: str
) -> None:
    spy = Spy(monkeypatch)
    text = settings(*QUERIES, rule=rule)
    impressions, conversions = small_log(seed, num_users=5, num_rows=150)
    whole = measured(tmp_path / "whole", text, (impressions, conversions), spy)
    user = seed % 5
    rest = (
        impressions.filter(pl.col("user") != user),
        conversions.filter(pl.col("user") != user),
    )
    without = measured(tmp_path / "rest", text, rest, spy)
    # Nine flat or level tables, the rate with two, levels with three each, days with four.
    assert len(whole[0]) == 7 + 1 + 3 + 3 + 4
    changes = [
        (limit, int(np.abs(raw - other).sum()))
        for (limit, raw), (_, other) in zip(whole[0], without[0], strict=True)
    ]
    assert all(change <= limit for limit, change in changes), changes
    # With so many rows a user fills its bounds somewhere: a bound one step lower would fail.
    assert any(change == limit for limit, change in changes)
    for (limit, raw), (_, other) in zip(whole[1], without[1], strict=True):
        assert int(np.abs(raw - other).sum()) == limit


@pytest.mark.parametrize("seed", range(4))
def test_units_of_found_slices_change_by_one_in_few_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    spy = Spy(monkeypatch)
    names = [name for name in PRIVATE_QUERIES if name != "found levels"]
    text = settings(*names)
    impressions, conversions = small_log(seed, num_users=5, num_rows=150)
    whole = measured(tmp_path / "whole", text, (impressions, conversions), spy)
    rest = (impressions.filter(pl.col("user") != 1), conversions.filter(pl.col("user") != 1))
    without = measured(tmp_path / "rest", text, rest, spy)
    assert len(whole[2]) == 4
    for (limit, counts), (_, others) in zip(whole[2], without[2], strict=True):
        both = counts.join(others, on="campaign", how="full", coalesce=True).fill_null(0)
        change = (both["num_units"] - both["num_units_right"]).abs()
        assert change.max() == 1
        assert change.sum() <= limit


def test_a_window_is_a_unit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    text = settings("conversions", "levels", "reach").replace(
        'unit = "user"', 'unit = "user per 2 days"'
    )
    days = 'slices = ["day"]\nkeys = { day = { first = 1970-01-01, last = 1970-01-08 } }\n'
    text = text.replace(f'measure = "reach"\n{CAMPAIGNS}', f'measure = "reach"\n{days}')
    impressions, conversions = small_log(3, num_users=4, num_rows=200)
    whole = measured(tmp_path / "whole", text, (impressions, conversions), spy)
    other_window = (pl.col("user") != 2) | (pl.col("timestamp") // (2 * 86_400) != 1)
    rest = (impressions.filter(other_window), conversions.filter(other_window))
    without = measured(tmp_path / "rest", text, rest, spy)
    for place in (0, 1):
        for (limit, raw), (_, other) in zip(whole[place], without[place], strict=True):
            assert 0 < int(np.abs(raw - other).sum()) <= limit


@pytest.mark.parametrize("seed", range(4))
def test_gaussian_totals_stay_within_their_l2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    spy = Spy(monkeypatch)
    names = [name for name in QUERIES if name != "reach"]
    text = settings(*names, privacy='noise = "gaussian"\ndelta = 1e-6')
    impressions, conversions = small_log(seed, num_users=5, num_rows=150)
    whole = measured(tmp_path / "whole", text, (impressions, conversions), spy)
    rest = (impressions.filter(pl.col("user") != 3), conversions.filter(pl.col("user") != 3))
    without = measured(tmp_path / "rest", text, rest, spy)
    changes = [
        (limit, float(np.linalg.norm((raw - other).astype(np.float64))))
        for (limit, raw), (_, other) in zip(whole[0], without[0], strict=True)
    ]
    assert len(changes) == 18
    assert all(change <= limit for limit, change in changes), changes
    assert any(change > limit * (1 - 1e-6) for limit, change in changes)
