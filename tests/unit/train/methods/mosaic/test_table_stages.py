"""Which tables are thought of: columns that told something, and what they told."""

import numpy as np

from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableStages
from tulle.train.methods.mosaic.column_values import ColumnValues, public_values, sensitive_values
from tulle.train.methods.mosaic.method import CellSettings

_NOISE, _RATE = 4.0, 0.1


def column(place: int) -> ColumnValues:
    return public_values("abcd"[place], place, np.full(10, 1_000))


def stages_with(*spreads: float) -> tuple[TableStages, list[ColumnValues]]:
    """Single columns that have shown these spreads."""
    columns = [column(place) for place in range(len(spreads))]
    stages = TableStages(CellSettings(), num_rows=10_000)
    for table, spread in zip(stages.singles(columns), spreads, strict=True):
        table.note_spread(spread, _NOISE, _RATE)
    return stages, columns


def names(tables: list[CandidateTable]) -> list[str]:
    return ["".join(column.name for column in table.columns) for table in tables]


def gain(table: CandidateTable) -> float:
    return table.expected_gain(_NOISE, _RATE)


def test_pairs_are_made_of_columns_that_told_something() -> None:
    stages, columns = stages_with(0.3, 0.0, 0.2)
    assert names(stages.public_pairs(columns)) == ["ac"]


def test_a_column_that_has_no_more_to_tell_still_makes_pairs() -> None:
    """What it told once is why pairs with it are worth asking for, also when it is used up."""
    stages, columns = stages_with(0.3, 0.2)
    stages.singles(columns)[0].note_again(0.0, _NOISE, _RATE)
    assert names(stages.known()) == ["b"]
    assert names(stages.public_pairs(columns)) == ["ab"]


def test_pairs_of_columns_that_told_little_promise_little() -> None:
    stages, columns = stages_with(0.3, 0.25, 0.02)
    promised = {name: gain(table) for name, table in _by_name(stages.public_pairs(columns)).items()}
    assert promised["ab"] > 10 * promised["ac"]
    assert promised["ac"] == promised["bc"]


def test_three_columns_are_crossed_where_all_pairs_told_something() -> None:
    stages, columns = stages_with(0.3, 0.3, 0.3, 0.3)
    for name, table in _by_name(stages.public_pairs(columns)).items():
        table.note_spread(0.2 if name in ("ab", "ac", "bc", "ad") else 0.0, _NOISE, _RATE)
        table.realised_gain = 1.0
    crossed = {name: gain(table) for name, table in _by_name(stages.triples()).items()}
    assert crossed["abc"] > 0
    assert crossed["abd"] == crossed["acd"] == crossed["bcd"] == 0


def test_only_pairs_that_gained_most_are_crossed() -> None:
    columns = [column(place) for place in range(4)]
    stages = TableStages(CellSettings(num_crossed_pairs=2), num_rows=10_000)
    for table in stages.singles(columns):
        table.note_spread(0.3, _NOISE, _RATE)
    for name, table in _by_name(stages.public_pairs(columns)).items():
        table.note_spread(0.2, _NOISE, _RATE)
        table.realised_gain = {"ab": 5.0, "bc": 4.0}.get(name, 1.0)
    assert names(stages.triples()) == ["abc"]


def test_a_column_without_two_values_has_no_table() -> None:
    constant = public_values("a", 0, np.array([0, 500, 0]))
    assert TableStages(CellSettings(), num_rows=500).singles([constant]) == []


def test_a_column_called_like_a_coarse_form_is_another_one() -> None:
    noisy = np.concatenate([np.full(50, 2_000.0), np.full(50, 300.0)])
    audience, frequency = sensitive_values("audience", 0, noisy, 10.0)
    (named,) = sensitive_values("frequency of audience", 1, np.full(5, 900.0), 10.0)
    assert frequency.name == named.name
    tables = TableStages(CellSettings(), num_rows=10_000).singles([audience, frequency, named])
    assert len({id(table) for table in tables}) == 3


def _by_name(tables: list[CandidateTable]) -> dict[str, CandidateTable]:
    return dict(zip(names(tables), tables, strict=True))
