"""Errors that a plan expects are those that the release states."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.measure.queries.answers import units_to_be_found
from tulle.measure.queries.measure_plan import make_measure_plan
from tulle.measure.queries.what_if import ExpectedErrors, expected_errors
from tulle.mechanisms.key_selection import KeySelectionConfig
from unit.measure.queries.small_measurements import config_of, run_measure, settings, write_log

UNEVEN = ('{ geo = ["n", "s"], campaign = ["a", "b", "c"] }', '"keys.csv"')


def planned(folder: Path, text: str) -> list[ExpectedErrors]:
    return expected_errors(make_measure_plan(config_of(folder, text)))


def released(folder: Path, text: str) -> pl.DataFrame:
    write_log(folder)
    return run_measure(config_of(folder, text), folder / "out").record.tables[0].frame


@pytest.mark.parametrize("privacy", ["", 'noise = "gaussian"\ndelta = 1e-6'])
@pytest.mark.parametrize("name", ["levels", "value levels"])
def test_levels_have_the_noise_of_the_release(tmp_path: Path, name: str, privacy: str) -> None:
    (tmp_path / "keys.csv").write_text("geo,campaign\nn,a\nn,b\nn,c\ns,a\n")
    text = settings(name, epsilon=2, privacy=privacy).replace(*UNEVEN)
    stated = planned(tmp_path, text)
    assert [found.level for found in stated] == ["total", "geo", "geo+campaign"]
    frame = released(tmp_path, text)
    for level, found in enumerate(stated):
        stddevs = frame.filter(pl.col("level") == level)["noise_stddev"]
        assert found.noise_stddev == pytest.approx(stddevs.max(), rel=1e-12)
        assert found.least_noise_stddev == pytest.approx(stddevs.min(), rel=1e-12)
        half_width = (pl.col("high") - pl.col("low")).max() / 2
        width = frame.filter(pl.col("level") == level).select(half_width).item()
        assert found.smallest_within == pytest.approx(width / 0.1, abs=1)
    # A campaign of its own geo is known as well as the geo; the others are not.
    assert stated[2].least_noise_stddev < 0.99 * stated[2].noise_stddev


def test_running_totals_have_the_noise_of_the_release(tmp_path: Path) -> None:
    text = settings("running")
    stated = planned(tmp_path, text)
    assert [found.metric for found in stated] == ["conversions", "running conversions"]
    frame = released(tmp_path, text)
    for found in stated:
        stddevs = frame.filter(pl.col("metric") == found.metric)["noise_stddev"]
        assert found.noise_stddev == pytest.approx(stddevs.max(), rel=1e-12)
        assert found.least_noise_stddev == pytest.approx(stddevs.min(), rel=1e-12)


def test_unknown_slices_are_planned_as_measured_and_known_ones_with_less(tmp_path: Path) -> None:
    plan = make_measure_plan(config_of(tmp_path, settings("found levels")))
    before = pl.DataFrame({"geo": ["n", "n", "s"], "campaign": ["a", "b", "a"], "count": [9, 8, 7]})
    unknown = expected_errors(plan)
    assert all(found.is_as_measured for found in unknown)
    known = expected_errors(plan, {"found levels": before})
    assert not any(found.is_as_measured for found in known)
    for first, second in zip(unknown, known, strict=True):
        assert second.noise_stddev < first.noise_stddev
    assert known[1].slices is not None
    assert dict(known[1].slices.select("geo", "expected").iter_rows()) == {"n": 17, "s": 7}
    assert expected_errors(plan, {"found levels": before.clear()})[0].slices is None


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-3)])
def test_slices_are_found_as_often_as_not_from_so_many_units(epsilon: float, delta: float) -> None:
    config = KeySelectionConfig(epsilon=epsilon, delta=delta)
    likely, sure = units_to_be_found(config)
    chances = np.array([config.keep_prob(count) for count in range(sure + 1)])
    assert likely == int(np.argmax(chances >= 0.5))
    assert sure == int(np.argmax(chances == 1))
