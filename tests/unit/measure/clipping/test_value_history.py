import numpy as np
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.measure.clipping.value_history import ValueHistory


def test_slices_of_a_table_are_its_distinct_keys() -> None:
    frame = pl.DataFrame(
        {"geo": ["x", "y", "x", "x"], "age": ["1", "1", "2", "1"], "price": [1, 2, 3, 4]}
    )
    history = ValueHistory.from_frame(frame, slices=["geo", "age"], values=["price"])
    assert history.names == ("price",)
    assert sorted(history.true_totals[:, 0].tolist()) == [2, 3, 5]
    assert sorted(history.true_counts.tolist()) == [1, 1, 2]
    assert history.slices[0] == history.slices[3]
    whole = ValueHistory.from_frame(frame, slices=[], values=["price"])
    assert whole.true_totals.tolist() == [[10.0]]


def test_what_bounds_cut_off_is_in_the_truth_and_not_in_what_is_kept() -> None:
    history = ValueHistory(
        names=("price",),
        values=np.array([[1.0], [2.0], [4.0]]),
        slices=np.array([0, 0, 1]),
        kept=np.array([1.0, 0.5, 0.0]),
    )
    assert history.true_totals[:, 0].tolist() == [3, 4]
    assert history.kept_totals(history.values[:, 0]).tolist() == [2, 0]


def test_five_usual_rows_are_the_default_tau() -> None:
    history = ValueHistory(
        names=("price", "items"),
        values=np.array([[10.0, 0.0], [20.0, 1.0], [90.0, 3.0]]),
        slices=np.zeros(3, dtype=np.int64),
    )
    assert history.default_taus() == (100.0, 10.0, 5.0)


@pytest.mark.parametrize(
    ("values", "slices", "kept", "message"),
    [
        (np.empty((0, 1)), [], None, "at least one"),
        ([[1.0], [2.0]], [0], None, "for 1 rows"),
        ([[1.0], [-2.0]], [0, 0], None, ">= 0"),
        ([[1.0], [np.nan]], [0, 0], None, "finite"),
        ([[0.0], [0.0]], [0, 0], None, "'price' .* only zeros"),
        ([[1.0], [2.0]], [0, -1], None, "numbers of slices"),
        ([[1.0], [2.0]], [0, 0], [0.5, 1.5], "from 0 to 1"),
        ([[1.0], [2.0]], [0, 0], [0.5], "for each row"),
    ],
)
def test_rows_that_are_none_are_refused(values, slices, kept, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ValueHistory(
            names=("price",),
            values=np.asarray(values, dtype=float),
            slices=np.asarray(slices, dtype=np.int64),
            kept=None if kept is None else np.asarray(kept),
        )


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        ValueHistory.from_frame(pl.DataFrame({"price": []}), slices=[], values=["price"])
