import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from statistical.noise_checks import assert_discrete, assert_gaussian
from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.event_rules import pure_epsilon
from tulle.data.prepared.dataset import PublicDataset
from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError
from tulle.lab.linear_labels.feature_rows import BoundedFeatures, OneHotFields
from tulle.lab.linear_labels.label_sums import (
    ConversionCap,
    LabelBlock,
    LabelSumsConfig,
    NoisyLabelSums,
    SumsNoise,
    best_noise,
    dataset_blocks,
    release_label_sums,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.privacy.units import Adjacency
from unit.lab.linear_labels import faulty_label_sums as faulty
from unit.lab.linear_labels.label_neighbours import (
    FIELDS,
    largest_distance,
    released_sums,
    worst_unit,
)

LAPLACE, GAUSSIAN = SumsNoise.LAPLACE, SumsNoise.GAUSSIAN
ORDERS = {LAPLACE: 1, GAUSSIAN: 2}
each_law = pytest.mark.parametrize("law", SumsNoise)
each_cap = pytest.mark.parametrize("cap", [1, 2, 3])


def config_of(law: SumsNoise, cap: int | None = None) -> LabelSumsConfig:
    return LabelSumsConfig(
        layout=FIELDS, noise=law, noise_multiplier=1.0, max_conversions_per_unit=cap
    )


def sensitivity(config: LabelSumsConfig) -> float:
    return config.max_contribution * config.replace_factor


@each_law
def test_one_label_moves_the_sums_by_the_stated_distance(law: SumsNoise) -> None:
    config = config_of(law)
    moved = largest_distance(released_sums(worst_unit(1)[:1], config), 1, ORDERS[law])
    assert moved == pytest.approx(sensitivity(config), rel=1e-6)
    assert sensitivity(config) == {LAPLACE: 4, GAUSSIAN: 2.0}[law]


@each_law
@each_cap
def test_the_labels_of_the_worst_unit_move_the_sums_by_exactly_the_stated_distance(
    law: SumsNoise, cap: int
) -> None:
    config = config_of(law, cap)
    moved = largest_distance(released_sums(worst_unit(cap), config), 2 * cap, ORDERS[law])
    assert moved == pytest.approx(sensitivity(config), rel=1e-6)
    # The constant cannot move away: 2 (m - 1) instead of 2 m.
    assert moved**2 == pytest.approx({LAPLACE: 36, GAUSSIAN: 6}[law] * cap**2, rel=1e-6)


@each_law
@each_cap
def test_no_unit_moves_the_sums_further_than_stated(law: SumsNoise, cap: int) -> None:
    rng = np.random.default_rng(7)
    config = config_of(law, cap)
    for _ in range(10):
        ids = rng.integers(0, FIELDS.num_ids, (5, 3))
        moved = largest_distance(released_sums(ids, config), len(ids), ORDERS[law])
        assert moved <= sensitivity(config) * (1 + 1e-6)


@each_law
def test_a_constant_and_one_field_need_no_further_distance_than_a_removal(law: SumsNoise) -> None:
    config = LabelSumsConfig(
        layout=OneHotFields(num_ids=(4,)),
        noise=law,
        noise_multiplier=1.0,
        max_conversions_per_unit=5,
    )
    assert config.replace_factor == 1.0


FAULTS: dict[str, Callable[[NDArray[np.int64], LabelSumsConfig], faulty.SumsOf]] = {
    "capped after summing": faulty.capped_after_summing,
    "no cap": faulty.uncapped,
    "capped in each block": faulty.capped_in_each_block,
}


@each_law
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_caps_move_the_sums_too_far(law: SumsNoise, fault: str) -> None:
    config = config_of(law, 1)
    moved = largest_distance(FAULTS[fault](worst_unit(3), config), 6, ORDERS[law])
    assert moved > 1.1 * sensitivity(config)


@each_law
def test_wrong_claims_are_below_what_labels_move(law: SumsNoise) -> None:
    per_row, per_unit = config_of(law), config_of(law, 2)
    row_moved = largest_distance(released_sums(worst_unit(1)[:1], per_row), 1, ORDERS[law])
    assert row_moved > 1.1 * faulty.claim_without_the_constant(per_row)
    unit_moved = largest_distance(released_sums(worst_unit(2), per_unit), 4, ORDERS[law])
    assert unit_moved > 1.1 * faulty.claim_without_the_other_labels(per_unit)


def test_fields_on_shared_columns_would_move_further() -> None:
    sums_of = faulty.columns_shared_between_fields(worst_unit(1)[:1])
    assert largest_distance(sums_of, 1, 2) > 1.1 * sensitivity(config_of(GAUSSIAN))


def noise_on_zeros(law: SumsNoise, cap: int | None, rng: NoiseSource, size: int) -> NoisyLabelSums:
    fields = OneHotFields(num_ids=(size - 2, 1))
    config = LabelSumsConfig(
        layout=fields, noise=law, noise_multiplier=2.0, max_conversions_per_unit=cap
    )
    units = None if cap is None else np.zeros(1, np.int64)
    block = LabelBlock(rows=fields.rows([[0, 0]]), raw_labels=np.zeros(1), units=units)
    return release_label_sums([block], config, rng=rng)


@pytest.mark.parametrize(("cap", "scale"), [(None, 6.0), (2, 12.0)])
def test_laplace_noise_has_the_stated_scale(cap: int | None, scale: float) -> None:
    assert_discrete(
        lambda rng, size: noise_on_zeros(LAPLACE, cap, rng, size).noisy_sums,
        lambda scale: DiscreteLaplaceConfig(scale=scale).pmf,
        scale=scale,
    )


@pytest.mark.parametrize(("cap", "stddev"), [(None, 2 * math.sqrt(3)), (2, 4 * math.sqrt(3))])
def test_gaussian_noise_has_the_stated_deviation(cap: int | None, stddev: float) -> None:
    assert_gaussian(
        lambda rng, size: noise_on_zeros(GAUSSIAN, cap, rng, size).noisy_sums, stddev=stddev
    )
    assert noise_on_zeros(GAUSSIAN, cap, release_rng(), 9).noise_stddev == pytest.approx(
        stddev, rel=1e-5
    )


@pytest.mark.parametrize("cap", [None, 1, 3])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_event_costs_what_was_asked_for(cap: int | None, epsilon: float) -> None:
    for law, delta in ((LAPLACE, 0.0), (GAUSSIAN, 1e-6)):
        config = LabelSumsConfig.for_epsilon(
            FIELDS, epsilon=epsilon, delta=delta, noise=law, max_conversions_per_unit=cap
        )
        cost = pld_epsilon(config.event(), delta, Adjacency.REPLACE)
        assert cost == pytest.approx(epsilon, rel=2e-3)
        assert cost <= epsilon * (1 + 1e-4)


@pytest.mark.parametrize("cap", [None, 1, 7])
@pytest.mark.parametrize("num_fields", [1, 2, 6, 26])
def test_laplace_noise_never_costs_more_than_asked_for(cap: int | None, num_fields: int) -> None:
    fields = OneHotFields(num_ids=(4,) * num_fields)
    num_ones = num_fields + 1
    for epsilon in (0.1, 0.3, 1.0, 3.7):
        config = LabelSumsConfig.for_epsilon(
            fields, epsilon=epsilon, noise=LAPLACE, max_conversions_per_unit=cap
        )
        cost = pure_epsilon(config.event(), Adjacency.REPLACE)
        distance = num_ones if cap is None else cap * max(num_ones, 2 * num_fields)
        assert cost is not None
        # Exact: the event claims no less than the true distance costs, and no more than asked.
        assert Fraction(distance) / Fraction(config.mechanism.scale) <= cost <= Fraction(epsilon)


def test_sums_are_those_of_the_conversions_in_any_blocks() -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, FIELDS.num_ids, (200, 3))
    labels = (rng.random(200) < 0.4).astype(np.float32)
    units = rng.integers(0, 30, 200)
    dense = np.concatenate(
        [np.ones((200, 1)), *[np.eye(k)[ids[:, f]] for f, k in enumerate(FIELDS.num_ids)]], axis=1
    )
    seen: dict[int, int] = {}
    kept = np.zeros(200)
    for row in range(200):
        if labels[row]:
            seen[units[row]] = seen.get(units[row], 0) + 1
            kept[row] = seen[units[row]] <= 2
    config = config_of(LAPLACE, 2)
    zeros = release_label_sums(
        [LabelBlock(rows=FIELDS.rows(ids), raw_labels=0 * labels, units=units)],
        config,
        rng=SeededNoise(8),
    )
    for bounds in ([0, 200], [0, 1, 70, 70, 200]):
        blocks = [
            LabelBlock(rows=FIELDS.rows(ids[a:b]), raw_labels=labels[a:b], units=units[a:b])
            for a, b in itertools.pairwise(bounds)
        ]
        released = release_label_sums(blocks, config, rng=SeededNoise(8))
        np.testing.assert_array_equal(released.noisy_sums - zeros.noisy_sums, dense.T @ kept)
        np.testing.assert_array_equal(released.most_sums, dense.sum(0))
        assert not released.least_sums.any()
        assert released.num_rows == 200


