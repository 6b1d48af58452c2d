"""Loops over rows give the numbers of exact arithmetic, in numpy and in C."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import DataError
from tulle.train.methods.mosaic import row_threads
from tulle.train.methods.mosaic.cell_kernels import CompiledLoops, compiled_loops
from tulle.train.methods.mosaic.cell_model import CellPart, cells_of_rows
from tulle.train.methods.mosaic.cell_sums import probabilities
from tulle.train.methods.mosaic.row_loops import NumpyLoops
from tulle.train.methods.mosaic.row_numbers import RowRules

Loops = NumpyLoops | CompiledLoops
_CELLS = 3
_ONE = 1 << 30
_NUMBERS = (0, 1, 2, 4095, 4096, 4097, 4098, _ONE - 1, _ONE)
weights = st.one_of(st.sampled_from(_NUMBERS), st.integers(0, _ONE), st.just((1 << 32) - 1))
labels = st.one_of(st.sampled_from([0, 1, _ONE - 1, _ONE]), st.integers(0, _ONE))
log_odds = st.one_of(
    st.sampled_from([-(2**31), -65_537, -65_536, -1, 0, 1, 65_536, 65_537, 2**31 - 1]),
    st.integers(-70_000, 70_000),
)
cells = st.integers(0, _CELLS - 1)


@pytest.fixture(params=["numpy", "C"], name="loops", scope="module")
def _loops(request: pytest.FixtureRequest) -> Loops:
    return NumpyLoops() if request.param == "numpy" else compiled()


def compiled() -> CompiledLoops:
    found = compiled_loops()
    if found is None:
        pytest.skip("needs a C compiler")
    return found


def with_threads(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """So many threads, however few rows and cores there are."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(row_threads, "_num_cores", lambda: number)
    monkeypatch.setattr(row_threads, "_ROWS_OF_THREAD", 8)


def columns(data: list[tuple[int, ...]], *dtypes: type) -> list[np.ndarray]:
    return [np.array([row[place] for row in data], dtype) for place, dtype in enumerate(dtypes)]


def by_cell(places: np.ndarray, terms: list[int]) -> list[int]:
    sums = [0] * _CELLS
    for place, term in zip(places.tolist(), terms, strict=True):
        sums[place] += term
    return sums


def place_of(steps: int) -> int:
    most = probabilities().most
    return min(max(steps, -most), most) + most


@given(data=st.lists(st.tuples(cells, weights), max_size=20), alike=weights)
@settings(max_examples=100)
def test_sums_of_terms_are_exact(loops: Loops, data: list[tuple[int, int]], alike: int) -> None:
    places, terms = columns(data, np.int32, np.int64)
    for own in (terms, -terms):
        assert loops.exact_sums(places, own, _CELLS).tolist() == by_cell(places, own.tolist())
    one = loops.exact_sums(places, np.int64(alike), _CELLS)
    assert one.tolist() == by_cell(places, [alike] * len(places))


@given(data=st.lists(st.tuples(cells, labels, weights), max_size=20))
@settings(max_examples=100)
def test_sums_of_labels_are_exact(loops: Loops, data: list[tuple[int, int, int]]) -> None:
    places, own_labels, own = columns(data, np.int32, np.int32, np.int64)
    expected = [weight * label >> 30 for _, label, weight in data]
    found = loops.label_sums(places, own_labels, own, _CELLS)
    assert found.tolist() == by_cell(places, expected)


