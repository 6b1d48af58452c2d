"""Counts of rows: what they are, and that no unit moves them by more than 1."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.errors import ConfigError
from tulle.mechanisms.entropy import SeededNoise
from tulle.train.models.contributions import TableReads
from tulle.train.settings.step_noise import SelectedRows
from tulle.train.steps.private_step import BatchUnits
from tulle.train.steps.selected import (
    COUNT_STEPS,
    RowCounts,
    RowSelector,
    SelectionNoise,
    count_rows,
    places_of,
)
from tulle.train.steps.training_noise import TrainingNoise
from unit.train.steps.step_reference import user_units

# Rows by table; few, so that examples and users meet in them.
SIZES = {"public.table.0": 5, "sensitive.table.0": 3}
FEATURES = {"public.table.0": 4, "sensitive.table.0": 2}
NUM_FEATURES = 6

Example = tuple[tuple[int, ...], ...]
Vector = dict[tuple[str, int], int]

examples = st.tuples(
    *[
        st.tuples(*[st.integers(0, SIZES[name] - 1)] * num_reads)
        for name, num_reads in FEATURES.items()
    ]
)


def reads_of(batch: list[Example]) -> list[TableReads]:
    return [
        TableReads(
            table=name,
            rows=torch.tensor([example[place] for example in batch]).reshape(-1, num_reads).long(),
        )
        for place, (name, num_reads) in enumerate(FEATURES.items())
    ]


def counts_of(
    batch: list[Example], weights: Tensor | None = None, sizes: list[int] | None = None
) -> Vector:
    units = None if sizes is None else user_units(sizes)
    counted = count_rows(
        reads_of(batch), torch.ones(len(batch)) if weights is None else weights, units
    )
    return {
        (counts.table, row): count
        for counts in counted
        for row, count in zip(counts.rows.tolist(), counts.counts.tolist(), strict=True)
    }


def distinct_rows(batch: list[Example]) -> set[tuple[str, int]]:
    return {
        (name, row)
        for example in batch
        for name, rows in zip(SIZES, example, strict=True)
        for row in rows
    }


def squared_distance(first: Vector, second: Vector) -> int:
    keys = first.keys() | second.keys()
    return sum((first.get(key, 0) - second.get(key, 0)) ** 2 for key in keys)


def users(batch: list[Example], sizes: list[int]) -> list[list[Example]]:
    ends = np.cumsum(sizes).tolist()
    return [batch[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@given(batch=st.lists(examples, max_size=8))
def test_an_example_adds_one_share_to_each_distinct_row(batch: list[Example]) -> None:
    wanted: Counter[tuple[str, int]] = Counter()
    for example in batch:
        wanted.update(distinct_rows([example]))
    found = counts_of(batch)
    assert found.keys() == wanted.keys()
    for key, times in wanted.items():
        assert found[key] == times * int((COUNT_STEPS - 1) / math.sqrt(NUM_FEATURES))


@given(batch=st.lists(examples, max_size=8), data=st.data())
def test_padding_adds_nothing(batch: list[Example], data: st.DataObject) -> None:
    is_kept = data.draw(st.lists(st.booleans(), min_size=len(batch), max_size=len(batch)))
    weights = torch.tensor(is_kept, dtype=torch.float32)
    kept = [example for example, keep in zip(batch, is_kept, strict=True) if keep]
    assert squared_distance(counts_of(batch, weights), counts_of(kept)) == 0


@given(sizes=st.lists(st.integers(1, 6), max_size=4), data=st.data())
def test_a_user_adds_one_share_to_each_distinct_row_of_all_its_examples(
    sizes: list[int], data: st.DataObject
) -> None:
    size = sum(sizes)
    batch = data.draw(st.lists(examples, min_size=size, max_size=size))
    wanted: Counter[tuple[str, int]] = Counter()
    for user in users(batch, sizes):
        rows = distinct_rows(user)
        share = int((COUNT_STEPS - 1) / math.sqrt(max(NUM_FEATURES, len(rows))))
        wanted.update(dict.fromkeys(rows, share))
    assert squared_distance(counts_of(batch, sizes=sizes), dict(wanted)) == 0


@given(
    rest=st.lists(examples, max_size=6),
    units=st.tuples(examples, examples),
    place=st.integers(0, 6),
)
def test_an_example_moves_the_counts_by_at_most_1(
    rest: list[Example], units: tuple[Example, Example], place: int
) -> None:
    without = counts_of(rest)
    first, second = (counts_of([*rest[:place], unit, *rest[place:]]) for unit in units)
    assert squared_distance(first, without) <= COUNT_STEPS**2
    assert squared_distance(second, without) <= COUNT_STEPS**2
    assert squared_distance(first, second) <= 2 * COUNT_STEPS**2


@given(rest=st.lists(examples, max_size=5), data=st.data())
def test_a_user_moves_the_counts_by_at_most_1(rest: list[Example], data: st.DataObject) -> None:
    owners = [1] * len(rest)
    without = counts_of(rest, sizes=owners)
    moved = []
    for _ in range(2):
        own = data.draw(st.lists(examples, min_size=1, max_size=8))
        moved.append(counts_of([*own, *rest], sizes=[len(own), *owners]))
        assert squared_distance(moved[-1], without) <= COUNT_STEPS**2
    assert squared_distance(*moved) <= 2 * COUNT_STEPS**2


def test_the_bound_is_nearly_met_by_examples_and_users_of_many_rows() -> None:
    example: Example = ((0, 1, 2, 3), (0, 1))
    other: Example = ((4, 4, 4, 4), (2, 2))
    for batch, sizes in (([example], None), ([example, other], [2])):
        length = math.sqrt(squared_distance(counts_of(batch, sizes=sizes), {})) / COUNT_STEPS
        assert 1 - 1e-8 < length <= 1


@pytest.mark.parametrize("num_rows", [1, 2, 3, 39, 1000, 12_345])
def test_the_norm_of_a_user_is_at_most_1_whatever_the_number_of_its_rows(num_rows: int) -> None:
    reads = TableReads(table="t", rows=torch.arange(num_rows)[:, None])
    units = BatchUnits(
        segments=torch.zeros(num_rows, dtype=torch.int64),
        weights=torch.full((num_rows,), 1 / num_rows),
        num_segments=1,
    )
    (counted,) = count_rows([reads], units.weights, units)
    assert sum(count**2 for count in counted.counts.tolist()) <= COUNT_STEPS**2
    assert float(counted.counts.double().norm()) > (1 - 1e-5) * COUNT_STEPS


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 7.7])
def test_counts_and_gradients_cost_what_the_step_costs(
    noise_multiplier: float, share: float
) -> None:
    split = SelectionNoise(
        noise_multiplier=noise_multiplier, selection=SelectedRows(selection_share=share)
    )
    cost = split.count_stddev**-2 + split.gradient_multiplier**-2
    assert cost <= noise_multiplier**-2
    assert cost == pytest.approx(noise_multiplier**-2, rel=1e-12)
    assert split.count_stddev == pytest.approx(noise_multiplier / math.sqrt(share))
    assert split.gradient_multiplier == pytest.approx(noise_multiplier / math.sqrt(1 - share))


def test_an_unread_row_has_the_chance_of_a_normal_above_the_threshold() -> None:
    split = SelectionNoise(noise_multiplier=1.0, selection=SelectedRows(threshold=3.0))
    assert split.unread_prob == pytest.approx(0.0013498980316300945, rel=1e-12)
    assert split.least_count == pytest.approx(3 * split.count_stddev)


def test_a_threshold_beyond_what_coins_can_show_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"threshold=7\.5 must be <= 7"):
        SelectionNoise(noise_multiplier=1.0, selection=SelectedRows(threshold=7.5))


def selector(num_rows: dict[str, int], *, threshold: float, seed: int = 1) -> RowSelector:
    rng = SeededNoise(seed)
    split = SelectionNoise(
        noise_multiplier=1.0, selection=SelectedRows(selection_share=0.5, threshold=threshold)
    )
    return RowSelector(num_rows, split, TrainingNoise(rng), rng)


@given(
    num_rows=st.integers(1, 60),
    data=st.data(),
    threshold=st.sampled_from([0.01, 1.0, 6.9]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60)
def test_selected_rows_are_distinct_in_order_and_in_the_table(
    num_rows: int, data: st.DataObject, threshold: float, seed: int
) -> None:
    rows = sorted(data.draw(st.sets(st.integers(0, num_rows - 1))))
    counted = RowCounts(
        table="t",
        rows=torch.tensor(rows, dtype=torch.int64),
        counts=torch.full((len(rows),), COUNT_STEPS),
    )
    found = selector({"t": num_rows}, threshold=threshold, seed=seed).select([counted])["t"]
    assert found.dtype == torch.int64
    assert found.tolist() == sorted(set(found.tolist()) & set(range(num_rows)))


def test_rows_with_very_high_counts_are_always_selected_and_others_hardly_ever() -> None:
    counted = RowCounts(
        table="t", rows=torch.tensor([3, 17]), counts=torch.full((2,), 1000 * COUNT_STEPS)
    )
    for seed in range(20):
        found = selector({"t": 50}, threshold=6.9, seed=seed).select([counted])["t"]
        assert found.tolist() == [3, 17]


def test_a_batch_without_rows_still_selects() -> None:
    nothing = RowCounts(
        table="t",
        rows=torch.zeros(0, dtype=torch.int64),
        counts=torch.zeros(0, dtype=torch.int64),
    )
    found = selector({"t": 1000}, threshold=1.0).select([nothing])["t"]
    assert 100 < len(found) < 220


def test_places_of_rows_among_others() -> None:
    places, is_there = places_of(torch.tensor([1, 4, 9, 12]), torch.tensor([4, 7, 9]))
    assert is_there.tolist() == [False, True, True, False]
    assert places[is_there].tolist() == [0, 2]
    _, is_there = places_of(torch.tensor([1]), torch.zeros(0, dtype=torch.int64))
    assert is_there.tolist() == [False]
