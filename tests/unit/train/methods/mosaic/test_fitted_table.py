"""Releases of the same sums of labels, taken together."""

import numpy as np
import pytest

from tulle.train.methods.mosaic.candidate_table import FittedTable


def test_releases_are_weighted_by_what_their_rows_spent() -> None:
    table = FittedTable.empty(2)
    first, second = np.sqrt([0.1, 0.1]), np.sqrt([0.3, 0.9])
    table.add_label_sums(first * [10.0, 0.0], first)
    assert table.label_sums == pytest.approx([10.0, 0.0])
    table.add_label_sums(second * [2.0, 4.0], second)
    assert table.label_sums == pytest.approx([4.0, 3.6])
    assert table.label_shares == pytest.approx([0.4, 1.0])


def test_the_mean_has_the_noise_of_the_whole_share() -> None:
    """Noise of variance 1 on sums of weighted rows: 1/(sum of shares) on the mean."""
    rng = np.random.default_rng(0)
    table = FittedTable.empty(200_000)
    shares = (0.02, 0.3, 0.08)
    for share in shares:
        table.add_label_sums(rng.standard_normal(200_000), np.full(200_000, np.sqrt(share)))
    assert table.label_sums.var() == pytest.approx(1 / sum(shares), rel=0.02)
    assert table.noise_factors()[0] == pytest.approx(1 / np.sqrt(sum(shares)))


def test_cells_without_rows_say_nothing() -> None:
    table = FittedTable.empty(1)
    table.add_label_sums(np.array([5.0]), np.zeros(1))
    assert np.isfinite(table.label_sums).all()
    assert table.label_sums[0] == 0
    assert np.isfinite(table.noise_factors()).all()
