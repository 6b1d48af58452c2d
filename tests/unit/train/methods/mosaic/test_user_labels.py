"""Divided labels of a user, and capped predictions, move all sums by no more than one row may."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic import cell_releases
from tulle.train.methods.mosaic.cell_sums import (
    LOG_ODDS_BITS,
    MOST_PREDICTED,
    label_sums,
    row_sums,
)
from tulle.train.methods.mosaic.label_parts import LABEL_BITS
from tulle.train.methods.mosaic.row_numbers import RowRules
from tulle.train.methods.mosaic.row_parts import PART_BITS, RowParts, row_parts
from tulle.train.methods.mosaic.user_labels import (
    ROOT_OF_HALF,
    OwnedRows,
    UserLabels,
    divided_labels,
    divides,
    kept_parts,
    owned_rows,
    repeat_prob,
    user_labels,
)
from tulle.train.settings.units import UserLevel
from unit.train.methods.mosaic.test_replayed_run import (
    Recorded,
    SeededNoise,
    check_told,
    examples_of_users,
    followed,
    large_user,
    noise,
    run,
)
from unit.train.small_data import make_examples

_ONE = 1 << LABEL_BITS
_LIKELY, _UNLIKELY = 5 << LOG_ODDS_BITS, -(15 << LOG_ODDS_BITS)


def rows_of(sizes: list[int]) -> OwnedRows:
    users = owned_rows(np.repeat(np.arange(len(sizes)), sizes))
    assert users is not None
    return users


@settings(max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=20), st.integers(0, 2**32), st.booleans())
def test_labels_and_predictions_of_a_user_add_up_to_those_of_one_row(
    sizes: list[int], seed: int, is_weighted: bool
) -> None:
    rng, users = np.random.default_rng(seed), rows_of([2, *sizes])
    num_rows = len(users.owners)
    weights = rng.uniform(0.01, 1, num_rows).astype(np.float32) if is_weighted else None
    labels = np.where(rng.random(num_rows) < 0.4, _ONE, 0).astype(np.int32)
    parts = row_parts(num_rows, users.owners, weights)
    counted = user_labels(labels, users, parts, repeats=rng.choice([0.02, 0.1, 1.0]), rate=0.05)
    for owner in range(len(sizes) + 1):
        own = users.owners == owner
        halves = counted.parts.linear[own]
        if counted.divided.caps[own].sum() <= MOST_PREDICTED:
            assert sum(counted.divided.labels[own].tolist()) <= _ONE
            most = ROOT_OF_HALF if own.sum() > 1 else 1 << PART_BITS
            assert halves.max() <= most
        else:
            # Whole labels: weights add up as they did before.
            assert (counted.divided.labels[own] == labels[own]).all()
            assert (halves == parts.linear[own]).all()
            assert sum(halves.tolist()) <= 1 << PART_BITS


def moved(labels: np.ndarray, caps: np.ndarray, weight: float, seed: int) -> tuple[float, float]:
    """Squared distances that all sums move by if a user is replaced, over what one row may.

    Labels of 1, and predictions, go from one side of every table to the other, as far from each
    other as they can be.

    Args:
      labels: [2, rows]: labels before and after.
      caps: [rows]: most that each row is predicted with.
      weight: Root of the sum of the squares of the weights of each row.
    """
    rng, (_, size), share = np.random.default_rng(seed), labels.shape, 1 << 40
    pattern = rng.dirichlet(np.ones(3), size) if seed else np.tile([0.2, 0.3, 0.5], (size, 1))
    squared = np.zeros(2)
    for table in range(3):
        weights = np.floor(np.sqrt(share * pattern[:, table]) * weight).astype(np.int64)
        sums, label_only = [], []
        for side in range(2):
            own = labels[side]
            cells = np.where(own > 0, side, 1 - side).astype(np.int64)
            log_odds = np.where(own > 0, _UNLIKELY, _LIKELY).astype(np.int32)
            sums.append(row_sums(cells, own, log_odds, weights, 2, rules=RowRules(caps=caps)))
            label_only.append(label_sums(np.arange(size), own, weights, size))
        for place, both in enumerate((sums, label_only)):
            squared[place] += sum(one**2 for one in (both[1] - both[0]).ravel().tolist())
    return float(squared[0]) / (2 * share), float(squared[1]) / share


def replaced_labels(size: int, num_ones: int) -> np.ndarray:
    """Some labels of 1 before, and others after."""
    labels = np.zeros((2, size), np.int32)
    labels[0, :num_ones] = labels[1, size - num_ones :] = _ONE
    return labels


def divided_of(labels: np.ndarray) -> np.ndarray:
    owners = np.zeros(labels.shape[1], np.int64)
    return np.array([divided_labels(own, owners) for own in labels])


@pytest.mark.parametrize("size", [2, 3, 8, 60])
def test_a_replaced_user_moves_sums_by_no_more_than_a_replaced_row(size: int) -> None:
    caps = np.full(size, MOST_PREDICTED // size)
    furthest = np.zeros(2)
    for seed, num_ones in itertools.product(range(6), {1, 2, size // 2, size}):
        labels = divided_of(replaced_labels(size, num_ones))
        told = moved(labels, caps, ROOT_OF_HALF / (1 << PART_BITS), seed)
        assert max(told) <= 1
        furthest = np.maximum(furthest, told)
    # The bounds are no larger than they must be: they are reached, but for what is rounded.
    assert furthest[1] > 1 - 1e-5
    assert furthest[0] > (0.98 if size == 60 else 0.6)


@pytest.mark.parametrize("fault", ["labels", "caps", "weight"])
def test_without_one_of_the_three_a_user_would_count_for_more(fault: str) -> None:
    size, weight = 60, ROOT_OF_HALF / (1 << PART_BITS)
    labels, caps = replaced_labels(size, 3), np.full(size, MOST_PREDICTED // size)
    if fault != "labels":
        labels = divided_of(labels)
    if fault == "caps":
        caps[:] = MOST_PREDICTED // 30
    if fault == "weight":
        weight = 0.75
    assert max(moved(labels, caps, weight, 0)) > 1.05


@functools.cache
def rare_labels() -> ExampleSet:
    """Rows of users, of which those of one public and one sensitive value have labels of 1."""
    examples, rng = examples_of_users(), np.random.default_rng(9)
    assert examples.sensitive_features is not None
    is_likely = (examples.public_features[:, 0] >= 4) & (examples.sensitive_features[:, 0] == 3)
    labels = rng.random(examples.num_rows) < np.where(is_likely, 0.5, 0.03)
    return dataclasses.replace(examples, labels=labels.astype(np.float32))


def neighbours(seed: int) -> tuple[ExampleSet, ExampleSet]:
    """Rows of users, and the same with all rows of one of the largest users replaced.

    Labels of 1 go from one half of them to the other, or from one row to one in other public cells,
    and likely rows become unlikely.
    """
    examples = rare_labels()
    assert examples.labels is not None
    assert examples.sensitive_features is not None
    user, other = large_user(examples, seed), 0 if seed % 2 else 3
    public = examples.public_features.copy()
    public[user] = 5, 0, 0
    public[user[-1]] = 4, 1, 1
    sides = []
    for side in range(2):
        labels, sensitive = examples.labels.copy(), examples.sensitive_features.copy()
        labels[user] = np.arange(len(user)) % 2 == side
        if seed % 3 == 0:
            labels[user] = 0
            labels[user[-side]] = 1
        sensitive[user] = [3 - other if side else other, seed % 5]
        sides.append(
            dataclasses.replace(
                examples, labels=labels, sensitive_features=sensitive, public_features=public
            )
        )
    return sides[0], sides[1]


def test_labels_are_divided_in_these_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[UserLabels] = []

    def noted(*arguments: object, **settings: float) -> UserLabels:
        counted.append(user_labels(*arguments, **settings))  # type: ignore[arg-type]
        return counted[-1]

    monkeypatch.setattr(cell_releases, "user_labels", noted)
    examples, _ = neighbours(0)
    run(examples, Recorded(noise(), rng=SeededNoise(0)), monkeypatch, UserLevel())
    users = owned_rows(examples.units)
    assert users is not None
    is_divided = counted[0].divided.caps < MOST_PREDICTED
    assert is_divided[users.sizes > 1].mean() > 0.9
    assert is_divided[users.sizes == 8].all()
    assert not is_divided[users.sizes == 1].any()


@pytest.mark.parametrize("seed", range(6))
def test_a_run_on_divided_labels_tells_users_apart_by_no_more_than_one_gaussian(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_told(*followed(*neighbours(seed), seed, monkeypatch, UserLevel()))


def whole_labels(counted: UserLabels, labels: np.ndarray, users: OwnedRows) -> UserLabels:
    """A user with several labels of 1 is counted once for each of them."""
    del users
    return dataclasses.replace(counted, divided=dataclasses.replace(counted.divided, labels=labels))


def forgotten_caps(counted: UserLabels, labels: np.ndarray, users: OwnedRows) -> UserLabels:
    """Each row is predicted with as much as the only row of a user may be."""
    del labels
    caps = np.full(len(users.owners), MOST_PREDICTED)
    return dataclasses.replace(counted, divided=dataclasses.replace(counted.divided, caps=caps))


def whole_weights(counted: UserLabels, labels: np.ndarray, users: OwnedRows) -> UserLabels:
    """Each row weighs as much as the only row of a user may."""
    del labels, users
    parts = row_parts(counted.parts.num_rows)
    return dataclasses.replace(counted, parts=parts)


@pytest.mark.parametrize("fault", [whole_labels, forgotten_caps, whole_weights])
def test_a_planted_fault_of_divided_labels_is_noticed(
    fault: Callable[[UserLabels, np.ndarray, OwnedRows], UserLabels],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(
        labels: np.ndarray, users: OwnedRows, parts: RowParts, **settings: float
    ) -> UserLabels:
        return fault(user_labels(labels, users, parts, **settings), labels, users)

    monkeypatch.setattr(cell_releases, "user_labels", wrong)

    def look() -> None:
        for seed in range(9):
            check_told(*followed(*neighbours(seed), seed, monkeypatch, UserLevel()))

    with pytest.raises(AssertionError):
        look()


def test_users_with_one_row_each_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one bit of the model depends on whether the data name users who have one row each."""
    examples = make_examples(3_000, seed=1)
    named = dataclasses.replace(examples, units=np.arange(3_000)[::-1].copy())
    one, other = (Recorded(noise(), rng=SeededNoise(3)) for _ in range(2))
    model = run(examples, one, monkeypatch)
    same = run(named, other, monkeypatch, UserLevel())
    assert model.heads[0].bias == same.heads[0].bias
    for table, again in zip(model.tables, same.tables, strict=True):
        assert np.array_equal(table.weights, again.weights)


