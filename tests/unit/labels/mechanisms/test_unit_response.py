"""Released labels of units: right rows, right chances, right cost, whatever the way."""

import itertools
import json
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from statistical.randomizer_checks import ScriptedNoise, assert_private, exact_chances, exceeds_exp
from tulle.accounting.accountant import privacy_curve
from tulle.accounting.event_rules import pure_epsilon
from tulle.data.contribution import GroupedRows
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.unit_response import (
    JointResponse,
    PerRowResponse,
    RowShare,
    UnitResponse,
)
from tulle.labels.unit_rows import KeptRows, UnitRows, cap_rows, group_rows, single_rows
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.joint_response import ConversionChoice
from tulle.privacy.events import (
    Composed,
    Parallel,
    RandomizedResponse,
    Repeated,
    SubsetSelection,
    event_from_json,
    event_to_json,
)
from tulle.privacy.units import Adjacency, Unit

KEY = b"a key of 16 byte"


def all_ways(epsilon: float) -> list[UnitResponse]:
    return [
        PerRowResponse(epsilon=epsilon, max_rows_per_unit=None),
        PerRowResponse(epsilon=epsilon, max_rows_per_unit=2),
        PerRowResponse(epsilon=epsilon, max_rows_per_unit=3, row_choice=KeptRows.RANDOM),
        PerRowResponse(epsilon=epsilon, max_rows_per_unit=3, row_share=RowShare.EQUAL),
        JointResponse(epsilon=epsilon),
        JointResponse(epsilon=epsilon, max_conversions_per_unit=2),
        JointResponse(epsilon=epsilon, max_conversions_per_unit=3, max_rows_per_unit=4),
        JointResponse(epsilon=epsilon, max_rows_per_unit=2, row_choice=KeptRows.RANDOM),
        JointResponse(epsilon=epsilon, subset=True),
        JointResponse(epsilon=epsilon, conversion_choice=ConversionChoice.RANDOM),
    ]


each_way = pytest.mark.parametrize("way", all_ways(1.0), ids=lambda w: str(w.describe()))
owners_of_logs = npst.arrays(np.int64, st.integers(1, 40), elements=st.integers(-3, 3))


@given(owners=owners_of_logs, data=st.data())
def test_without_noise_the_labels_within_the_caps_come_back(
    owners: Any, data: st.DataObject
) -> None:
    labels = data.draw(npst.arrays(np.uint8, owners.size, elements=st.integers(0, 1)))
    for way in all_ways(400.0):
        if isinstance(way, JointResponse) and (
            way.subset or way.conversion_choice is ConversionChoice.RANDOM
        ):
            continue
        rows = group_rows(Unit.user(), owner_ids=owners)
        released = way.release(labels, rows, rng=SeededNoise(1), key=KEY)
        kept = cap_rows(
            rows,
            max_rows_per_unit=way.max_rows_per_unit,  # type: ignore[attr-defined]
            choice=way.row_choice,  # type: ignore[attr-defined]
            key=KEY,
        )
        most = way.max_conversions_per_unit if isinstance(way, JointResponse) else owners.size
        seen: dict[int, int] = defaultdict(int)
        expected = []
        for row in sorted(kept.grouped.order.tolist()):
            seen[owners[row]] += int(labels[row])
            expected.append(int(labels[row] and seen[owners[row]] <= most))
        assert released.rows.tolist() == sorted(kept.grouped.order.tolist())
        assert released.labels.tolist() == expected


@each_way
def test_a_release_has_targets_channel_and_variance_for_each_kept_row(way: UnitResponse) -> None:
    owners = np.repeat(np.arange(300), np.arange(300) % 5 + 1)
    np.random.default_rng(0).shuffle(owners)
    rows = group_rows(Unit.user(), owner_ids=owners)
    labels = (np.arange(owners.size) % 7 == 0).astype(np.uint8)
    released = way.release(labels, rows, rng=SeededNoise(2), key=KEY)
    assert released.labels.dtype == np.uint8
    assert (np.diff(released.rows) > 0).all()
    lengths = np.bincount(owners)[owners[released.rows]]
    for length in range(1, 6):
        channel = way.row_channel(length)
        is_mine = lengths == length
        np.testing.assert_allclose(
            released.channel.prob_if_negative[is_mine], channel.prob_if_negative
        )
        np.testing.assert_allclose(
            released.channel.prob_if_positive[is_mine], channel.prob_if_positive
        )
        rate = way.assumed_base_rate if isinstance(way, JointResponse) else 0.05
        np.testing.assert_allclose(released.noise_variance[is_mine], channel.mean_variance(rate))
        np.testing.assert_allclose(
            released.targets[is_mine], channel.debiased_targets(released.labels[is_mine])
        )