def dataset(**changes: object) -> PublicDataset:
    features = tuple(
        PreparedFeature(name=f"c{k}", role="public", num_ids=k, table=f"c{k}")
        for k in FIELDS.num_ids
    )
    rng = np.random.default_rng(1)
    settings = {
        "features": features,
        "public_features": rng.integers(0, FIELDS.num_ids, (50, 3)).astype(np.int32),
        "labels": (rng.random(50) < 0.5).astype(np.float32),
        "units": rng.integers(0, 9, 50),
        "times": None,
        "days": None,
        "num_classes": 2,
        "fingerprint": "f",
    }
    return PublicDataset(**(settings | changes))


def test_a_prepared_dataset_is_summed_part_after_part() -> None:
    data = dataset()
    config = config_of(GAUSSIAN, 1)
    results = [
        release_label_sums(
            dataset_blocks(data, per_unit=True, rows_per_block=size), config, rng=SeededNoise(2)
        )
        for size in (7, 50, 1000)
    ]
    for result in results:
        np.testing.assert_array_equal(result.noisy_sums, results[0].noisy_sums)
        assert result.num_rows == 50
    per_row = release_label_sums(
        dataset_blocks(data, per_unit=False), config_of(GAUSSIAN), rng=SeededNoise(2)
    )
    assert per_row.num_rows == 50


