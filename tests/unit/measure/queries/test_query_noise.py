"""The noise that is drawn is the noise that the plan states and pays for, for every query."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from statistical.noise_checks import assert_discrete, assert_gaussian, assert_laplace
from tulle.accounting.accountant import claim_epsilon, verify_plan
from tulle.errors import ConfigError
from tulle.measure.queries.slice_queries import FlatQuery
from tulle.measure.queries.tree_query import TreeQuery
from tulle.measure.slice_jobs import FINE_STEPS, SliceTotals
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from tulle.mechanisms.gaussian import GaussianConfig
from tulle.privacy.guarantee import Claim
from unit.measure.queries.small_measurements import PRIVATE_QUERIES, QUERIES, plan_of, settings

GAUSSIAN = 'noise = "gaussian"\ndelta = 1e-6'


def planned(folder: Path, name: str, **changes: Any) -> Any:
    (query,) = plan_of(folder, settings(name, **changes)).queries
    return query


def nothing(query: Any, num_slices: int) -> list[SliceTotals]:
    """Totals of 0 for so many slices, whatever the keys of the query are."""
    names = [column.name for column in query.query.slices]
    slices = pl.DataFrame({name: [f"{n:07d}" for n in range(num_slices)] for name in names})
    return [
        SliceTotals(
            slices=slices,
            raw_steps=np.zeros((num_slices, job.num_columns), np.int64),
            raw_unit_counts=np.zeros(num_slices, np.int64),
        )
        for job in query.jobs
    ]


def numbers(query: FlatQuery, name: str, size: float) -> Any:
    """Draws of one number of a flat query, in units of `size`."""

    def sampler(rng: NoiseSource, num_slices: int) -> Any:
        table = query.answer(nothing(query, num_slices), confidence=0.9, rng=rng)
        return table.frame.filter(pl.col("metric") == name)["value"].to_numpy() / size

    return sampler


def discrete_laplace_pmf(scale: float) -> Any:
    ratio = math.exp(-1 / scale)
    return lambda values: (1 - ratio) / (1 + ratio) * ratio ** np.abs(values)


class TestLaplaceNoise:
    @pytest.mark.parametrize(
        ("name", "number", "scale"),
        [
            # Scale in steps: (contributions per slice) x (slices per unit) / epsilon.
            ("conversions", "conversions", 2 * 3 / 0.5),
            ("impressions", "impressions", 4 * 2 / 0.5),
            # Conversions and impressions of a rate have half of epsilon each.
            ("rate", "conversions", 2 * 3 / 0.25),
            ("rate", "impressions", 5 * 2 / 0.25),
        ],
    )
    def test_whole_counts_have_it_in_whole_numbers(
        self, tmp_path: Path, name: str, number: str, scale: float
    ) -> None:
        query = planned(tmp_path, name, epsilon=0.5)
        assert_discrete(numbers(query, number, 1), discrete_laplace_pmf, scale=scale)

    @pytest.mark.parametrize(
        ("name", "number", "size"),
        [
            ("value", "value", 20),
            ("average", "value", 20),
            # A share of the contribution buys less: half of it for value, a quarter for items.
            ("averages", "value", 20 / 0.5),
            ("averages", "items", 4 / 0.25),
        ],
    )
    def test_values_have_it_in_clips(
        self, tmp_path: Path, name: str, number: str, size: float
    ) -> None:
        query = planned(tmp_path, name, epsilon=0.5)
        assert query.main.job.steps == FINE_STEPS
        assert_laplace(numbers(query, number, size), scale=2 * 3 / 0.5)

    def test_fractional_credit_has_it_in_fine_steps(self, tmp_path: Path) -> None:
        query = planned(tmp_path, "conversions", epsilon=0.5, rule="linear")
        assert query.main.job.steps == FINE_STEPS
        assert_laplace(numbers(query, "conversions", 1), scale=2 * 3 / 0.5)

    def test_every_level_has_its_share(self, tmp_path: Path) -> None:
        text = settings("levels", epsilon=0.5).replace(
            'levels = [[], ["geo"], ["geo", "campaign"]]',
            'levels = [["geo"], ["geo", "campaign"]]\nsplit = [0.2, 0.8]',
        )
        (query,) = plan_of(tmp_path, text).queries
        assert isinstance(query, TreeQuery)
        for noise, share in zip(query.level_noise, (0.2, 0.8), strict=True):
            assert noise is not None
            assert isinstance(noise.config, DiscreteLaplaceConfig)
            drawn = drawn_by(noise)
            assert_discrete(drawn, discrete_laplace_pmf, scale=6 / 0.5 / share, num_draws=60_000)

    def test_reach_has_it_in_every_bucket(self, tmp_path: Path) -> None:
        query = planned(tmp_path, "reach", epsilon=0.5)

        def sampler(rng: NoiseSource, num_slices: int) -> Any:
            frame = query.answer(nothing(query, num_slices), confidence=0.9, rng=rng).frame
            return frame.filter(pl.col("metric") == "4+ reach")["value"].to_numpy()

        assert_discrete(sampler, discrete_laplace_pmf, scale=2 / 0.5, num_draws=60_000)


def drawn_by(noise: Any) -> Any:
    return lambda rng, size: noise.release(np.zeros(size, np.int64), rng=rng)


class TestGaussianNoise:
    @pytest.mark.parametrize(
        ("name", "number", "size"),
        [
            ("conversions", "conversions", 1),
            ("impressions", "impressions", 1),
            ("value", "value", 20),
        ],
    )
    def test_it_has_the_stated_stddev(
        self, tmp_path: Path, name: str, number: str, size: float
    ) -> None:
        query = planned(tmp_path, name, privacy=GAUSSIAN)
        stated = query.main.noise.config
        (event,) = query.event().events
        bounds = query.query.bounds
        # One unit moves each of its slices by the bound: the root of their number in L2.
        l2 = bounds.max_per_slice * math.sqrt(bounds.max_slices_per_unit)
        assert stated.noise_stddev / query.main.job.steps == pytest.approx(
            event.noise_multiplier * l2, rel=1e-6
        )
        assert_gaussian(numbers(query, number, size), stddev=event.noise_multiplier * l2)

    def test_levels_above_the_leaves_are_for_slices_that_fall_together(
        self, tmp_path: Path
    ) -> None:
        query = planned(tmp_path, "levels", privacy=GAUSSIAN)
        stddevs = [noise.noise_stddev / 6 for noise in query.level_noise[:-1]]
        (_, _, leaves) = query.level_noise
        multiplier = query.event().events[0].noise_multiplier
        assert stddevs == pytest.approx([multiplier] * 2, rel=1e-6)
        assert leaves.noise_stddev == pytest.approx(multiplier * 2 * math.sqrt(3), rel=1e-6)
        for noise in query.level_noise:
            assert isinstance(noise.config, GaussianConfig)
            assert_gaussian(drawn_by(noise), stddev=noise.noise_stddev)


class TestPlans:
    @pytest.mark.parametrize("name", QUERIES)
    @pytest.mark.parametrize("epsilon", [0.3, 4.0])
    def test_laplace_noise_costs_all_of_epsilon_and_not_more(
        self, tmp_path: Path, name: str, epsilon: float
    ) -> None:
        plan = plan_of(tmp_path, settings(name, epsilon=epsilon)).plan
        (cost,) = verify_plan(plan)
        assert 0.99 * epsilon < cost <= epsilon * (1 + 1e-9)

    def test_all_queries_together_cost_all_of_epsilon(self, tmp_path: Path) -> None:
        (cost,) = verify_plan(plan_of(tmp_path, settings(*QUERIES, epsilon=2)).plan)
        assert 0.99 * 2 < cost <= 2 * (1 + 1e-9)

    @pytest.mark.parametrize("names", [list(PRIVATE_QUERIES), [*PRIVATE_QUERIES, *QUERIES]])
    @pytest.mark.parametrize("privacy", ["", GAUSSIAN], ids=["laplace", "gaussian"])
    def test_private_slices_and_gaussian_noise_stay_within_epsilon_and_delta(
        self, tmp_path: Path, names: list[str], privacy: str
    ) -> None:
        plan = plan_of(tmp_path, settings(*names, privacy=privacy)).plan
        (cost,) = verify_plan(plan)
        assert 0.5 < cost <= 1 + 1e-7

    @pytest.mark.parametrize("name", [*QUERIES, *PRIVATE_QUERIES])
    @pytest.mark.parametrize("privacy", ["", GAUSSIAN], ids=["laplace", "gaussian"])
    def test_half_the_noise_is_refused(self, tmp_path: Path, name: str, privacy: str) -> None:
        plan = plan_of(tmp_path, settings(name, privacy=privacy)).plan
        claim = Claim(guarantee=plan.guarantee, event=halved(plan.event))
        assert claim_epsilon(claim) > plan.guarantee.epsilon * 1.3
        with pytest.raises(ConfigError, match="claims epsilon"):
            verify_plan(dataclasses.replace(plan, event=claim.event))

    def test_shares_of_queries_are_those_of_epsilon(self, tmp_path: Path) -> None:
        text = settings("conversions", "impressions").replace(
            'measure = "impressions"', 'measure = "impressions"\nshare = 3'
        )
        first, second = plan_of(tmp_path, text).queries
        assert isinstance(first, FlatQuery)
        assert isinstance(second, FlatQuery)
        # (2 x 3) / (1/4) steps of scale, and (4 x 2) / (3/4).
        scales = [noisy.main.noise.noise_stddev / math.sqrt(2) for noisy in (first, second)]
        assert scales == pytest.approx([24, 32 / 3], rel=1e-2)


def halved(event: Any) -> Any:
    """The event of the same release with half of all its noise."""
    if hasattr(event, "events"):
        return dataclasses.replace(event, events=tuple(halved(part) for part in event.events))
    for name in ("noise_multiplier", "scale", "noise_scale"):
        if hasattr(event, name):
            return dataclasses.replace(event, **{name: getattr(event, name) / 2})
    if hasattr(event, "epsilon"):
        return dataclasses.replace(event, epsilon=event.epsilon * 2)
    raise AssertionError(f"no noise in {event}")


class TestSelection:
    @pytest.mark.parametrize("name", PRIVATE_QUERIES)
    def test_slices_of_nobody_are_never_published(self, tmp_path: Path, name: str) -> None:
        query = planned(tmp_path, name)
        rng = SeededNoise(4)
        table = query.answer(nothing(query, 500), confidence=0.9, rng=rng)
        assert table.frame.height == 0

    def test_a_quarter_of_epsilon_finds_slices(self, tmp_path: Path) -> None:
        query = planned(tmp_path, "found conversions", epsilon=2)
        selection, noise = query.event().events
        assert selection.epsilon * selection.max_keys_per_unit == pytest.approx(0.5)
        assert selection.delta * selection.max_keys_per_unit == pytest.approx(1e-6)
        assert query.main.noise.noise_stddev / math.sqrt(2) == pytest.approx(6 / 1.5, rel=1e-2)
        assert noise == query.main.noise.event()

    def test_a_rate_is_found_by_its_impressions(self, tmp_path: Path) -> None:
        # Their bound on slices is 2, that of conversions 3.
        assert planned(tmp_path, "found rate").selection.max_keys_per_unit == 2
