import dataclasses
import math
from collections import defaultdict

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from statistical.noise_checks import Pmf, assert_discrete
from tulle.errors import DataError
from tulle.lab.browser_reports.attributed_log import AttributedLog
from tulle.lab.browser_reports.summary_reports import (
    expected_summary,
    places_within_source,
    sent_reports,
    simulate_summary,
)
from tulle.lab.browser_reports.summary_settings import Goal, SummarySettings
from tulle.mechanisms.entropy import NoiseSource, SeededNoise
from unit.lab.browser_reports.small_logs import log_of_silent_slices, random_log

COUNT = Goal(name="count", budget_share=0.3)
VALUE = Goal(name="value", column="value", max_value=50, budget_share=0.5)
TYPES = Goal(name="types", by=("conversion_type", "campaign"), budget_share=0.2)
SETTINGS = SummarySettings(goals=(COUNT, VALUE, TYPES), max_conversions_per_source=2)
CAMPAIGNS, KINDS = ("blue", "green", "red"), ("a", "b", "c")


def summed_one_by_one(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, list[int]]]:
    """Kept totals by goal and slice, and sent and dropped reports by campaign."""
    log = random_log(seed)
    most = {"count": 9830, "value": 16384, "types": 6553}
    spent: dict[int, int] = defaultdict(int)
    kept: dict[str, dict[str, float]] = {goal: defaultdict(float) for goal in most}
    reports: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row, source in enumerate(log.conversion_sources.tolist()):
        campaign = log.column("campaign")[row]
        kind, value = log.column("conversion_type")[row], log.column("value")[row]
        steps = {
            "count": most["count"],
            "value": round(min(value, 50) / 50 * most["value"]),
            "types": most["types"],
        }
        fits = spent[source] + sum(steps.values()) <= 65536
        reports[campaign][fits] += 1
        if fits:
            spent[source] += sum(steps.values())
            kept["count"][campaign] += steps["count"] / most["count"]
            kept["value"][campaign] += steps["value"] / most["value"] * 50
            kept["types"][f"{kind} / {campaign}"] += steps["types"] / most["types"]
    return kept, reports


@pytest.mark.parametrize("seed", range(4))
def test_kept_totals_and_drops_are_those_of_one_conversion_after_another(seed: int) -> None:
    kept, reports = summed_one_by_one(seed)
    table = expected_summary(random_log(seed), SETTINGS).table
    slices = {"count": CAMPAIGNS, "value": CAMPAIGNS}
    slices["types"] = tuple(f"{kind} / {campaign}" for kind in KINDS for campaign in CAMPAIGNS)
    for goal, names in slices.items():
        rows = table.filter(pl.col("goal") == goal)
        assert sorted(rows["slice"]) == sorted(names)
        expected = [kept[goal][name] for name in rows["slice"]]
        assert rows["kept"].to_list() == pytest.approx(expected, rel=1e-12)
    for row in table.filter(pl.col("goal") == "count").iter_rows(named=True):
        dropped, sent = reports[row["slice"]]
        assert row["dropped_share"] == dropped / (dropped + sent)
        assert row["conversions"] == row["true"] == dropped + sent


def test_a_source_with_its_conversions_moves_all_summaries_by_its_budget_at_most() -> None:
    log = random_log(3)
    steps_per_unit = {goal.name: SETTINGS.steps_per_unit(goal) for goal in SETTINGS.goals}

    def raw_steps(log: AttributedLog) -> NDArray[np.float64]:
        table = expected_summary(log, SETTINGS).table
        per_unit = table["goal"].replace_strict(steps_per_unit, return_dtype=pl.Float64)
        return np.rint((table["kept"] * per_unit).to_numpy())

    moves = []
    for source in set(log.conversion_sources.tolist()):
        is_left = log.conversion_sources != source
        without = dataclasses.replace(
            log,
            conversion_sources=log.conversion_sources[is_left],
            ages=log.ages[is_left],
            conversions=log.conversions.filter(is_left),
        )
        moves.append(np.abs(raw_steps(log) - raw_steps(without)).sum())
    assert 50_000 < max(moves) <= 65_536


def test_some_reports_are_dropped_and_a_larger_division_drops_fewer() -> None:
    log = random_log(0)
    shares = [
        expected_summary(
            log, SummarySettings(goals=(COUNT, VALUE), max_conversions_per_source=divisor)
        ).dropped_share
        for divisor in (1, 2, 20)
    ]
    assert shares[0] > shares[1] > shares[2] == 0


@pytest.mark.parametrize("conversions", [5, 25])
def test_relative_errors_follow_from_the_columns_beside_them(conversions: int) -> None:
    log = random_log(2)
    outcome = expected_summary(log, dataclasses.replace(SETTINGS, tau=conversions))
    median = float(np.median(log.column("value").to_numpy()))
    for goal, tau in (
        ("count", conversions),
        ("value", conversions * median),
        ("types", conversions),
    ):
        rows = outcome.table.filter(pl.col("goal") == goal)
        errors = [
            math.hypot(row["kept"] - row["true"], row["noise_stddev"]) / max(tau, row["true"])
            for row in rows.iter_rows(named=True)
        ]
        assert rows["relative_error"].to_list() == pytest.approx(errors, rel=1e-12)
        mean_square = sum(error**2 for error in errors) / len(errors)
        assert outcome.rmsre[goal] == pytest.approx(math.sqrt(mean_square), rel=1e-12)
    squares = [error**2 for error in outcome.rmsre.values()]
    assert outcome.overall_rmsre == pytest.approx(math.sqrt(sum(squares) / 3), rel=1e-12)