def test_datasets_that_cannot_be_summed_are_refused() -> None:
    sensitive = PreparedFeature(name="age", role="sensitive", num_ids=9, table="age")
    with pytest.raises(ConfigError, match="'age' is sensitive"):
        list(dataset_blocks(dataset(features=(sensitive,)), per_unit=False))
    with pytest.raises(DataError, match="no label"):
        list(dataset_blocks(dataset(labels=None), per_unit=False))
    with pytest.raises(DataError, match="no unit column"):
        list(dataset_blocks(dataset(units=None), per_unit=True))


def block_of(labels: object, units: object = None, num_rows: int = 2) -> LabelBlock:
    rows = FIELDS.rows(np.zeros((num_rows, 3), int))
    return LabelBlock(rows=rows, raw_labels=np.asarray(labels), units=units)


@pytest.mark.parametrize(
    "labels", [[0, 2], [0.5, 1], [math.nan, 0], [-1, 0], [0], ["secret", "b"], [None, 1]]
)
def test_labels_other_than_0_and_1_are_refused_without_showing_them(labels: list[object]) -> None:
    with pytest.raises(DataError, match="labels must be") as caught:
        release_label_sums([block_of(labels)], config_of(LAPLACE), rng=release_rng())
    assert str(labels[0]) not in str(caught.value).replace("0 or 1", "")


def test_units_and_a_cap_go_together() -> None:
    release = partial(release_label_sums, rng=release_rng())
    with pytest.raises(DataError, match="go together"):
        release([block_of([0, 1])], config_of(LAPLACE, 1))
    with pytest.raises(DataError, match="go together"):
        release([block_of([0, 1], np.array([1, 2]))], config_of(LAPLACE))
    with pytest.raises(DataError, match="units must be"):
        release([block_of([0, 1], np.array([1.0, 2.0]))], config_of(LAPLACE, 1))
    with pytest.raises(DataError, match="no row"):
        release([], config_of(LAPLACE))


def test_rows_of_another_table_or_put_together_are_refused() -> None:
    other = OneHotFields(num_ids=(5,)).rows([[1], [1]])
    with pytest.raises(DataError, match="other columns"):
        release_label_sums(
            [LabelBlock(rows=other, raw_labels=np.zeros(2))], config_of(LAPLACE), rng=release_rng()
        )
    merged = FIELDS.rows(np.zeros((2, 3), int)).distinct()
    with pytest.raises(DataError, match="put together"):
        release_label_sums(
            [LabelBlock(rows=merged, raw_labels=np.zeros(2))], config_of(LAPLACE), rng=release_rng()
        )


def test_settings_that_do_not_go_together_are_refused() -> None:
    real = BoundedFeatures(num_columns=3, max_norm=1.0)
    with pytest.raises(ConfigError, match="one-hot fields"):
        LabelSumsConfig(layout=real, noise=LAPLACE, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match="delta=0"):
        LabelSumsConfig.for_epsilon(FIELDS, epsilon=1.0, noise=GAUSSIAN)
    with pytest.raises(ConfigError, match="max_conversions_per_unit=0"):
        config_of(LAPLACE, 0)
    with pytest.raises(ConfigError, match="noise='laplace'"):
        LabelSumsConfig(layout=FIELDS, noise="laplace", noise_multiplier=1.0)
    with pytest.raises(ConfigError, match="must be > 0"):
        LabelSumsConfig(layout=FIELDS, noise=LAPLACE, noise_multiplier=0.0)


def first_conversions(labels: list[bool], units: list[int], most: int) -> list[bool]:
    counts: dict[int, int] = {}
    kept = []
    for label, unit in zip(labels, units, strict=True):
        counts[unit] = counts.get(unit, 0) + label
        kept.append(label and counts[unit] <= most)
    return kept


