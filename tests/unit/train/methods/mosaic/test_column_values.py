"""Bins that lie in order keep it, and rare ones join their neighbours."""

import numpy as np

from tulle.data.prepared.feature import PreparedFeature
from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.column_values import ColumnValues, public_values, sensitive_values


def feature(role: str, num_bins: int, *, order: str = "line") -> PreparedFeature:
    """Bins behind two ids of other features; an id of negative numbers and one of missing."""
    return PreparedFeature(
        name="price",
        role=role,
        num_ids=num_bins + 5,
        table="t",
        order=order,
        first_bin=2,
        num_bins=num_bins,
        num_apart=2,
    )


def public(counts: list[int], num_bins: int) -> ColumnValues:
    return public_values("price", 0, np.array(counts), feature("public", num_bins))


def test_ranks_follow_the_bins_and_missing_stands_apart() -> None:
    values = public([0, 0, 5, 90, 7, 0, 3, 0], 3)
    assert values.ranks.tolist() == [0, 0, 1, 2, 3, 0, 4, 0]
    assert values.counts.tolist() == [0, 5, 90, 7, 3]
    assert (values.order, values.num_bins) == ("line", 3)


def test_bins_without_rows_join_a_neighbour() -> None:
    values = public([0, 0, 0, 9, 0, 4, 0, 0, 2, 0], 5)
    assert values.ranks[2:7].tolist() == [1, 1, 2, 2, 2]
    assert values.num_bins == 2


def test_sensitive_bins_need_counts_that_stand_out_of_the_noise() -> None:
    noisy = np.array([-8.0, 30.0, 20.0, 25.0, 100.0, -6.0, 90.0, 12.0, -3.0, 5.0, 60.0])
    (values,) = sensitive_values("price", 1, noisy, 10.0, feature("sensitive", 6))
    # Four deviations are 40: 20 + 25, then 100, then -6 + 90, and what is left joins the last.
    assert values.ranks[2:8].tolist() == [1, 1, 2, 3, 3, 3]
    assert values.ranks[8:].tolist() == [4, 5, 0]
    assert values.counts[0] == 0


def test_a_smaller_table_merges_neighbours_and_keeps_what_stands_apart() -> None:
    values = public([0, 0, *[10] * 12, 4, 6, 0], 12)
    assert values.num_values == 15
    part = values.part(7)
    assert part.lookup.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, 0]
    assert values.limited_counts(7).tolist() == [0, 30, 30, 30, 30, 4, 6]
    assert values.num_bins_of(7) == 4


def test_a_table_knows_its_ordered_columns() -> None:
    site = public_values("site", 1, np.array([50, 30, 20]))
    hour = public_values("hour", 0, np.array([0, 0, *[5] * 48, 3, 0, 0]), feature("public", 48))
    table = CandidateTable([site, hour], num_rows=243, spread=0.3, max_cells=10_000)
    (axis,) = table.axes
    assert (axis.sizes, axis.place, axis.num_bins) == ((50, 4), 0, 48)
    assert table.cells.pooled == 2
    alone = CandidateTable([site], num_rows=103, spread=0.3, max_cells=10_000)
    assert alone.axes == ()
    assert alone.cells.pooled == 1


def test_bins_that_share_their_evidence_are_expected_to_gain_as_their_stretches_would() -> None:
    fine = public([0, 0, *[1_000] * 48, 0, 0, 0], 48)
    coarse = public([0, 0, *[2_000] * 24, 0, 0, 0], 24)
    gains = [
        CandidateTable([values], num_rows=48_000, spread=0.3, max_cells=100).expected_gain(n, 0.1)
        for values, n in ((fine, 100.0), (coarse, 200.0))
    ]
    assert gains[0] == gains[1] or abs(gains[0] / gains[1] - 1) < 1e-9
