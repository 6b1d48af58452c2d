"""One mechanism overtakes another where it stays ahead."""

import pytest

from tulle.select.market.overtaking import overtaking_epsilon


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 5, 6], 3.0),
        # Ahead once, then behind: not yet overtaken.
        ([4, 2, 5, 6], 3.0),
        ([3, 3, 3, 4], 4.0),
        ([3, 3, 3, 3], None),
        ([9, 9, 9, 9], 1.0),
        # Equal is overtaken.
        ([3, 4, 4, 4], 2.0),
    ],
)
def test_the_last_lead_counts(values: list[float], expected: float | None) -> None:
    assert overtaking_epsilon([1.0, 2.0, 3.0, 4.0], values, [4, 4, 4, 4]) == expected