@pytest.mark.parametrize("max_conversions", [1, 2])
def test_a_release_is_private_for_any_two_label_vectors_of_a_unit(max_conversions: int) -> None:
    # The unit of rows 0 and 2; the word of the other, shorter unit is drawn first.
    way = JointResponse(epsilon=0.7, max_conversions_per_unit=max_conversions)
    rows = group_rows(Unit.user(), owner_ids=[5, 8, 5])
    laws = [
        exact_chances(
            lambda word, labels=[first, 1, second]: tuple(
                way.release(labels, rows, rng=ScriptedNoise([7, word])).labels.tolist()
            )
        )
        for first, second in itertools.product((0, 1), repeat=2)
    ]
    outputs = sorted({output for law in laws for output in law})
    assert len(outputs) == {1: 3, 2: 4}[max_conversions]
    assert_private([[law[output] for output in outputs] for law in laws], 0.7)


@pytest.mark.parametrize("share", RowShare)
@pytest.mark.parametrize("length", [1, 2, 3, 7, 49])
def test_noise_on_each_row_is_private_for_all_rows_of_a_unit_together(
    share: RowShare, length: int
) -> None:
    way = PerRowResponse(epsilon=1.0, max_rows_per_unit=49, row_share=share)
    ratio = way.response(length).realised_ratio ** way.num_kept(length)
    assert not exceeds_exp(ratio, 1.0)
    if share is RowShare.OWN or length == 49:
        assert exceeds_exp(ratio, 0.999)


@each_way
def test_the_event_costs_at_most_epsilon_and_is_plain_data(way: UnitResponse) -> None:
    event = way.event([1, 2, 3, 4, 5])
    cost = pure_epsilon(event, Adjacency.REPLACE)
    assert cost is not None
    assert Fraction(0.999) < cost <= 1
    assert event_from_json(event_to_json(event)) == event


def test_the_event_lists_the_sizes_of_units() -> None:
    own = PerRowResponse(epsilon=1.0, max_rows_per_unit=4).event([1, 4, 9])
    assert own == Parallel(
        parts_are_public=True,
        events=(
            Repeated(event=RandomizedResponse(epsilon=1.0), count=1),
            Repeated(event=RandomizedResponse(epsilon=0.25), count=4),
        ),
    )
    equal = PerRowResponse(epsilon=1.0, max_rows_per_unit=4, row_share=RowShare.EQUAL)
    assert equal.event([1, 9]) == Repeated(event=RandomizedResponse(epsilon=0.25), count=4)
    # Units that are smaller than the cap cost less, and how small they are is public.
    assert equal.event([1, 2]) == Repeated(event=RandomizedResponse(epsilon=0.25), count=2)
    joint = JointResponse(epsilon=1.0, max_conversions_per_unit=2).event([3, 1])
    assert joint == Parallel(
        parts_are_public=True,
        events=(
            RandomizedResponse(epsilon=1.0, num_values=2),
            RandomizedResponse(epsilon=1.0, num_values=7),
        ),
    )
    subset = JointResponse(epsilon=1.0, subset=True).event([10])
    assert subset == SubsetSelection(epsilon=1.0, num_values=11, subset_size=3)
    assert JointResponse(epsilon=1.0).event([]) == Composed()


@pytest.mark.parametrize(
    "way",
    [PerRowResponse(epsilon=1.0, max_rows_per_unit=None), JointResponse(epsilon=1.0)],
    ids=["per row", "joint"],
)
def test_many_sizes_are_bounded_by_one_binary_response(way: UnitResponse) -> None:
    assert isinstance(way.event(range(1, 65)), Parallel)
    assert way.event(range(1, 66)) == RandomizedResponse(epsilon=1.0)
    bound = privacy_curve(RandomizedResponse(epsilon=1.0), Adjacency.REPLACE)
    for length in (1, 3, 40):
        exact = privacy_curve(way.event([length]), Adjacency.REPLACE)
        for epsilon in (0.0, 0.3, 0.9, 1.0):
            assert exact.delta(epsilon) <= bound.delta(epsilon) + 1e-6