def test_what_is_left_of_a_label_is_the_mean_over_the_other_rows() -> None:
    for size, repeats in itertools.product((1, 2, 5), (0.05, 0.3, 1.0)):
        chances = [
            math.comb(size - 1, n) * repeats**n * (1 - repeats) ** (size - 1 - n)
            for n in range(size)
        ]
        mean = sum(chance / (1 + n) for n, chance in enumerate(chances))
        assert kept_parts(np.array([size]), repeats)[0] == pytest.approx(mean)


@pytest.mark.parametrize("repeats", [0.05, 0.4])
def test_how_often_labels_repeat_is_found(repeats: float) -> None:
    rng = np.random.default_rng(1)
    users = rows_of(rng.integers(1, 7, 60_000).tolist())
    # Independent labels, of users of whom a part has any: given one label, others follow at this.
    has_any = rng.random(60_000) < 0.3
    is_one = has_any[users.owners] & (rng.random(len(users.owners)) < repeats)
    labels = np.where(is_one, _ONE, 0).astype(np.int32)
    own = np.where(users.have_several, is_one / users.sizes, 0.0)
    left = divided_labels(labels, users.owners) / _ONE
    lost = np.where(users.have_several, (is_one - left) / users.sizes, 0.0)
    found = repeat_prob(own.sum(), lost.sum(), 1.0, users.sizes, rate=0.9)
    assert found == pytest.approx(repeats, abs=0.02)
    # Sums that do not stand out of the noise say nothing.
    assert repeat_prob(own.sum(), lost.sum(), own.sum(), users.sizes, rate=0.1) == 0.1
    # Noise below 0 is taken as next to none.
    assert repeat_prob(own.sum(), -5.0, 1.0, users.sizes, rate=0.9) < 0.01


def test_labels_stay_whole_where_division_would_leave_little() -> None:
    sizes = np.array([1, 2, 3, 10])
    assert divides(sizes, 0.05, 0.05).tolist() == [False, True, True, True]
    # Users who repeat all labels, and labels that are as likely as not.
    assert not divides(sizes, 1.0, 0.05).any()
    assert not divides(sizes, 0.5, 0.5).any()
