"""A score that is missing, infinite or of no candidate is refused, and not shown."""

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.select.raw_scores import check_raw_scores
from unit.select.floors.tiny_auctions import auctions_of

AUCTIONS = auctions_of([0.1, 0.2], [0.3])


def test_finite_scores_of_all_candidates_are_taken_as_float64() -> None:
    checked = check_raw_scores(AUCTIONS, np.array([1, -2, 3], np.float32))
    assert checked.dtype == np.float64
    assert checked.tolist() == [1, -2, 3]


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_a_hard_exclusion_is_refused_with_reason_and_way_out(bad: float | None) -> None:
    with pytest.raises(DataError, match="hard private exclusion") as error:
        check_raw_scores(AUCTIONS, [0.123456, bad, 1.0])  # type: ignore[list-item]
    assert "e^-epsilon" in str(error.value)
    assert "'no ad' as a candidate" in str(error.value)
    assert "0.123456" not in str(error.value)


@pytest.mark.parametrize("scores", [[0.1, 0.2], [0.1] * 4, [[0.1, 0.2, 0.3]], []])
def test_scores_of_other_candidates_are_refused(scores: list[float]) -> None:
    with pytest.raises(DataError, match="depends on private data"):
        check_raw_scores(AUCTIONS, scores)


def test_what_is_no_number_is_refused_and_not_shown() -> None:
    with pytest.raises(DataError, match="one row of numbers") as error:
        check_raw_scores(AUCTIONS, ["0.1", "secret", "0.3"])
    assert "secret" not in str(error.value)