def test_units_that_are_too_large_are_refused_with_the_way_out() -> None:
    way = JointResponse(epsilon=1.0, max_conversions_per_unit=3)
    for lengths in ([5, 3000], [*range(1, 100), 3000]):
        with pytest.raises(ConfigError, match="cap the rows"):
            way.event(lengths)
    capped = JointResponse(epsilon=1.0, max_conversions_per_unit=3, max_rows_per_unit=50)
    assert isinstance(capped.event([5, 3000]), Parallel)


@pytest.mark.parametrize(
    "build",
    [
        lambda: PerRowResponse(epsilon=1.0, max_rows_per_unit=None, row_share=RowShare.EQUAL),
        lambda: PerRowResponse(epsilon=0.0, max_rows_per_unit=2),
        lambda: PerRowResponse(epsilon=1.0, max_rows_per_unit=0),
        lambda: PerRowResponse(epsilon=1.0, max_rows_per_unit=2, row_share="mine"),  # type: ignore[arg-type]
        lambda: PerRowResponse(epsilon=1.0, max_rows_per_unit=2, row_choice="best"),  # type: ignore[arg-type]
        lambda: PerRowResponse(epsilon=1e-12, max_rows_per_unit=10**9),
        lambda: JointResponse(epsilon=1.0, max_conversions_per_unit=2, subset=True),
        lambda: JointResponse(epsilon=1.0, max_conversions_per_unit=0),
        lambda: JointResponse(epsilon=1.0, max_rows_per_unit=0),
        lambda: JointResponse(epsilon=math.nan),
        lambda: JointResponse(epsilon=1.0, assumed_base_rate=0.0),
        lambda: JointResponse(epsilon=1.0, conversion_choice="best"),  # type: ignore[arg-type]
        lambda: JointResponse(epsilon=1.0, max_conversions_per_unit=3, max_rows_per_unit=3000),
    ],
)
def test_wrong_combinations_cannot_be_built(build: Any) -> None:
    with pytest.raises(ConfigError):
        build()


@each_way
@pytest.mark.parametrize(
    "bad", [[0, 1], [0, 1, 57], [0, 1, -1], [0.0, 1.0, math.nan], ["0", "1", "1"], [[0, 1, 1]]]
)
def test_labels_other_than_zero_and_one_are_refused_without_showing_them(
    way: UnitResponse, bad: Any
) -> None:
    rows = group_rows(Unit.user(), owner_ids=[1, 1, 2])
    with pytest.raises(DataError) as caught:
        way.release(bad, rows, rng=release_rng(), key=KEY)
    assert not any(text in str(caught.value) for text in ("-1", "nan", "57"))


@each_way
def test_a_row_in_two_units_is_refused(way: UnitResponse) -> None:
    grouped = GroupedRows(
        order=np.array([0, 1, 1]),
        starts=np.array([0, 2]),
        lengths=np.array([2, 1]),
        id_columns=(np.array([1, 1, 2]),),
    )
    rows = UnitRows(unit=Unit.user(), grouped=grouped, num_table_rows=3)
    with pytest.raises(DataError, match="two units"):
        way.release([0, 1, 0], rows, rng=release_rng(), key=KEY)


@each_way
def test_a_table_without_rows_gives_no_labels(way: UnitResponse) -> None:
    rows = group_rows(Unit.user(), owner_ids=np.zeros(0, np.int64))
    released = way.release(np.zeros(0, np.uint8), rows, rng=release_rng(), key=KEY)
    assert released.rows.size == released.labels.size == released.targets.size == 0


@each_way
def test_settings_are_described_as_plain_data(way: UnitResponse) -> None:
    described = way.describe()
    assert json.loads(json.dumps(described)) == described
    assert described["mechanism"] == way.name
    assert described["epsilon"] == way.epsilon == 1.0


def test_ways_of_other_kinds_have_other_names() -> None:
    assert {way.name for way in all_ways(1.0)} == {"unit-rr", "joint-rr", "joint-subset"}


def test_the_noise_source_decides_alone() -> None:
    rows = single_rows(Unit.example(), 2000)
    labels = np.arange(2000) % 2
    way = JointResponse(epsilon=0.5)
    first, again = (way.release(labels, rows, rng=SeededNoise(4)).labels for _ in range(2))
    one, two = (way.release(labels, rows, rng=release_rng()).labels for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(one, two)
