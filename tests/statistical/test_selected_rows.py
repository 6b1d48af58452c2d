"""Selected rows and their gradients have the law of noise on every row of the table.

Every planted fault must be caught by the check that is named for it.
"""

import inspect
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from statistical import faulty_selected_rows as faulty
from statistical.law_checks import worst_score_between
from statistical.noise_checks import FALSE_ALARM, WRONG_FACTORS, assert_gaussian
from statistical.selected_runs import (
    CHANCES,
    GRADIENT_STDDEV,
    MEANS,
    READS,
    MakeStep,
    Seen,
    Values,
    seen_by_step,
    seen_with_noise_on_every_row,
)
from tulle.train.models.contributions import TableReads
from tulle.train.steps.selected import COUNT_STEPS, RowCounts, SelectedStep, count_rows
from unit.train.steps.step_reference import user_units

NUM_RUNS = 100_000
NUM_DRAWS = 20_000
Count = Callable[..., list[RowCounts]]


def both_steps(make_step: MakeStep) -> list[Seen]:
    return seen_by_step(make_step, NUM_RUNS, 2, seed=21)


def check_chance_of_every_row(make_step: MakeStep) -> None:
    alarm = FALSE_ALARM / len(READS)
    coins = np.concatenate([seen.is_selected for seen in both_steps(make_step)], axis=1)
    for times, chance in zip(coins.sum(1).tolist(), CHANCES, strict=True):
        assert stats.binomtest(times, coins.shape[1], chance).pvalue > alarm
        for factor in WRONG_FACTORS:
            assert stats.binomtest(times, coins.shape[1], factor * chance).pvalue <= alarm


def check_rows_are_independent(make_step: MakeStep) -> None:
    first, second = (seen.is_selected for seen in both_steps(make_step))
    together = [*itertools.combinations(range(len(READS)), 2)]
    pairs = [(first[i] & first[j], CHANCES[i] * CHANCES[j]) for i, j in together]
    # The same row in two steps, and neighbouring runs in one step.
    pairs += [(one & other, p**2) for one, other, p in zip(first, second, CHANCES, strict=True)]
    pairs += [(row[0::2] & row[1::2], p**2) for row, p in zip(first, CHANCES, strict=True)]
    for both, chance in pairs:
        p_value = stats.binomtest(int(both.sum()), len(both), chance).pvalue
        assert p_value > FALSE_ALARM / len(pairs)


def check_noise_of_selected_rows(make_step: MakeStep) -> None:
    steps = both_steps(make_step)
    for row, mean in enumerate(MEANS):
        noises = [seen.gradients[row][seen.is_selected[row]] - mean for seen in steps]
        halves = iter(noise[:NUM_DRAWS] for noise in noises)
        assert_gaussian(
            lambda _, __, halves=halves: next(halves),
            stddev=GRADIENT_STDDEV,
            num_draws=2 * NUM_DRAWS,
        )


def check_law_of_noise_on_every_row(make_step: MakeStep) -> None:
    wanted = seen_with_noise_on_every_row(NUM_RUNS, seed=5).numbers
    for seen in both_steps(make_step):
        assert worst_score_between(seen.numbers, wanted) < 1


CHECKS = [
    check_chance_of_every_row,
    check_rows_are_independent,
    check_noise_of_selected_rows,
    check_law_of_noise_on_every_row,
]


@pytest.mark.parametrize("check", CHECKS)
def test_selected_rows_have_the_stated_law(check: Callable[[MakeStep], None]) -> None:
    check(SelectedStep)


