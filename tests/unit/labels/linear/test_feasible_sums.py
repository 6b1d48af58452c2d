import dataclasses

import numpy as np
import pytest
from scipy import optimize

from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.feasible_sums import clip_to_box, project_on_labels
from tulle.labels.linear.label_sums import LabelSums
from unit.labels.linear.click_table import click_table

TABLE = click_table(80)


def noisy_sums(scale: float, seed: int = 0) -> LabelSums:
    exact = TABLE.exact_sums(noise_stddev=scale)
    noise = scale * np.random.default_rng(seed).normal(size=len(exact.noisy_sums))
    return dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)


def nearest_by_least_squares(sums: LabelSums) -> np.ndarray:
    """An independent solver over one soft label a row."""
    found = optimize.lsq_linear(TABLE.dense.T, sums.noisy_sums, bounds=(0, 1), tol=1e-14)
    return TABLE.dense.T @ found.x


def test_the_box_keeps_each_sum_between_none_and_all_rows() -> None:
    sums = noisy_sums(30.0)
    boxed = clip_to_box(sums)
    assert (boxed >= 0).all()
    assert (boxed <= sums.most_sums).all()
    inside = (sums.noisy_sums > 0) & (sums.noisy_sums < sums.most_sums)
    np.testing.assert_array_equal(boxed[inside], sums.noisy_sums[inside])
    assert 0 < inside.sum() < len(boxed)


@pytest.mark.parametrize("scale", [2.0, 30.0])
def test_the_projection_is_that_of_an_independent_solver(scale: float) -> None:
    sums = noisy_sums(scale)
    found = project_on_labels(sums, TABLE.rows, max_passes=20_000, tolerance=1e-7)
    nearest = nearest_by_least_squares(sums)
    least = 0.5 * np.sum((nearest - sums.noisy_sums) ** 2)
    reached = 0.5 * np.sum((found.sums - sums.noisy_sums) ** 2)
    assert least - 1e-6 <= reached <= least + found.distance_gap + 1e-6
    np.testing.assert_allclose(found.sums, nearest, atol=0.02 * scale)


def test_few_passes_come_with_a_gap_that_holds() -> None:
    sums = noisy_sums(30.0)
    least = 0.5 * np.sum((nearest_by_least_squares(sums) - sums.noisy_sums) ** 2)
    for passes in (1, 3, 10):
        found = project_on_labels(sums, TABLE.rows, max_passes=passes)
        reached = 0.5 * np.sum((found.sums - sums.noisy_sums) ** 2)
        assert reached <= least + found.distance_gap + 1e-6
        assert found.num_passes <= passes


def test_what_labels_make_stays_in_place_up_to_the_tolerance() -> None:
    sums = TABLE.exact_sums(noise_stddev=1.0)
    found = project_on_labels(sums, TABLE.rows, max_passes=5000, tolerance=1e-4)
    np.testing.assert_allclose(found.sums, sums.noisy_sums, atol=0.2)


def test_the_projection_settles_fields_against_one_another() -> None:
    found = project_on_labels(noisy_sums(30.0), TABLE.rows)
    for start, size in zip(TABLE.rows.fields.starts, TABLE.rows.fields.num_ids, strict=True):
        assert found.sums[start : start + size].sum() == pytest.approx(found.sums[0], rel=1e-9)


def test_it_lowers_the_error_of_noisy_sums() -> None:
    exact = TABLE.exact_sums().noisy_sums
    for seed in range(5):
        sums = noisy_sums(20.0, seed)
        raw = np.sum((sums.noisy_sums - exact) ** 2)
        boxed = np.sum((clip_to_box(sums) - exact) ** 2)
        projected = np.sum((project_on_labels(sums, TABLE.rows).sums - exact) ** 2)
        assert projected < boxed < raw


def test_equal_rows_put_together_have_the_same_projection() -> None:
    sums = noisy_sums(10.0)
    one = project_on_labels(sums, TABLE.rows)
    other = project_on_labels(sums, TABLE.rows.distinct())
    np.testing.assert_allclose(one.sums, other.sums, atol=1e-9)


def test_real_features_have_limits_of_both_signs() -> None:
    features = BoundedFeatures(num_columns=1, max_norm=1.0)
    rows = features.rows([[0.5], [-0.5], [0.25]])
    least, most = rows.sum_bounds()
    sums = dataclasses.replace(
        TABLE.exact_sums(),
        noisy_sums=np.array([9.0]),
        least_sums=least,
        most_sums=most,
        layout=features,
        num_rows=3,
    )
    assert clip_to_box(sums).tolist() == [0.75]
    np.testing.assert_allclose(project_on_labels(sums, rows).sums, [0.75])
