"""Releases of the same sums of labels, taken together."""

import numpy as np
import pytest

from tulle.train.cells.fitted_table import FittedTable


def test_releases_are_weighted_by_their_shares() -> None:
    table = FittedTable.empty(2)
    table.add_label_sums(np.array([10.0, 0.0]), 0.1)
    assert table.label_sums.tolist() == [10.0, 0.0]
    table.add_label_sums(np.array([2.0, 4.0]), 0.3)
    assert table.label_sums == pytest.approx([4.0, 3.0])
    assert table.label_share == pytest.approx(0.4)


def test_the_mean_has_the_noise_of_the_whole_share() -> None:
    """Noise of variance 1/share each: together 1/(sum of shares), and no other weights do that."""
    rng = np.random.default_rng(0)
    table = FittedTable.empty(200_000)
    shares = (0.02, 0.3, 0.08)
    for share in shares:
        table.add_label_sums(rng.standard_normal(200_000) / np.sqrt(share), share)
    assert table.label_sums.var() == pytest.approx(1 / sum(shares), rel=0.02)