def test_keys_are_distinct_and_fit_128_bits() -> None:
    keys = expected_summary(random_log(0), SETTINGS).table["key"].to_list()
    assert len(set(keys)) == len(keys) == 3 + 3 + 9
    assert all(0 <= int(key, 16) < 2**128 for key in keys)


def test_every_declared_key_gets_discrete_laplace_noise_even_without_a_conversion() -> None:
    settings = SummarySettings(epsilon=64)

    def pmf_of_scale(scale: float) -> Pmf:
        return lambda steps: math.tanh(0.5 / scale) * np.exp(-np.abs(steps) / scale)

    def draw(rng: NoiseSource, size: int) -> NDArray[np.float64]:
        outcome = simulate_summary(log_of_silent_slices(size), settings, rng=rng)
        assert outcome.table["true"].sum() == 0
        return np.asarray(outcome.table["noisy"].to_numpy() * 65536)

    assert_discrete(draw, pmf_of_scale, scale=65536 / 64)


def test_a_draw_is_the_kept_total_with_noise_in_units_of_the_goal() -> None:
    log = random_log(1)
    outcome = simulate_summary(log, SETTINGS, rng=SeededNoise(4))
    expected = expected_summary(log, SETTINGS)
    assert outcome.table.drop("noisy").equals(expected.table)
    scores = (outcome.table["noisy"] - outcome.table["kept"]) / outcome.table["noise_stddev"]
    # 15 standard deviations of Laplace noise: a chance of 1e-8 for all 15 rows.
    assert 0 < np.abs(scores.to_numpy()).max() < 15
    assert not outcome.table["noisy"].equals(outcome.table["kept"])


def test_a_log_without_an_attributed_conversion_has_noise_alone() -> None:
    outcome = expected_summary(log_of_silent_slices(3), SummarySettings(goals=(VALUE,), epsilon=1))
    assert outcome.dropped_share == 0
    stddev = 50 / 32768 * 92681.9
    assert outcome.table["relative_error"].to_list() == pytest.approx([stddev / 5] * 3, rel=1e-6)


def test_a_value_that_is_no_number_is_refused() -> None:
    goal = Goal(name="types", column="conversion_type", max_value=3)
    with pytest.raises(DataError, match="'conversion_type' holds no number"):
        expected_summary(random_log(0), SummarySettings(goals=(goal,)))


def test_a_missing_value_is_refused() -> None:
    log = random_log(0)
    holes = log.conversions.with_columns(pl.lit(None, pl.Float64).alias("value"))
    with pytest.raises(DataError, match="in every row"):
        expected_summary(
            dataclasses.replace(log, conversions=holes), SummarySettings(goals=(VALUE,))
        )


BUDGET = 10
REPORTS = st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 12)), max_size=60)


def sent_one_by_one(reports: list[tuple[int, int]], max_reports: int) -> list[bool]:
    spent: dict[int, int] = {}
    sent: dict[int, int] = {}
    made = []
    for source, amount in reports:
        fits = spent.get(source, 0) + amount <= BUDGET and sent.get(source, 0) < max_reports
        if amount == 0:
            made.append(True)
            continue
        if fits:
            spent[source] = spent.get(source, 0) + amount
            sent[source] = sent.get(source, 0) + 1
        made.append(fits)
    return made


@given(REPORTS, st.integers(1, 4))
def test_all_sources_at_once_are_as_one_by_one(
    reports: list[tuple[int, int]], max_reports: int
) -> None:
    sources, amounts = np.array(reports, np.int64).reshape(-1, 2).T
    found = sent_reports(sources, amounts, budget=BUDGET, max_reports=max_reports)
    assert found.tolist() == sent_one_by_one(reports, max_reports)


@given(REPORTS)
def test_no_source_spends_more_than_its_budget(reports: list[tuple[int, int]]) -> None:
    sources, amounts = np.array(reports, np.int64).reshape(-1, 2).T
    sent = sent_reports(sources, amounts, budget=BUDGET)
    for source in set(sources.tolist()):
        assert amounts[sent & (sources == source)].sum() <= BUDGET


def test_a_later_smaller_report_may_still_fit() -> None:
    # A clip of the running sum would drop everything after the second one.
    assert sent_reports([7, 7, 7], [40_000, 30_000, 25_536]).tolist() == [True, False, True]


def test_the_twenty_first_report_is_dropped_however_small() -> None:
    sent = sent_reports([1] * 22, [1] * 22)
    assert sent.tolist() == [True] * 20 + [False] * 2


def test_places_count_the_rows_of_each_source() -> None:
    assert places_within_source([5, 3, 5, 5, 3, 9]).tolist() == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize("amounts", [[-1], [0.5], [1, 2]])
def test_amounts_that_are_no_contributions_are_refused(amounts: list[float]) -> None:
    with pytest.raises(DataError, match="amounts"):
        sent_reports([1], amounts)
