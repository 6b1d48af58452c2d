import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from tulle.errors import ConfigError, DataError
from tulle.lab.linear_labels.feature_rows import BoundedFeatures
from tulle.lab.linear_labels.label_sums import (
    LabelBlock,
    LabelSumsConfig,
    NoisyLabelSums,
    SumsNoise,
    best_noise,
    release_label_sums,
)
from tulle.lab.linear_labels.linear_model import (
    LinearFitConfig,
    LinearModel,
    Repair,
    clip_to_box,
    constant_model,
    fit_linear_model,
    noise_ridge,
    project_on_labels,
)
from tulle.mechanisms.entropy import SeededNoise, release_rng
from unit.lab.linear_labels.click_table import ClickTable, click_table

TABLE = click_table(20_000, (8, 30, 200), seed=3, bias=-2.0)


def release(epsilon: float, *, table: ClickTable = TABLE, seed: int = 1) -> NoisyLabelSums:
    config = best_noise(table.rows.fields, epsilon=epsilon, delta=1e-6)
    block = LabelBlock(rows=table.rows, raw_labels=table.labels)
    return release_label_sums([block], config, rng=SeededNoise(seed))


def mean_loss(model: LinearModel) -> float:
    """Expected log loss under the model that made the labels: no luck of labels in it."""
    truth = 1 / (1 + np.exp(-TABLE.rows.dot(TABLE.true_weights)))
    found = model.predict_probs(TABLE.rows.ids)
    return float(-np.mean(truth * np.log(found) + (1 - truth) * np.log1p(-found)))


def loss_of_the_constant() -> float:
    rate = float(np.mean(1 / (1 + np.exp(-TABLE.rows.dot(TABLE.true_weights)))))
    return -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))


def test_a_private_model_is_much_better_than_a_constant() -> None:
    exact = mean_loss(fit_linear_model(TABLE.exact_sums(noise_stddev=0.01), TABLE.rows))
    private = mean_loss(fit_linear_model(release(1.0), TABLE.rows))
    constant = loss_of_the_constant()
    assert exact < private < exact + 0.35 * (constant - exact)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_ridge_of_the_noise_is_as_good_as_the_best_of_many(epsilon: float) -> None:
    sums = release(epsilon)
    own = mean_loss(fit_linear_model(sums, TABLE.rows))
    others = [
        mean_loss(fit_linear_model(sums, TABLE.rows, LinearFitConfig(ridge=ridge)))
        for ridge in (0.3, 3.0, 10.0, 30.0, 100.0, 300.0, 3000.0)
    ]
    gain = loss_of_the_constant() - min(others)
    assert own < min(others) + 0.05 * gain
    assert max(others) > min(others) + 0.5 * gain


def test_one_release_serves_many_ridges_and_repairs() -> None:
    sums = release(1.0)
    before = sums.noisy_sums.copy()
    models = [
        fit_linear_model(sums, TABLE.rows, LinearFitConfig(ridge=ridge, repair=repair))
        for ridge in (5.0, 50.0)
        for repair in Repair
    ]
    np.testing.assert_array_equal(sums.noisy_sums, before)
    assert {id(model.event) for model in models} == {id(sums.event)}
    for first, second in itertools.pairwise(models):
        assert not np.allclose(first.weights, second.weights)


def test_a_feature_that_no_row_has_gets_no_weight() -> None:
    table = click_table(200, (3, 100), seed=9)
    counts = table.rows.sum_bounds()[1]
    assert (counts == 0).any()
    for repair in Repair:
        config = LinearFitConfig(ridge=1e-3, repair=repair)
        model = fit_linear_model(release(1.0, table=table), table.rows, config)
        np.testing.assert_allclose(model.weights[counts == 0], 0, atol=1e-9)


def test_the_fit_is_the_same_on_rows_put_together() -> None:
    sums = release(1.0)
    one, other = (fit_linear_model(sums, rows) for rows in (TABLE.rows, TABLE.rows.distinct()))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-8)


