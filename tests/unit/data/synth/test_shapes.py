"""Each shape against the statistics that it states and imitates."""

import functools

import numpy as np
import pytest

from tulle.data.formats.public import LAYOUTS
from tulle.data.synth.clicks import SynthBlock, generate_blocks, world_of
from tulle.data.synth.shapes import ATTRIBUTION, DISPLAY, SEARCH, TAOBAO, SynthShape
from tulle.data.synth.truth import EffectTable

SHAPES = [DISPLAY, ATTRIBUTION, SEARCH, TAOBAO]
NUM_ROWS = 200_000


@functools.lru_cache(maxsize=4)
def sample(shape: SynthShape) -> SynthBlock:
    (block,) = generate_blocks(shape, num_rows=NUM_ROWS, seed=11, rows_per_block=NUM_ROWS)
    return block


def auc_loss(scores: np.ndarray, labels: np.ndarray) -> float:
    ordered = labels[np.argsort(scores, kind="stable")].astype(np.float64)
    positives_above = np.cumsum(ordered[::-1])[::-1]
    lost = np.sum((1 - ordered) * positives_above)
    num_positive = ordered.sum()
    return float(1 - lost / (num_positive * (len(labels) - num_positive)))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_label_rate_is_as_stated(shape: SynthShape) -> None:
    block = sample(shape)
    error = (shape.label_rate / NUM_ROWS) ** 0.5
    # Taobao's 8,600 users of this log are a sample too: their features move the rate by 1%.
    slack = 0.04 * shape.label_rate if shape is TAOBAO else 0
    assert block.label.mean() == pytest.approx(shape.label_rate, abs=6.5 * error + slack)
    assert block.true_prob.mean() == pytest.approx(shape.label_rate, abs=3 * error + slack)
    assert block.public_prob.mean() == pytest.approx(shape.label_rate, abs=3 * error + slack)


@pytest.mark.parametrize(
    ("shape", "loss", "public_over_all"),
    [
        (DISPLAY, 0.190, 1.093),
        (ATTRIBUTION, 0.155, 1.105),
        (SEARCH, 0.205, 1.22),
        (TAOBAO, 0.345, 1.05),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_best_auc_loss_is_as_calibrated(
    shape: SynthShape, loss: float, public_over_all: float
) -> None:
    truth = world_of(shape).truth
    assert truth.auc_loss == pytest.approx(loss, abs=0.0005)
    assert truth.public_auc_loss / truth.auc_loss == pytest.approx(public_over_all, abs=0.002)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_auc_loss_of_a_sample_is_that_of_the_truth(shape: SynthShape) -> None:
    block, truth = sample(shape), world_of(shape).truth
    num_positive = shape.label_rate * NUM_ROWS
    # Standard error of an AUC is below 0.3 / sqrt(positives); see Hanley and McNeil 1982.
    error = 0.3 / num_positive**0.5
    assert auc_loss(block.true_prob, block.label) == pytest.approx(truth.auc_loss, abs=6.5 * error)
    assert auc_loss(block.public_prob, block.label) == pytest.approx(
        truth.public_auc_loss, abs=6.5 * error
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_missing_values_are_as_frequent_as_stated(shape: SynthShape) -> None:
    block = sample(shape)
    for feature in shape.features:
        # Features of 8,600 users are drawn once for each user.
        tolerance = 0.06 if feature.given_by else 6.5 * (0.25 / NUM_ROWS) ** 0.5
        share = np.mean(block.columns[feature.name] == 0)
        assert share == pytest.approx(feature.law.missing_prob, abs=tolerance), feature.name


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_there_are_as_many_values_as_the_laws_say(shape: SynthShape) -> None:
    block = sample(shape)
    for feature in shape.features:
        if feature.given_by is None:
            codes = block.columns[feature.name]
            expected = feature.law.expected_values(NUM_ROWS)
            found = len(np.unique(codes[codes > 0]))
            assert found == pytest.approx(expected, abs=1 + 6.5 * expected**0.5), feature.name


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_features_have_the_roles_of_the_public_layout(shape: SynthShape) -> None:
    schema = LAYOUTS[shape.name].schema
    # The user of a search click is no feature here: nine users in ten have one row.
    sensitive = {name for name in schema.sensitive if name != "user_id"}
    assert {f.name for f in shape.group(sensitive=True)} == sensitive
    assert {f.name for f in shape.group(sensitive=False)} == set(schema.public)


def test_most_of_the_signal_is_in_frequent_values() -> None:
    for feature in DISPLAY.features:
        table = EffectTable(feature, 1.0)
        variance = table.probs * table.effects.astype(np.float64) ** 2
        frequent = feature.law.prob(np.arange(len(variance))) * DISPLAY.typical_rows >= 100
        assert variance[frequent].sum() > 0.9 * variance.sum(), feature.name


def test_display_has_as_many_values_as_the_public_log() -> None:
    num_values = sum(f.law.expected_values(DISPLAY.typical_rows) for f in DISPLAY.features)
    # 34,290,906 different values in the 39 columns, as the DLRM and DCN benchmarks list them.
    assert num_values == pytest.approx(34_290_906, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "mean_rows"), [(SEARCH, 1.118), (ATTRIBUTION, 2.68), (TAOBAO, 23.3)]
)
def test_users_have_as_many_rows_as_in_the_public_log(shape: SynthShape, mean_rows: float) -> None:
    rows_of_user = np.unique(sample(shape).user, return_counts=True)[1]
    assert rows_of_user.mean() == pytest.approx(mean_rows, rel=0.02)


def test_nine_users_of_the_search_log_in_ten_have_one_row() -> None:
    rows_of_user = np.unique(sample(SEARCH).user, return_counts=True)[1]
    for num_rows, share in ((1, 0.9135), (2, 0.0686), (3, 0.0119)):
        assert np.mean(rows_of_user == num_rows) == pytest.approx(share, rel=0.08)