rows = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=40)


@given(rows, st.integers(1, 3), st.lists(st.integers(0, 40), max_size=4))
def test_the_first_conversions_are_kept_over_any_blocks(
    table: list[tuple[bool, int]], most: int, cuts: list[int]
) -> None:
    labels, units = [row[0] for row in table], [row[1] for row in table]
    ends = [0, *sorted(min(cut, len(table)) for cut in cuts), len(table)]
    cap = ConversionCap(most)
    kept = [
        cap.keep(np.array(labels[a:b], bool), np.array(units[a:b], np.int64)).tolist()
        for a, b in itertools.pairwise(ends)
    ]
    assert list(itertools.chain.from_iterable(kept)) == first_conversions(labels, units, most)


def test_labels_of_one_unit_change_nothing_of_another() -> None:
    units = np.array([0, 1, 0, 1, 0, 1])
    others = [
        ConversionCap(1).keep(np.array([a, 1, b, 1, a, 0], bool), units)[1::2].tolist()
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert others == [[True, False, False]] * 4


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_conversions_per_unit=0"):
        ConversionCap(0)


def test_numbers_of_units_beyond_all_floats_are_told_apart() -> None:
    cap = ConversionCap(1)
    units = np.array([2**63 + 1, 2**63 + 2], np.uint64)
    assert cap.keep(np.ones(2, bool), units).tolist() == [True, True]
    assert cap.keep(np.ones(2, bool), units).tolist() == [False, False]


def fields(num_fields: int) -> OneHotFields:
    return OneHotFields(num_ids=(10,) * num_fields)


@pytest.mark.parametrize("cap", [None, 2])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("num_fields", [1, 5, 12, 40])
def test_the_noise_chosen_is_the_smaller_of_the_two(
    num_fields: int, epsilon: float, cap: int | None
) -> None:
    chosen = best_noise(
        fields(num_fields), epsilon=epsilon, delta=1e-6, max_conversions_per_unit=cap
    )
    deviations = [
        LabelSumsConfig.for_epsilon(
            fields(num_fields),
            epsilon=epsilon,
            delta=1e-6,
            noise=law,
            max_conversions_per_unit=cap,
        ).noise_stddev
        for law in SumsNoise
    ]
    assert chosen.noise_stddev == min(deviations)
    assert chosen.max_conversions_per_unit == cap


def test_many_fields_favour_gaussian_noise_and_few_laplace() -> None:
    assert best_noise(fields(2), epsilon=1.0, delta=1e-6).noise is SumsNoise.LAPLACE
    assert best_noise(fields(30), epsilon=1.0, delta=1e-6).noise is SumsNoise.GAUSSIAN
    assert best_noise(fields(30), epsilon=1.0).noise is SumsNoise.LAPLACE


def test_real_features_have_gaussian_noise_only() -> None:
    real = BoundedFeatures(num_columns=3, max_norm=2.0)
    assert best_noise(real, epsilon=1.0, delta=1e-6).noise is SumsNoise.GAUSSIAN
    with pytest.raises(ConfigError, match="delta=0"):
        best_noise(real, epsilon=1.0)


def least_rows_for_sums(num_ones: int, epsilon: float) -> float:
    """Rows of a feature from which on its noisy sum beats a sum of randomized responses.

    Laplace noise on a sum has the variance 2 m^2 / epsilon^2 for m ones a row. Debiased
    responses of n rows have n e^epsilon / (e^epsilon - 1)^2.
    """
    return 2 * (num_ones * 2 * math.sinh(epsilon / 2) / epsilon) ** 2


def test_the_crossover_with_randomized_response_is_the_published_one() -> None:
    assert least_rows_for_sums(11, 1.0) == pytest.approx(263, abs=1)
    assert least_rows_for_sums(11, 3.0) == pytest.approx(488, abs=2)
    formula = 2 * 11**2 * (math.e - 1) ** 2 / math.e
    assert least_rows_for_sums(11, 1.0) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_at_the_crossover_both_ways_have_the_same_variance(epsilon: float) -> None:
    num_rows = least_rows_for_sums(11, epsilon)
    response = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon))
    of_responses = num_rows * float(response.target_variance(0))
    config = LabelSumsConfig.for_epsilon(fields(10), epsilon=epsilon, noise=SumsNoise.LAPLACE)
    assert of_responses == pytest.approx(2 * (11 / epsilon) ** 2, rel=1e-9)
    # Whole-number noise is a little smaller than the continuous one.
    assert config.noise_stddev**2 == pytest.approx(of_responses, rel=0.02)
    assert config.noise_stddev**2 < 1.1 * of_responses
    assert config.noise_stddev**2 > 0.9 * of_responses