def test_predictions_are_chances_for_new_ids() -> None:
    model = fit_linear_model(release(1.0), TABLE.rows)
    chances = model.predict_probs([[0, 0, 0], [7, 29, 199]])
    starts = TABLE.rows.fields.starts
    logit = model.weights[0] + sum(model.weights[start] for start in starts)
    assert chances[0] == pytest.approx(1 / (1 + math.exp(-logit)))
    assert ((chances > 0) & (chances < 1)).all()
    with pytest.raises(DataError, match="ids must be"):
        model.predict_probs([[8, 0, 0]])


def test_units_with_several_rows_are_protected_at_a_higher_price() -> None:
    units = np.arange(len(TABLE.labels)) // 4
    config = best_noise(TABLE.rows.fields, epsilon=2.0, delta=1e-6, max_conversions_per_unit=1)
    block = LabelBlock(rows=TABLE.rows, raw_labels=TABLE.labels, units=units)
    model = fit_linear_model(release_label_sums([block], config, rng=SeededNoise(1)), TABLE.rows)
    per_row = fit_linear_model(release(2.0), TABLE.rows)
    assert mean_loss(per_row) < mean_loss(model) < loss_of_the_constant()


def test_real_features_are_released_and_fitted() -> None:
    rng = np.random.default_rng(0)
    dense = np.concatenate([np.ones((5000, 1)), rng.uniform(-1, 1, (5000, 3))], axis=1)
    labels = rng.random(5000) < 1 / (1 + np.exp(-dense @ [-1.0, 2.0, 0.0, -1.0]))
    features = BoundedFeatures(num_columns=4, max_norm=2.0)
    config = LabelSumsConfig.for_epsilon(
        features, epsilon=1.0, delta=1e-6, noise=SumsNoise.GAUSSIAN
    )
    rows = features.rows(dense)
    sums = release_label_sums(
        [LabelBlock(rows=rows, raw_labels=labels)], config, rng=SeededNoise(3)
    )
    for repair in Repair:
        model = fit_linear_model(sums, rows, LinearFitConfig(repair=repair))
        np.testing.assert_allclose(model.weights, [-1.0, 2.0, 0.0, -1.0], atol=0.3)
        assert model.predict_probs(dense).shape == (5000,)


def test_a_ridge_of_zero_is_refused_with_the_reason() -> None:
    for ridge in (0.0, -1.0):
        with pytest.raises(ConfigError, match="no lower bound"):
            LinearFitConfig(ridge=ridge)
    with pytest.raises(ConfigError, match="finite"):
        LinearFitConfig(ridge=math.inf)
    with pytest.raises(ConfigError, match="repair='box'"):
        LinearFitConfig(repair="box")


def test_rows_of_another_table_are_refused() -> None:
    sums = release(1.0)
    ids = TABLE.rows.ids.copy()
    with pytest.raises(DataError, match="not those of the release"):
        fit_linear_model(sums, TABLE.rows.fields.rows(ids[:100]))
    ids[:2000, 0] = 7
    with pytest.raises(DataError, match="column counts differ"):
        fit_linear_model(sums, TABLE.rows.fields.rows(ids))


def test_released_sums_differ_from_draw_to_draw() -> None:
    config = best_noise(TABLE.rows.fields, epsilon=1.0, delta=1e-6)
    block = LabelBlock(rows=TABLE.rows, raw_labels=TABLE.labels)
    one, two = (release_label_sums([block], config, rng=release_rng()) for _ in range(2))
    assert not np.array_equal(one.noisy_sums, two.noisy_sums)
    assert dataclasses.replace(one, noisy_sums=two.noisy_sums).event == two.event


RIDGE_TABLE = click_table(20_000, (8, 30, 60), seed=3, bias=-2.0)


