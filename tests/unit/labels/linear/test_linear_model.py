import dataclasses
import itertools
import math

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.label_sums import (
    LabelBlock,
    LabelSums,
    LabelSumsConfig,
    SumsNoise,
    release_label_sums,
)
from tulle.labels.linear.linear_model import LinearFitConfig, LinearModel, Repair, fit_linear_model
from tulle.labels.linear.noise_choice import best_noise
from tulle.mechanisms.entropy import SeededNoise, release_rng
from unit.labels.linear.click_table import ClickTable, click_table

TABLE = click_table(20_000, (8, 30, 200), seed=3, bias=-2.0)


def release(epsilon: float, *, table: ClickTable = TABLE, seed: int = 1) -> LabelSums:
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
