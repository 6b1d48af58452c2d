"""The drop rule of summary reports: a report that the source cannot pay is not sent at all.

The budget of a source is spent in order of time. A report that exceeds what is left is
dropped whole and costs nothing, so a later and smaller one may still fit. That is state, not
a clip of the sum; reports of one source come one after another, all sources side by side.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.measure.reports.aggregation_keys import L1_BUDGET
from tulle.privacy.fields import check_count

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_REPORTS_PER_SOURCE = 20


def sent_reports(
    sources: ArrayLike,
    amounts: ArrayLike,
    *,
    budget: int = L1_BUDGET,
    max_reports: int = MOST_REPORTS_PER_SOURCE,
) -> BoolArray:
    """Which reports are sent, the others being dropped.

    Args:
      sources: The source of each report, in order of time.
      amounts: Sum of the contributions of each report. One of 0 is no report: it costs
        nothing and counts as sent, because nothing is lost.
      budget: What one source may spend.
      max_reports: Reports that one source may send.
    """
    check_count("budget", budget)
    check_count("max_reports", max_reports)
    owners, costs = np.asarray(sources), np.asarray(amounts)
    if owners.ndim != 1 or owners.shape != costs.shape:
        raise DataError("sources and amounts must have one number for each report.")
    if costs.dtype.kind not in "iu" or np.any(costs < 0):
        raise DataError("amounts must be whole numbers >= 0.")
    is_sent: BoolArray = costs == 0
    reports = np.flatnonzero(~is_sent)
    _, places = np.unique(owners[reports], return_inverse=True)
    spent = np.zeros(places.max(initial=-1) + 1, np.int64)
    num_sent = np.zeros(len(spent), np.int64)
    for turn in _turns(places):
        owner, cost = places[turn], costs[reports[turn]]
        is_open = (num_sent[owner] < max_reports) & (spent[owner] < budget)
        if not is_open.any():  # Whoever has a later turn has this one, and is closed.
            break
        fits = is_open & (spent[owner] + cost <= budget)
        spent[owner] += np.where(fits, cost, 0)
        num_sent[owner] += fits
        is_sent[reports[turn]] = fits
    return is_sent


def places_within_source(sources: ArrayLike) -> IntArray:
    """0 for the first row of each source, 1 for its second, in the order of the rows."""
    owners = np.asarray(sources)
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    places = np.empty(len(ordered), np.int64)
    places[order] = np.arange(len(ordered)) - firsts[np.cumsum(is_first) - 1]
    return places


def _turns(owners: IntArray) -> list[IntArray]:
    """Rows that are the first of their owner, then the second ones, and so on."""
    places = places_within_source(owners)
    order = np.argsort(places, kind="stable")
    return np.split(order, np.cumsum(np.bincount(places))[:-1])