@pytest.mark.parametrize("stddev", [1.0, 30.0])
def test_the_ridge_is_the_best_for_the_stated_noise(stddev: float) -> None:
    sums = RIDGE_TABLE.exact_sums(noise_stddev=stddev)
    fitted = noise_ridge(sums, RIDGE_TABLE.rows)
    rate = 1 / (1 + math.exp(-fitted.centre[0]))
    for column in (1, 20, 70):
        h = rate * (1 - rate) * sums.most_sums[column]
        t = fitted.weight_variance
        trials = np.geomspace(1e-3, 1e7, 20_001)
        errors = (trials**2 * t + stddev**2 + h) / (h + trials) ** 2
        assert fitted.ridges[column] == pytest.approx(trials[np.argmin(errors)], rel=1e-3)


def test_rare_features_shrink_most() -> None:
    fitted = noise_ridge(RIDGE_TABLE.exact_sums(noise_stddev=30.0), RIDGE_TABLE.rows)
    counts = RIDGE_TABLE.exact_sums().most_sums[1:]
    order = np.argsort(counts[counts > 0])
    ridges = fitted.ridges[1:][counts > 0][order]
    assert (np.diff(ridges) <= 1e-9).all()
    assert ridges[0] > 10 * ridges[-1]


@pytest.mark.parametrize("stddev", [0.01, 10.0])
def test_the_variance_of_the_weights_is_found_from_noisy_sums(stddev: float) -> None:
    exact = RIDGE_TABLE.exact_sums(noise_stddev=stddev)
    noise = stddev * np.random.default_rng(1).normal(size=len(exact.noisy_sums))
    sums = dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)
    # Weights were drawn with a variance of 0.49; other fields and the logit's bend blur it.
    assert 0.2 < noise_ridge(sums, RIDGE_TABLE.rows).weight_variance < 1.0


def test_noise_alone_shows_no_weights() -> None:
    exact = RIDGE_TABLE.exact_sums(noise_stddev=2000.0)
    noise = 2000 * np.random.default_rng(2).normal(size=len(exact.noisy_sums))
    sums = dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)
    fitted = noise_ridge(sums, RIDGE_TABLE.rows)
    assert (fitted.ridges[1:] > 100).all()


def test_the_constant_model_predicts_the_mean_label() -> None:
    rate = RIDGE_TABLE.labels.mean()
    found = constant_model(RIDGE_TABLE.exact_sums(), RIDGE_TABLE.rows)
    assert found[0] == pytest.approx(math.log(rate / (1 - rate)), rel=1e-9)
    assert not found[1:].any()


@pytest.mark.parametrize("total", [-500.0, 0.0, 20_000.0, 30_000.0])
def test_an_impossible_total_gives_a_finite_constant(total: float) -> None:
    exact = RIDGE_TABLE.exact_sums(noise_stddev=100.0)
    noisy = exact.noisy_sums.copy()
    noisy[0] = total
    found = constant_model(dataclasses.replace(exact, noisy_sums=noisy), RIDGE_TABLE.rows)
    expected = math.log(100 / 19_900) * (1 if total < 10_000 else -1)
    assert found[0] == pytest.approx(expected, rel=1e-9)


def test_noise_beyond_the_rows_says_nothing_about_the_mean() -> None:
    assert constant_model(RIDGE_TABLE.exact_sums(noise_stddev=1e6), RIDGE_TABLE.rows)[0] == 0.0


def test_the_constant_of_real_features_is_found_and_fitted() -> None:
    features = BoundedFeatures(num_columns=3, max_norm=2.0)
    dense = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    assert features.rows(dense).constant is None
    dense[:, 1] = -0.5
    rows = features.rows(dense)
    assert rows.constant == (1, -0.5)
    least, most = rows.sum_bounds()
    sums = dataclasses.replace(
        RIDGE_TABLE.exact_sums(noise_stddev=1.0),
        noisy_sums=np.array([0.0, -0.5 * 30, 0.0]),
        least_sums=least,
        most_sums=most,
        num_rows=1000,
        layout=features,
    )
    chances = 1 / (1 + np.exp(-rows.dot(constant_model(sums, rows))))
    np.testing.assert_allclose(chances, 0.03, rtol=1e-9)
    assert not constant_model(sums, features.rows(np.eye(3))).any()