def added_row(
    label: int, steps: int, weight: int, cap: int | None, rules: RowRules
) -> tuple[int, int]:
    """What a row adds to both sums of its cell, in whole numbers of any size."""
    table, place = probabilities(), place_of(steps)
    prob, capped, factor = (int(column[place]) for column in table[:3])
    if cap is not None:
        capped = min(prob, cap)
        factor = capped * _ONE // prob
    if rules.positives_only and label == 0:
        weight = 0
    if rules.are_values:
        weight = weight - weight // 4096 - 1
        weight = weight if weight >= 4096 else 0
    predicted = weight * capped // _ONE
    return (weight * factor // _ONE) * label // _ONE - predicted, predicted


@given(
    data=st.lists(st.tuples(cells, labels, log_odds, weights, labels), max_size=20),
    are_values=st.booleans(),
    positives_only=st.booleans(),
    has_caps=st.booleans(),
    offset=st.one_of(st.none(), st.integers(-20_000, 0)),
)
@settings(max_examples=300)
def test_sums_of_rows_are_exact(
    loops: Loops,
    data: list[tuple[int, ...]],
    are_values: bool,
    positives_only: bool,
    has_caps: bool,
    offset: int | None,
) -> None:
    """Residuals of rows with the label 0 are below 0: what is shifted out is rounded down."""
    int32, int64 = np.int32, np.int64
    places, own_labels, steps, own, caps = columns(data, int32, int32, int32, int64, int32)
    if offset is not None:
        steps = np.maximum(steps, -(2**31) + 20_000).astype(np.int32)
    rules = RowRules(
        are_values=are_values,
        positives_only=positives_only,
        offsets=None if offset is None else np.full(len(data), offset, np.int32),
        caps=caps if has_caps else None,
    )
    table = probabilities()
    found = loops.row_sums(places, own_labels, steps, own, table, _CELLS, rules)
    rest = zip(own_labels, steps, own, caps, strict=True)
    expected = [
        added_row(
            int(label),
            int(step) + (offset or 0),
            int(weight),
            int(cap) if has_caps else None,
            rules,
        )
        for label, step, weight, cap in rest
    ]
    for number in range(2):
        assert found[number].tolist() == by_cell(places, [both[number] for both in expected])


@given(
    data=st.lists(st.tuples(cells, log_odds, weights), max_size=20),
    shifts=st.lists(st.integers(-28, 60), min_size=_CELLS, max_size=_CELLS),
)
@settings(max_examples=200)
def test_sums_of_predictions_are_exact(
    loops: Loops, data: list[tuple[int, ...]], shifts: list[int]
) -> None:
    places, steps, own = columns(data, np.int32, np.int32, np.int64)
    table = probabilities()
    expected = []
    for cell, step, weight in data:
        weighted = (weight * int(table.predicted[place_of(step)]) + _ONE // 2) // _ONE
        shift = shifts[cell]
        square = weight >> shift if shift > 0 else weight << -shift
        square = min(min(square, 1 << 31) * weighted >> 10, 1 << 32)
        expected.append((weighted, square))
    found = loops.predicted(places, steps, None, own, np.array(shifts, np.int8), table)
    for number in range(2):
        assert found[number].tolist() == by_cell(places, [both[number] for both in expected])


@given(
    data=st.lists(
        st.tuples(cells, st.integers(0, 1 << 52), st.integers(0, 1 << 60), st.integers(1, 1 << 30)),
        max_size=20,
    ),
    wanted=st.lists(st.integers(1, 1 << 52), min_size=_CELLS, max_size=_CELLS),
    have_costs=st.booleans(),
    are_alike=st.booleans(),
)
@settings(max_examples=200)
def test_weights_are_those_of_ieee_floats(
    loops: Loops,
    data: list[tuple[int, ...]],
    wanted: list[int],
    have_costs: bool,
    are_alike: bool,
) -> None:
    places, others, limits, costs = columns(data, np.int32, np.int64, np.int64, np.int64)
    priorities = np.array(wanted)
    totals = priorities[places] + others
    if are_alike:
        limits = np.broadcast_to(np.int64(1 << 60), len(data))
    found = loops.weights(priorities, places, totals, limits, costs if have_costs else None)
    for row, weight in enumerate(found.tolist()):
        real = float(wanted[places[row]]) * float(limits[row]) / float(totals[row])
        real = real / float(costs[row]) if have_costs else real
        assert weight == max(int(math.sqrt(real)) - 1, 0)


def test_what_is_no_number_is_a_weight_that_no_row_can_pay(loops: Loops) -> None:
    places, limits = np.zeros(2, np.int32), np.full(2, 1 << 60)
    wanted, totals = np.zeros(1, np.int64), np.array([0, 1])
    found = loops.weights(wanted, places, totals, limits, None)
    assert found.tolist() == [(1 << 31) - 1, 0]
    assert not loops.pay(found, limits, np.zeros(2, np.int64), None)
    huge = loops.weights(np.array([1 << 52]), places, np.array([0, 1]), limits, None)
    assert not loops.pay(huge, limits, np.zeros(2, np.int64), None)
    below = loops.weights(np.array([-5]), places, np.array([1, 1]), limits, None)
    assert not loops.pay(below, limits, np.zeros(2, np.int64), None)


amounts_spent = st.one_of(st.integers(0, 1 << 60), st.integers(0, 9))


@given(
    data=st.lists(
        st.tuples(
            st.one_of(st.integers(-1, 3), st.integers(0, _ONE), st.just(_ONE + 1)),
            amounts_spent,
            amounts_spent,
            st.one_of(st.integers(0, 3), st.integers(1, _ONE)),
        ),
        min_size=1,
        max_size=6,
    ),
    have_costs=st.booleans(),
    are_alike=st.booleans(),
)
@settings(max_examples=400)
def test_all_rows_pay_or_none_does(
    loops: Loops, data: list[tuple[int, ...]], have_costs: bool, are_alike: bool
) -> None:
    own, limits, before, costs = columns(data, *[np.int64] * 4)
    if are_alike:
        limits = np.broadcast_to(np.int64(1 << 60), len(data))
    before = np.minimum(before, limits)
    spent = before.copy()
    charges = [weight * weight * (cost if have_costs else 1) for weight, _, _, cost in data]
    can_pay = all(
        0 <= weight <= _ONE and (not have_costs or cost >= 1) and already + charge <= limit
        for (weight, _, _, cost), already, charge, limit in zip(
            data, before.tolist(), charges, limits.tolist(), strict=True
        )
    )
    assert loops.pay(own, limits, spent, costs if have_costs else None) is can_pay
    expected = [a + b for a, b in zip(before.tolist(), charges, strict=True)]
    assert spent.tolist() == (expected if can_pay else before.tolist())


@pytest.mark.parametrize("row", [0, 500, 999])
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_one_row_that_cannot_pay_leaves_none_charged(
    loops: Loops, row: int, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_threads(monkeypatch, num_threads)
    own, limits, spent = np.full(1_000, 5), np.full(1_000, 60), np.full(1_000, 10)
    spent[row] = 36
    before = spent.copy()
    assert not loops.pay(own, limits, spent, None)
    assert not loops.pay(own, limits, spent, np.full(1_000, 1))
    assert np.array_equal(spent, before)
    spent[row] = 35
    assert loops.pay(own, limits, spent, None)
    assert spent[row] == 60


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    num_rows=st.integers(0, 300),
    seed=st.integers(0, 99),
)
def test_cells_are_those_of_the_model(
    loops: Loops, sizes: list[int], num_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parts, ids = [], []
    for place, size in enumerate(sizes):
        num_ids, dtype = [(200, np.uint8), (60_000, np.uint16), (70_000, np.int32)][place]
        lookup = rng.integers(0, size, num_ids).astype(np.int32)
        parts.append(CellPart(role="public", column=place, lookup=lookup, size=size))
        ids.append(rng.integers(0, num_ids, num_rows).astype(dtype))
    found = loops.cells(parts, ids)
    assert found.dtype == np.int32
    assert np.array_equal(found, cells_of_rows(parts, ids))


def test_numbers_of_cells_are_added_to_rows(loops: Loops) -> None:
    places, numbers = np.array([2, 0, 2], np.int32), np.array([1, 10, -(2**40)])
    totals = np.array([5, 6, 7])
    loops.add_lookups(totals, numbers, places)
    assert totals.tolist() == [5 - 2**40, 7, 7 - 2**40]
    steps = np.array([-3, 4, 2**31 - 1], np.int32)
    loops.add_lookups(steps, np.array([-1, 0, -7], np.int32), places)
    assert steps.tolist() == [-10, 3, 2**31 - 8]
    loops.add_products(totals, np.array([2, 3, 1 << 15]), places, np.array([1, 2, 1 << 31]))
    assert totals.tolist() == [5 - 2**40 + 2**15, 11, 7 - 2**40 + 2**46]
    loops.add_products(totals, np.array([2, 3, 4]), places, np.int64(10))
    assert totals.tolist() == [45 - 2**40 + 2**15, 31, 47 - 2**40 + 2**46]


def test_right_shifts_round_down(loops: Loops) -> None:
    """A residual of -1 part of a step is -1 step, as C leaves open and numpy does."""
    places, own = np.zeros(1, np.int32), np.ones(1, np.int64)
    found = loops.label_sums(places, np.array([-1], np.int32), own, 1)
    assert found.tolist() == [-1]
    rules, table = RowRules(), probabilities()
    steps, label = np.array([-40_000], np.int32), np.array([-1], np.int32)
    assert loops.row_sums(places, label, steps, own, table, 1, rules)[0].tolist() == [-1]


def wrong_calls(loops: Loops, places: np.ndarray, weight: np.ndarray) -> Iterator[object]:
    """Calls of all loops that take cells or weights, one after the other."""
    number, zeros = len(places), np.zeros(len(places), np.int32)
    table, limits = probabilities(), np.ones(number, np.int64)
    yield lambda: loops.exact_sums(places, weight, _CELLS)
    yield lambda: loops.label_sums(places, zeros, weight, _CELLS)
    yield lambda: loops.row_sums(places, zeros, zeros, weight, table, _CELLS, RowRules())
    yield lambda: loops.predicted(places, zeros, None, weight, np.zeros(_CELLS, np.int8), table)
    yield lambda: loops.add_products(limits, np.ones(_CELLS, np.int64), places, weight)
    yield lambda: loops.weights(np.ones(_CELLS, np.int64), places, limits, limits, None)
    yield lambda: loops.add_lookups(limits, np.ones(_CELLS, np.int64), places)


@pytest.mark.parametrize("wrong", [-1, _CELLS, 2**31 - 1, -(2**31), 2**32, 2**63 - 1])
@pytest.mark.parametrize("row", [0, 299])
def test_no_place_in_memory_beyond_a_table_is_touched(loops: Loops, wrong: int, row: int) -> None:
    dtype = np.int32 if -(2**31) <= wrong < 2**31 else np.int64
    places = np.zeros(300, dtype)
    places[row] = wrong
    for call in wrong_calls(loops, places, np.ones(300, np.int64)):
        with pytest.raises(DataError):
            call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("lookup", "ids"),
    [(256, np.array([0, 7, 256], np.uint16)), (7, np.array([7], np.uint8)), (7, np.array([-1]))],
)
def test_ids_beyond_a_lookup_are_refused(loops: Loops, lookup: int, ids: np.ndarray) -> None:
    part = CellPart(role="public", column=0, lookup=np.zeros(lookup, np.int32), size=1)
    with pytest.raises(DataError, match="prepare the data again"):
        loops.cells([part], [ids])
    large = CellPart(role="public", column=0, lookup=np.zeros(256, np.int32), size=1 << 16)
    with pytest.raises(DataError, match="cells"):
        loops.cells([large, large], [np.zeros(3, np.uint8)] * 2)
    with pytest.raises(DataError, match="one number for each row"):
        loops.cells([part, part], [np.zeros(3, np.uint8), np.zeros(4, np.uint8)])


@pytest.mark.parametrize("weight", [-1, 1 << 32, 2**63 - 1, -(2**63)])
def test_weights_that_could_overflow_are_refused(loops: Loops, weight: int) -> None:
    own = np.ones(300, np.int64)
    own[-1] = weight
    calls = list(wrong_calls(loops, np.zeros(300, np.int32), own))[1:5]
    for call in calls:
        with pytest.raises(DataError, match="exact sums"):
            call()  # type: ignore[operator]


def test_terms_that_could_overflow_are_refused(loops: Loops) -> None:
    places = np.zeros(300, np.int32)
    for term in ((1 << 32) + 1, -(1 << 32) - 1, 2**63 - 1, -(2**63)):
        terms = np.ones(300, np.int64)
        terms[200] = term
        for wrong in (terms, np.int64(term)):
            with pytest.raises(DataError, match="exact sums"):
                loops.exact_sums(places, wrong, 1)
    # A label beyond 1 may make a term of more than 2^32 of the largest weight.
    labels_of_two = np.full(300, 2**31 - 1, np.int32)
    with pytest.raises(DataError, match="exact sums"):
        loops.label_sums(places, labels_of_two, np.int64((1 << 32) - 1), 1)


def test_columns_of_other_lengths_are_refused(loops: Loops) -> None:
    for call in list(wrong_calls(loops, np.zeros(5, np.int32), np.ones(6, np.int64)))[:5]:
        with pytest.raises(DataError, match="one number for each row"):
            call()  # type: ignore[operator]
    with pytest.raises(DataError, match="one number for each row"):
        loops.pay(np.ones(5, np.int64), np.ones(5, np.int64), np.zeros(4, np.int64), None)
