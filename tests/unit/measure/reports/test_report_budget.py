import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.measure.reports.report_budget import places_within_source, sent_reports

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
