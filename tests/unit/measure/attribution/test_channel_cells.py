"""Counts of units by channel set."""

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
from tulle.measure.attribution.channel_cells import ChannelCells, raw_cell_counts
from unit.measure.attribution.exposures import CHANNELS, table_of

CELLS = ChannelCells(channels=CHANNELS, max_set_size=2)


def test_every_set_has_its_row_and_larger_sets_share_the_last() -> None:
    counts = raw_cell_counts(
        table_of(
            {
                (("video", "news"), True): 5,
                (("news", "video", "news"), True): 2,
                (("news",), False): 7,
                (CHANNELS, False): 11,
                (("billboard", "radio"), True): 3,
                (("billboard",), True): 13,
                ((), True): 17,
            }
        ),
        CELLS,
    )
    rows = [*CELLS.masks.tolist(), "larger"]
    assert CELLS.masks.tolist() == [0b001, 0b010, 0b100, 0b011, 0b101, 0b110]
    filled = {row: pair for row, pair in zip(rows, counts.tolist(), strict=True) if any(pair)}
    assert filled == {0b001: [7, 0], 0b011: [0, 7], 0b100: [0, 3], "larger": [11, 0]}


@pytest.mark.parametrize(("num_channels", "max_set_size"), [(2, 1), (4, 3), (12, 3), (5, 9)])
def test_the_number_of_cells_is_that_of_sets_and_outcomes(
    num_channels: int, max_set_size: int
) -> None:
    cells = ChannelCells(
        channels=tuple(f"channel {i}" for i in range(num_channels)), max_set_size=max_set_size
    )
    sets = [
        members
        for size in range(1, max_set_size + 1)
        for members in itertools.combinations(range(num_channels), size)
    ]
    assert len(cells.masks) == len(sets)
    assert {int(mask) for mask in cells.masks} == {sum(1 << i for i in s) for s in sets}
    assert cells.num_cells == 2 * (len(sets) + 1)


@given(
    units=st.lists(
        st.tuples(st.lists(st.sampled_from([*CHANNELS, "billboard"])), st.booleans()), min_size=1
    ),
    data=st.data(),
)
def test_one_unit_more_changes_one_count_by_one_at_most(
    units: list[tuple[list[str], bool]], data: st.DataObject
) -> None:
    def counts_of(rows: list[tuple[list[str], bool]]) -> np.ndarray:
        frame = pl.DataFrame(
            {
                "channels": [channels for channels, _ in rows],
                "converted": [converted for _, converted in rows],
                "num_units": [1] * len(rows),
            },
            schema={"channels": pl.List(pl.String), "converted": pl.Boolean, "num_units": pl.Int64},
        )
        return raw_cell_counts(frame, CELLS)

    place = data.draw(st.integers(0, len(units) - 1))
    others = [*units[:place], *units[place + 1 :]]
    assert np.abs(counts_of(units) - counts_of(others)).sum() <= 1


@pytest.mark.parametrize(
    ("channels", "max_set_size", "reason"),
    [
        (("news",), 2, "2 to 12"),
        (tuple(f"c{i}" for i in range(13)), 2, "2 to 12"),
        (("news", "news"), 2, "distinct"),
        (("news", ""), 2, "not empty"),
        (("news", "video"), 0, "max_set_size"),
        (tuple(f"c{i}" for i in range(12)), 8, "at most 5000"),
    ],
)
def test_cells_that_cannot_be_counted_are_refused(
    channels: tuple[str, ...], max_set_size: int, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        ChannelCells(channels=channels, max_set_size=max_set_size)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (pl.col("num_units").cast(pl.Float64), "whole numbers"),
        (-pl.col("num_units"), "whole numbers"),
        (pl.col("converted").cast(pl.Int64), "'converted' .* must be Boolean"),
        (pl.col("channels").list.first(), "'channels' .* must be List"),
        (pl.lit(None).alias("converted"), "has nulls"),
    ],
)
def test_tables_of_another_kind_are_refused(change: pl.Expr, reason: str) -> None:
    table = table_of({(("news",), True): 1}).with_columns(change)
    with pytest.raises(DataError, match=reason):
        raw_cell_counts(table, CELLS)


@pytest.mark.parametrize("column", ["channels", "converted", "num_units"])
def test_a_table_without_one_of_its_columns_is_refused(column: str) -> None:
    with pytest.raises(DataError, match=f"no column '{column}'"):
        raw_cell_counts(table_of({(("news",), True): 1}).drop(column), CELLS)