CAUGHT = [
    (faulty.ThresholdOnRawCounts, check_chance_of_every_row),
    (faulty.UnreadRowsAreNeverSelected, check_chance_of_every_row),
    (faulty.UnreadRowsAreSelectedTooRarely, check_chance_of_every_row),
    (faulty.ReadRowsGetASecondChance, check_chance_of_every_row),
    (faulty.CountsHaveTheNoiseOfTheWholeStep, check_chance_of_every_row),
    (faulty.RowsOutsideTheSelectionAreKept, check_chance_of_every_row),
    (faulty.GradientsHaveTheNoiseOfTheWholeStep, check_noise_of_selected_rows),
    (faulty.SelectedRowsHaveNoNoise, check_noise_of_selected_rows),
    (faulty.OnlyReadRowsHaveNoise, check_noise_of_selected_rows),
    (faulty.NoiseOfTheCountsIsUsedAgain, check_noise_of_selected_rows),
]


@pytest.mark.parametrize(("fault", "check"), CAUGHT)
def test_a_faulty_step_is_caught(
    fault: type[SelectedStep], check: Callable[[MakeStep], None]
) -> None:
    with pytest.raises(AssertionError):
        check(fault)


@pytest.mark.parametrize("fault", [fault for fault, _ in CAUGHT])
def test_a_faulty_step_has_not_the_law_of_noise_on_every_row(fault: type[SelectedStep]) -> None:
    with pytest.raises(AssertionError):
        check_law_of_noise_on_every_row(fault)


# An example that repeats a row, and one that reads a row of its own in every feature.
REPEATED, ALL_ROWS = ((0, 0, 0, 0), (1, 1)), ((0, 1, 2, 3), (0, 1))


def longest_unit(count: Count, sizes: list[int] | None) -> float:
    """The norm of the counts of one example, or of one user with both examples."""
    norms = []
    for batch in [[REPEATED], [ALL_ROWS]] if sizes is None else [[REPEATED, ALL_ROWS]]:
        reads = [
            TableReads(table=f"t{place}", rows=torch.tensor([unit[place] for unit in batch]))
            for place in range(2)
        ]
        units = None if sizes is None else user_units(sizes)
        counted = count(reads, torch.ones(len(batch)), units)
        norms.append(norm_of(counted))
    return max(norms)


def norm_of(counted: list[RowCounts]) -> float:
    squares = sum(count**2 for counts in counted for count in counts.counts.tolist())
    return math.sqrt(squares) / COUNT_STEPS


def check_norm_of_an_example(count: Count) -> None:
    assert longest_unit(count, None) <= 1


def check_norm_of_a_user(count: Count) -> None:
    assert longest_unit(count, [2]) <= 1


def check_norm_of_padding(count: Count) -> None:
    reads = [TableReads(table="t0", rows=torch.tensor([[1, 2]]))]
    assert norm_of(count(reads, torch.zeros(1), None)) == 0


@pytest.mark.parametrize(
    "check", [check_norm_of_an_example, check_norm_of_a_user, check_norm_of_padding]
)
def test_the_counts_of_a_unit_are_bounded(check: Callable[[Count], None]) -> None:
    check(count_rows)


CAUGHT_COUNTS = [
    (faulty.every_read_is_counted, check_norm_of_an_example),
    (faulty.each_table_is_counted_alone, check_norm_of_an_example),
    (faulty.users_are_counted_as_their_examples, check_norm_of_a_user),
    (faulty.padding_is_counted, check_norm_of_padding),
]


@pytest.mark.parametrize(("fault", "check"), CAUGHT_COUNTS)
def test_a_faulty_count_is_caught(fault: Count, check: Callable[[Count], None]) -> None:
    with pytest.raises(AssertionError):
        check(fault)


def test_every_fault_in_the_file_is_listed() -> None:
    planted = {
        member
        for name, member in inspect.getmembers(faulty)
        if (inspect.isclass(member) or inspect.isfunction(member))
        and member.__module__ == faulty.__name__
        and not name.startswith("_")
    }
    assert planted == {fault for fault, _ in [*CAUGHT, *CAUGHT_COUNTS]}


def test_runs_of_this_file_read_as_they_say() -> None:
    """The chances differ from row to row, so a row that is taken for another is seen."""
    chances: Values = np.sort(np.unique(np.round(CHANCES, 3)))
    assert len(chances) == 3
    assert 0.1 < chances[0] < chances[-1] < 0.9
