"""Intervals hold the raw number as often as they say, for every number of every query."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tulle.measure.queries.answers import AnswerTable
from tulle.measure.queries.query_noise import (
    GaussianBudget,
    LaplaceBudget,
    Sensitivity,
    combined_half_width,
)
from tulle.measure.slice_jobs import SliceTotals
from tulle.mechanisms.entropy import SeededNoise
from unit.measure.queries.small_measurements import QUERIES, plan_of, settings

FALSE_ALARM = 1e-9
CONFIDENCE = 0.95
NUM_SLICES = 12_000
LAWS = {"laplace": "", "gaussian": 'noise = "gaussian"\ndelta = 1e-6'}
Numbers = dict[str, Any]


def assert_covered(is_inside: Any, *, most: float = 0.999, confidence: float = CONFIDENCE) -> None:
    """At least as often as stated, and not always: then intervals would be far too wide."""
    num_inside, num = int(np.sum(is_inside)), len(is_inside)
    low = stats.binom.ppf(FALSE_ALARM, num, confidence)
    assert num_inside >= low, f"{num_inside / num:.2%} of {num} intervals hold their number"
    assert num_inside <= stats.binom.isf(FALSE_ALARM, num, most), f"{num_inside / num:.2%}"


def is_inside(frame: pl.DataFrame, number: str, raw: Any) -> Any:
    rows = frame.filter(pl.col("metric") == number)
    return (rows["low"].to_numpy() <= raw + 1e-9) & (raw - 1e-9 <= rows["high"].to_numpy())


def totals(names: list[str], *raw_steps: Any) -> list[SliceTotals]:
    num_slices = len(raw_steps[0])
    slices = pl.DataFrame({name: [f"{n:07d}" for n in range(num_slices)] for name in names})
    return [
        SliceTotals(slices=slices, raw_steps=steps, raw_unit_counts=np.zeros(num_slices, np.int64))
        for steps in raw_steps
    ]


def drawn_contributions(num_amounts: int, *, mean: float, seed: int) -> Any:
    """Totals of slices in contributions, many of them near 0."""
    rng = np.random.default_rng(seed)
    return rng.exponential(mean, (NUM_SLICES, num_amounts)) * rng.integers(
        0, 2, (NUM_SLICES, num_amounts)
    )


def check_releases(table: AnswerTable) -> None:
    releases = list(table.releases())
    assert len(releases) == table.frame.height
    for release in releases:
        assert release.noise_stddev > 0
        assert release.interval.confidence == table.confidence
        if math.isfinite(release.value):
            assert release.interval.low <= release.value + 1e-6
            assert release.value - 1e-6 <= release.interval.high


@pytest.mark.parametrize("law", LAWS)
class TestFlatQueries:
    @pytest.mark.parametrize(
        ("name", "number", "size"),
        [
            ("conversions", "conversions", 1.0),
            ("value", "value", 20.0),
            ("impressions", "impressions", 1.0),
        ],
    )
    def test_counts_and_values(
        self, tmp_path: Path, law: str, name: str, number: str, size: float
    ) -> None:
        (query,) = plan_of(tmp_path, settings(name, privacy=LAWS[law])).queries
        job = query.jobs[0]
        raw_steps = (drawn_contributions(1, mean=30, seed=1) * job.steps).astype(np.int64)
        found = totals(["campaign"], raw_steps)
        table = query.answer(found, confidence=CONFIDENCE, rng=SeededNoise(1))
        raw = raw_steps[:, 0] / job.steps * size
        assert_covered(is_inside(table.frame, number, raw), most=0.97)
        check_releases(table)

    @pytest.mark.parametrize("mean", [3, 100])
    def test_averages_and_what_they_are_made_of(
        self, tmp_path: Path, law: str, mean: float
    ) -> None:
        (query,) = plan_of(tmp_path, settings("averages", privacy=LAWS[law])).queries
        job = query.jobs[0]
        raw_steps = (drawn_contributions(3, mean=mean, seed=2) * job.steps).astype(np.int64)
        found = totals(["campaign"], raw_steps)
        table = query.answer(found, confidence=CONFIDENCE, rng=SeededNoise(2))
        amounts, counts = raw_steps / job.steps, raw_steps.sum(axis=1) / job.steps
        assert_covered(is_inside(table.frame, "conversions", counts), most=0.97)
        for place, (number, size) in enumerate({"value": 20 / 0.5, "items": 4 / 0.25}.items()):
            raw = amounts[:, place] * size
            assert_covered(is_inside(table.frame, number, raw), most=0.97)
            has_average = counts > 0
            average = raw / np.where(has_average, counts, 1)
            inside = is_inside(table.frame, f"average {number}", average)[has_average]
            assert_covered(inside, most=0.9995)
        check_releases(table)

    @pytest.mark.parametrize("mean", [3, 100])
    def test_rates_and_what_they_are_made_of(self, tmp_path: Path, law: str, mean: float) -> None:
        (query,) = plan_of(tmp_path, settings("rate", privacy=LAWS[law])).queries
        conversions = drawn_contributions(1, mean=mean, seed=3).astype(np.int64)
        impressions = conversions + drawn_contributions(1, mean=5 * mean, seed=4).astype(np.int64)
        found = totals(["campaign"], conversions, impressions)
        table = query.answer(found, confidence=CONFIDENCE, rng=SeededNoise(3))
        assert_covered(is_inside(table.frame, "conversions", conversions[:, 0]), most=0.98)
        assert_covered(is_inside(table.frame, "impressions", impressions[:, 0]), most=0.97)
        has_rate = impressions[:, 0] > 0
        rate = conversions[:, 0] / np.where(has_rate, impressions[:, 0], 1)
        assert_covered(is_inside(table.frame, "rate", rate)[has_rate], most=0.9995)
        check_releases(table)


@pytest.mark.parametrize("law", LAWS)
class TestTrees:
    def test_nodes_after_all_add_up(self, tmp_path: Path, law: str) -> None:
        text = settings("levels", privacy=LAWS[law]).replace(
            'levels = [[], ["geo"], ["geo", "campaign"]]', 'levels = [["geo"], ["geo", "campaign"]]'
        )
        (query,) = plan_of(tmp_path, text).queries
        num_geos = 6000
        raw_leaves = drawn_contributions(1, mean=30, seed=5).astype(np.int64)
        (found,) = totals(["geo", "campaign"], raw_leaves)
        slices = pl.DataFrame(
            {
                "geo": [f"{n // 2:05d}" for n in range(2 * num_geos)],
                "campaign": ["a", "b"] * num_geos,
            }
        )
        found = SliceTotals(
            slices=slices, raw_steps=raw_leaves, raw_unit_counts=found.raw_unit_counts
        )
        frame = query.answer([found], confidence=CONFIDENCE, rng=SeededNoise(5)).frame
        truth = slices.with_columns(raw=pl.Series(raw_leaves[:, 0]))
        tops = truth.group_by("geo").agg(pl.col("raw").sum(), campaign=pl.lit(None, pl.String))
        truth = pl.concat([truth, tops.select(truth.columns)])
        rows = frame.join(truth, on=["geo", "campaign"], how="left", nulls_equal=True)
        assert rows["raw"].null_count() == 0
        # Nodes of one geo share noise, those of two geos do not.
        for kind in ("a", "b", None):
            own = rows.filter(pl.col("campaign").eq_missing(pl.lit(kind, pl.String)))
            raw = own["raw"].to_numpy()
            assert own.height == num_geos
            assert_covered(is_inside(own, "conversions", raw), most=0.985)
            check_stated_stddev((own["value"].to_numpy() - raw) / own["noise_stddev"].to_numpy())

    def test_nodes_add_up_exactly(self, tmp_path: Path, law: str) -> None:
        (query,) = plan_of(tmp_path, settings("value levels", privacy=LAWS[law])).queries
        keys = query.query.keys
        assert keys is not None
        found = SliceTotals(
            slices=keys,
            raw_steps=np.arange(6, dtype=np.int64).reshape(-1, 1) << 24,
            raw_unit_counts=np.ones(6, np.int64),
        )
        table = query.answer([found], confidence=CONFIDENCE, rng=SeededNoise(6))
        for column in ("value", "nonnegative"):
            levels = [table.frame.filter(pl.col("level") == n)[column] for n in range(3)]
            assert levels[1].sum() == pytest.approx(levels[0].sum(), abs=1e-6)
            assert levels[2].sum() == pytest.approx(levels[0].sum(), abs=1e-6)
        assert (table.frame["nonnegative"] >= 0).all()
        check_releases(table)

    def test_running_totals_of_every_day(self, tmp_path: Path, law: str) -> None:
        (query,) = plan_of(tmp_path, settings("running", privacy=LAWS[law])).queries
        keys = query.query.keys
        assert keys is not None
        num_draws, rng = 800, SeededNoise(7)
        raw_days = np.array([0, 3, 20, 1, 0, 50, 7, 2], np.int64)
        found = SliceTotals(
            slices=keys, raw_steps=raw_days.reshape(-1, 1), raw_unit_counts=raw_days
        )
        draws = [
            query.answer([found], confidence=CONFIDENCE, rng=rng).frame for _ in range(num_draws)
        ]
        for number, raw in (
            ("conversions", raw_days),
            ("running conversions", np.cumsum(raw_days)),
        ):
            inside = np.array([is_inside(frame, number, raw) for frame in draws])
            for day in range(8):
                assert_covered(inside[:, day])


def check_stated_stddev(scores: Any) -> None:
    """The mean square is 1 within six of its own deviations; a quarter less or more is not."""

    def is_right(factor: float) -> bool:
        squares = (scores * factor) ** 2
        # The fourth moment of a sum of Laplace noises is at most that of one: 6.
        return bool(abs(squares.mean() - 1) < 6.2 * math.sqrt(5 / len(scores)))

    assert is_right(1.0)
    assert not is_right(1.25)
    assert not is_right(0.75)


class TestReach:
    def test_reach_and_its_parts(self, tmp_path: Path) -> None:
        (query,) = plan_of(tmp_path, settings("reach")).queries
        rng = np.random.default_rng(8)
        raw_counts = rng.integers(0, 40, (4000, 4))
        found = SliceTotals(
            slices=pl.DataFrame({"campaign": [f"{n:05d}" for n in range(4000)]}),
            raw_steps=raw_counts,
            raw_unit_counts=raw_counts.sum(axis=1),
        )
        table = query.answer([found], confidence=CONFIDENCE, rng=SeededNoise(8))
        at_least = raw_counts[:, ::-1].cumsum(axis=1)[:, ::-1]
        assert_covered(is_inside(table.frame, "reach", at_least[:, 0]))
        for k in range(2, 5):
            assert_covered(is_inside(table.frame, f"{k}+ reach", at_least[:, k - 1]))
        check_releases(table)


def test_every_query_gives_releases(tmp_path: Path) -> None:
    # Zero totals: quotients of noise alone, where a value may not be known.
    for name in QUERIES:
        (query,) = plan_of(tmp_path, settings(name)).queries
        keys = query.query.keys
        num_slices = 1 if keys is None else keys.height
        found = [
            SliceTotals(
                slices=pl.DataFrame() if keys is None else keys,
                raw_steps=np.zeros((num_slices, job.num_columns), np.int64),
                raw_unit_counts=np.zeros(num_slices, np.int64),
            )
            for job in query.jobs
        ]
        table = query.answer(found, confidence=0.9, rng=SeededNoise(9))
        check_releases(table)


WEIGHTS = (
    [8],
    [8, 8],
    [8, 4],
    [8, 1],
    [8, 2, 2],
    [8, 8, 8],
    [8] * 8,
    [8] * 40,
    [8, *[2] * 30],
    [8, 7, 6, 5, 4, 3, 2, 1],
)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.905, 0.91, 0.95, 0.99, 0.999])
def test_sums_of_laplace_noises_stay_within_the_combined_width(confidence: float) -> None:
    rng = np.random.default_rng(10)
    weights = [*WEIGHTS, *(list(rng.integers(1, 9, rng.integers(2, 12))) for _ in range(15))]
    for eighths in weights:
        for scale in (0.3, 0.7, 1.5, 3.0, 30.0):
            width = stated_width(eighths, scale, confidence)
            outside = exceedance_chance(eighths, scale, width)
            assert outside <= 1 - confidence + 1e-9, (eighths, scale)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_a_combined_width_five_percent_smaller_is_not_enough(confidence: float) -> None:
    worst = max(
        exceedance_chance(eighths, 30.0, 0.95 * stated_width(eighths, 30.0, confidence))
        for eighths in WEIGHTS
    )
    assert worst > 1 - confidence


def stated_width(eighths: list[int], scale: float, confidence: float) -> float:
    stddev = discrete_laplace_stddev(scale) * np.linalg.norm(eighths) / 8
    return float(combined_half_width(np.array([stddev]), confidence, scale=scale)[0])


def discrete_laplace_stddev(scale: float) -> float:
    ratio = math.exp(-1 / scale)
    return math.sqrt(2 * ratio) / (1 - ratio)


def exceedance_chance(eighths: list[int], scale: float, width: float) -> float:
    """The chance that a weighted sum of discrete Laplace noises exceeds `width` in size.

    Weights are eighths, so eight times the sum is a whole number, and its law is the Fourier
    transform of a product of characteristic functions.
    """
    ratio = math.exp(-1 / scale)
    stddev = discrete_laplace_stddev(scale) * float(np.linalg.norm(eighths))
    num_places = 1 << math.ceil(math.log2(40 * stddev + 1000))  # nothing is left beyond
    angles = 2 * math.pi * np.arange(num_places) / num_places
    product = np.ones(num_places)
    for weight in eighths:
        product *= (1 - ratio) ** 2 / (1 - 2 * ratio * np.cos(weight * angles) + ratio**2)
    chances = np.fft.fft(product).real / num_places
    places = np.arange(num_places)
    sizes = np.minimum(places, num_places - places)
    return float(chances[sizes > 8 * width].sum())


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_half_widths_of_both_laws_are_those_of_their_tails(confidence: float) -> None:
    sensitivity = Sensitivity(l1=6, l2=6.0, num_values=3)
    laplace = LaplaceBudget(epsilon=0.5).noise(sensitivity)
    ratio = math.exp(-1 / (6 / 0.5))
    width = laplace.half_width(confidence)
    assert 2 * ratio ** (width + 1) / (1 + ratio) <= 1 - confidence
    assert 2 * ratio**width / (1 + ratio) > 1 - confidence
    gaussian = GaussianBudget(noise_multiplier=2.0).noise(sensitivity)
    quantile = stats.norm.ppf(0.5 + confidence / 2)
    assert gaussian.half_width(confidence) == pytest.approx(12 * quantile, rel=1e-2)