SMALL_TABLE = click_table(80)


def noisy_sums(scale: float, seed: int = 0) -> NoisyLabelSums:
    exact = SMALL_TABLE.exact_sums(noise_stddev=scale)
    noise = scale * np.random.default_rng(seed).normal(size=len(exact.noisy_sums))
    return dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)


def nearest_by_least_squares(sums: NoisyLabelSums) -> np.ndarray:
    """An independent solver over one soft label a row."""
    found = optimize.lsq_linear(SMALL_TABLE.dense.T, sums.noisy_sums, bounds=(0, 1), tol=1e-14)
    return SMALL_TABLE.dense.T @ found.x


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
    found = project_on_labels(sums, SMALL_TABLE.rows, max_passes=20_000, tolerance=1e-7)
    nearest = nearest_by_least_squares(sums)
    least = 0.5 * np.sum((nearest - sums.noisy_sums) ** 2)
    reached = 0.5 * np.sum((found.sums - sums.noisy_sums) ** 2)
    assert least - 1e-6 <= reached <= least + found.distance_gap + 1e-6
    np.testing.assert_allclose(found.sums, nearest, atol=0.02 * scale)


def test_few_passes_come_with_a_gap_that_holds() -> None:
    sums = noisy_sums(30.0)
    least = 0.5 * np.sum((nearest_by_least_squares(sums) - sums.noisy_sums) ** 2)
    for passes in (1, 3, 10):
        found = project_on_labels(sums, SMALL_TABLE.rows, max_passes=passes)
        reached = 0.5 * np.sum((found.sums - sums.noisy_sums) ** 2)
        assert reached <= least + found.distance_gap + 1e-6
        assert found.num_passes <= passes


def test_what_labels_make_stays_in_place_up_to_the_tolerance() -> None:
    sums = SMALL_TABLE.exact_sums(noise_stddev=1.0)
    found = project_on_labels(sums, SMALL_TABLE.rows, max_passes=5000, tolerance=1e-4)
    np.testing.assert_allclose(found.sums, sums.noisy_sums, atol=0.2)


def test_the_projection_settles_fields_against_one_another() -> None:
    found = project_on_labels(noisy_sums(30.0), SMALL_TABLE.rows)
    for start, size in zip(
        SMALL_TABLE.rows.fields.starts, SMALL_TABLE.rows.fields.num_ids, strict=True
    ):
        assert found.sums[start : start + size].sum() == pytest.approx(found.sums[0], rel=1e-9)


def test_it_lowers_the_error_of_noisy_sums() -> None:
    exact = SMALL_TABLE.exact_sums().noisy_sums
    for seed in range(5):
        sums = noisy_sums(20.0, seed)
        raw = np.sum((sums.noisy_sums - exact) ** 2)
        boxed = np.sum((clip_to_box(sums) - exact) ** 2)
        projected = np.sum((project_on_labels(sums, SMALL_TABLE.rows).sums - exact) ** 2)
        assert projected < boxed < raw


def test_equal_rows_put_together_have_the_same_projection() -> None:
    sums = noisy_sums(10.0)
    one = project_on_labels(sums, SMALL_TABLE.rows)
    other = project_on_labels(sums, SMALL_TABLE.rows.distinct())
    np.testing.assert_allclose(one.sums, other.sums, atol=1e-9)


def test_real_features_have_limits_of_both_signs() -> None:
    features = BoundedFeatures(num_columns=1, max_norm=1.0)
    rows = features.rows([[0.5], [-0.5], [0.25]])
    least, most = rows.sum_bounds()
    sums = dataclasses.replace(
        SMALL_TABLE.exact_sums(),
        noisy_sums=np.array([9.0]),
        least_sums=least,
        most_sums=most,
        layout=features,
        num_rows=3,
    )
    assert clip_to_box(sums).tolist() == [0.75]
    np.testing.assert_allclose(project_on_labels(sums, rows).sums, [0.75])
